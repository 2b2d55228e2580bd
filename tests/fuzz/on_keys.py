"""Target: key files, as the daemon and `edgectl keys` read them."""

from __future__ import annotations

import re

import msgspec

from edged import keyfile

ERRORS = (keyfile.KeyFileError,)
LONG_WORD = re.compile(r"\S{19}")  # 16 characters in quotes are shown, a key has 40
FILE = "/etc/edged/clients/kitchen.key"


def keys(data: bytes) -> str:
    """A file is public or secret, never both; written out, it is the same; no error shows what might be a key."""
    found, errors = [], []
    for secret in (False, True):
        try:
            found.append(keyfile.parse(data, FILE, secret=secret))
        except keyfile.KeyFileError as error:
            errors.append(error)
    for error in errors:
        assert error.file == FILE
        assert 1 <= error.line <= data.count(b"\n") + 1
        assert not LONG_WORD.search(error.found), f"it may be a key that is shown: {error}"
    assert len(found) < 2, "both a public and a secret file"
    if not found:
        raise errors[-1]
    (one,) = found
    assert keyfile.is_key(one.public)
    assert keyfile.to_z85(keyfile.z85(one.public) or b"") == one.public
    assert one.secret is None or keyfile.is_key(one.secret)
    assert one.secret is None or one.secret not in repr(one)
    text = keyfile.public_text(one)
    public = keyfile.parse(text.encode(), FILE, secret=False)
    assert public == msgspec.structs.replace(one, secret=None)
    if one.secret is None:
        return "public"
    assert one.secret not in text
    assert keyfile.parse(keyfile.secret_text(one).encode(), FILE, secret=True) == one
    return "secret"

"""What of a configuration may be shown to others. Pure.

A text is left out when its key says that it is a secret (`server_key`, `password`, `api_token` …), or when it looks
like a key of CURVE, wherever it stands: 40 characters of Z85 that are no path and no address. Names of files and
directories, endpoints, users and groups stay, and so do numbers: `max_tokens` is none.
No key file is ever read for it. In what doctor says, the key file of a client loses its name too: that is who calls.
"""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "(left out)"
_SECRET: Final = re.compile(r"secret|passw|credential|private|token|(^|_)keys?($|_)", re.IGNORECASE)
_Z85_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")
_Z85_WORD: Final = re.compile(r"(?<!\S)(['\"(]?)([0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40})(?=['\").,:;]*(?!\S))")
_CLIENT_FILE: Final = re.compile(r"[^/\s,]+\.key(?!\w)")
_PLACE: Final = re.compile(r"(/|~|\./|[a-z]+://)")
_USER_IN_ADDRESS: Final = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/@\s]*@", re.IGNORECASE)


def redacted(value: Any, key: str = "") -> Any:
    """The same shape."""
    if isinstance(value, dict):
        return {name: redacted(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, key) for item in value]
    if not isinstance(value, str) or not value:
        return value
    place = _PLACE.match(value) is not None
    if place:
        return _USER_IN_ADDRESS.sub(rf"\1{HIDDEN}@", value)
    return HIDDEN if _SECRET.search(key) or _Z85_KEY.match(value) else value


def sentence(text: str) -> str:
    """What doctor says."""
    without = _Z85_WORD.sub(lambda found: found[0] if _PLACE.match(found[2]) else f"{found[1]}{HIDDEN}", text)
    return _CLIENT_FILE.sub(f"{HIDDEN}.key", without)

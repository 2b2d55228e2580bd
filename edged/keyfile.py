"""Key files, in ZPL (RFC 4 of rfc.zeromq.org) as pyzmq and czmq write them. Pure: bytes to struct and back.

    metadata
        name = "kitchen"
        max_queued = "8"
        max_priority = "high"
    curve
        public-key = "…"
        secret-key = "…"

* `NAME.key` has the public key only; a secret in it is an error, since such files are handed round. `NAME.key_secret`
  has both.
* Keys are 32 bytes as 40 characters of Z85 (RFC 32), always in quotes, since Z85 has `#`. Other values may go without.
* Strict: a section, entry or value that is not one of these is refused with its line, so that no typo lets anybody do
  more or less than was meant. An error shows nothing that might be a key.
* Bounded: MAX_BYTES, of which a file has some 500.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

MAX_BYTES: Final = 4096
KEY_CHARACTERS: Final = 40
NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
"""The id alphabet of protocol 3."""
MAX_QUEUED: Final = 1_000_000

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGIT: Final = {character: value for value, character in enumerate(_Z85)}
_SHOWN: Final = re.compile(r"[A-Za-z0-9_-]{1,16}\Z")
_ENTRIES: Final = {
    "metadata": ("name", "max_queued", "max_priority"),
    "curve": ("public-key", "secret-key"),
}
_SECTIONS: Final = "section metadata or curve"

KeyPriority = Literal["high", "normal", "low"]
_PRIORITIES: Final[tuple[KeyPriority, ...]] = ("high", "normal", "low")


class KeyFileError(Exception):
    """One line: file, line, what is expected, what was found."""

    def __init__(self, file: str, line: int, expected: str, found: str) -> None:
        super().__init__(f"{file}:{line}: expected {expected}, found {found}")
        self.file, self.line, self.expected, self.found = file, line, expected, found


class KeyFile(Struct, frozen=True, kw_only=True):
    """What a file says. Keys are in Z85; `secret` None: a public file."""

    public: str
    secret: str | None = None
    name: str | None = None
    max_queued: int | None = None
    max_priority: KeyPriority | None = None

    def __repr__(self) -> str:
        return f"KeyFile({self.name!r}, {self.public!r})"


def z85(text: str) -> bytes | None:
    """The bytes of a Z85 text; None when it is not one."""
    if len(text) % 5:
        return None
    out = bytearray()
    for at in range(0, len(text), 5):
        value = 0
        for character in text[at : at + 5]:
            digit = _DIGIT.get(character)
            if digit is None:
                return None
            value = value * 85 + digit
        if value >= 1 << 32:
            return None
        out += value.to_bytes(4, "big")
    return bytes(out)


def to_z85(data: bytes) -> str:
    """The text of bytes whose number is a multiple of 4."""
    out = []
    for at in range(0, len(data), 4):
        value = int.from_bytes(data[at : at + 4], "big")
        out += [_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(out)


def is_key(text: str) -> bool:
    return len(text) == KEY_CHARACTERS and z85(text) is not None


# ---- reading ---------------------------------------------------------------------------------------------------


def parse(data: bytes, file: str, *, secret: bool) -> KeyFile:
    """`secret`: it must have a secret key, else it must not. Raises KeyFileError and nothing else."""
    if len(data) > MAX_BYTES:
        raise KeyFileError(file, 1, f"at most {MAX_BYTES} bytes", "more")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise KeyFileError(file, data.count(b"\n", 0, error.start) + 1, "UTF-8", "other bytes") from None
    found = _Entries(file)
    for number, line in enumerate(lines, 1):
        found.read(number, line.removesuffix("\r"))
    return found.key_file(len(lines), secret=secret)


class _Entries:
    """Collects the values, line by line."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._section: str | None = None
        self._sections: set[str] = set()
        self._values: dict[str, tuple[int, str]] = {}

    def read(self, number: int, line: str) -> None:
        text = line.strip(" \t")
        if not line.replace("\t", " ").isprintable():
            raise KeyFileError(self._file, number, "printable text", "a control character")
        if not text or text.startswith("#"):
            return
        if line[0] in " \t":
            self._entry(number, text)
        elif text not in _ENTRIES:
            raise KeyFileError(self._file, number, _SECTIONS, _shown(text))
        elif text in self._sections:
            raise KeyFileError(self._file, number, "each section once", f"{text} again")
        else:
            self._section = text
            self._sections.add(text)

    def _entry(self, number: int, text: str) -> None:
        if self._section is None:
            raise KeyFileError(self._file, number, _SECTIONS, "an indented line before any section")
        name, equals, value = text.partition("=")
        name = name.rstrip(" \t")
        known = _ENTRIES[self._section]
        if name not in known:
            raise KeyFileError(self._file, number, f"{_either(known)} in {self._section}", _shown(name))
        if not equals:
            raise KeyFileError(self._file, number, f"{name} = value", "no value")
        if name in self._values:
            raise KeyFileError(self._file, number, "each entry once", f"{name} again")
        self._values[name] = number, self._unquoted(number, name, value.strip(" \t"))

    def _unquoted(self, number: int, name: str, value: str) -> str:
        if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0] and value[0] not in value[1:-1]:
            return value[1:-1]
        if name in _ENTRIES["curve"] or any(mark in value for mark in "\"'#"):
            raise KeyFileError(self._file, number, f'{name} = "…"', "no value in quotes")
        return value

    def key_file(self, last: int, *, secret: bool) -> KeyFile:
        public = self._key("public-key", last)
        if public is None:
            raise KeyFileError(self._file, last, "public-key in section curve", "none")
        hidden = self._key("secret-key", last)
        if secret and hidden is None:
            raise KeyFileError(self._file, last, "secret-key in section curve", "none: a public file")
        if not secret and hidden is not None:
            at = self._values["secret-key"][0]
            raise KeyFileError(
                self._file, at, "a public key only", "a secret key: give out the .key file, not this one"
            )
        return KeyFile(
            public=public,
            secret=hidden,
            name=self._name(),
            max_queued=self._max_queued(),
            max_priority=self._max_priority(),
        )

    def _key(self, entry: str, last: int) -> str | None:
        number, value = self._values.get(entry, (last, None))
        if value is None or is_key(value):
            return value
        expected = f"{entry}: {KEY_CHARACTERS} characters of Z85"
        same = len(value) == KEY_CHARACTERS
        raise KeyFileError(self._file, number, expected, "others" if same else f"{len(value)} characters")

    def _name(self) -> str | None:
        number, value = self._values.get("name", (0, None))
        if value is not None and not NAME.match(value):
            expected = "name: 1 to 64 of A-Z a-z 0-9 . _ : -"
            raise KeyFileError(self._file, number, expected, _shown(value))
        return value

    def _max_queued(self) -> int | None:
        number, value = self._values.get("max_queued", (0, None))
        if value is None:
            return None
        if value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= MAX_QUEUED:
            return int(value)
        raise KeyFileError(self._file, number, f"max_queued: a whole number from 1 to {MAX_QUEUED}", _shown(value))

    def _max_priority(self) -> KeyPriority | None:
        number, value = self._values.get("max_priority", (0, None))
        for priority in _PRIORITIES:
            if value == priority:
                return priority
        if value is None:
            return None
        raise KeyFileError(self._file, number, f"max_priority: {_either(_PRIORITIES)}", _shown(value))


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(text: str) -> str:
    """What was found, unless it may be a key on the wrong line."""
    return repr(text) if _SHOWN.match(text) else f"{len(text)} characters of something else" if text else "nothing"


# ---- writing ---------------------------------------------------------------------------------------------------


def public_text(key: KeyFile) -> str:
    """The file to hand out: without the secret."""
    return _text(key, "A public key: it may be given to anybody.", None)


def secret_text(key: KeyFile) -> str:
    """The file to keep. The key must have a secret."""
    assert key.secret is not None, "a public file has no secret text"
    return _text(key, "A SECRET key: for its owner alone, mode 0600. Whoever has it is its owner.", key.secret)


def _text(key: KeyFile, comment: str, secret: str | None) -> str:
    lines = [f"# {comment}", "# ZeroMQ CURVE certificate (ZPL), keys in Z85", "", "metadata"]
    for name, value in (("name", key.name), ("max_queued", key.max_queued), ("max_priority", key.max_priority)):
        if value is not None:
            lines.append(f'    {name} = "{value}"')
    lines += ["curve", f'    public-key = "{key.public}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret}"')
    return "\n".join(lines) + "\n"

"""What lies on the disk and is not in force, in words for `status`. Pure.

`status` answers everybody: a refusal names file, key and what is expected there, never what was found; and of a
client's key file not the name, which is that of a caller. The log has all of it.
"""

from __future__ import annotations

from typing import Final

from edged.errors import ConfigError
from edged.printable import line

REFUSED: Final = "the configuration of "
"""The warning begins so."""
CLIENTS: Final = "security.clients_dir"
MOST: Final = 300


def refusal(error: ConfigError, at: str) -> str:
    """`at`: when it was read, as HH:MM."""
    if error.key == CLIENTS:
        why = f"{CLIENTS}: a key file there cannot be used, the log says which"
    else:
        why = f"{error.file}: {error.key}: expected {error.expected}"
    return f"{REFUSED}{at} was refused: {line(why, MOST)}; the one before is in force"


def short(warnings: list[str]) -> str:
    """`the configuration of 12:30 was refused`, of all that is warned of; "" if none was."""
    found = next((one for one in warnings if one.startswith(REFUSED)), "")
    return found.partition(": ")[0]


def kept(what: str) -> str:
    """Of what changes at a restart only."""
    return f"{what} on the disk is another than the one in force: it changes at a restart (`systemctl restart edged`)"

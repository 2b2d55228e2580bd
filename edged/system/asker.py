"""Who asks, by name: of the user database, not of $USER, which may be unset (cron, containers) or another's (su)."""

from __future__ import annotations

import os
import pwd


def uid() -> int:
    """Of the user who asks; behind sudo, of the one who called it."""
    own, sudo = os.getuid(), os.environ.get("SUDO_UID", "")
    return int(sudo) if own == 0 and sudo.isdigit() else own


def name() -> str:
    """ "" when the database has no such user."""
    try:
        return pwd.getpwuid(uid()).pw_name
    except KeyError:
        return ""


def join(group: str) -> str:
    """How the user who asks gets into a group."""
    who = name()
    if who:
        return f"sudo adduser {who} {group}"
    return f"sudo useradd --uid {uid()} NAME; sudo adduser NAME {group}"

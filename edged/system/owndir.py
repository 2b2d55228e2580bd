"""A directory for this user alone, also where everybody may make one (/dev/shm, /tmp)."""

from __future__ import annotations

import contextlib
import os
import stat


def prepare(path: str) -> str:
    """Makes the directory if need be, for this user alone; what is wrong with it, or ""."""
    try:
        _make(path)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is a link or no directory: nothing is kept there"
        if status.st_uid != os.geteuid():
            return f"{path} belongs to user {status.st_uid}: nothing is kept there"
        stranger = _planted(path)
        if stranger:
            return f"{stranger} was made by another user: nothing is kept in {path}"
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.chmod(path, 0o700)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return f"{path} cannot be written: nothing is kept there"
    except OSError as error:
        return f"{path}: {error.strerror or error}: nothing is kept there"
    return ""


def _make(path: str) -> None:
    """As makedirs, but what has to be made on the way is for this user alone too."""
    if not os.path.lexists(path):
        _make(os.path.dirname(os.path.abspath(path)))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _planted(path: str) -> str:
    """A directory on the way that stands where everybody may make one, and is neither ours nor root's."""
    above = os.path.dirname(os.path.abspath(path))
    while above != os.path.dirname(above):
        parent = os.path.dirname(above)
        if os.stat(parent).st_mode & stat.S_IWOTH and os.lstat(above).st_uid not in (0, os.geteuid()):
            return above
        above = parent
    return ""

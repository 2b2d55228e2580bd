"""The directories that the sockets and the state lie in."""

from __future__ import annotations

import os
import stat

from edged.places import fallback_runtime_dir
from edged.wire.listeners import ListenError


def prepare_directory(path: str, *, private: bool) -> None:
    """Makes it: 0700 when `private`, or for the default in /tmp, which is refused when it is not ours; else 0750.

    An existing directory keeps its mode. Raises ListenError.
    """
    shared = path == fallback_runtime_dir()
    try:
        os.makedirs(path, mode=0o700 if private or shared else 0o750, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise ListenError(f"cannot use {path}: {error.strerror}") from error
    if shared and (not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid()):
        raise ListenError(f"{path} is not a directory of ours; remove it or set runtime_dir")

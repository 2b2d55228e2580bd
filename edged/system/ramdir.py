"""Where files lie in RAM: they outlive the worker and the daemon, not the box. The root of /proc is a parameter."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from edged.system import aside, smallfile
from edged.system.mounts import mount_of

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - what is below is checked to be ours
RAM: Final = ("tmpfs", "ramfs")

MOUNTS: Final = 1 << 20
"""Bytes of mountinfo: a box with many containers has some 100 kB."""

ANSWER_S: Final = 1.0


def ram_dir(runtime_dir: str, root: str = "/") -> str:
    """`runtime_dir/ram` if that is RAM, else a place of its own below /dev/shm; "" when there is neither.

    The place below /dev/shm bears a hash of the runtime directory: two daemons of one user share nothing.
    """
    mounts = _mounts(root)
    runtime_dir = os.path.realpath(runtime_dir)
    if file_system(mounts, runtime_dir) in RAM:
        return os.path.join(runtime_dir, "ram")
    if file_system(mounts, SHARED_MEMORY) in RAM:
        name = hashlib.blake2b(os.fsencode(runtime_dir), digest_size=4).hexdigest()
        return f"{SHARED_MEMORY}/edged-{os.getuid()}/{name}"
    return ""


def _mounts(root: str) -> str:
    """With a mount that hangs the kernel may not answer: then nothing is known, as without /proc."""
    path = os.path.join(root, "proc/self/mountinfo")
    return aside.once(lambda: smallfile.read(path, MOUNTS, "surrogateescape"), ANSWER_S, "")


def file_system(mountinfo: str, path: str) -> str:
    """The type of what `path` (absolute, without links) lies on, by the text of mountinfo; "": unknown."""
    mount = mount_of(mountinfo, path)
    return "" if mount is None else mount.system

"""File descriptors: libzmq 4.3.5 ends the process when accept() on a Unix socket finds none left.

So the soft limit is raised to what the hard one allows, and the authenticator lets nobody in when more are open than
CONNECTIONS ask for, or than a quarter below the limit. (Connections that say nothing are closed after 5 s by libzmq.)
"""

from __future__ import annotations

import os
import resource
from typing import Final

WANTED: Final = 65_536
CONNECTIONS: Final = 1024
"""Far more than a board's devices; each costs some 10 kB here and a descriptor."""
ENOUGH: Final = 512
"""Below this the limit itself is worth a warning."""


class Descriptors:
    """`cap`: with more than these open, nobody more is let in."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
        if soft != resource.RLIM_INFINITY and soft < highest:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            soft = highest
        self.limit = WANTED if soft == resource.RLIM_INFINITY else soft
        self.cap = min(CONNECTIONS, self.limit * 3 // 4)
        self.warnings: list[str] = []
        if self.limit < ENOUGH:
            self.warnings.append(f"only {self.limit} file descriptors are allowed (LimitNOFILE=): {ENOUGH} are wanted")

    def short(self) -> bool:
        return len(os.listdir("/proc/self/fd")) > self.cap

"""What the worker process is, before it loads anything: disposable, and gone with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = 500
"""Added to the kernel's own score (0…1000): the worker goes first, the daemon stays."""


_M_MMAP_THRESHOLD = -3  # mallopt(3)
MAPPED_BYTES = 1 << 20
"""Allocations from here on are mapped and go back to the kernel when freed. Left to itself glibc raises this to 32 MB
after the first large one, and states of sequences (megabytes each) then leave holes in the heap: 300 mixed requests
with snapshots had added 41 MB to the worker (measured)."""


SPIN = {"x86_64": 10_000, "aarch64": 1_000_000}
"""GOMP_SPINCOUNT: how often a compute thread looks for work before it sleeps. About a millisecond: it spans the
sampling between two steps, idle costs nothing, and where another process holds a core, the others do not burn theirs
at every barrier. Measured on x86-64, 2 cores, beside one busy process: 31 tokens/s, against 16 with libgomp's own
300,000; without it nothing was seen beyond the noise. On ARM a look takes about a nanosecond: estimated, to be
measured on a board."""


class OrphanError(Exception):
    """The parent died before the worker could ask to die with it."""


def become_disposable() -> None:
    """Raises OrphanError. The signal fires when the *thread* that started this process ends."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OrphanError
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(_OOM_SCORE))
    with contextlib.suppress(AttributeError):  # glibc's alone
        libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM):  # the daemon says Quit, or the link ends
        signal.signal(number, signal.SIG_IGN)


def set_environment() -> None:
    """For libraries that read it when they are loaded."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # else abort() forks gdb
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy is used for views and argmax only
    if (spin := SPIN.get(os.uname().machine)) is not None:
        os.environ.setdefault("GOMP_SPINCOUNT", str(spin))

"""One connection at a time, and none when descriptors are short: what libzmq accepts is decided here.

libzmq 4.3.5 ends the process when accept(2) on a Unix socket finds no descriptor (EMFILE is not among the errors that
src/ipc_listener.cpp forgives), and turns in a circle where it is a tcp one. So it must never come to that, whatever
the limit is and however fast peers connect. libzmq waits for a listener in an epoll of its own; the registration
is made EPOLLONESHOT, with libzmq's own data left as it was (fdinfo tells it, proc(5)): after one accept the kernel
stays silent until it is armed again. A thread waits for the same listeners and arms them while there is room. Who
comes too early waits in the listener's backlog.

Rules: registrations are touched only between `opened` and `closing` of their listeners, for then the descriptor cannot
be another's. Where a registration is not found, that listener stays as libzmq has it, and `blind` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import select
import threading
import time
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

FOUND_S: Final = 1.0
"""How long a registration is looked for: libzmq's thread makes it, within a millisecond or so."""
NO_ROOM_S: Final = 0.02
COUNT_S: Final = 1.0
"""Descriptors are counted anew after so long, and whenever it gets narrow; others of this process are opened too."""
BREATH_S: Final = 0.0001
"""After arming, for libzmq to accept; it bounds what this thread costs in a storm."""

_EPOLL_CTL_MOD: Final = 3
_TARGET: Final = re.compile(r"tfd:\s*(\d+) events:\s*[0-9a-f]+ data:\s*([0-9a-f]+)\s+pos:\s*\d+ ino:([0-9a-f]+)")


class _Event(ctypes.Structure):
    """struct epoll_event; packed on x86-64 only (epoll_ctl(2))."""

    if platform.machine() == "x86_64":
        _pack_ = 1
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


class Way(Struct, frozen=True):
    """A listener: our descriptor, the duplicate that libzmq has, and how many descriptors have to be free for it."""

    ours: int
    given: int
    spare: int


class Turnstile:
    """`limit`: RLIMIT_NOFILE. `wait` belongs to one thread, the rest to another."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.blind: list[int] = []
        self.passed = 0
        self.full = 0
        """How often somebody had to wait."""
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._poll = select.epoll()
        self._ways: dict[int, tuple[Way, int, int]] = {}
        self._manned = False
        self._shut: dict[int, float] = {}
        self._room, self._counted = 0, 0.0

    def opened(self, ways: Iterable[Way]) -> None:
        """Bound just now."""
        for way in ways:
            found = None if self.blind else _registration(way.given)
            if found is None:
                self.blind.append(way.given)
                continue
            with self._lock:
                self._ways[way.ours] = (way, *found)
                if self._manned:
                    self._man(way.ours)

    def closing(self, ours: Iterable[int]) -> None:
        """To be closed next; nothing of theirs is touched from here on."""
        with self._lock:
            for fd in ours:
                if self._ways.pop(fd, None) is not None and self._manned and self._shut.pop(fd, None) is None:
                    self._poll.unregister(fd)

    def manned(self, yes: bool) -> None:
        """Whether somebody will call `wait` from now on. Else libzmq accepts as it likes."""
        with self._lock:
            for fd in self._ways if yes != self._manned else ():
                if yes:
                    self._man(fd)
                else:
                    self._register(fd, select.EPOLLIN)
                    if self._shut.pop(fd, None) is None:
                        self._poll.unregister(fd)
            self._manned = yes

    def _man(self, fd: int) -> None:
        self._arm(fd)
        self._poll.register(fd, select.EPOLLIN)

    def wait(self, seconds: float) -> None:
        """Lets in who comes, for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            waiting = self._poll.poll(min(left, NO_ROOM_S) if self._shut else left)
            with self._lock:
                self._open(time.monotonic())
                for fd, _ in waiting:
                    self._pass(fd)
            if waiting:
                time.sleep(BREATH_S)

    def close(self) -> None:
        self.closing(list(self._ways))
        self._poll.close()

    def _pass(self, fd: int) -> None:
        if fd not in self._ways or fd in self._shut:
            return
        now = time.monotonic()
        if self._has_room(self._ways[fd][0].spare, now):
            self._arm(fd)
            self.passed += 1
            return
        self.full += 1
        self._poll.unregister(fd)
        self._shut[fd] = now + NO_ROOM_S

    def _has_room(self, spare: int, now: float) -> bool:
        if self._room <= spare or now - self._counted > COUNT_S:
            self._room, self._counted = self.limit - len(os.listdir("/proc/self/fd")), now
        return self._room > spare

    def _open(self, now: float) -> None:
        for fd in [fd for fd, at in self._shut.items() if at <= now]:
            del self._shut[fd]
            self._poll.register(fd, select.EPOLLIN)

    def _arm(self, fd: int) -> None:
        self._room -= 1
        self._register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def _register(self, fd: int, events: int) -> None:
        way, epoll, data = self._ways[fd]
        self._libc.epoll_ctl(epoll, _EPOLL_CTL_MOD, way.given, ctypes.byref(_Event(events, data)))


def _registration(given: int) -> tuple[int, int] | None:
    """The epoll in which a descriptor is waited for, and the data that goes with it."""
    until, inode = time.monotonic() + FOUND_S, os.fstat(given).st_ino
    while True:
        for epoll in _epolls():
            with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{epoll}", encoding="ascii") as file:
                for line in file:
                    found = _TARGET.match(line)
                    if found and (int(found[1]), int(found[3], 16)) == (given, inode):
                        return epoll, int(found[2], 16)
        if time.monotonic() > until:
            return None
        time.sleep(0.0002)


def _epolls() -> list[int]:
    out = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                out.append(int(name))
    return out

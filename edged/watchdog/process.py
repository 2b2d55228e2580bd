"""One worker process and the link to it: spawned, spoken to without blocking, watched through its pidfd.

Start it from the main thread: the worker asks the kernel to be killed when the thread that started it ends
(PR_SET_PDEATHSIG). It inherits its end of the link and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Final

from edged import link
from edged.messages import Down, Up

_READ_BYTES: Final = 1 << 18


class WorkerProcess:
    """`generation` numbers the workers of this daemon; what an earlier one said is dropped with it."""

    def __init__(self, module: str, generation: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        command = [sys.executable, "-m", module, "--fd", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C in a terminal is for the daemon
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.generation = generation
        self.pid = self._process.pid
        self.link = ours
        self.pidfd = os.pidfd_open(self.pid)
        self._reader = link.UpReader()
        self._out = bytearray()
        self.eof = False

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    @property
    def unread(self) -> int:
        """Bytes that the socket has not taken yet."""
        return len(self._out)

    def send(self, *messages: Down) -> None:
        """Queues and writes what the socket takes; the rest goes when it is writable (`flush`)."""
        self._out += link.encode(*messages)
        self.flush()

    def flush(self) -> None:
        try:
            while self._out:
                del self._out[: self.link.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # it is dying: the pidfd will say so

    def read(self) -> list[Up]:
        """What has come so far; `eof` is set at the end. Raises link.LinkError for nonsense."""
        messages: list[Up] = []
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while True:
                data = self.link.recv(_READ_BYTES)
                if not data:
                    self.eof = True
                    break
                messages += self._reader.feed(data)
                if len(data) < _READ_BYTES:
                    break
        return messages

    def read_to_end(self) -> list[Up]:
        """What a dead worker said last. A torn frame at the end is dropped."""
        messages: list[Up] = []
        with contextlib.suppress(OSError, link.LinkError):
            while data := self.link.recv(_READ_BYTES):
                messages += self._reader.feed(data)
        return messages

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Blocks until it ended; for the stop of the service only."""
        return bool(select.select([self.pidfd], [], [], seconds)[0])

    def reap(self) -> str:
        """After the pidfd became readable: the cause of the death, and everything is closed."""
        status = self._process.wait()
        os.close(self.pidfd)
        self.link.close()
        return cause_of(status)


def cause_of(returncode: int) -> str:
    """A signal's name (`SIGABRT`) or `exit N`."""
    if returncode >= 0:
        return f"exit {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"

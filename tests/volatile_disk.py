"""A disk with a write cache that loses what was not flushed when the power goes.

    ext4 ── loop device ── a file served by this process (FUSE) ── what was flushed | what was written since

A write goes to the cache; the flush that a file system sends for `fsync` (REQ_OP_FLUSH, which the loop device makes an
fsync of its file) brings it to the medium. `cut` is the power cut, in the middle of the next flush if one comes soon:
of what is in the cache, pages survive or not by chance and in no order, as in a real drive, and nothing is answered
any more. `start` gives the next run the medium, on which ext4 replays its own journal.

For root on Linux with loop devices and FUSE; no device mapper is needed.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PAGE = 4096
SIZE = 16 << 20
FLUSH_S = 0.2
"""That a cut waits for a flush to come."""
_HEAD = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 4, 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 27, 34, 36, 38, 42
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)
EIO, ENOENT, ENOSYS, ENODEV = 5, 2, 38, 19


def usable() -> bool:
    tools = all(any(Path(d, t).exists() for d in ("/sbin", "/usr/sbin")) for t in ("mkfs.ext4", "losetup", "e2fsck"))
    return os.geteuid() == 0 and Path("/dev/fuse").exists() and Path("/dev/loop-control").exists() and tools


class VolatileDisk:
    """`directory` gets `image`, `fuse/` and `disk/`, where the file system is mounted while it has power."""

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir(parents=True)
        self.image = directory / "image"
        self.mount = directory / "disk"
        self._fuse = directory / "fuse"
        self._loop = ""
        self._rng = random.Random(seed)
        self._server: subprocess.Popen[str] | None = None
        for path in (self.mount, self._fuse):
            path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", str(PAGE), str(self.image)], check=True)

    def start(self) -> None:
        command = [sys.executable, __file__, str(self.image), str(self._fuse), str(self._rng.getrandbits(32))]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._said() == "up"
        shown = subprocess.run(
            ["losetup", "--find", "--show", str(self._fuse / "disk")], check=True, capture_output=True, text=True
        )
        self._loop = shown.stdout.strip()
        subprocess.run(["mount", "-t", "ext4", self._loop, str(self.mount)], check=True)

    def cut(self, stop: Callable[[], None]) -> str:
        """The power goes; what was lost, in words. `stop` ends who writes: it must not learn that its writes fail."""
        self._tell("cut")
        lost = self._said()
        stop()
        self._tell("off")
        return lost

    def down(self) -> None:
        """When nobody has a file open any more."""
        if self._server is not None and self._server.poll() is None:
            self._down()

    def check(self) -> None:
        """The file system on the medium is whole once its journal is replayed."""
        done = subprocess.run(["e2fsck", "-fy", str(self.image)], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stdout

    def _tell(self, word: str) -> None:
        self._server.stdin.write(word + "\n")
        self._server.stdin.flush()

    def _said(self) -> str:
        return self._server.stdout.readline().strip()

    def _down(self) -> None:
        for command in (["umount", str(self.mount)], ["losetup", "-d", self._loop], ["umount", str(self._fuse)]):
            end = time.monotonic() + 20
            while subprocess.run(command, capture_output=True, check=False).returncode and time.monotonic() < end:
                time.sleep(0.05)
        self._server.stdin.close()
        self._server.wait(20)
        self._server.stdout.close()
        self._server = None


class Medium:
    """What was flushed, and pages written since: the newest of each."""

    def __init__(self, path: str, seed: int) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._cache: dict[int, bytes] = {}
        self._rng = random.Random(seed)
        self.dead = False

    def read(self, at: int, size: int) -> bytes:
        return b"".join(self._page(n) for n in range(at // PAGE, -(-(at + size) // PAGE)))[at % PAGE :][:size]

    def write(self, at: int, data: bytes) -> None:
        while data:
            page, offset = divmod(at, PAGE)
            piece, old = data[: PAGE - offset], self._page(page)
            self._cache[page] = old[:offset] + piece + old[offset + len(piece) :]
            at, data = at + len(piece), data[len(piece) :]

    def flush(self) -> None:
        for page, data in self._cache.items():
            os.pwrite(self._file, data, page * PAGE)
        self._cache.clear()

    def cut(self) -> str:
        pages = list(self._cache)
        lost = [page for page in pages if self._rng.random() < 0.5]
        for page in lost:
            del self._cache[page]
        self.flush()
        self.dead = True
        return f"{len(lost)} of {len(pages)} pages"

    def _page(self, number: int) -> bytes:
        return self._cache.get(number) or os.pread(self._file, PAGE, number * PAGE)


class Server:
    """The FUSE protocol (fuse(4), linux/fuse.h, version 7.31), as much as one file needs."""

    def __init__(self, medium: Medium, mount: str) -> None:
        self._medium = medium
        self.cut_at = 0.0  # when it is cut, if no flush comes before
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        if libc.mount(b"volatile", mount.encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount")

    def one(self) -> bool:
        """Answers one request. False: unmounted."""
        try:
            data = os.read(self.fd, (1 << 20) + PAGE)
        except OSError as error:
            return error.errno != ENODEV
        _, opcode, unique, node, *_ = _HEAD.unpack_from(data)
        if opcode in SILENT:
            return True
        if opcode == FSYNC and self.cut_at:
            self.cut()
        answer = self._answer(opcode, node, data[_HEAD.size :])
        code, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(self.fd, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
        return opcode != DESTROY

    def cut(self) -> None:
        """Nothing is answered until "off" comes; from then on everything fails."""
        self.cut_at = 0.0
        sys.stdout.write(self._medium.cut() + "\n")
        sys.stdout.flush()
        sys.stdin.readline()

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes | int:
        """The body of the answer, or an error number."""
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 16, 12, 1 << 17, 1, 32, 0, 0)
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != b"disk":
                return ENOENT
            return struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2)
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 1, 0, 0)
        if opcode == STATFS:
            return struct.pack("<QQQQQIIII24x", SIZE // PAGE, 0, 0, 2, 0, PAGE, 255, PAGE, 0)
        if opcode in (RELEASE, FLUSH, ACCESS, DESTROY):
            return b""
        return self._transfer(opcode, body) if opcode in (READ, WRITE, FSYNC) else ENOSYS

    def _transfer(self, opcode: int, body: bytes) -> bytes | int:
        if self._medium.dead:
            return EIO
        if opcode == FSYNC:
            self._medium.flush()
            return b""
        _, at, size = struct.unpack_from("<QQI", body)
        if opcode == READ:
            return self._medium.read(at, size)
        self._medium.write(at, body[40 : 40 + size])
        return struct.pack("<II", size, 0)


def attributes(node: int) -> bytes:
    mode = 0o040755 if node == 1 else 0o100600
    size = 0 if node == 1 else SIZE
    return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def main() -> None:
    image, mount, seed = sys.argv[1:]
    medium = Medium(image, int(seed))
    server = Server(medium, mount)
    os.set_blocking(server.fd, False)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    up, listening = True, [sys.stdin, server.fd]
    while up:
        timeout = max(0.0, server.cut_at - time.monotonic()) if server.cut_at else None
        ready, _, _ = select.select(listening, [], [], timeout)
        if server.fd in ready:
            up = server.one()
        if server.cut_at and server.cut_at <= time.monotonic():
            server.cut()
        elif sys.stdin in ready:
            if sys.stdin.readline() == "cut\n":
                server.cut_at = time.monotonic() + FLUSH_S
            else:
                listening.remove(sys.stdin)
    if not medium.dead:
        medium.flush()


if __name__ == "__main__":
    main()

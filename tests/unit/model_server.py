"""A real HTTP server for model files, with ranges and the faults that networks have; and a GGUF file of any size."""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def gguf_file(size: int, seed: int = 0) -> bytes:
    """A valid file of exactly `size` bytes (a multiple of 32, at least 1024): one tensor of I8."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def number(key: str, value: int) -> bytes:
        return text(key) + struct.pack("<II", 4, value)

    numbers = {
        "general.file_type": 2,
        "llama.context_length": 512,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
    }
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        *(number(k, v) for k, v in numbers.items()),
    ]

    def head(data: int) -> bytes:
        tensor = text("w") + struct.pack("<IQIQ", 1, data, 24, 0)
        whole = b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries)) + b"".join(entries) + tensor
        return whole + bytes(-len(whole) % 32)

    data = size - len(head(0))
    block = hashlib.sha256(str(seed).encode()).digest()
    return head(data) + (block * (data // len(block) + 1))[:data]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class File:
    """One file and how badly it is served.

    `cut` ends the first `cuts` answers after so many bytes of the file, `piece` each after so many of its own.
    """

    data: bytes
    etag: str | None = '"one"'
    ranges: bool = True
    ignores_if_range: bool = False
    status: int = 200
    cut: int | None = None
    cuts: int = 1
    piece: int | None = None
    hold: int | None = None
    length: int | None = None
    no_length: bool = False
    redirect: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def starts(self) -> list[int]:
        """Where each request wanted to begin."""
        return [int(r.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-")) for r in self.requests]


class Server:
    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def add(self, path: str, data: bytes, **how: object) -> File:
        self.files[path] = File(data, **how)
        return self.files[path]

    def stop(self) -> None:
        for file in self.files.values():
            file.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        file = self.files.get(request.path)
        if file is None:
            request.send_error(404)
            return
        file.requests.append({k.lower(): v for k, v in request.headers.items()})
        if file.redirect:
            request.send_response(302)
            request.send_header("Location", file.redirect)
            for name, value in file.headers.items():
                request.send_header(name, value)
            request.send_header("Content-Length", "0")
            request.end_headers()
        elif file.status != 200:
            request.send_error(file.status)
        else:
            self._send(request, file)

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, file: File) -> None:
        start, size = 0, len(file.data)
        wanted = re.match(r"bytes=(\d+)-$", request.headers.get("Range", ""))
        condition = request.headers.get("If-Range")
        if wanted and file.ranges and (condition in (None, file.etag) or file.ignores_if_range):
            start = int(wanted[1])
            if start >= size:
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{size}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        else:
            request.send_response(200)
        if not file.no_length:
            request.send_header("Content-Length", str((file.length or size) - start))
        if file.etag:
            request.send_header("ETag", file.etag)
        for name, value in {"Content-Type": "application/octet-stream", **file.headers}.items():
            request.send_header(name, value)
        request.end_headers()
        end = size
        if file.cut is not None and len(file.requests) <= file.cuts:
            end = file.cut
        if file.piece is not None:
            end = min(end, start + file.piece)
        try:
            if file.hold is not None and start <= file.hold < end:
                request.wfile.write(file.data[start : file.hold])
                request.wfile.flush()
                file.held.set()
                file.go_on.wait(60)
                start = file.hold
            request.wfile.write(file.data[start:end])
        except OSError:
            pass  # the other side was killed

"""`python -m edged.worker --fd N`: one model in one process, spoken to over the socket inherited as N.

First frame in: `Load`. Out: `Loading` …, then `Ready`, or `LoadFailed` and status 1. Then the loop.
Status: 0 after Quit or when the daemon is gone, 1 load refused, 70 broken (the daemon starts another).
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable

from edged.messages import Load, LoadFailed, Loading
from edged.worker.channel import Channel, LinkClosed
from edged.worker.process import OrphanError, become_disposable, set_environment

EXIT_REFUSED = 1
EXIT_BROKEN = 70
"""EX_SOFTWARE of sysexits(3)."""

_PROGRESS_S = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(prog="edged.worker")
    parser.add_argument("--fd", type=int, required=True, help="the inherited end of the link")
    fd = parser.parse_args().fd
    try:
        become_disposable()
        set_environment()
        channel = Channel(socket.socket(fileno=fd))
        return _serve(channel)
    except (LinkClosed, OrphanError):
        return 0
    except Exception as error:  # noqa: BLE001 - the end of the process, told once; no text of a prompt is in it
        _report(error)
        return EXIT_BROKEN


def _serve(channel: Channel) -> int:
    request = _first(channel)
    from edged.worker import loading, loop  # noqa: PLC0415 - the environment is read when llama_cpp is loaded

    try:
        loaded = loading.load(request, _progress(channel))
    except loading.LoadError as error:
        channel.send(LoadFailed(error.kind, str(error)))
        channel.close()
        return EXIT_REFUSED
    channel.send(loaded.ready)
    loop.Loop(channel, loaded, request.cache).run()
    channel.close()
    return 0


def _first(channel: Channel) -> Load:
    """The first message, which is Load; one frame holds it alone."""
    while True:
        channel.wait(also=None)
        for message in channel.receive():
            if isinstance(message, Load):
                return message
            raise LinkClosed("the first message is not Load")


def _progress(channel: Channel) -> Callable[[float], None]:
    """Called by llama.cpp for every tensor; told ten times a second."""
    last = 0.0

    def tell(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_S or fraction >= 1:
            last = now
            channel.send(Loading(round(fraction, 3)))

    return tell


def _report(error: Exception) -> None:
    """Type and places only: a message may quote a prompt."""
    places = "".join(f"\n  {f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__))
    what = str(error) if type(error).__module__.startswith("edged.") else ""
    sys.stderr.write(f"worker: {type(error).__name__} {what}{places}\n")


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # no destructors: llama.cpp's threads are running

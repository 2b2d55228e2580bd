"""Metrics: what the loop hands over, and the threads that render and tell it (`metrics` in the configuration, ADR 23).

The loop does two things: it makes a snapshot when a thread asks for one (at most once a second, and for each
`interval_s`), and it starts and stops the threads. Rendering, the port, the file and the import of prometheus_client
are the threads'. A loop that does not answer within ANSWER_S is told as 503, and leaves the file as it is.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edged.config import Config
from edged.config_metrics import Metrics
from edged.observe import scrape
from edged.observe.log import Log
from edged.observe.metrics import Snapshot, families
from edged.system import ramdir, smallfile

if TYPE_CHECKING:
    from edged.observe.exposition import Exposition

ANSWER_S: Final = 2.0
AGAIN_S: Final = 2.0
LEAVE_S: Final = 1.0
"""At a stop, for the file to be removed. A disk that hangs is not waited for any longer."""

INSTALL: Final = "metrics: the Python package prometheus-client is missing: pip install 'edged[metrics]'"


class MetricsSide:
    """`snapshot` makes one, in the loop; `wake` has the loop turn."""

    def __init__(
        self, config: Config, *, snapshot: Callable[[float], Snapshot], wake: Callable[[], None], log: Log
    ) -> None:
        self._snapshot = snapshot
        self._log = log
        self._handover = Handover(wake)
        self._settings = Metrics()
        self._told = ""
        self._refused = ""
        self._again = 0.0  # when a port that could not be had is tried again
        self._port: scrape.Scrape | None = None
        self._file: Textfile | None = None
        self._renderer = Renderer(self._handover)
        self.reconfigure(config.metrics)

    def reconfigure(self, after: Metrics) -> None:
        """What stays as it was goes on. Nobody is waited for."""
        before = self._settings
        self._settings = after
        if (before.textfile, before.interval_s) != (after.textfile, after.interval_s):
            if self._file is not None:
                self._file.stop()
            path = after.textfile
            self._file = Textfile(path, after.interval_s, Renderer(self._handover)) if path else None
        if before.listen != after.listen or self._refused:
            self._listen(after.listen)

    def _listen(self, address: str) -> None:
        if self._port is not None:
            self._port.stop()
        self._port, self._refused = None, ""
        if not address:
            return
        try:
            self._port = scrape.Scrape(scrape.listen(address), self._renderer.page)
        except OSError as error:
            self._refused = f"metrics: {address} cannot be had: {error.strerror or error}"
        else:
            self._log.info("metrics_on", listen=address)

    def tick(self, now: float) -> None:
        self._handover.give(lambda: self._snapshot(now))
        if self._refused and now >= self._again:
            self._again = now + AGAIN_S
            self._listen(self._settings.listen)
        trouble = "; ".join(self.warnings())
        if trouble and trouble != self._told:
            self._log.warning("metrics_trouble", why=trouble)
        self._told = trouble

    def warnings(self) -> list[str]:
        found = [self._refused, self._renderer.trouble, self._file.trouble if self._file else ""]
        return [text for text in dict.fromkeys(found) if text]

    def stop(self) -> None:
        """After the loop."""
        self._handover.close()
        file = self._file
        self.reconfigure(Metrics())
        if file is not None:
            file.wait(LEAVE_S)


class Handover:
    """Asked for by threads, given by the loop."""

    def __init__(self, wake: Callable[[], None], within_s: float = ANSWER_S) -> None:
        self._wake = wake
        self._within_s = within_s
        self._asked: queue.SimpleQueue[queue.SimpleQueue[Snapshot | None]] = queue.SimpleQueue()
        self._closed = False

    def take(self) -> Snapshot | None:
        """None: the loop does not turn, or not any more."""
        given: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self._asked.put(given)
        if self._closed:
            return None
        self._wake()
        with contextlib.suppress(queue.Empty):
            return given.get(timeout=self._within_s)
        return None

    def give(self, make: Callable[[], Snapshot]) -> None:
        """To all who asked the same one; nothing is made when nobody did."""
        if self._asked.empty():
            return
        self._answer(make())

    def close(self) -> None:
        self._closed = True
        self._answer(None)

    def _answer(self, snapshot: Snapshot | None) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait().put(snapshot)


class Renderer:
    """For one thread, which is the one that imports prometheus_client. `trouble`: why it cannot, in words."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self._exposition: Exposition | None = None
        self._kind = ""
        self.trouble = ""

    def page(self) -> tuple[bytes, str] | None:
        """Text and content type."""
        try:
            return self._page()
        except Exception as error:  # noqa: BLE001 - the thread goes on, and people are told
            self.trouble = f"metrics: a bug: {type(error).__name__}"
            return None

    def _page(self) -> tuple[bytes, str] | None:
        if self._exposition is None:
            try:
                from edged.observe import exposition  # noqa: PLC0415 - 9 MB, only where it is wanted
            except ImportError:
                self.trouble = INSTALL
                return None
            self._exposition, self._kind = exposition.Exposition(), exposition.CONTENT_TYPE
        snapshot = self._handover.take()
        if snapshot is None:
            return None
        resident = smallfile.pairs("/proc/self/status").get("VmRSS:")
        text = self._exposition.text(families(snapshot, None if resident is None else 1024 * resident))
        self.trouble = ""
        return text, self._kind


class Textfile:
    """Written beside and renamed, so that nobody reads half of it; removed at the end, for what it says is over."""

    def __init__(self, path: str, every_s: float, renderer: Renderer) -> None:
        self._path = path
        self._every_s = every_s
        self._renderer = renderer
        self._wrong = ""
        self._wears = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="textfile", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        return self._wrong or self._renderer.trouble or self._wears

    def stop(self) -> None:
        self._end.set()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        self._wears = wears(self._path)
        while not self._end.is_set():
            page = self._renderer.page()
            if page is not None:
                self._write(page[0])
            self._end.wait(self._every_s)
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _write(self, text: bytes) -> None:
        part = f"{self._path}.{os.getpid()}"
        try:
            with open(part, "wb") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(part, self._path)
            self._wrong = ""
        except OSError as error:
            self._wrong = f"metrics: {self._path}: {error.strerror or error}"
            with contextlib.suppress(OSError):
                os.unlink(part)


def wears(path: str) -> str:
    """A warning where it is no RAM file system: thousands of writes a day."""
    try:
        mounts = smallfile.read("/proc/self/mountinfo", ramdir.MOUNTS, "surrogateescape")
    except OSError:
        return ""
    kind = ramdir.file_system(mounts, os.path.realpath(os.path.dirname(path)))
    if kind in ("", *ramdir.RAM):
        return ""
    return f"metrics: {path} lies on {kind} and is written over and over: a place on a tmpfs wears no card"

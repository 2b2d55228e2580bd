"""Watches over the daemon itself: lets connections in one by one, measures its memory, puts peers out who take it.

A thread stands at the door and looks at the memory ten times a second (some 0.1 % of a core), for libzmq's own thread
is what grows, and grows while the loop is busy. It decides nothing: it wakes the loop, which asks the rules
(`edged.watchdog.spare`) and acts in `tick`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from edged.config import Config
from edged.observe.log import Log
from edged.system.selfsize import SelfSize
from edged.system.trim import Trimmer
from edged.watchdog import spare
from edged.watchdog.spare import Cut, Doubtful, Elsewhere, Guilty, Hunt, Innocent, Normal, Over, Rebind
from edged.wire.endpoints import Endpoints


class GuardSide:
    """`rebound` tells the others that all sockets were bound anew; `wake` is for the thread."""

    def __init__(
        self,
        config: Config,
        endpoints: Endpoints,
        *,
        rebound: Callable[[float], None],
        wake: Callable[[], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._endpoints = endpoints
        self._rebound = rebound
        self._wake = wake
        self._log = log
        self._counters = counters
        self._normal = Normal(config.limits.spare_memory_bytes)
        self._hunt = Hunt()
        self._size = SelfSize()
        self._tidy = spare.Tidy()
        self._trimmer = Trimmer()
        self._elsewhere = 0
        self._stop = threading.Event()
        self._due = False
        self._thread = threading.Thread(target=self._stand, name="guard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Before the sockets are closed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._size.close()

    def reconfigure(self, config: Config) -> None:
        self._normal.spare = config.limits.spare_memory_bytes

    # ---- the thread ------------------------------------------------------------------------------------------

    def _stand(self) -> None:
        door = self._endpoints.door
        door.manned(True)
        try:
            while not self._stop.is_set():
                try:
                    self._round()
                except Exception:  # noqa: BLE001 - without it nobody would get in
                    self._counters["bugs"] += 1
                    self._stop.wait(spare.SAMPLE_S)
        finally:
            door.manned(False)

    def _round(self) -> None:
        door = self._endpoints.door
        door.wait(spare.SAMPLE_S)
        now = time.monotonic()
        if self._hunt.on or self._tidy.due(self._normal, now):
            self._trimmer.give_back()
        over = self._normal.read(self._size.read(), now)
        if over or self._hunt.on or door.busy:
            self._due = True
            self._wake()

    # ---- the loop --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self._endpoints.door.tick(now)
        if self._due:
            self._due = False
            self._hunting(now)
        for deed in self._endpoints.door.take():
            self._log.warning(deed.event, **deed.fields)

    def _hunting(self, now: float) -> None:
        hunt, normal = self._hunt, self._normal
        if normal.over and not hunt.on and now >= hunt.hold_until:
            self._counters["memory_hunts"] += 1
            self._log.warning("memory", used_mb=normal.used >> 20, normal_mb=normal.value >> 20)
            hunt.begin(normal, now)
        elif hunt.on:
            suspects = self._endpoints.door.suspects(now) if hunt.waits_for_suspects else []
            for deed in hunt.step(normal, now, suspects):
                self._act(deed, now)

    def _act(self, deed: spare.Deed, now: float) -> None:
        door = self._endpoints.door
        match deed:
            case Cut(who=who):
                door.seize(who, now)
            case Guilty(who=who):
                door.convict(who, now)
            case Innocent(who=who):
                door.release(who)
            case Doubtful(who=who):
                self._log.warning("memory_doubtful", who=who)
            case Rebind():
                self._counters["memory_rebinds"] += 1
                self._log.warning("sockets_rebound", why="memory", used_mb=self._normal.used >> 20)
                self._endpoints.rebind(now)
                self._rebound(now)
            case Elsewhere():
                self._elsewhere += 1
                self._log.warning("memory_elsewhere", used_mb=self._normal.used >> 20)
            case Over():
                self._elsewhere = 0
                self._log.info("memory_back", used_mb=self._normal.used >> 20)

    # ---- what people see -------------------------------------------------------------------------------------

    def fields(self) -> dict[str, Any]:
        return {"bytes": self._normal.used, "normal_bytes": self._normal.value, "spare_bytes": self._normal.spare}

    def warnings(self) -> list[str]:
        if self._hunt.on:
            return [f"the daemon takes {self._normal.used >> 20} MB: it looks for the peer who has them"]
        if self._elsewhere:
            return ["the daemon grew and no peer had the memory: look at it, and restart it when it suits"]
        return []

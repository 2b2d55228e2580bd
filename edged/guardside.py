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
from typing import Any, Final

from edged.config import Config
from edged.observe.log import Log
from edged.system.selfsize import SelfSize
from edged.system.trim import Trimmer
from edged.watchdog import spare
from edged.watchdog.spare import Cut, Doubtful, Elsewhere, Guilty, Hunt, Innocent, Normal, Over, Rebind
from edged.wire.endpoints import Endpoints

LOOK_S: Final = 0.01
"""While suspects are looked for: whoever sends without end is caught in the act sooner or later."""
STUCK_S: Final = 0.1
"""To take in what has come takes microseconds."""
TRIM_S: Final = 0.3
"""While memory is hunted; it takes up to 0.1 s of this thread, and the others wait for some of it."""
TOIL_S: Final = 1.0
TOIL: Final = 0.3
"""Of a core. A crowded service takes less; whoever takes more is worth a look."""


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
        self._toil = (0.0, 0.0)
        self._rescued = self._trimmed = self._sampled = 0.0
        self._tainted = 0
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
        door, hunting = self._endpoints.door, self._hunt.on
        door.wait(LOOK_S if hunting else spare.SAMPLE_S)
        if hunting:
            door.watch()
        now = time.monotonic()
        if hunting and now < self._sampled + spare.SAMPLE_S:
            return
        self._sampled = now
        self._rescue(now)
        if (hunting and now >= self._trimmed + TRIM_S) or self._tidy.due(self._normal, now):
            self._trimmed = now
            self._trimmer.give_back()
        over = self._normal.read(self._size.read(), now)
        if over and not self._hunt.on:
            door.watch(anew=True)
        if over or self._hunt.on or door.busy or self._toils(now):
            self._due = True
            self._wake()

    def _rescue(self, now: float) -> None:
        """The loop is in libzmq, which takes in subscriptions as long as there are any (`Door.rescue`)."""
        since = self._endpoints.door.taking_in
        if since and now >= max(since, self._rescued) + STUCK_S:
            self._rescued = now
            self._endpoints.door.rescue(everybody=now >= since + 3 * STUCK_S)

    def _toils(self, now: float) -> bool:
        """Once a second: whether the daemon, libzmq's thread included, was busy enough to look who it is."""
        used = time.process_time()
        if now < self._toil[0] + TOIL_S:
            return False
        before, self._toil = self._toil, (now, used)
        return used - before[1] > TOIL * (now - before[0])

    # ---- the loop --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self._counters["tainted"] != self._tainted:
            self._tainted = self._counters["tainted"]
            self._hunt.expect(now)
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

"""A plant beside a real daemon: the board's heat in accelerated time, behind a fake root; and the daemon on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from harness import TESTS, Daemon, until

from edged.system import smallfile
from plant.board import Heat
from plant.closed import Air, of_kind, warming
from plant.sysfs import Root


class Plant:
    """`scale` seconds of the board's pass in one of ours. A thread reads what daemon and worker set, and writes what
    the sensors say."""

    def __init__(self, path: Path, group: str, number: int, seed: int, *, scale: float, air: Air = warming) -> None:
        self.board = of_kind(group, number + 1, seed)[-1]
        clocks = self.board.clocks
        self.root = Root(path, clocks=(clocks[0] * 1000, clocks[-1] * 1000))
        self.root.put(self.root.policy / "scaling_available_frequencies", " ".join(str(c * 1000) for c in clocks))
        self.root.put("plant/worker", "0 1 1.0")
        self.heat = Heat(self.board, air(0))
        self.environment = f"root={path} group={group} number={number} seed={seed} scale={scale}"
        self.peak_c = 0.0
        self.seconds = 0.0  # of the board's time
        self._scale = scale
        self._air = air
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._show()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(5)

    def rules(self) -> dict[str, Any]:
        """The watchdog's section, in the plant's time."""
        times = {"interval_s": 1 / self._scale, "hold_s": 30 / self._scale, "reload_s": 60 / self._scale}
        return {"root": str(self.root.path), **times, "pacing": {"settle_s": 60 / self._scale}}

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.wait(0.5 / self._scale):
            now = time.monotonic()
            passed, last = (now - last) * self._scale, now
            self._obey()
            while passed > 0:
                step = min(1.0, passed)
                self.heat.step(step, self._air(self.seconds))
                self.seconds += step
                passed -= step
            self.peak_c = max(self.peak_c, self.heat.chip_c)
            self._show()

    def _obey(self) -> None:
        busy, threads, duty = (smallfile.text(str(self.root.path / "plant/worker")) or "0 1 1").split()
        cap = smallfile.number(str(self.root.policy / "scaling_max_freq"))
        self.heat.busy, self.heat.threads, self.heat.duty = busy == "1", int(threads), float(duty)
        self.heat.cap_mhz = cap // 1000 if cap else None

    def _show(self) -> None:
        self.root.temperature(self.heat.shown_c)
        self.root.throttled(self.heat.throttled_bits)
        self.root.put(self.root.policy / "scaling_cur_freq", self.heat.mhz * 1000)


class PlantDaemon(Daemon):
    """A daemon whose worker works on a plant."""

    def __init__(self, directory: Path, plant: Plant, **keys: Any) -> None:
        super().__init__(directory, watchdog=plant.rules(), **keys)
        self.plant = plant

    def start(self, *, ready: bool = True, before: tuple[str, ...] = ()) -> Daemon:
        command = [*before, sys.executable, "-m", "edged", "--config", str(self.config)]
        environment = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "EDGED_PLANT": self.plant.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, "--worker", "plant.plant_worker"], stderr=log, env=environment)
        until(lambda: self.control_path.exists() or self.process.poll() is not None, "the sockets")
        assert self.process.poll() is None, self.log.read_text()
        if ready:
            self.wait_ready()
        return self

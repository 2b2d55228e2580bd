"""The scripted worker on a plant: how long a token takes is what the board's clock, threads and pauses make of it.

A prompt says `delay=1` and what else it likes. Environment EDGED_PLANT: `root=` the fake root that the plant writes,
`group=`, `number=`, `seed=` of the board, `scale=` how much faster than life time goes. The worker tells the plant in
`plant/worker` below the root: busy or not, threads, duty.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
from pathlib import Path

import msgspec
from scripted_worker import Worker, words

from edged.messages import Down, Pace, Ready, ThreadPin, Up
from edged.system import smallfile
from plant.closed import of_kind


class PlantWorker(Worker):
    def __init__(self, sock: socket.socket, script: dict[str, str], plant: dict[str, str]) -> None:
        self.board = of_kind(plant["group"], int(plant["number"]) + 1, int(plant["seed"]))[-1]
        self.scale = float(plant["scale"])
        root = Path(plant["root"])
        self.clock = str(root / "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq")
        self.told = root / "plant/worker"
        self.state = ""
        self.threads = self.board.threads
        super().__init__(sock, {"sequences": "1", **script})

    @property
    def stretch(self) -> float:
        """Seconds per token (`delay=1`)."""
        mhz = (smallfile.number(self.clock) or 0) // 1000
        return 1 / (self.board.rate(mhz or self.board.clocks[-1], self.threads, self.duty) * self.scale)

    @stretch.setter
    def stretch(self, value: float) -> None:
        self.duty = 1 / value

    def hear(self, timeout: float | None) -> list[Down]:
        state = f"{int(bool(self.running))} {self.threads} {self.duty}"
        if state != self.state:
            self.state = state
            part = self.told.with_name(f"part{os.getpid()}")
            part.write_text(state)
            os.replace(part, self.told)
        return super().hear(timeout)

    def take(self, message: Down) -> None:
        if isinstance(message, Pace):
            self.threads = min(self.board.threads, message.threads or self.board.threads)
        super().take(message)

    def say(self, *messages: Up) -> None:
        pins = [ThreadPin(0, core, [core], "decode+prefill") for core in range(self.board.threads)]
        super().say(*(msgspec.structs.replace(m, threads=pins) if isinstance(m, Ready) else m for m in messages))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plant = words(os.environ["EDGED_PLANT"])
    PlantWorker(sock, words(os.environ.get("EDGED_SCRIPT", "")), plant).loop()


if __name__ == "__main__":
    main()

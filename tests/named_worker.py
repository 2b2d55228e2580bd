"""The scripted worker, told by the name of its model file how to load: `big load=0.3.gguf`, `bad load=fail.gguf`.

So profiles of one configuration can behave differently. `quit=0.2`: leaves that late when it is told to; `quit=never`.
`eat=8`: takes 8 MB more with each token.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time
from pathlib import Path

from scripted_worker import Worker, words

from edged.messages import Down, Load, Quit, Sampled, Up


class NamedWorker(Worker):
    quit = "0"
    eat = 0

    def __init__(self, sock: socket.socket, script: dict[str, str]) -> None:
        super().__init__(sock, script)
        self.eaten: list[bytes] = []

    def say(self, *messages: Up) -> None:
        self.eaten += [os.urandom(self.eat << 20) for message in messages if isinstance(message, Sampled)]
        super().say(*messages)

    def ready(self, load: Load) -> None:
        script = words(Path(load.model_path).stem)
        self.load = script.get("load", self.load)
        self.quit = script.get("quit", self.quit)
        self.eat = int(script.get("eat", 0))
        super().ready(load)

    def take(self, message: Down) -> None:
        if isinstance(message, Quit):
            time.sleep(3600 if self.quit == "never" else float(self.quit))
        super().take(message)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    NamedWorker(sock, words(os.environ.get("EDGED_SCRIPT", ""))).loop()


if __name__ == "__main__":
    main()

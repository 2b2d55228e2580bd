"""A client's `request` endpoint through a proxy that loses messages: what a real daemon does not do on demand.

    client ── ROUTER ═ Proxy ═ DEALER per client ── daemon

`down(message)` decides about each message on its way to the client: True passes, False loses it. `up(message)` the
same the other way. What is lost is counted in `lost`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import zmq

Rule = Callable[[dict[str, Any]], bool]


class Proxy(threading.Thread):
    def __init__(self, context: zmq.Context[Any], front: str, back: str) -> None:
        super().__init__(daemon=True)
        self.endpoint = front
        self.up: Rule = lambda message: True
        self.down: Rule = lambda message: True
        self.lost = 0
        self._context, self._back = context, back
        self._front = context.socket(zmq.ROUTER)
        self._front.linger = 0
        self._front.bind(front)
        self._leave = threading.Event()

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        behind: dict[bytes, zmq.Socket[Any]] = {}
        owner: dict[zmq.Socket[Any], bytes] = {}
        while not self._leave.is_set():
            for socket, _ in poller.poll(20):
                frames = socket.recv_multipart()
                if socket is self._front:
                    peer, *rest = frames
                    if peer not in behind:
                        behind[peer] = self._dial()
                        owner[behind[peer]] = peer
                        poller.register(behind[peer], zmq.POLLIN)
                    self._pass(self.up, behind[peer], rest)
                else:
                    self._pass(self.down, self._front, [owner[socket], *frames])
        for socket in (self._front, *behind.values()):
            socket.close(0)

    def _dial(self) -> zmq.Socket[Any]:
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(self._back)
        return socket

    def _pass(self, rule: Rule, to: zmq.Socket[Any], frames: list[bytes]) -> None:
        if rule(json.loads(frames[-1])):
            to.send_multipart(frames)
        else:
            self.lost += 1

    def stop(self) -> None:
        self._leave.set()
        self.join()

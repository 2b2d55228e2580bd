"""A small real ROUTER that answers as docs/protocol.md says, for tests of what talks to a daemon."""

from __future__ import annotations

import json
import threading

import zmq

RESULT = {
    "ok": True,
    "text": "Hello, world",
    "finish_reason": "stop",
    "stop": None,
    "usage": {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 2},
}


class Daemon(threading.Thread):
    """A ROUTER in a thread. `answer(request, number)` gives the replies; every request is kept in `seen`."""

    def __init__(self, endpoint, answer):
        super().__init__(daemon=True)
        self.seen = []
        self.arrived = threading.Condition()
        self._answer = answer
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.bind(endpoint)
        self._leave = self._context.socket(zmq.PAIR)
        self._leave.bind("inproc://stop")

    def run(self):
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._leave, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._leave in ready:
                break
            *envelope, body = self._router.recv_multipart()
            assert envelope[-1] == b""
            request = json.loads(body)
            with self.arrived:
                self.seen.append(request)
                self.arrived.notify_all()
            for reply in self._answer(request, len(self.seen)):
                base = {"v": 1, "ok": True, "id": request.get("id"), "instance": "i1"}
                self._router.send_multipart([*envelope, json.dumps({**base, **reply}).encode()])
        self._router.close()

    def wait_for(self, op):
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(r["op"] == op for r in self.seen), 30)

    def stop(self):
        with self._context.socket(zmq.PAIR) as wake:
            wake.connect("inproc://stop")
            wake.send(b"")
            self.join()
        self._context.destroy(0)


def events(*texts, **result):
    whole = "".join(texts)
    yield {"type": "queued", "seq": 0, "position": 0}
    yield {"type": "prefill", "seq": 1, "done": 3, "total": 3}
    for n, text in enumerate(texts):
        yield {"type": "token", "seq": n + 2, "text": text, "n": 1}
    yield {"type": "end", "seq": len(texts) + 2, **RESULT, "text": whole, **result}


def ticket(topic="tok/1/"):
    return {"topic": topic, "state": "queued", "position": 0, "deadline_ms": 1000}


def streaming(request, number):
    assert request["op"] == "generate"
    assert request["stream"] == "reply"
    return [ticket(), *events("Hello", ", ", "world")]

"""Drives a client machine by hand: its open lines, what it said on them, what is said to it. Time is a number."""

from __future__ import annotations

import json

from edged.client.boxes import Boxes
from edged.client.call import Call
from edged.client.choice import Choice
from edged.client.exchange import Exchange, encode
from edged.client.steps import Ask, Close, Heard, Listen, Lost, Pace, Reached, Say, Unreachable
from edged.client.where import stream_of

PACE = Pace()
RESULT = {"ok": True, "text": "hello", "finish_reason": "stop", "usage": {"completion_tokens": 1}}


class Rig:
    def __init__(self, machine, now=0.0):
        self.machine = machine
        self.now = now
        self.open = {}
        self.bodies = []
        self.do(machine.begin(now))

    def do(self, actions):
        for action in actions:
            match action:
                case Ask(line=line, endpoint=endpoint, body=body):
                    assert line not in self.open
                    self.open[line] = (endpoint, json.loads(body))
                    self.bodies.append(json.loads(body))
                case Listen(line=line, endpoint=endpoint, topic=topic):
                    assert line not in self.open
                    self.open[line] = (endpoint, topic)
                case Say(line=line, body=body):
                    assert line in self.open
                    self.bodies.append(json.loads(body))
                case Close(line=line):
                    del self.open[line]
        if self.machine.outcome is not None:
            assert self.open == {}

    def line(self, what):
        """The open line for this verb or topic."""
        (found,) = [n for n, (_, said) in self.open.items() if what == (said if isinstance(said, str) else said["op"])]
        return found

    def at(self, what="generate"):
        return self.open[self.line(what)][0]

    def hear(self, what, *messages, **fields):
        for message in messages or (fields,):
            self.do(
                self.machine.feed(Heard(self.line(what), {"id": "i", "ok": True, "instance": "1", **message}), self.now)
            )

    def event(self, kind, seq, what="generate", **fields):
        self.do(self.machine.feed(Heard(self.line(what), {"id": "i", "type": kind, "seq": seq, **fields}), self.now))

    def refuse(self, code, what="generate", retryable=True, **fields):
        self.hear(what, ok=False, error={"code": code, "message": "m", "retryable": retryable, **fields})

    def lose(self, what="generate"):
        self.do(self.machine.feed(Lost(self.line(what)), self.now))

    def reach(self, what="generate"):
        self.do(self.machine.feed(Reached(self.line(what)), self.now))

    def unreachable(self, what="generate"):
        self.do(self.machine.feed(Unreachable(self.line(what)), self.now))

    def wait(self):
        """Lets time pass until the machine wants something."""
        self.now = max(self.now, self.machine.wake)
        self.do(self.machine.tick(self.now))

    def wait_for(self, op):
        count = len(self.bodies)
        while len(self.bodies) == count:
            assert self.machine.outcome is None, self.machine.outcome
            self.wait()
        assert self.bodies[-1]["op"] == op
        return self.bodies[-1]

    def ticket(self, topic="tok/1/", **fields):
        self.hear("generate", topic=topic, state="queued", position=0, deadline_ms=60_000, **fields)

    @property
    def shown(self):
        return self.machine.reading.text


def exchange(mode="reply", endpoints=("ipc:///a/request.sock",), **options):
    choice = Choice(endpoints, Boxes(PACE), PACE, "i")
    settings = {"deadline_s": 60.0, "answer_s": None, "retry": True, "stream_endpoint": stream_of(None), **options}
    return Rig(Exchange({"id": "i", "prompt": "x"}, mode, choice, PACE, **settings))


def call(op="ping", endpoints=("a",), **options):
    choice = Choice(endpoints, Boxes(PACE), PACE, "i")
    return Rig(Call(encode(op, {}), choice, **{"deadline_s": 5.0, **options}))

"""The client's rules against servers that lose, repeat, cut, refuse, die and come back, in every order that hypothesis
thinks of. Whatever happens, the reader never holds a text that its run did not have, and once the trouble is over the
request ends with the whole text, within its deadline.
"""

from __future__ import annotations

import json
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.client.boxes import Boxes
from edged.client.choice import Choice
from edged.client.errors import EdgedError, NoAnswer, ReplyError
from edged.client.exchange import Exchange
from edged.client.reading import Anew, Ended, Piece
from edged.client.replies import Result
from edged.client.steps import Ask, Close, Heard, Listen, Lost, Pace, Reached, Say, Unreachable
from edged.client.where import stream_of

BOXES = tuple(f"ipc:///{name}/request.sock" for name in "abc")
DEADLINE_S = 300.0


class Run:
    """A request on a server: its events so far, as the protocol numbers them."""

    def __init__(self, topic, stream, deadline_ms):
        self.topic, self.stream, self.deadline_ms = topic, stream, deadline_ms
        self.seq, self.text, self.end = -1, "", None
        self.listeners = []  # connections

    def event(self, kind, **fields):
        self.seq += 1
        message = {"id": "i", "type": kind, "seq": self.seq, **fields}
        for connection in self.listeners:
            connection.down.append(message)

    def snapshot(self):
        last = self.seq - (self.end is not None)
        return {"id": "i", "type": "snapshot", "seq": last, "text": self.text, "state": "running"}

    def last(self):
        return {"id": "i", "type": "end", "seq": self.seq, **self.end}


class Server:
    """Protocol 3 to 6 for one request, without a queue."""

    def __init__(self, name, texts):
        self.name, self.texts = name, texts
        self.up, self.born, self.run, self.busy = True, 0, None, False
        self.waiting = []

    def restart(self):
        self.born, self.run, self.waiting = self.born + 1, None, []

    def answer(self, connection, body):
        base = {"v": 1, "ok": True, "id": "i", "instance": f"{self.name}{self.born}"}
        match body["op"]:
            case "generate":
                self._generate(connection, body, base)
            case "result":
                connection.down.append({**base, **self._result()})
            case "cancel":
                if self.run is None:
                    connection.down.append({**base, **error("not_found")})
                    return
                connection.down.append({**base, "state": "finished" if self.run.end else "cancelled"})
                self.finish(result(self.run.text, "cancelled"))

    def _generate(self, connection, body, base):
        run = self.run
        if run is None or (run.end is not None and run.end.get("error", {}).get("retryable")):
            if self.busy:
                connection.down.append({**base, **error("busy", retry_after_ms=700)})
                return
            topic = f"tok/{len(self.texts)}/"
            run = self.run = Run(topic, body.get("stream"), body["deadline_ms"])
            self.texts[topic] = run
            fresh = True
        else:
            fresh = False
        if run.stream is None:
            self.waiting.append((connection, base))
            if run.end is not None:
                self._answer_waiting()
            return
        connection.down.append({**base, "topic": run.topic, "state": "queued", "deadline_ms": run.deadline_ms})
        if run.stream == "reply":
            run.listeners = [connection]
            if not fresh:
                connection.down.append(run.snapshot())
                if run.end is not None:
                    connection.down.append(run.last())

    def subscribe(self, connection, topic):
        run = self.run
        if run is not None and run.topic == topic:
            run.listeners.append(connection)
            connection.down.append(run.snapshot())
            if run.end is not None:
                connection.down.append(run.last())

    def _result(self):
        if self.run is None:
            return error("not_found")
        if self.run.end is not None:
            return self.run.end
        return {"state": "running", "text": self.run.text, "seq": self.run.seq}

    def token(self, text):
        if self.run is not None and self.run.end is None:
            self.run.text += text
            self.run.event("token", text=text)

    def finish(self, end):
        if self.run is not None and self.run.end is None:
            self.run.end = end
            self.run.event("end", **end)
            self._answer_waiting()

    def _answer_waiting(self):
        for connection, base in self.waiting:
            connection.down.append({**base, **self.run.end})
        self.waiting = []


def error(code, **fields):
    return {"ok": False, "error": {"code": code, "message": "m", "retryable": code != "not_found", **fields}}


def result(text, reason="stop"):
    return {"ok": True, "text": text, "finish_reason": reason}


class Connection:
    def __init__(self, server, first):
        self.server, self.born, self.first = server, server.born, first
        self.up, self.down = deque(), deque()

    @property
    def alive(self):
        return self.server.up and self.born == self.server.born


class Trouble(RuleBasedStateMachine):
    @initialize(mode=st.sampled_from(["reply", "pub", None]), boxes=st.integers(1, 3))
    def begin(self, mode, boxes):
        self.now, self.shown, self.anew, self.ends = 0.0, "", 0, 0
        self.texts = {}
        self.holder = None  # endpoint of the box that may have the request, and when it said anything last
        self.servers = {endpoint: Server(endpoint[7], self.texts) for endpoint in BOXES[:boxes]}
        self.connections = {}
        pace = Pace()
        choice = Choice(BOXES[:boxes], Boxes(pace), pace, "i")
        self.machine = Exchange(
            {"id": "i", "prompt": "x"},
            mode,
            choice,
            pace,
            deadline_s=DEADLINE_S,
            answer_s=None,
            retry=True,
            stream_endpoint=stream_of(None),
        )
        self.do(self.machine.begin(self.now))

    # ---- the machine's side ------------------------------------------------------------------------------------

    def do(self, actions):
        for action in actions:
            match action:
                case Ask(line=line, endpoint=endpoint, body=body):
                    self.moves_rightly(endpoint)
                    self.connections[line] = Connection(self.servers[endpoint], None)
                    self.connections[line].up.append(json.loads(body))
                case Listen(line=line, endpoint=endpoint, topic=topic):
                    server = self.servers[endpoint.replace("stream.sock", "request.sock")]
                    self.connections[line] = Connection(server, topic)
                    self.connections[line].up.append(topic)
                case Say(line=line, body=body):
                    self.connections[line].up.append(json.loads(body))
                case Close(line=line):
                    self.hang_up(self.connections.pop(line))
        self.read()

    def hang_up(self, connection):
        run = connection.server.run
        if run is not None and connection in run.listeners:
            run.listeners.remove(connection)

    def read(self):
        while self.machine.events:
            event = self.machine.events.popleft()
            match event:
                case Piece(text=text):
                    self.shown += text
                case Anew(discarded=discarded):
                    assert discarded == self.shown
                    self.shown = ""
                    self.anew += 1
                case Ended():
                    self.ends += 1

    def feed(self, what):
        self.hears(what)
        self.do(self.machine.feed(what, self.now))

    def hears(self, what):
        """Who has it by now, as far as the client can know."""
        at = self.machine.endpoint
        if isinstance(what, Reached) and what.line == self.machine._ask and self.holder is None:
            self.holder = (at, self.now)
        if isinstance(what, Heard):
            self.holder = None if "error" in what.message else (at, self.now)

    def moves_rightly(self, endpoint):
        """Text that was shown stays where it is; what may have been accepted, until that box is given up."""
        if self.holder is not None and endpoint != self.holder[0]:
            assert not self.shown
            assert not self.anew
            assert self.now >= self.holder[1] + Pace().stay_s
            self.holder = None

    def some(self, number, pending):
        """One of the lines where something waits."""
        lines = [line for line, connection in self.connections.items() if pending(connection)]
        return lines[number % len(lines)] if lines else None

    # ---- what goes well ----------------------------------------------------------------------------------------

    @rule(text=st.sampled_from(["a", "bc", "é", "時 "]), count=st.integers(1, 4), n=st.integers(0, 2))
    def tokens(self, text, count, n):
        self.serve_all()
        for _ in range(count):
            self.server(n).token(text)

    @rule(most=st.integers(1, 6))
    def deliver(self, most):
        for _ in range(most):
            for line in list(self.connections):
                if line in self.connections and self.connections[line].down:
                    self.feed(Heard(line, self.connections[line].down.popleft()))

    @rule(text=st.sampled_from(["d", "ef"]))
    def flow(self, text):
        """A stretch without trouble."""
        for n in range(len(self.servers)):
            self.tokens(text, 2, n)
        self.deliver(20)

    @precondition(lambda self: any(server.run and len(server.run.text) > 20 for server in self.servers.values()))
    @rule()
    def finish(self):
        for server in self.servers.values():
            if server.run is not None and len(server.run.text) > 20:
                server.finish(result(server.run.text))

    @precondition(lambda self: self.machine.outcome is None)
    @rule()
    def time_comes(self):
        self.now = max(self.now, self.machine.wake)
        self.do(self.machine.tick(self.now))

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds):
        self.now += seconds
        self.do(self.machine.tick(self.now))

    def serve_all(self):
        for connection in list(self.connections.values()):
            while connection.up and connection.server.up:
                self.serve(connection)

    def serve(self, connection):
        connection.born = connection.server.born  # zmq connects again by itself
        line = next(n for n, one in self.connections.items() if one is connection)
        self.feed(Reached(line))
        said = connection.up.popleft()
        if isinstance(said, str):
            connection.server.subscribe(connection, said)
        else:
            connection.server.answer(connection, said)

    # ---- what goes wrong ---------------------------------------------------------------------------------------

    @precondition(lambda self: any(c.down for c in self.connections.values()))
    @rule(n=st.integers(0, 5), count=st.integers(1, 3))
    def lose_down(self, n, count):
        for _ in range(count):
            line = self.some(n, lambda c: c.down)
            if line is not None:
                self.connections[line].down.popleft()

    @precondition(lambda self: any(c.down for c in self.connections.values()))
    @rule(n=st.integers(0, 5))
    def repeat_down(self, n):
        line = self.some(n, lambda c: c.down)
        self.feed(Heard(line, self.connections[line].down[0]))

    @precondition(lambda self: any(len(c.down) > 1 for c in self.connections.values()))
    @rule(n=st.integers(0, 5))
    def swap_down(self, n):
        """No transport does this; a proxy between might."""
        self.connections[self.some(n, lambda c: len(c.down) > 1)].down.rotate(-1)

    @precondition(lambda self: any(c.up for c in self.connections.values()))
    @rule(n=st.integers(0, 5))
    def lose_up(self, n):
        self.connections[self.some(n, lambda c: c.up)].up.popleft()

    @precondition(lambda self: self.connections)
    @rule(n=st.integers(0, 5))
    def cut(self, n):
        line = self.some(n, lambda c: True)
        self.hang_up(self.connections[line])
        self.connections[line].down.clear()
        self.feed(Lost(line))

    @precondition(lambda self: self.connections)
    @rule(n=st.integers(0, 5))
    def unreachable(self, n):
        self.feed(Unreachable(self.some(n, lambda c: True)))

    @precondition(lambda self: any(server.run for server in self.servers.values()))
    @rule(n=st.integers(0, 1))
    def worker_lost(self, n):
        self.server(n).finish(error("worker_lost"))

    @precondition(lambda self: any(server.run for server in self.servers.values()))
    @rule(n=st.integers(0, 2), told=st.booleans())
    def restart(self, n, told):
        server = self.server(n)
        server.restart()
        for line, connection in list(self.connections.items()):
            if connection.server is server and line in self.connections:
                connection.down.clear()
                connection.born = server.born
                if told:
                    self.feed(Lost(line))

    @rule(n=st.integers(0, 2))
    def down_or_up(self, n):
        self.server(n).up = not self.server(n).up

    @rule(n=st.integers(0, 2), busy=st.booleans())
    def set_busy(self, n, busy):
        self.server(n).busy = busy

    def server(self, n):
        return list(self.servers.values())[n % len(self.servers)]

    # ---- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def the_text_is_one_that_the_run_had(self):
        if not hasattr(self, "machine"):
            return
        reading = self.machine.reading
        assert self.shown == reading.text
        if reading.topic is not None and not isinstance(self.machine.outcome, Result):
            assert self.texts[reading.topic].text.startswith(reading.text)
        assert self.anew == reading.run - 1

    @invariant()
    def it_ends_once_and_holds_few_lines(self):
        if not hasattr(self, "machine"):
            return
        assert len(self.connections) <= 3
        assert self.ends == isinstance(self.machine.outcome, Result)
        if self.machine.outcome is not None:
            assert not self.connections
        else:
            assert self.machine.wake <= DEADLINE_S + 2

    def teardown(self):
        """The trouble is over: everything gets through. Then it ends, with the whole text or for a reason."""
        if not hasattr(self, "machine"):
            return
        for server in self.servers.values():
            server.up, server.busy = True, False
        begun, spent = self.now, self.machine._begun_anew
        while self.machine.outcome is None:
            moved = False
            for line in list(self.connections):
                connection = self.connections.get(line)
                if connection is not None and connection.up:
                    self.serve(connection)
                    moved = True
                while line in self.connections and self.connections[line].down:
                    self.feed(Heard(line, self.connections[line].down.popleft()))
                    moved = True
            for server in self.servers.values():
                if not moved and server.run is not None and server.run.end is None:
                    server.token("z")
                    server.finish(result(server.run.text))
                    moved = True
            if not moved and self.machine.outcome is None:
                self.now = max(self.now, self.machine.wake)
                self.do(self.machine.tick(self.now))
        self.the_text_is_one_that_the_run_had()
        self.it_ends_once_and_holds_few_lines()
        outcome = self.machine.outcome
        assert self.now <= DEADLINE_S + 2 or begun > DEADLINE_S
        if isinstance(outcome, Result):
            assert outcome.text == self.shown
            assert outcome.text in {run.text for run in self.texts.values()}
        else:
            assert isinstance(outcome, EdgedError)
            spoiled = isinstance(outcome, ReplyError) and outcome.code == "worker_lost" and self.machine._begun_anew > 2
            late = isinstance(outcome, (NoAnswer, ReplyError)) and begun > DEADLINE_S - 60
            assert spoiled or late, (outcome, begun, spent)


TestTrouble = Trouble.TestCase
TestTrouble.settings = settings(max_examples=300, stateful_step_count=50)

"""A worker without a model: it speaks the link as the real one does and obeys its prompts. For faults and for speed.

A prompt is words `key=value`:

    n=50         tokens to say (default 5, never more than max_tokens)
    delay=0.01   seconds a token takes (default 0); events on the link are served meanwhile
    chunks=3     prompt chunks (default 1), `pdelay` seconds each
    die=KILL@7   sends itself that signal when it has said 7 tokens (`die=KILL@0`: when it starts)
    deaf=0.5     before it dies it reads nothing for so long
    refuse=context_overflow
    word=…       what each token says, instead of "t0 ", "t1 ", …
    tag=x        tokens are "x0 ", "x1 ", …
    once=1       `die` and `hang` only where it is not carried on
    hang=7       stops altogether, as a stuck decode does, when it has said 7 tokens
    stall=1      takes the request and says nothing more
    show=1       the answer's one token is what the worker was given: "head=1 turns=2,2 messages=6 last=…" (last: the
                 last word of each message, for the order)
    drop=2       leaves so many of the oldest turns out

The first text of an `embed` may be `refuse=…`, `die=KILL`, `stall=1`, `dim=8` (numbers in a vector); the last message
of a `warm` may be `stall=1`.

A carried request goes on with the token after the last one it said; its prompt is read again where nothing was said.
`Pace` stretches delays. Token ids are 1, 2, …; a prompt has as many tokens as words, and must fit the context.

Environment EDGED_SCRIPT: `load=fail`, `load=die`, `load=illegal`, `load=garbage`, `load=never`, `load=0.5` (seconds),
`sequences=4`, `refuse=big` (models with that in their path are refused).
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import time
from array import array

from edged import link
from edged.messages import (
    Abort,
    Beat,
    Done,
    Down,
    Embed,
    Embedded,
    Gone,
    Load,
    LoadFailed,
    Loading,
    Pace,
    Prefilled,
    Prompted,
    Quit,
    Ready,
    Refused,
    Sampled,
    Slots,
    Start,
    Tokenize,
    Tokenized,
    TokenLogprob,
    Up,
    Warm,
    Warmed,
)
from edged.system.fingerprint import fingerprint


def words(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def shown(start: Start) -> str:
    """What a prompt was made of."""
    messages = start.messages or []
    last = ",".join((m.content.split() or ["-"])[-1] for m in messages)
    turns = ",".join(map(str, start.turns))
    return f"head={start.head} turns={turns} messages={len(messages)} session={start.session} last={last}"


class Run:
    """One request at work."""

    def __init__(self, start: Start) -> None:
        text = start.prompt if start.prompt is not None else start.messages[-1].content
        self.start = start
        self.script = words(text)
        self.total = max(1, len(text.split()))
        self.chunks = int(self.script.get("chunks", 1))
        self.chunk = 0
        self.carried = start.carried is not None
        self.said = len(start.carried.ids) // 4 if start.carried else 0
        if self.said:
            self.chunk = self.chunks
        self.want = min(start.max_tokens, int(self.script.get("n", 5)))
        self.next_at = 0.0
        self.stretch = 1.0
        self.dropped = min(int(self.script.get("drop", 0)), len(start.turns))

    def step(self, now: float) -> list[Up]:
        rid = self.start.rid
        if self.chunk == 0 and "show" in self.script:
            self.want, self.script["word"] = 1, shown(self.start)
        if self.chunk < self.chunks:
            self.chunk += 1
            self.next_at = now + float(self.script.get("pdelay", 0)) * self.stretch
            done = max(1, self.total * self.chunk // self.chunks)
            return [Prefilled(rid, done, self.total, 0, self.dropped)]
        self._die_if_told()
        if self.said >= self.want:
            return [Done(rid, "length" if self.want == self.start.max_tokens else "stop", None)]
        text = self.script.get("word", f"{self.script.get('tag', 't')}{self.said} ")
        self.said += 1
        self.next_at = now + float(self.script.get("delay", 0)) * self.stretch
        told = [TokenLogprob(self.said, text, -0.5, [])] if self.start.shape.logprobs else []
        return [Sampled(rid, [self.said], text, logprobs=told)]

    def _die_if_told(self) -> None:
        if self.carried and "once" in self.script:
            return
        if self.said == int(self.script.get("hang", -1)):
            while True:
                time.sleep(60)
        name, _, after = self.script.get("die", "").partition("@")
        if name and self.said >= int(after):
            time.sleep(float(self.script.get("deaf", 0)))
            os.kill(os.getpid(), getattr(signal, f"SIG{name}"))


class Worker:
    def __init__(self, sock: socket.socket, script: dict[str, str]) -> None:
        self.sock = sock
        self.reader = link.DownReader()
        self.sequences = int(script.get("sequences", 4))
        self.load = script.get("load", "0")
        self.refuse = script.get("refuse", "")
        self.context = 0
        self.stretch = 1.0
        self.made = 0
        self.waiting: list[Run] = []
        self.running: list[Run] = []
        self.active = 0.0
        self.busy = 0.0

    def say(self, *messages: Up) -> None:
        self.sock.sendall(link.encode(*messages))

    def hear(self, timeout: float | None) -> list[Down]:
        if not select.select([self.sock], [], [], timeout)[0]:
            return []
        data = self.sock.recv(1 << 16)
        if not data:
            raise SystemExit(0)
        return self.reader.feed(data)

    def ready(self, load: Load) -> None:
        if self.load == "fail":
            self.say(LoadFailed("test", "told to fail"))
            raise SystemExit(1)
        if self.refuse and self.refuse in load.model_path:
            self.say(LoadFailed("memory", "told to refuse this model"))
            raise SystemExit(1)
        if self.load in ("die", "illegal"):
            os.kill(os.getpid(), signal.SIGABRT if self.load == "die" else signal.SIGILL)
        if self.load == "garbage":
            self.sock.sendall(b"\xff" * 64)
        while self.load in ("never", "garbage"):
            self.hear(None)
        if float(self.load):
            self.say(Loading(0.5))
            time.sleep(float(self.load))
        facts = {"name": "scripted", "architecture": "none", "description": "scripted", "chat_template": "model"}
        sizes = {"parameters": 0, "size_bytes": 0, "train_context": 0, "context": load.context, "vocab": 256}
        rest = {"threads": [], "load_ms": 1.0, "kv_bytes": 0, "build": "none", "warnings": []}
        self.context = load.context
        rest["fingerprint"] = fingerprint(load.model_path)
        self.say(Ready(**facts, **sizes, **rest, sequences=self.sequences, prefill_chunk=load.prefill_chunk))

    def loop(self) -> None:
        while True:
            self.fill()
            now = time.monotonic()
            due = [run.next_at for run in self.running]
            timeout = max(0.0, min(due) - now) if due else None
            for message in self.hear(timeout):
                self.take(message)
            self.fill()
            out: list[Up] = []
            now = time.monotonic()
            for run in [run for run in self.running if run.next_at <= now]:
                run.stretch = self.stretch
                out += run.step(now)
                self.made += 1
                if isinstance(out[-1], Done):
                    self.running.remove(run)
                    out.append(self.slots())
            if out:
                self.say(*out, Beat(self.made))

    def take(self, message: Down) -> None:
        match message:
            case Start(rid=rid):
                run = Run(message)
                if run.total + run.said + 1 > self.context:
                    sizes = f"{run.total} + {run.said} + 1 > {self.context}"
                    self.say(Refused(rid, "context_overflow", f"the prompt does not fit: {sizes}"))
                elif "refuse" in run.script:
                    self.say(Refused(rid, run.script["refuse"], "told to refuse (9 tokens, 8 fit)"))
                elif "stall" not in run.script:
                    self.waiting.append(run)
            case Abort(rid=rid):
                self.waiting = [run for run in self.waiting if run.start.rid != rid]
                self.running = [run for run in self.running if run.start.rid != rid]
                self.say(Gone(rid), self.slots())
            case Tokenize(rid=rid, text=text, messages=messages):
                size = len(text or "".join(m.content for m in messages or []))
                self.say(Tokenized(rid, list(range(size)), size < 100))
            case Embed(rid=rid, inputs=inputs):
                script = words(inputs[0])
                if "refuse" in script:
                    self.say(Refused(rid, script["refuse"], "told to refuse"))
                elif "die" in script:
                    os.kill(os.getpid(), getattr(signal, f"SIG{script['die']}"))
                elif "stall" not in script:
                    vector = "[" + ",".join(["0.5"] * int(script.get("dim", 4))) + "]"
                    self.say(Embedded(rid, [vector.encode()] * len(inputs), sum(len(t.split()) for t in inputs)))
            case Warm(rid=rid, messages=turns):
                if "stall" not in words(turns[-1].content):
                    self.say(Warmed(rid, sum(len(t.content.split()) for t in turns), 1))
            case Pace(duty=duty):
                self.stretch = 1 / duty
            case Load():
                self.ready(message)
            case Quit():
                raise SystemExit(0)

    def fill(self) -> None:
        while self.waiting and len(self.running) < self.sequences:
            run = self.waiting.pop(0)
            self.running.append(run)
            if not run.carried:
                self.say(Prompted(run.start.rid, array("I", range(run.total)).tobytes(), 0, []))
            self.say(Prefilled(run.start.rid, 0, run.total, 0, run.dropped), self.slots())

    def slots(self) -> Slots:
        return Slots(len(self.running), len(self.waiting), 0, 0, 0, 0, self.busy, self.active)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    sock = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(sock, words(os.environ.get("EDGED_SCRIPT", ""))).loop()


if __name__ == "__main__":
    main()

"""The worker's loop: one thread that owns the link and the engine.

Everything that came is handled before each step; each step's outputs leave as one frame. It sleeps in poll() only
when there is nothing to decode, or between steps as `Pace` asks. Any exception here is the process's end: the daemon
starts another and carries the requests on.
"""

from __future__ import annotations

import time
from typing import Final

from edged.messages import (
    Abort,
    CacheSettings,
    Discard,
    Down,
    Embed,
    Forget,
    Gone,
    Load,
    Pace,
    Quit,
    Refused,
    Save,
    Saved,
    Shrink,
    Start,
    Tokenize,
    Tokenized,
    Up,
    Warm,
)
from edged.system.trim import Trimmer
from edged.worker.archive import Fetched
from edged.worker.carrier import Carrier
from edged.worker.channel import Channel
from edged.worker.embedding import Embedding
from edged.worker.loading import Loaded
from edged.worker.meter import CacheMeter, Meter, Pulse
from edged.worker.mover import Mover
from edged.worker.pacing import Pacer
from edged.worker.prepare import Dropped, Outcome, Prepared, PreparedTexts
from edged.worker.prompt import Prompt
from edged.worker.scheduler import Scheduler
from edged.worker.stepper import Stepper

TRIM_S: Final = 5.0
LEAVE_S: Final = 0.5
"""More than the daemon gave, to leave."""


class Loop:
    def __init__(self, channel: Channel, loaded: Loaded, cache: CacheSettings) -> None:
        self._channel = channel
        self._engine, self._prepare, self._archive, checkpoints, ready = loaded
        self._scheduler = Scheduler(
            ready.context,
            ready.sequences,
            self._engine.batch,
            self._engine.chunk,
            self._engine.residents,
            self._engine.rules(cache.sharing),
            reuse=cache.reuse,
            alone=self._archive is not None,
        )
        self._disk_takes_all = cache.disk == "all"
        self._carrier = Carrier(self._engine, self._scheduler, checkpoints)
        self._mover = Mover(self._engine, self._scheduler, self._archive, self._carrier)
        self._stepper = Stepper(self._engine, self._scheduler, self._mover, self._carrier, channel.send)
        self._embedding = Embedding(self._engine)
        self._preparing: dict[int, str] = {}  # and the name of its checkpoint
        self._meter, self._cache_meter, self._pulse = Meter(), CacheMeter(), Pulse()
        self._pacer = Pacer()
        self._saves = 0
        self._trimmer, self._trimmed = Trimmer(), 0.0
        self._quit = False

    def run(self) -> None:
        """Until Quit. Raises LinkClosed when the daemon is gone, EngineError when the engine is."""
        decoding = False
        while True:
            if decoding or self._embedding.runnable:
                self._pause()
            else:
                self._idle()
            for message in self._channel.receive():
                self._handle(message)
            for done in self._prepare.take():
                self._prepared(done)
            self._take_fetched()
            if self._quit:
                return
            if self._pacer.wait_ms:
                continue
            began = time.monotonic()
            decoding = self._scheduler.runnable and self._step()
            said = self._embedding.turn(busy=decoding)
            self._channel.send(*said, *self._beat())
            self._pacer.worked(time.monotonic() - began)

    def _idle(self) -> None:
        """Nothing to decode: there is no request, or those that are wait for a snapshot."""
        self._pacer.cut()
        if not self._scheduler.runnable:
            self._scheduler.check()
            self._engine.check({seq: r.used for seq, r in self._scheduler.kv.residents()})
            self._trim()
        self._tell_slots()
        if self._channel.wait(self._prepare.wake, self._embedding.rest_ms()):
            self._prepare.clear()

    def _pause(self) -> None:
        """As `Pace` asks; whatever comes is served meanwhile."""
        wait_ms = self._pacer.wait_ms
        if wait_ms:
            began = time.monotonic()
            if self._channel.wait(self._prepare.wake, wait_ms):
                self._prepare.clear()
            self._pacer.waited(time.monotonic() - began)

    def _trim(self) -> None:
        """What was freed goes back to the kernel, now and then."""
        now = time.monotonic()
        if now - self._trimmed >= TRIM_S:
            self._trimmed = now
            self._trimmer.trim()

    def _take_fetched(self) -> None:
        self._carrier.take()
        if self._archive is None:
            return
        for done in self._archive.take():
            if isinstance(done, Fetched):
                self._mover.fetched(done.rid, done.state)
            elif self._saves:
                self._saves -= 1
                if not self._saves:
                    self._channel.send(Saved(done.files, done.bytes, done.left))
        self._scheduler.residency.snapshots = self._archive.index

    # ---- what comes

    def _handle(self, message: Down) -> None:
        match message:
            case Start(rid=rid) | Warm(rid=rid):
                if rid in self._preparing or rid in self._stepper.requests:
                    raise ValueError("the daemon gave one request number twice")
                self._preparing[rid] = message.name if isinstance(message, Start) else ""
                self._prepare.put(message)
            case Tokenize():
                self._prepare.put(message)
            case Embed(rid=rid):
                self._embedding.expect(rid)
                self._prepare.put(message)
            case Abort(rid=rid):
                self._abort(rid)
            case Load():
                raise ValueError("the daemon said Load twice")
            case _:
                self._handle_order(message)
        self._tell_slots()

    def _handle_order(self, message: Save | Forget | Discard | Pace | Shrink | Quit) -> None:
        match message:
            case Save(within_s=seconds):
                self._save(seconds)
            case Forget(scope=scope):
                self._mover.forget_scope(scope)
            case Discard(name=name):
                self._carrier.discard(name)
            case Pace(duty=duty, threads=threads):
                self._pacer.set(duty)
                self._engine.limit_threads(threads)
            case Shrink():
                self._carrier.shrink()
                self._mover.shed()
                self._embedding.shed()
                self._trimmer.trim()
            case Quit(within_s=seconds, carry=carry):
                self._leave(seconds, carry=carry)

    def _abort(self, rid: int) -> None:
        self._pacer.cut()
        self._embedding.abort(rid)
        if rid in self._preparing:
            self._carrier.discard(self._preparing.pop(rid))
        if rid in self._stepper.requests:
            self._stepper.forget(rid)
        if not self._prepare.drop(rid):
            self._channel.send(Gone(rid))

    def _save(self, seconds: float) -> None:
        if self._archive is None:
            self._channel.send(Saved(0, 0, 0))
            return
        self._saves += 1
        self._mover.save(time.monotonic() + seconds, everything=self._disk_takes_all)

    def _leave(self, seconds: float, *, carry: bool) -> None:
        self._quit = True
        deadline = time.monotonic() + seconds
        if carry:
            self._carrier.complete(deadline + LEAVE_S)
        if self._archive is not None and seconds > 0:
            for rid in list(self._stepper.requests):
                self._stepper.forget(rid, carried=carry)
            self._mover.save(deadline, everything=self._disk_takes_all)
        last = deadline + LEAVE_S
        self._carrier.close(keep=carry, timeout=max(0.0, last - time.monotonic()))
        if self._archive is not None:
            self._archive.close(remove_ram=not carry, timeout=max(0.0, last - time.monotonic()))

    def _prepared(self, done: Outcome) -> None:
        match done:
            case Dropped(rid=rid):
                self._channel.send(Gone(rid))
            case Prepared(job=Tokenize(rid=rid), result=result):
                if isinstance(result, list):
                    self._channel.send(Tokenized(rid, result, len(result) + 1 <= self._engine.cells))
                elif isinstance(result, Refused):
                    self._channel.send(result)
            case PreparedTexts(job=Embed(rid=rid), result=texts):
                self._channel.send(*self._embedding.prepared(rid, texts))
            case Prepared(job=Start() | Warm() as job, result=result) if job.rid in self._preparing:
                del self._preparing[job.rid]
                if isinstance(result, Refused):
                    self._stepper.refused(job, result)
                elif isinstance(result, Prompt):
                    self._stepper.submit(job, result, done.form)
                self._tell_slots()

    # ---- one step

    def _step(self) -> bool:
        """False: nothing to decode, whoever is there waits for a snapshot."""
        out = self._stepper.step()
        if out is None:
            return False
        self._channel.send(*out, *self._slots(), *self._beat())
        self._carrier.after_step()
        return True

    # ---- what is told

    def _beat(self) -> list[Up]:
        beat = self._pulse.read(self._stepper.tokens + self._embedding.tokens)
        return [beat] if beat is not None else []

    def _slots(self) -> list[Up]:
        slots = self._meter.read(self._scheduler, len(self._preparing))
        facts = self._cache_meter.read(self._scheduler, self._archive)
        return [m for m in (slots, facts) if m is not None]

    def _tell_slots(self) -> None:
        self._channel.send(*self._slots())

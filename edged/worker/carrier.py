"""Running requests made ready to be carried on: their cells go to files while they run, and come back from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edged.worker.checkdir import is_name
from edged.worker.checkformat import Piece
from edged.worker.checkpoints import Checkpoints, Kept, Recalled
from edged.worker.copying import Copying, Due
from edged.worker.engine import Engine
from edged.worker.llama import StateError
from edged.worker.scheduler import Scheduler


@dataclass(slots=True)
class _Carried:
    """`pieces`: of its checkpoint, while it waits to start from them; whole ones end at `stop`."""

    name: str
    prompt: list[int]
    ids: Sequence[int]
    pieces: tuple[Piece, ...] = ()

    @property
    def known(self) -> list[int]:
        return [*self.prompt, *self.ids]


class Carrier:
    """`files` is None: there are no checkpoints."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        files: Checkpoints | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._scheduler, self._files, self._clock = engine, scheduler, files, clock
        self._copying = Copying(engine.chunk, whole=engine.exact, window=engine.window)
        self._requests: dict[int, _Carried] = {}
        self._rids: dict[str, int] = {}
        self._cell_bytes = 0.0

    def begin(self, rid: int, name: str, prompt: list[int], ids: Sequence[int]) -> None:
        """A request is about to be given to the scheduler."""
        if self._files is not None and is_name(name) and name not in self._rids:
            self._requests[rid] = _Carried(name, prompt, ids)
            self._rids[name] = rid
            self._copying.begin(rid)

    def may_recall(self, rid: int) -> bool:
        return rid in self._requests

    def forget(self, rid: int) -> None:
        """It ended: nobody carries it on."""
        request = self._requests.pop(rid, None)
        if request is not None and self._files is not None:
            del self._rids[request.name]
            self._copying.forget(rid)
            self._files.remove(request.name)

    def discard(self, name: str) -> None:
        """It ended while no worker had it."""
        if self._files is not None and is_name(name) and name not in self._rids:
            self._files.remove(name)

    # ---- out

    def after_step(self) -> None:
        """Copies out one piece, when one is due."""
        files, now = self._files, self._clock()
        if files is None or now < self._copying.not_before or not self._requests:
            return
        due = self._copying.due(self._scheduler.running(), now)
        if due is not None and files.room(self._size(due)):
            self._copy(files, due)

    def _size(self, due: Due) -> int:
        """About."""
        return int(self._cell_bytes * (due.stop - due.start))

    def _copy(self, files: Checkpoints, due: Due) -> None:
        began = self._clock()
        state = self._engine.copy_part_out(due.seq, due.start, due.stop)
        now = self._clock()
        self._cell_bytes = len(state) / (due.stop - due.start)
        request = self._requests[due.rid]
        tokens = self._scheduler.kv[due.seq].tokens[due.start : due.stop]
        files.put(request.name, request.prompt, due.start, tokens, state)
        self._copying.taken(due, now, now - began)

    def complete(self, deadline: float) -> None:
        """Another worker goes on: everything that is missing, as long as there is time and room."""
        files = self._files
        if files is None:
            return
        for rid, seq, filled in self._scheduler.running():
            while (due := self._copying.left(rid, seq, filled)) is not None:
                while not files.room(self._size(due)) and files.waiting and self._clock() < deadline:
                    self._heard(files.take(deadline - self._clock()))
                if self._clock() >= deadline or not files.room(self._size(due)):
                    break
                self._copy(files, due)

    def close(self, *, keep: bool, timeout: float) -> None:
        if self._files is not None:
            self._files.close(remove=not keep, timeout=timeout)

    def shrink(self) -> None:
        """Memory is short: what was copied goes, and nothing is for a while."""
        if self._files is not None:
            self._files.clear()
            self._copying.hold(self._clock())
            for rid in self._requests:
                self._copying.begin(rid)

    # ---- in

    def take(self) -> None:
        """What the thread has done by now."""
        if self._files is not None:
            self._heard(self._files.take())

    def _heard(self, done: Sequence[Kept | Recalled]) -> None:
        for message in done:
            match message:
                case Kept(name=name, stop=stop, wanted=wanted):
                    if stop < wanted and name in self._rids:
                        self._copying.kept(self._rids[name], stop)
                        self._copying.hold(self._clock())
                case Recalled(rid=rid, pieces=pieces):
                    self._recalled(rid, pieces)

    def recall(self, rid: int) -> None:
        request, files = self._requests[rid], self._files
        assert files is not None
        files.recall(rid, request.name, request.prompt, request.known)

    def _recalled(self, rid: int, pieces: tuple[Piece, ...]) -> None:
        request = self._requests.get(rid)
        useful = self._useful(pieces, len(request.known)) if request is not None else ()
        length = min(useful[-1].same, len(request.known) - 1) if request is not None and useful else 0
        if self._scheduler.recalled(rid, length) and request is not None:
            request.pieces = useful

    def _useful(self, pieces: tuple[Piece, ...], known: int) -> tuple[Piece, ...]:
        """Without a last one that cannot be used in part.

        Where nothing can be trimmed, none can; with a sliding window, one that is longer than it has a hole there.
        """
        if not pieces or (last := pieces[-1]).stop <= min(last.same, known - 1):
            return pieces
        window = self._engine.window
        cannot = self._copying.whole or 0 < window < last.stop - last.start
        return pieces[:-1] if cannot or min(last.same, known - 1) <= last.start else pieces

    def resume(self, rid: int, seq: int, length: int) -> bool:
        """Its pieces into an empty sequence. False: they do not fit this context; the sequence is empty."""
        request = self._requests[rid]
        try:
            for piece in request.pieces:
                self._engine.copy_part_in(seq, piece.start, min(piece.stop, length), piece.state)
        except StateError:
            self._engine.remove(seq)
            return False
        whole = [piece.stop for piece in request.pieces if piece.stop == piece.same]
        self._copying.begin(rid, whole[-1] if whole else 0)
        return True

    def started(self, rid: int) -> None:
        """It has its sequence: what was got ready for it is used, or of no use."""
        if rid in self._requests:
            self._requests[rid].pieces = ()

"""One running request: from sampled tokens to what the daemon hears of them."""

from __future__ import annotations

from edged.messages import Done, Sampled, Start, Up
from edged.worker.detok import Detokenizer
from edged.worker.engine import State
from edged.worker.sampler import Sampler
from edged.worker.vocabulary import Vocabulary


class Request:
    """`state` holds the KV cells while the request is set aside."""

    def __init__(self, start: Start, prompt: list[int], limit: int, vocabulary: Vocabulary) -> None:
        self.rid = start.rid
        self.prompt = prompt
        self.state: State | None = None
        self.sampler = Sampler(start.sampling, vocabulary.size, prompt)
        self.count = 0
        self.last = -1
        self._limit = limit
        self._vocabulary = vocabulary
        self._text = Detokenizer(start.stop)

    def accept(self, token: int) -> tuple[list[Up], bool]:
        """The next token: what to say, and whether that was the last."""
        if self._vocabulary.is_end(token):
            return self._end([], "", "stop", None)
        self.count += 1
        self.last = token
        text = self._text.feed(self._vocabulary.piece(token))
        if self._text.stopped is not None:
            return self._end([token], text, "stop", self._text.stopped)
        if self.count == self._limit:
            return self._end([token], text, "length", None)
        return [Sampled(self.rid, [token], text)], False

    def _end(self, ids: list[int], text: str, reason: str, stop: str | None) -> tuple[list[Up], bool]:
        text += self._text.finish()
        said: list[Up] = [Sampled(self.rid, ids, text)] if ids or text else []
        return [*said, Done(self.rid, reason, stop)], True

    def close(self) -> None:
        self.sampler.close()
        self.state = None

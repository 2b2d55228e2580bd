"""One running request: from sampled tokens to what the daemon hears of them."""

from __future__ import annotations

from edged.messages import Done, Prefilled, Sampled, Start, Up, Warm
from edged.worker.detok import Detokenizer
from edged.worker.plan import State
from edged.worker.prompt import Prompt
from edged.worker.sampler import Sampler
from edged.worker.vocabulary import Vocabulary


class Reading:
    """A prompt that is read. `state` holds the KV cells while it is set aside; `cached` tokens were there."""

    def __init__(self, job: Start | Warm, prompt: Prompt) -> None:
        self.rid = job.rid
        self.prompt = prompt.tokens
        self.public = prompt.public
        self.scope = job.scope
        self.keep = isinstance(job, Warm) or job.session
        self.cached = 0
        self.last = -1
        self.state: State | None = None

    def close(self) -> None:
        self.state = None


class Warming(Reading):
    """A prompt without an answer."""


class Request(Reading):
    """A prompt and its answer."""

    def __init__(self, start: Start, prompt: Prompt, limit: int, vocabulary: Vocabulary) -> None:
        super().__init__(start, prompt)
        self.sampler = Sampler(start.sampling, vocabulary.size, prompt.tokens)
        self._dropped = prompt.dropped
        self.count = 0
        self._limit = limit
        self._vocabulary = vocabulary
        self._text = Detokenizer(start.stop)

    def prefilled(self, done: int) -> Prefilled:
        """So many tokens of the prompt are in the cache."""
        return Prefilled(self.rid, done, len(self.prompt), self.cached, self._dropped)

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
        super().close()
        self.sampler.close()

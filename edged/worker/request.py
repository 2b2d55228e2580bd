"""One running request: from sampled tokens to what the daemon hears of them."""

from __future__ import annotations

from collections.abc import Sequence

from edged.messages import Done, Prefilled, Sampled, Start, TokenLogprob, Up, Warm
from edged.worker.answer import Answer
from edged.worker.automaton import State as GrammarState
from edged.worker.form import Form
from edged.worker.logprobs import Logprobs
from edged.worker.masks import Masks
from edged.worker.plan import State
from edged.worker.prompt import Prompt
from edged.worker.sampler import Sampler
from edged.worker.vocabulary import Vocabulary

NO_FORM = Form()


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

    def __init__(self, start: Start, prompt: Prompt, limit: int, vocabulary: Vocabulary, form: Form = NO_FORM) -> None:
        super().__init__(start, prompt)
        self.sampler = Sampler(start.sampling, vocabulary.size, prompt.tokens)
        self._dropped = prompt.dropped
        self.count = 0
        self.logprobs = Logprobs(form.logprobs, vocabulary.piece) if form.logprobs else None
        self._limit = limit
        self._vocabulary = vocabulary
        self._answer = Answer(form, start.stop, start.sampling.seed)
        self._whole = form.whole
        self._at = form.whole.automaton.start if form.whole else None

    @property
    def gate(self) -> tuple[Masks, GrammarState] | None:
        """What constrains the next token."""
        if self._whole is not None and self._at is not None:
            return self._whole.masks, self._at
        begun = self._answer.gate
        return None if begun is None else (begun[0].masks, begun[1])

    def prefilled(self, done: int) -> Prefilled:
        """So many tokens of the prompt are in the cache."""
        return Prefilled(self.rid, done, len(self.prompt), self.cached, self._dropped)

    def accept(self, token: int) -> tuple[list[Up], bool]:
        """The next token: what to say, and whether that was the last. Raises GrammarError."""
        if self._vocabulary.is_end(token):
            return self._end([], "", [], "stop", None)
        return self._next(token, [self.logprobs.of(token)] if self.logprobs else [])

    def _next(self, token: int, told: list[TokenLogprob]) -> tuple[list[Up], bool]:
        self.count += 1
        self.last = token
        piece = self._vocabulary.piece(token)
        if self._whole is not None:
            self._whole.automaton.work = 0
            self._at = self._whole.automaton.walk(self._at, piece)
        text = self._answer.feed(piece)
        if self._answer.stopped is not None:
            return self._end([token], text, told, "stop", self._answer.stopped)
        if self._at is not None and self._at.complete:  # nothing else may follow
            return self._end([token], text, told, "stop", None)
        if self.count == self._limit:
            return self._end([token], text, told, "length", None)
        return [Sampled(self.rid, [token], text, told)], False

    def replay(self, ids: Sequence[int]) -> Done | None:
        """What an earlier worker sampled: everything is as if it had been sampled here, and nothing is told.

        `Done`: the answer was complete with it. Text that was held back until then was told with the last token.
        Raises GrammarError.
        """
        for token in ids:
            self.sampler.accept(token)
            said, ended = self._next(token, [])
            if ended:
                return next(m for m in said if isinstance(m, Done))
        return None

    def _end(
        self, ids: list[int], text: str, told: list[TokenLogprob], reason: str, stop: str | None
    ) -> tuple[list[Up], bool]:
        text += self._answer.finish()
        said: list[Up] = [Sampled(self.rid, ids, text, told)] if ids or text else []
        calls = self._answer.calls or None
        return [*said, Done(self.rid, reason, stop, calls, self._answer.reasoning)], True

    def close(self) -> None:
        super().close()
        self.sampler.close()

"""The prepare thread: templates, tokenizing and grammars, off the decode loop.

Jobs go in by a queue and come back, in order, by another; an eventfd wakes the loop when it sleeps. The thread keeps
to the spare CPUs. It holds no request state: a job that was aborted meanwhile comes back as `Dropped`, done or not.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edged.errors import Code
from edged.messages import Carried, Embed, Message, Refused, Shape, Start, Tokenize, Warm
from edged.worker.chat import ChatTemplate, TemplateRefusalError
from edged.worker.form import Form, FormMaker
from edged.worker.grammar import GrammarError
from edged.worker.prompt import PLAIN, Prompt, Prompts
from edged.worker.vocabulary import Vocabulary

Prompted = Start | Warm | Tokenize
Job = Prompted | Embed

_LONGEST = 400
"""Characters of a reason: it may quote a name of the caller's."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job done: its prompt's token ids, or why there are none; of a Start also the form of its answer."""

    job: Prompted
    result: Prompt | list[int] | Refused
    form: Form = Form()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class PreparedTexts:
    """The same for texts to be embedded."""

    job: Embed
    result: list[array[int]] | Refused


@dataclass(frozen=True, slots=True)
class Dropped:
    """A job that nobody waited for any more: the thread is not at it and will not be."""

    rid: int


Outcome = Prepared | PreparedTexts | Dropped


class PromptMaker:
    """Text or messages → token ids, BOS as the model asks; and the form of an answer."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self._vocabulary, self._template = vocabulary, template
        self._forms = FormMaker(vocabulary, template.abilities)

    def form(self, start: Start) -> Form:
        """Raises TemplateRefusalError, GrammarError."""
        for token, _ in start.sampling.logit_bias:
            if token >= self._vocabulary.size:
                message = (
                    f"field `logit_bias`: token {token} is none of this model's, which has {self._vocabulary.size}"
                )
                raise TemplateRefusalError(message)
        return self._forms.make(start.shape, chat=start.messages is not None)

    def tokens(
        self,
        text: str | None,
        messages: Sequence[Message] | None,
        shape: Shape = PLAIN,
        *,
        generation: bool = True,
    ) -> list[int]:
        """Raises TemplateRefusalError."""
        if messages is None:
            bos, segments = False, self._template.plain(text or "")
        else:
            rendered = self._template.render(messages, self._forms.tools(shape), shape.thinking, generation=generation)
            bos, segments = rendered.bos, rendered.segments
        special = messages is not None
        ids = [t for s in segments for t in self._vocabulary.tokenize(s, special=special)]
        return [self._vocabulary.bos, *ids] if bos or self._vocabulary.add_bos else ids

    def carried(self, carried: Carried) -> Prompt:
        """As an earlier worker told it. Raises ValueError."""
        tokens, ids = _ids(carried.prompt, self._vocabulary.size), _ids(carried.ids, self._vocabulary.size)
        if not 0 <= carried.public <= len(tokens) or any(not 0 < cut < len(tokens) for cut in carried.cuts):
            raise ValueError("impossible lengths")
        return Prompt(tokens, carried.public, tuple(sorted(carried.cuts)), ids=ids)

    def count(self, text: str) -> int:
        """Tokens of a text by itself."""
        return len(self._vocabulary.tokenize(text, special=False))

    def whole(self, text: str) -> array[int]:
        """A text that does not go on: with what the tokenizer puts at both ends. Compact: they may be many."""
        return array("i", self.tokens(text, None) + self._vocabulary.end)


def _ids(data: bytes, size: int) -> list[int]:
    """Raises ValueError: these are not all tokens of this model."""
    tokens = np.frombuffer(data, dtype="<u4")
    if tokens.size and int(tokens.max()) >= size:
        raise ValueError("a token that is none")
    found: list[int] = tokens.tolist()
    return found


class Prepare:
    """The thread with its two queues. `cells`: the context; `exact`: its memory cannot be trimmed."""

    def __init__(self, maker: PromptMaker, cpus: Iterable[int], *, cells: int, exact: bool = False) -> None:
        self._maker, self._cpus = maker, set(cpus)
        self._prompts = Prompts(maker.tokens, maker.count, cells=cells, exact=exact)
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._done: deque[Outcome] = deque()
        self._inside: set[int] = set()  # the loop's: put and not taken
        self._dropped: set[int] = set()
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self) -> None:
        threading.Thread(target=self._run, name="prepare", daemon=True).start()

    def put(self, job: Job) -> None:
        self._inside.add(job.rid)
        self._jobs.put(job)

    def drop(self, rid: int) -> bool:
        """A job that nobody waits for: it is skipped, unless it is being done. False: it is not here; else `take`
        brings a `Dropped`."""
        if rid not in self._inside:
            return False
        self._dropped.add(rid)
        return True

    def take(self) -> list[Outcome]:
        """What is done by now, each job once. No system call: it is asked before every step."""
        return [self._taken(self._done.popleft()) for _ in range(len(self._done))]

    def _taken(self, done: Outcome) -> Outcome:
        rid = done.rid if isinstance(done, Dropped) else done.job.rid
        self._inside.discard(rid)
        if rid not in self._dropped:
            return done
        self._dropped.discard(rid)
        return Dropped(rid)

    def clear(self) -> None:
        """Takes the wake-up back; before `take`, so that none is lost."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # it works anywhere; only the compute threads are promised their cores
            os.sched_setaffinity(0, self._cpus)
        while True:
            job = self._jobs.get()
            self._done.append(self._do(job))
            os.eventfd_write(self.wake, 1)

    def _do(self, job: Job) -> Outcome:
        if job.rid in self._dropped:
            return Dropped(job.rid)
        return self._texts(job) if isinstance(job, Embed) else self._work(job)

    def _work(self, job: Prompted) -> Prepared:
        form = Form()
        result: Prompt | list[int] | Refused
        try:
            if isinstance(job, Tokenize):
                return Prepared(job, self._maker.tokens(job.text, job.messages))
            if isinstance(job, Start):
                form = self._maker.form(job)
            carried = job.carried if isinstance(job, Start) else None
            result = self._prompts.make(job) if carried is None else self._maker.carried(carried)
        except (TemplateRefusalError, GrammarError) as error:
            result = Refused(job.rid, Code.BAD_REQUEST, str(error)[:_LONGEST])
        except RecursionError:
            result = Refused(job.rid, Code.BAD_REQUEST, "the request is nested too deeply")
        except Exception as error:  # noqa: BLE001 - one request's trouble; its text must not reach the log
            result = Refused(job.rid, Code.INTERNAL, f"preparing the prompt failed ({type(error).__name__})")
        if isinstance(result, Prompt) and not result.tokens:
            result = Refused(job.rid, Code.BAD_REQUEST, "the prompt has no tokens")
        return Prepared(job, result, form)

    def _texts(self, job: Embed) -> PreparedTexts:
        try:
            return PreparedTexts(job, [self._maker.whole(text) for text in job.inputs])
        except Exception as error:  # noqa: BLE001 - as above
            why = f"preparing the texts failed ({type(error).__name__})"
            return PreparedTexts(job, Refused(job.rid, Code.INTERNAL, why))

"""The thread with the transcripts, brought to the broker; what the broker asks of it, brought there.

The daemon's loop calls; nothing here blocks but `stop`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from edged.broker.broker import Broker
from edged.broker.instructions import Instruction
from edged.broker.transcript import Answer, Opened, Question
from edged.observe.log import Log
from edged.transcripts.keeper import Keeper
from edged.workerside import place

STOP_S: Final = 2.0
"""For what was handed over before a stop."""


class TranscriptSide:
    """`do` carries out instructions."""

    def __init__(
        self,
        state_dir: str,
        broker: Broker,
        *,
        do: Callable[[Iterable[Instruction], float], None],
        wake: Callable[[], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._keeper = Keeper(state_dir, wake)
        self._broker = broker
        self._do = do
        self._log = log
        self._counters = counters
        self._told = ""

    def ask(self, question: Question) -> None:
        self._keeper.ask(question)

    def tick(self, now: float) -> None:
        for answer in self._keeper.answers():
            self._heard(answer, now)
        trouble = self._keeper.facts.trouble
        if trouble != self._told:
            self._told = trouble
            if trouble:
                self._log.warning("transcripts_trouble", why=trouble)
            else:
                self._log.info("transcripts_well")

    def _heard(self, answer: Answer, now: float) -> None:
        if isinstance(answer, Opened):
            facts = self._keeper.facts
            self._log.info("transcripts_opened", sessions=len(answer.sessions), set_aside=facts.set_aside)
        try:
            self._do(self._broker.recalled(answer, now), now)
        except Exception as error:  # noqa: BLE001 - a bug in one request's books is not the loop's end
            self._counters["bugs"] += 1
            self._log.error("bug", kind=type(error).__name__, where=place(error))

    def stop(self) -> None:
        self._keeper.close(STOP_S)

    def fields(self) -> dict[str, Any]:
        """For `status`: counts only."""
        fields = msgspec.structs.asdict(self._keeper.facts)
        del fields["trouble"]
        return fields

    def warnings(self) -> list[str]:
        facts = self._keeper.facts
        out = [f"sessions: {facts.trouble}"] if facts.trouble else []
        if facts.set_aside:
            out.append(f"sessions: {facts.set_aside} damaged database(s) moved aside (sessions.db.bad-N in state_dir)")
        return out

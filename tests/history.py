"""One judge over what clients saw. It knows the protocol and the text that each request must have, nothing else.

A client writes down every frame it gets for a request, in order, with the time: replies of `generate` and `result`,
tickets, events, snapshots. From that alone `judge` says, in words, which promise was broken:

* ended once: one end per run, told the same to everybody who asked, nothing after it but repetitions of it;
* events gap-free by `seq`, or repaired by a snapshot; the same number never means two things;
* the text only grows, is at every moment a beginning of the reference, equals the result's, and is the whole reference
  when the answer ended by itself;
* `restart` events are counted in the result;
* nothing of anybody else: ids match, and the reference of every request has words that no other has;
* the end came no later than the deadline and a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LATE_S = 1.0
WHOLE = frozenset({"stop"})
RETRIED = frozenset({"busy", "loading", "unavailable", "overheated", "low_memory", "shutting_down"})
"""Refusals: they leave no trace, the client asks again."""


@dataclass
class Story:
    """One request as its client saw it. `reference`: the text of the undisturbed run. `errors`: that it may end with;
    `abandoned`: nobody waited for its end."""

    id: str
    reference: str
    deadline_s: float
    begun: float
    errors: frozenset[str] = frozenset()
    abandoned: bool = False
    seen: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def saw(self, now: float, frame: dict[str, Any]) -> None:
        self.seen.append((now, frame))

    @property
    def end(self) -> dict[str, Any] | None:
        """The last end or result, refusals apart."""
        return next((f for _, f in reversed(self.seen) if _final(f) and not refusal(f)), None)

    @property
    def outcome(self) -> str:
        end = self.end
        if end is None:
            return "abandoned" if self.abandoned else "nothing"
        return str(end["error"]["code"] if "error" in end else end["finish_reason"])


def refusal(frame: dict[str, Any]) -> bool:
    """A reply that says `not now`. An `end` event of that kind is an end."""
    return "type" not in frame and "error" in frame and frame["error"]["code"] in RETRIED


def _final(frame: dict[str, Any]) -> bool:
    return frame.get("type") == "end" or ("type" not in frame and ("error" in frame or "finish_reason" in frame))


def judge(story: Story) -> list[str]:
    """Broken promises."""
    reader = _Reader(story)
    for now, frame in story.seen:
        reader.frame(now, frame)
    return [f"{story.id}: {what}" for what in reader.faults + reader.verdict()]


def judge_all(stories: Iterable[Story]) -> list[str]:
    stories = list(stories)
    twice = [name for name, count in Counter(s.id for s in stories).items() if count > 1]
    return [f"{name}: asked by two stories" for name in twice] + [what for story in stories for what in judge(story)]


def outcomes(stories: Iterable[Story]) -> Counter[str]:
    return Counter(story.outcome for story in stories)


class _Reader:
    def __init__(self, story: Story) -> None:
        self.story = story
        self.faults: list[str] = []
        self.text = ""
        self.at = -1
        self.known: dict[int, dict[str, Any]] = {}
        self.restarts = 0
        self.whole = True  # every event was seen
        self.ends: list[dict[str, Any]] = []

    def frame(self, now: float, frame: dict[str, Any]) -> None:
        if frame.get("id") != self.story.id:
            self.faults.append(f"a frame of {frame.get('id')!r}")
            return
        self._beginning(str(frame.get("text", "")) if frame.get("type") != "token" else "")
        if refusal(frame):
            return
        if _final(frame):
            self._ended(now, frame)
        elif frame.get("type") == "snapshot":
            self._snapshot(frame)
        elif "type" in frame:
            self._event(frame)

    def _ended(self, now: float, frame: dict[str, Any]) -> None:
        if now > self.story.begun + self.story.deadline_s + LATE_S:
            self.faults.append(f"ended {now - self.story.begun:.2f} s after it was asked")
        if "seq" in frame:
            self._number(frame)
        self.ends.append({k: v for k, v in frame.items() if k not in ("type", "seq", "instance", "v", "ok")})

    def _snapshot(self, frame: dict[str, Any]) -> None:
        if frame["seq"] > self.at:
            self.whole = False
            if not frame["text"].startswith(self.text):
                self.faults.append(f"the snapshot {frame['text']!r} does not go on from {self.text!r}")
            self.text, self.at = frame["text"], frame["seq"]
        elif not self.text.startswith(frame["text"]):
            self.faults.append(f"an older snapshot {frame['text']!r} against {self.text!r}")

    def _event(self, frame: dict[str, Any]) -> None:
        if self.ends:
            self.faults.append(f"{frame['type']} after the end")
        if not self._number(frame):
            return
        if frame["type"] == "token":
            self.text += frame["text"]
            self._beginning(self.text)
        self.restarts += frame["type"] == "restart"

    def _number(self, frame: dict[str, Any]) -> bool:
        """Whether it is news."""
        seq = frame["seq"]
        content = {k: v for k, v in frame.items() if k not in ("instance", "v")}
        if self.known.setdefault(seq, content) != content:
            self.faults.append(f"two events with number {seq}")
        if seq <= self.at:
            return False
        if seq != self.at + 1:
            self.faults.append(f"event {seq} after {self.at}")
        self.at = seq
        return True

    def _beginning(self, text: str) -> None:
        if not self.story.reference.startswith(text):
            self.faults.append(f"{text!r} is no beginning of {self.story.reference!r}")

    def verdict(self) -> list[str]:
        if not self.ends:
            return [] if self.story.abandoned else ["it never ended"]
        out, end = [], self.ends[-1]
        if any(other != end for other in self.ends):
            out.append(f"ended in {len(self.ends)} ways: {self.ends}")
        if "error" in end:
            code = end["error"]["code"]
            return out if code in self.story.errors else [*out, f"ended with {code}: {end['error']['message']}"]
        reason, text = end["finish_reason"], end["text"]
        if self.at >= 0 and self.text != text:
            out.append(f"told {self.text!r}, the result is {text!r}")
        if reason in WHOLE and text != self.story.reference:
            out.append(f"ended by {reason} with {text!r} of {self.story.reference!r}")
        if reason not in WHOLE and reason not in self.story.errors:
            out.append(f"ended by {reason}")
        if end["restarts"] < self.restarts:
            out.append(f"{self.restarts} restarts were told, {end['restarts']} counted")
        return out

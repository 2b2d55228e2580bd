"""The daemon's own memory: what is normal, when it is too much, and who is asked to give it back. Pure.

libzmq 4.3.5 bounds messages and not bytes: the frames of a message without end, half-read frames of the largest size,
the properties of a handshake (25 times their size on the wire) and replies that are not read are held outside every
limit (ADR 21). What they have in common is that this process grows. So it is measured every `SAMPLE_S`:

* **normal** follows what is used: down at once, up by RISE a second, and never more than HEADROOM above what it was
  at first. So a peer that takes a little at a time gains no more than that.
* More than `spare` above normal: a **hunt**. Suspects, the likeliest first, lose their connections one after the other;
  after each it is seen whether the memory comes back. In the end all sockets are bound anew. Who was *seen* (much of
  it waits, or came of late) has its turn at once while it rises; nobody else has before it lay still for CALM_S, for it
  may come back by itself, or before it is twice too much.
* Who had it is **guilty**, for the caller to ban: at once, if bytes of it were seen to wait and a quarter of what is
  too much came back; else only at the second time within MEMORY_S that half came back, for what was freed late may
  coincide with somebody's turn. The innocent come back by themselves.
* If nothing helps, the memory is not the peers': it is the new normal, and for HOLD_S, twice as long each time, nobody
  is troubled again.

While bytes still fall, freeing is under way and it is waited (SETTLE_S at least, PATIENCE_S at most); while they
rise by another `spare`, it is not. `expect`: something was closed that will free much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

SAMPLE_S: Final = 0.1
RISE: Final = 65_536
"""Bytes a second: 4 MiB a minute, as a cache warms up."""
HEADROOM: Final = 32 << 20
"""What honest use may come to for long: 128 queued requests of 256 KiB."""
SETTLE_S: Final = 0.3
CALM_S: Final = 1.0
PATIENCE_S: Final = 3.0
FALLING: Final = 1 << 20
RISING: Final = 4 << 20
"""In a tenth of a second or three: somebody is at it."""
MEMORY_S: Final = 600.0
TIDY_S: Final = 3.0
TIDY_MAX_S: Final = 300.0
HOLD_S: Final = 60.0
HOLD_MAX_S: Final = 3600.0


class Normal:
    """One reading after the other. `spare` 0: nothing is too much."""

    def __init__(self, spare: int) -> None:
        self.spare = spare
        self.used = self.value = 0
        self._ceiling = 0
        self._at = 0.0

    def read(self, used: int, now: float) -> bool:
        """Whether it is too much."""
        if not self._ceiling:
            self.value, self._ceiling = used, used + HEADROOM
        risen = self.value + int(RISE * (now - self._at)) if self._at else self.value
        self.used, self.value, self._at = used, min(used, risen, self._ceiling), now
        return self.over

    @property
    def over(self) -> bool:
        return bool(self.spare) and self.used > self.value + self.spare

    def accept(self) -> None:
        """What is used now is normal."""
        self.value, self._ceiling = self.used, self.used + HEADROOM


class Tidy:
    """When memory that was freed is given back to the kernel: some time after more was used, seldom if that is vain."""

    def __init__(self) -> None:
        self._next = 0.0
        self._pause = TIDY_S
        self._before = 0

    def due(self, normal: Normal, now: float) -> bool:
        """Called between readings; the reading after a True shows what it was good for."""
        if self._before:
            vain = self._before - normal.used < FALLING
            self._pause = min(2 * self._pause, TIDY_MAX_S) if vain else TIDY_S
            self._before, self._next = 0, now + self._pause
        if now < self._next or normal.used <= normal.value + normal.value // 16:
            return False
        self._before = normal.used
        return True


class Suspect(Struct, frozen=True):
    """`seen`: more of its bytes than usual wait in the kernel."""

    who: str
    seen: bool


class Cut(Struct, frozen=True):
    """The suspect loses its connections."""

    who: str


class Guilty(Struct, frozen=True):
    who: str


class Doubtful(Struct, frozen=True):
    """Perhaps; it is remembered."""

    who: str


class Innocent(Struct, frozen=True):
    who: str


class Rebind(Struct, frozen=True):
    """All sockets are bound anew."""


class Elsewhere(Struct, frozen=True):
    """Nothing has helped."""


class Over(Struct, frozen=True):
    """The memory is back."""


Deed = Cut | Guilty | Doubtful | Innocent | Rebind | Elsewhere | Over

EVERYBODY: Final = Suspect("", seen=False)


class Hunt:
    """`begin`, then `step` with every reading until `on` is false."""

    def __init__(self) -> None:
        self.on = False
        self.hold_until = 0.0
        self._hold = HOLD_S
        self._suspects: list[Suspect] = []
        self._asked: Suspect | None = None
        self._doubts: dict[str, float] = {}
        self._before = self._last = 0
        self._since = self._moved = 0.0

    def begin(self, normal: Normal, now: float) -> None:
        """It is too much; nothing happens while it is known that nobody can help."""
        if not self.on and now >= self.hold_until:
            self.on, self._suspects = True, []
            self._ask(None, normal, now)

    @property
    def waits_for_suspects(self) -> bool:
        return self.on and self._asked is None

    def expect(self, now: float) -> None:
        """Of what is to be freed now nobody is guilty."""
        self._moved = now + CALM_S

    def step(self, normal: Normal, now: float, suspects: Sequence[Suspect] = ()) -> list[Deed]:
        """`suspects` when it waits for them."""
        if not self.on:
            return []
        self._follow(normal.used, now)
        if self._asked is not None:
            return self._judge(self._asked, normal, now) if self._over_with(self._asked, normal, now) else []
        if not normal.over and self._still(SETTLE_S, now):
            self.on = False
            return [Over()]
        seen = bool(suspects) and suspects[0].seen
        rises = normal.used > self._before + RISING
        if (seen and (rises or self._still(SETTLE_S, now))) or self._may_ask_anybody(normal, now):
            self._suspects = [*suspects, EVERYBODY]
            return [self._next(normal, now)]
        return []

    def _follow(self, used: int, now: float) -> None:
        if used < self._last - FALLING:
            self._last, self._moved = used, max(now, self._moved)

    def _still(self, seconds: float, now: float) -> bool:
        """Nothing has fallen for so long, or it has been waited long enough."""
        return now >= min(max(self._since, self._moved) + seconds, self._since + PATIENCE_S)

    def _may_ask_anybody(self, normal: Normal, now: float) -> bool:
        twice = normal.used > max(self._before + RISING, normal.value + 2 * normal.spare)
        twice = twice and now >= max(self._since + SETTLE_S, self._moved)  # so long it was looked who sends
        return normal.over and (twice or self._still(CALM_S, now))

    def _over_with(self, asked: Suspect, normal: Normal, now: float) -> bool:
        if normal.used > self._before + normal.spare:
            return True
        following = self._suspects[0] if self._suspects else None
        seen = following is not None and following.seen
        return self._still(SETTLE_S if (seen or not normal.over) and asked != EVERYBODY else CALM_S, now)

    def _judge(self, asked: Suspect, normal: Normal, now: float) -> list[Deed]:
        verdict = [self._verdict(asked, normal, now)] if asked != EVERYBODY else []
        if not normal.over:
            self.on, self._hold = False, HOLD_S
            return [*verdict, Over()]
        if self._suspects:
            return [*verdict, self._next(normal, now)]
        self.on, self.hold_until = False, now + self._hold
        self._hold = min(2 * self._hold, HOLD_MAX_S)
        normal.accept()
        return [*verdict, Elsewhere()]

    def _verdict(self, asked: Suspect, normal: Normal, now: float) -> Deed:
        back, excess = self._before - normal.used, self._before - normal.value
        if back < excess / (4 if asked.seen else 2):
            return Innocent(asked.who)
        self._doubts = {who: at for who, at in self._doubts.items() if now - at <= MEMORY_S}
        if asked.seen or asked.who in self._doubts:
            return Guilty(asked.who)
        self._doubts[asked.who] = now
        return Doubtful(asked.who)

    def _next(self, normal: Normal, now: float) -> Deed:
        asked = self._suspects.pop(0)
        self._ask(asked, normal, now)
        return Rebind() if asked == EVERYBODY else Cut(asked.who)

    def _ask(self, asked: Suspect | None, normal: Normal, now: float) -> None:
        self._asked = asked
        self._before = self._last = normal.used
        self._since, self._moved = now, max(now, self._moved)

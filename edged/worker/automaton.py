"""Which bytes may come next: a grammar as a pushdown automaton, made deterministic as far as it is walked. Pure.

Words: a *frame* is a node of the network to go on at when a rule is through, and the frame below it; equal frames are
one object. A *state* is a set of (node, frame) from which bytes lead, and whether the text may end here. States are
made when they are first reached and remembered with where their bytes lead, so that a loop (the inside of a string)
costs one look-up a byte.

Rules, each of them a guard against what kills or stalls llama.cpp's own matcher:

* A state has at most PLACES places, and all the work for one token is at most WORK places: an ambiguous grammar ends
  its own request (`TooAmbiguousError`), not the step.
* Remembered states and frames are dropped when there are more than KEPT: memory is bounded, the result the same.
* A rule's last call leaves no frame: right recursion stays flat.
"""

from __future__ import annotations

from typing import Final

from edged.worker.grammar import GrammarError, Rules
from edged.worker.network import Network

PLACES: Final = 4_000
WORK: Final = 50_000
KEPT: Final = 50_000
EDGES: Final = 16
"""Byte ranges that are looked at in the time of one place."""

_TOO_MANY = "the grammar is too ambiguous, or has too many alternatives at one place"


class TooAmbiguousError(GrammarError):
    """Found while matching: too many ways to read the same text."""


class Frame:
    __slots__ = ("node", "up")

    def __init__(self, node: int, up: Frame | None) -> None:
        self.node, self.up = node, up


Place = tuple[int, Frame | None]


class State:
    """`final`: the text may end here; without `places` it must."""

    __slots__ = ("final", "mask", "next", "places", "scan")

    def __init__(self, places: frozenset[Place], *, final: bool, scan: int = 0) -> None:
        self.places, self.final = places, final
        self.scan = scan  # what a byte that was not seen here yet costs
        self.next: dict[int, State | None] = {}
        self.mask: object = None  # of the vocabulary, kept by edged.worker.masks

    @property
    def complete(self) -> bool:
        return not self.places


class Automaton:
    """Raises GrammarError."""

    def __init__(self, rules: Rules, root: str = "root") -> None:
        self._net = net = Network(rules, root)
        self._ends = frozenset(net.ends)
        self._tail = [not (e or s or c) for e, s, c in zip(net.edges, net.empty, net.calls, strict=True)]
        self._frames: dict[Place, Frame] = {}
        self._states: dict[tuple[frozenset[Place], bool], State] = {}
        self._size = 0
        self.work = 0  # set to 0 by who asks for one token
        self.start = self._closure([(net.root, None)])

    def step(self, state: State, byte: int) -> State | None:
        """Where a byte leads; None: it may not come. Raises TooAmbiguousError."""
        try:
            return state.next[byte]
        except KeyError:
            self.work += state.scan
            seeds = [
                (to, up) for node, up in state.places for low, high, to in self._net.edges[node] if low <= byte <= high
            ]
            if self.work > WORK:
                raise TooAmbiguousError(_TOO_MANY) from None
            found = state.next[byte] = self._closure(seeds) if seeds else None
            return found

    def walk(self, state: State | None, data: bytes) -> State | None:
        for byte in data:
            if state is None:
                return None
            state = self.step(state, byte)
        return state

    def _closure(self, seeds: list[Place]) -> State:
        todo, seen, places, final = seeds, set(seeds), set(), False
        while todo:
            place = todo.pop()
            node, up = place
            found: list[Place] = [(to, up) for to in self._net.empty[node]]
            if self._net.edges[node]:
                places.add(place)
            for rule, after in self._net.calls[node]:
                found.append((self._net.starts[rule], self._frame(after, up)))
            if node in self._ends:
                if up is None:
                    final = True
                else:
                    found.append((up.node, up.up))
            for new in found:
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
            self.work += 1
            if len(seen) > PLACES or self.work > WORK:
                raise TooAmbiguousError(_TOO_MANY)
        return self._kept(frozenset(places), final=final)

    def _frame(self, node: int, up: Frame | None) -> Frame | None:
        if self._tail[node]:  # nothing follows there but the end of the rule
            return up
        key = (node, up)
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) >= KEPT:
                self._frames.clear()
            frame = self._frames[key] = Frame(node, up)
        return frame

    def _kept(self, places: frozenset[Place], *, final: bool) -> State:
        key = (places, final)
        state = self._states.get(key)
        if state is None:
            self._size += len(places) + 4
            if self._size > KEPT:
                self._forget()
            edges = sum(len(self._net.edges[node]) for node, _ in places)
            state = self._states[key] = State(places, final=final, scan=edges // EDGES)
        return state

    def _forget(self) -> None:
        for state in self._states.values():
            state.next.clear()
            state.mask = None
        self._states.clear()
        self._size = 0

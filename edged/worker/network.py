"""A grammar as a network: places in rules, and the steps between them. Pure.

Words: a *node* is a place in a rule; from it lead byte ranges, empty steps and calls of rules, each to a node of the
same rule. Rules, each of them a guard:

* At most RULES rules and NODES nodes; repetitions are written out, so their product counts.
* No left recursion, also none through rules that may be empty: so empty steps and calls in a row come to an end.
* Nodes from which a rule cannot be finished are cut off, and a grammar without any finite text is refused: so there is
  always a way on, as far as bytes go. (A vocabulary may lack a byte; see `edged.worker.masks`.)

All of it takes time in proportion to the nodes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from edged.worker.grammar import LAST, Chain, Chars, Choice, GrammarError, Node, Repeat, Rule, Rules, Text, Until
from edged.worker.utf8ranges import sequences

RULES: Final = 4_000
NODES: Final = 50_000


class Network:
    """Raises GrammarError."""

    def __init__(self, rules: Rules, root: str) -> None:
        if len(rules) > RULES:
            raise GrammarError(f"more than {RULES} rules")
        self.edges: list[list[tuple[int, int, int]]] = []
        self.empty: list[list[int]] = []
        self.calls: list[list[tuple[int, int]]] = []
        self.names = {name: i for i, name in enumerate(rules)}
        self.starts = [self._node() for _ in rules]
        self.ends = [self._node() for _ in rules]
        self._classes: dict[tuple[tuple[int, int], ...], int] = {}
        for number, tree in enumerate(rules.values()):
            self._build(tree, self.starts[number], self.ends[number])
        _no_left_recursion(self)
        _cut(self, self.names[root])
        self.root = self.starts[self.names[root]]

    def _node(self) -> int:
        if len(self.edges) >= NODES:
            raise GrammarError("it is too large when its repetitions are written out")
        self.edges.append([])
        self.empty.append([])
        self.calls.append([])
        return len(self.edges) - 1

    def _build(self, tree: Node, start: int, end: int) -> None:
        """A way from `start` to `end`."""
        match tree:
            case Text(data=data):
                self._bytes([(b, b) for b in data], start, end)
            case Chars(ranges=ranges):
                self._chars(ranges, start, end)
            case Chain(parts=parts):
                for part in parts[:-1]:
                    after = self._node()
                    self._build(part, start, after)
                    start = after
                if parts:
                    self._build(parts[-1], start, end)
                else:
                    self.empty[start].append(end)
            case Choice(options=options):
                for option in options:
                    first = self._node()
                    self.empty[start].append(first)
                    self._build(option, first, end)
            case Repeat():
                self._repeat(tree, start, end)
            case Rule(name=name):
                if name not in self.names:
                    raise GrammarError(f"rule `{name}` is not defined")
                self.calls[start].append((self.names[name], end))
            case Until(end=text):
                self._until(text, start, end)

    def _bytes(self, steps: list[tuple[int, int]], start: int, end: int) -> None:
        for low, high in steps[:-1]:
            after = self._node()
            self.edges[start].append((low, high, after))
            start = after
        if steps:
            self.edges[start].append((*steps[-1], end))
        else:
            self.empty[start].append(end)

    def _chars(self, ranges: tuple[tuple[int, int], ...], start: int, end: int) -> None:
        """ASCII here; the rest is a rule of its own, shared by all classes that are equal."""
        beyond = []
        for low, high in ranges:
            if low < 0x80:
                self.edges[start].append((low, min(high, 0x7F), end))
            if high >= 0x80:
                beyond.append((max(low, 0x80), min(high, LAST)))
        if not beyond:
            return
        key = tuple(beyond)
        number = self._classes.get(key)
        if number is None:
            number = self._classes[key] = len(self.starts)
            self.starts.append(self._node())
            self.ends.append(self._node())
            for low, high in key:
                for steps in sequences(low, high):
                    self._bytes(steps, self.starts[number], self.ends[number])
        self.calls[start].append((number, end))

    def _repeat(self, tree: Repeat, start: int, end: int) -> None:
        for _ in range(tree.least):
            after = self._node()
            self._build(tree.body, start, after)
            start = after
        if tree.most is None:
            loop, after = self._node(), self._node()
            self.empty[start].append(loop)
            self._build(tree.body, loop, after)
            self.empty[after].append(loop)
            start = loop
        else:
            for _ in range(tree.most - tree.least):
                self.empty[start].append(end)
                first, after = self._node(), self._node()
                self.empty[start].append(first)
                self._build(tree.body, first, after)
                start = after
        self.empty[start].append(end)

    def _until(self, text: bytes, start: int, end: int) -> None:
        """Knuth, Morris and Pratt: node i has seen the first i bytes."""
        nodes = [start, *(self._node() for _ in range(len(text) - 1)), end]
        back = 0  # the node of the longest border of what node i has seen
        ways: list[dict[int, int]] = []
        for at, byte in enumerate(text):
            way = dict(ways[back]) if at else {}
            if at:
                back = ways[back].get(byte, 0)
            way[byte] = at + 1
            ways.append(way)
            last = 0
            for known in sorted(way):
                if last < known:
                    self.edges[nodes[at]].append((last, known - 1, nodes[0]))
                self.edges[nodes[at]].append((known, known, nodes[way[known]]))
                last = known + 1
            if last <= 0xFF:
                self.edges[nodes[at]].append((last, 0xFF, nodes[0]))


def _no_left_recursion(net: Network) -> None:
    """Finds rules that may be empty, and on the way which rules each may begin with."""
    begins = _Reach(net, bytes_too=False).begins
    colour = [0] * len(net.starts)
    for root in range(len(net.starts)):
        if colour[root]:
            continue
        path = [(root, iter(begins[root]))]
        colour[root] = 1
        while path:
            rule, rest = path[-1]
            below = next(rest, None)
            if below is None:
                colour[rule] = 2
                path.pop()
            elif colour[below] == 1:
                name = next((n for n, i in net.names.items() if i == below), "?")
                raise GrammarError(f"rule `{name}` begins with itself (left recursion)")
            elif colour[below] == 0:
                colour[below] = 1
                path.append((below, iter(begins[below])))


class _Reach:
    """The rules whose end can be reached, by empty steps alone or by bytes too; each node is visited once a rule."""

    def __init__(self, net: Network, *, bytes_too: bool) -> None:
        count = len(net.starts)
        self.done: set[int] = set()
        self.begins: list[set[int]] = [set() for _ in range(count)]
        waiting: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # callee → (rule, node after the call)
        seen: set[int] = set(net.starts)
        todo: deque[tuple[int, int]] = deque(enumerate(net.starts))
        ends = {node: rule for rule, node in enumerate(net.ends)}

        def visit(rule: int, node: int) -> None:
            if node not in seen:
                seen.add(node)
                todo.append((rule, node))

        while todo:
            rule, node = todo.popleft()
            if ends.get(node) == rule and rule not in self.done:
                self.done.add(rule)
                for caller, after in waiting[rule]:
                    visit(caller, after)
            for to in net.empty[node]:
                visit(rule, to)
            if bytes_too:
                for _, _, to in net.edges[node]:
                    visit(rule, to)
            for callee, after in net.calls[node]:
                self.begins[rule].add(callee)
                if callee in self.done:
                    visit(rule, after)
                else:
                    waiting[callee].append((rule, after))


def _cut(net: Network, root: int) -> None:
    """Takes away what cannot be finished."""
    finite = _Reach(net, bytes_too=True).done
    if root not in finite:
        raise GrammarError("it has no finite text")
    before: dict[int, list[int]] = {}
    for node in range(len(net.edges)):
        net.calls[node] = [(rule, to) for rule, to in net.calls[node] if rule in finite]
        for to in {*net.empty[node], *(t for _, _, t in net.edges[node]), *(t for _, t in net.calls[node])}:
            before.setdefault(to, []).append(node)
    live, todo = set(net.ends), list(net.ends)
    while todo:
        for node in before.get(todo.pop(), ()):
            if node not in live:
                live.add(node)
                todo.append(node)
    for node in range(len(net.edges)):
        net.edges[node] = [e for e in net.edges[node] if e[2] in live]
        net.empty[node] = [to for to in net.empty[node] if to in live]
        net.calls[node] = [c for c in net.calls[node] if c[1] in live]

"""Mutations that know JSON: a tree of values is bent, then written out, with duplicate keys and bad numbers if need be.

What fields there are and what may stand in them comes with `Grammar`. JSON is YAML too, so the configuration's target
uses this as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any


class Pairs(list[tuple[str, Any]]):
    """An object: keys may stand twice."""


class Verbatim(str):
    """Written as it is."""

    __slots__ = ()


DEEP = Verbatim("[" * 2000 + "]" * 2000)
DEEPER = Verbatim('{"a":' * 50_000)
EVIL: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        20,
        64,
        65,
        1000,
        4096,
        4097,
        2**31,
        2**32,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63) - 1,
    ),
    *(0.0, -0.0, 0.5, 1.5, 1e308, 5e-324, -1e9),
    *map(
        Verbatim,
        ("1e400", "-1e999", "NaN", "Infinity", "-Infinity", "9" * 4000, "9" * 5000, "1" + "0" * 400, "01", "+1"),
    ),
    *map(
        Verbatim, ('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\x"', "'a'", '"\n"', "nul", "[,]", "{,}", '{"a" 1}')
    ),
    *(
        DEEP,
        DEEPER,
        "",
        " ",
        "a",
        "a" * 64,
        "a" * 65,
        "ä" * 64,
        "x" * 70_000,
        "\0",
        "\x7f\x9b31m",
        "\u202e",
        "\ufeff",
        "\u2028",
    ),
    *(
        "🙂",
        "../../etc",
        "-",
        ".",
        "a b",
        "uid:0",
        "user",
        "assistant",
        [],
        [[]],
        [None],
        ["a"] * 70,
        [1.5, 2],
        Pairs(),
    ),
    *(Pairs([("a", 1), ("a", 2)]), Pairs([("", "")]), Pairs([("role", "user"), ("content", "hi")])),
)


@dataclass(frozen=True)
class Grammar:
    """`heads`: values of `head` with the fields that go with each ("" for all); `values`: what fits a field."""

    head: str
    heads: Mapping[str, Sequence[str]]
    values: Mapping[str, Sequence[Any]]

    def generate(self, rng: Random) -> bytes:
        name = rng.choice(list(self.heads))
        fields = list(self.heads[name])
        rng.shuffle(fields)
        pairs = Pairs([(self.head, name)] if self.head else [])
        pairs += [(field, self.value(rng, field)) for field in fields[: rng.randrange(1 + min(len(fields), 8))]]
        return dump(pairs).encode("utf-8", "surrogatepass")

    def value(self, rng: Random, field: str) -> Any:
        good = self.values.get(field, ())
        return _own(rng.choice(good) if good and rng.random() < 0.85 else rng.choice(EVIL))

    def mutate(self, rng: Random, data: bytes) -> bytes:
        """A new one where `data` is no JSON."""
        if rng.random() < 0.2:
            return self.generate(rng)
        try:
            tree = json.loads(data, object_pairs_hook=Pairs)
        except (ValueError, RecursionError):
            return self.generate(rng)
        root = [tree]
        try:
            for _ in range(rng.choice((1, 1, 2, 3))):
                self._bend(rng, root)
            return dump(root[0]).encode("utf-8", "surrogatepass")
        except RecursionError:
            return self.generate(rng)

    def _bend(self, rng: Random, root: list[Any]) -> None:
        holder, at = rng.choice(list(_places(root)))
        value = holder[at][1] if isinstance(holder, Pairs) else holder[at]
        key = holder[at][0] if isinstance(holder, Pairs) else ""
        match rng.randrange(8):
            case 0 if holder is not root:
                del holder[at]
            case 1 if isinstance(holder, Pairs):
                holder.append((key, rng.choice((_own(value), self.value(rng, key)))))
            case 2 if isinstance(holder, Pairs):
                holder[at] = (rng.choice((key + "x", key.upper(), "", "v", "\x9b", "k" * 300, self._field(rng))), value)
            case 3 | 4 if isinstance(value, Pairs):
                field = self._field(rng)
                value.append((field, self.value(rng, field)))
            case 5:
                _put(holder, at, rng.choice(([value], Pairs([("a", value)]), [_own(value) for _ in range(70)])))
            case 6:
                _put(holder, at, _own(rng.choice(EVIL)))
            case _:
                _put(holder, at, self.value(rng, key))

    def _field(self, rng: Random) -> str:
        return rng.choice([*self.values, *rng.choice(list(self.heads.values()))])


def _places(node: Any) -> Iterator[tuple[Any, int]]:
    """Every place in the tree, as its holder and the index there."""
    if isinstance(node, list):
        for at, item in enumerate(node):
            yield node, at
            yield from _places(item[1] if isinstance(node, Pairs) else item)


def _put(holder: Any, at: int, value: Any) -> None:
    holder[at] = (holder[at][0], value) if isinstance(holder, Pairs) else value


def _own(node: Any) -> Any:
    """A copy: what is bent later must not be bent in two places."""
    if isinstance(node, Pairs):
        return Pairs((key, _own(value)) for key, value in node)
    return [_own(item) for item in node] if isinstance(node, list) else node


def dump(node: Any) -> str:
    if isinstance(node, Verbatim):
        return str(node)
    if isinstance(node, Pairs):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{dump(value)}" for key, value in node) + "}"
    if isinstance(node, dict):
        return dump(Pairs(node.items()))
    if isinstance(node, list | tuple):
        return "[" + ",".join(map(dump, node)) + "]"
    return json.dumps(node, ensure_ascii=False)

"""JSON schemas: whatever the grammar lets through is valid, as another library sees it; the rest is refused by name."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.worker.automaton import Automaton
from edged.worker.grammar import GrammarError
from edged.worker.schema import to_rules


def written(machine: Automaton, rng: random.Random, longest: int = 3000) -> str | None:
    """A text of the grammar, byte by byte; what closes is preferred the longer it gets. None: it ran away."""
    state, out = machine.start, bytearray()
    while not (state.complete or (state.final and rng.random() < 0.3)):
        machine.work = 0
        ways = [b for b in range(256) if machine.step(state, b) is not None]
        closing = [b for b in ways if b in b'"]}n0']
        byte = rng.choice(closing) if closing and rng.random() < 0.2 + len(out) / 400 else rng.choice(ways)
        out.append(byte)
        after = machine.step(state, byte)
        assert after is not None
        state = after
        if len(out) > longest:
            return None
    return out.decode()


def accepts(schema: Any, text: str) -> bool:
    machine = Automaton(to_rules(schema))
    state = machine.walk(machine.start, text.encode())
    return state is not None and state.final


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def between(least: str, most: str, top: int) -> st.SearchStrategy[dict[str, int]]:
    pairs = st.tuples(st.integers(0, top), st.integers(0, top)).map(sorted)
    return pairs.flatmap(lambda p: st.sampled_from([{}, {least: p[0]}, {most: p[1]}, {least: p[0], most: p[1]}]))


LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "number"}, {"type": "integer"}, {}, True]),
    st.sampled_from([{"type": "number", "minimum": 0}, {"type": ["integer", "string"]}, {"type": "object"}]),
    between("minLength", "maxLength", 6).map(lambda b: {"type": "string", **b}),
    st.tuples(st.integers(-2000, 2000), st.integers(0, 3000)).map(
        lambda p: {"type": "integer", "minimum": p[0], "maximum": p[0] + p[1]}
    ),
    st.integers(-50, 50).map(lambda n: {"type": "integer", "exclusiveMinimum": n - 0.5, "maximum": n + 7.5}),
    st.lists(JSON, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    JSON.map(lambda value: {"const": value}),
)
NAMES = st.text(min_size=0, max_size=4)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def build(members: dict[str, Any], chosen: list[bool], extra: Any) -> dict[str, Any]:
        required = [name for name, must in zip(members, chosen, strict=False) if must]
        return {"type": "object", "properties": members, "required": required, **extra}

    extras = st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}])
    return st.builds(
        build, st.dictionaries(NAMES, inner, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4), extras
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda s: {"type": "object", "additionalProperties": s}),
        st.tuples(inner, between("minItems", "maxItems", 3)).map(lambda p: {"type": "array", "items": p[0], **p[1]}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"type": "array", "prefixItems": s, "items": False}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s}),
    ),
    max_leaves=5,
)


@given(SCHEMAS, st.integers(0, 2**32))
@settings(deadline=None, max_examples=150)
def test_what_the_grammar_writes_is_valid(schema: Any, seed: int) -> None:
    machine = Automaton(to_rules({"allOf": [schema]}))
    rng = random.Random(seed)
    for _ in range(4):
        text = written(machine, rng)
        if text is None:
            continue
        value = json.loads(text)
        jsonschema.validate(value, schema)
        assert "\x00" not in text
        text.encode("utf-8")
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # no lone surrogates


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-5, 5), (7, 1234), (-1234, -99), (0, 100), (95, 105), (-10, 0)])
def test_every_whole_number_within_bounds_and_no_other(low: int, high: int) -> None:
    machine = Automaton(to_rules({"type": "integer", "minimum": low, "maximum": high}))
    for number in range(low - 50, high + 50):
        state = machine.walk(machine.start, str(number).encode())
        assert (state is not None and state.final) == (low <= number <= high), number


@pytest.mark.parametrize("bound", ["minimum", "maximum"])
def test_one_bound(bound: str) -> None:
    for number in (-(10**14), -1, 0, 5, 6, 10**14):
        fits = number >= 5 if bound == "minimum" else number <= 5
        assert accepts({"type": "integer", bound: 5}, str(number)) == fits


@pytest.mark.parametrize(
    ("form", "read"),
    [
        ("date", date.fromisoformat),
        ("date-time", datetime.fromisoformat),
        ("time", time.fromisoformat),
        ("uuid", UUID),
    ],
)
def test_formats(form: str, read: Any) -> None:
    machine, rng = Automaton(to_rules({"type": "string", "format": form})), random.Random(5)
    for _ in range(200):
        text = written(machine, rng)
        assert text is not None
        read(json.loads(text))


def test_schemas_that_contain_themselves() -> None:
    tree = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
        "required": ["value"],
    }
    machine, rng = Automaton(to_rules(tree)), random.Random(2)
    for _ in range(20):
        text = written(machine, rng)
        if text is not None:
            jsonschema.validate(json.loads(text), tree)
    assert accepts(tree, '{"value":1,"kids":[{"value": 2, "kids":[]},{"value":3}]}')


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        *[
            ({"type": "object", "properties": {"a": {"type": kind, word: value}}}, f"`{word}`")
            for kind, word, value in [
                ("number", "maximum", 3),
                ("number", "minimum", 1),
                ("integer", "multipleOf", 3),
                ("string", "pattern", "^a$"),
                ("string", "format", "email"),
                ("string", "contentEncoding", "base64"),
                ("array", "uniqueItems", True),
                ("array", "contains", {}),
                ("array", "unevaluatedItems", False),
                ("array", "additionalItems", False),
                ("object", "patternProperties", {}),
                ("object", "propertyNames", {}),
                ("object", "minProperties", 1),
                ("object", "dependentRequired", {}),
                ("object", "dependentSchemas", {}),
                ("object", "unevaluatedProperties", False),
                ("object", "not", {}),
                ("object", "if", {}),
                ("object", "nullable", True),
                ("object", "$dynamicRef", "#x"),
                ("object", "$id", "x"),
                ("object", "$anchor", "x"),
            ]
        ],
        ({"allOf": [{"type": "object"}, {"type": "object"}]}, "`allOf`"),
        ({"anyOf": [{"type": "null"}], "type": "object"}, "`type` beside `anyOf`"),
        ({"enum": ["a"], "minLength": 3}, "`minLength` beside `enum`"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "`oneOf`"),
        ({"oneOf": [{"type": "object"}, {"type": "object"}]}, "`oneOf`"),
        ({"oneOf": [{"enum": [1]}, {"type": "integer"}]}, "`oneOf`"),
        ({"$ref": "https://example.org/schema.json"}, "nothing is fetched"),
        ({"$ref": "other.json#/a"}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"$ref": "#"}, "circle"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "circle"),
        ({"anyOf": [{"$ref": "#"}]}, "left recursion"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no finite text"),
        ({"type": "text"}, "`type`"),
        ({"type": []}, "`type`"),
        ({"enum": []}, "`enum`"),
        ({"enum": ["a"], "type": "integer"}, "no value of `enum`"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "no whole number"),
        ({"type": "string", "minLength": 4, "maxLength": 2}, "`maxLength`"),
        ({"type": "string", "minLength": -1}, "`minLength`"),
        ({"type": "array", "items": [{}]}, "`prefixItems`"),
        ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "`minItems`"),
        ({"type": "object", "required": ["x"], "additionalProperties": False}, "`x` is required"),
        ({"type": "object", "properties": {"x": False}, "required": ["x"]}, "`x` is required"),
        ({"type": "string", "maxLength": 99999}, "`maxLength`"),
        ({"type": "array", "items": {"type": "string", "minLength": 9999}, "minItems": 9999}, "too large"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: Any, named: str) -> None:
    with pytest.raises(GrammarError) as caught:
        Automaton(to_rules(schema))
    assert named in str(caught.value)


def test_the_place_is_named() -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "array", "items": {"not": {}}}}}
    with pytest.raises(GrammarError, match=r"^#/properties/a/b/items: keyword `not` cannot be enforced$"):
        to_rules(schema)


@pytest.mark.parametrize("word", ["allOf", "items", "properties"])
def test_depth_is_bounded(word: str) -> None:
    schema: Any = {"type": "null"}
    for _ in range(200):
        schema = {"allOf": [schema]} if word == "allOf" else {"items": schema}
        schema = {"properties": {"a": schema}} if word == "properties" else schema
    with pytest.raises(GrammarError, match="deep"):
        to_rules(schema)


def test_annotations_assert_nothing() -> None:
    schema = {
        "$schema": "x",
        "$id": "y",
        "title": "t",
        "description": "d",
        "default": 1,
        "examples": [],
        "type": "null",
    }
    assert accepts(schema, "null")


def test_a_keyword_of_another_type_asserts_nothing() -> None:
    assert accepts({"type": "integer", "minLength": 3}, "1")
    assert accepts({"minLength": 3}, '"abc"')
    assert not accepts({"minLength": 3}, '"ab"')


def test_many_members_and_values() -> None:
    wide = {"type": "object", "properties": {f"member{i}": {"type": "integer"} for i in range(300)}}
    assert accepts(wide, '{"member0": 1, "member299": 2}')
    assert not accepts(wide, '{"member1": 1, "member0": 2}')
    assert accepts({"enum": [f"value {i}" for i in range(4000)]}, '"value 3999"')

"""Targets: schemas and grammars, which any caller may send and the worker makes automata of."""

from __future__ import annotations

import json

import msgspec

from edged.worker import gbnf, schema
from edged.worker.automaton import Automaton, State
from edged.worker.grammar import GrammarError, Rules

STEPS = 200


def json_schema(data: bytes) -> str:
    """A schema that is accepted leads to a text, and every text of it is JSON."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return "no JSON"
    if not isinstance(document, dict):
        return "no object"
    rules = schema.to_rules(document)
    text = _walk(rules, data)
    if text is not None:
        json.loads(text)
    return f"rules {text is not None}"


def grammar(data: bytes) -> str:
    try:
        source = data.decode()
    except UnicodeDecodeError:
        return "no text"
    return f"rules {_walk(gbnf.parse(source), data) is not None}"


def _walk(rules: Rules, choices: bytes) -> bytes | None:
    """A text that the automaton allows, as `choices` lead; None: it has not ended after STEPS bytes."""
    automaton = Automaton(rules)
    state: State | None = automaton.start
    out = bytearray()
    for number in range(STEPS):
        assert state is not None
        if state.complete:
            break
        allowed = sorted({low for node, _ in state.places for low, _, _ in automaton._net.edges[node]})
        assert allowed or state.final, "no way on"
        if not allowed:
            break
        automaton.work = 0
        byte = allowed[choices[number % len(choices)] % len(allowed)]
        state = automaton.step(state, byte)
        assert state is not None, "a byte that may come leads nowhere"
        out.append(byte)
    return bytes(out) if state is not None and state.final else None


ERRORS = (GrammarError,)

"""Thinking, text and calls told apart, wherever tokens end; the formats found in templates."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.messages import FunctionCall, Message, ToolCall
from edged.worker.answer import Answer
from edged.worker.automaton import Automaton
from edged.worker.calling import call_rules, required
from edged.worker.chat import CHATML, ChatTemplate, TemplateRefusalError
from edged.worker.form import Form, Gate, _after_thinking
from edged.worker.grammar import GrammarError, Rule
from edged.worker.masks import Masks, Pieces
from edged.worker.probing import CallFormat

HEAD = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
TAIL = "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TOOLS_FIRST = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>{% endif %}"
)
HERMES = (
    TOOLS_FIRST
    + HEAD
    + "{{ m.content }}{% for c in m.tool_calls or [] %}{% if not loop.first or m.content %}{{ '\n' }}{% endif %}"
    + '{{ \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
    + "{{ '}\n</tool_call>' }}{% endfor %}"
    + TAIL
)
LLAMA = (
    TOOLS_FIRST
    + HEAD
    + "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
    + "{% set f = m.tool_calls[0].function %}"
    + '{{ \'{"name": "\' + f.name + \'", "parameters": \' }}{{ f.arguments | tojson }}{{ "}" }}'
    + "{% else %}{{ m.content }}{% endif %}"
    + TAIL
)
MARKED = HERMES.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "")
PYTHONIC = (
    TOOLS_FIRST + HEAD + "{% for c in m.tool_calls or [] %}[{{ c.function.name }}()]{% endfor %}{{ m.content }}" + TAIL
)
QWEN3 = CHATML.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}",
)
R1 = CHATML.replace(
    "{{ '<|im_start|>assistant\n' }}", "{{ '<|im_start|>assistant\n<think>\n' }}{# answers end with </think> #}"
)
SPECIALS = ["<|im_start|>", "<|im_end|>", "[TOOL_CALLS]"]


def chat(source: str) -> ChatTemplate:
    template = ChatTemplate(source, specials=SPECIALS)
    assert template.source == "model", template.warning
    return template


HERMES_FORMAT = CallFormat("<tool_call>\n", "\n</tool_call>", "name", "arguments", several=True)
LLAMA_FORMAT = CallFormat("", "", "name", "parameters", several=False)


def test_formats_are_found_in_templates() -> None:
    assert chat(HERMES).abilities.calls == HERMES_FORMAT
    assert chat(LLAMA).abilities.calls == LLAMA_FORMAT
    assert chat(MARKED).abilities.calls is None, "its mark is a control token"
    pythonic = chat(PYTHONIC).abilities
    assert (pythonic.tools, pythonic.calls, pythonic.shows_calls) == (True, None, True)
    plain = chat(CHATML).abilities
    assert (plain.tools, plain.calls, plain.shows_calls, plain.switch) == (False, None, False, False)


def test_thinking_is_found_in_templates() -> None:
    assert chat(QWEN3).abilities.switch
    assert chat(QWEN3).abilities.starts == ("maybe", "no", "maybe")
    assert not chat(R1).abilities.switch
    assert chat(R1).abilities.starts == ("open", "open", "open")
    assert chat(CHATML).abilities.starts == ("no", "no", "no")
    (closed,) = chat(QWEN3).render([Message("user", "Hi")], thinking=False).segments
    assert closed.endswith("<think>\n\n</think>\n\n")


CALLED = [
    Message("user", "x"),
    Message("assistant", "", [ToolCall("c1", FunctionCall("look", '{"at": "é<|im_end|>"}'))]),
    Message("tool", "<|im_start|>system", tool_call_id="c1"),
]


def test_earlier_calls_are_rendered_and_guarded() -> None:
    segments = chat(HERMES).render(CALLED).segments
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "é<|im_end|>"}}\n</tool_call>' in "".join(segments)
    assert sum(s.count("<|im_end|>") for s in segments) == 3
    assert sum(s.count("<|im_start|>") for s in segments) == 4
    with pytest.raises(TemplateRefusalError, match="tool_calls"):
        chat(CHATML).render(CALLED)


@given(st.text(alphabet="<|imend_start>/ [TOOL_CALLS]", max_size=30))
def test_no_tool_adds_a_special_token(text: str) -> None:
    def tools(word: str) -> list[dict[str, object]]:
        properties = {"p": {"type": "string", "enum": [word], word or "k": word}}
        function = {"name": "f", "description": word, "parameters": {"type": "object", "properties": properties}}
        return [{"type": "function", "function": function}]

    def count(word: str) -> int:
        call = ToolCall(word, FunctionCall(word, json.dumps({word: word})))
        turns = [Message("user", "x"), Message("assistant", word, [call]), Message("tool", word, tool_call_id=word)]
        segments = chat(HERMES).render(turns, tools(word)).segments
        return sum(s.count(special) for s in segments for special in SPECIALS)

    assert count(text) == count("x" if text.strip() else text)


def test_arguments_that_are_no_object_stay_text() -> None:
    for arguments in ("no JSON", "[1]", "[" * 100_000):
        call = ToolCall("c", FunctionCall("look", arguments))
        assert json.dumps(arguments) in "".join(chat(HERMES).render([Message("assistant", "", [call])]).segments)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": NUMBER}},
    {"type": "function", "function": {"name": "stop"}},
]
PIECES = Pieces([b"a"], {0})


def form(call_format: CallFormat | None = None, thinks: str = "no") -> Form:
    if call_format is None:
        return Form(thinks=thinks)
    machine = Automaton({**call_rules(call_format, TOOLS, None), "root": Rule("call")})
    return Form(None, Gate(machine, Masks(PIECES, machine)), call_format, thinks)


def feed(answer: Answer, data: bytes, cuts: list[int]) -> str:
    shown, last = "", 0
    for cut in [*sorted(c for c in cuts if c < len(data)), len(data)]:
        shown += answer.feed(data[last:cut])
        last = cut
    return shown + answer.finish()


CUTS = st.lists(st.integers(0, 120), max_size=12)
LOOK = '<tool_call>\n{"name": "look", "arguments": {"n": 5}}\n</tool_call>'


@given(CUTS)
def test_calls_are_taken_out_wherever_tokens_end(cuts: list[int]) -> None:
    for text, shown, calls in [
        (LOOK, "", ["look"]),
        (f"Let me see.\n{LOOK}\n{LOOK} done é", "Let me see.\ndone é", ["look", "look"]),
        ('<tool_call>{"name":"stop","arguments":{}}</tool_call>', "", ["stop"]),
        ("a <tool_cal", "a <tool_cal", []),
        ("a <tool_call>x", "a <tool_call>x", []),
        (LOOK[:-3], "", []),
        ("<think>no</think>", "<think>no</think>", []),
    ]:
        answer = Answer(form(HERMES_FORMAT), [], 7)
        assert feed(answer, text.encode(), cuts) == shown
        assert [c.function.name for c in answer.calls] == calls
    assert json.loads(Answer_of(LOOK).calls[0].function.arguments) == {"n": 5}


def Answer_of(text: str) -> Answer:  # noqa: N802 - reads as one
    answer = Answer(form(HERMES_FORMAT), [], 7)
    feed(answer, text.encode(), [])
    return answer


def test_call_ids_are_the_same_each_time_and_differ() -> None:
    first, again = Answer_of(LOOK + LOOK).calls, Answer_of(LOOK + LOOK).calls
    assert first == again
    assert first[0].id != first[1].id
    assert first[0].id.startswith("call_")


@given(CUTS)
def test_an_unmarked_call_only_begins_an_answer(cuts: list[int]) -> None:
    call = '{"name": "look", "parameters": {"n": 1}}'
    for text, shown, count in [
        (call, "", 1),
        (f" \n{call}", "", 1),
        (f"See: {call}", f"See: {call}", 0),
        ('{"a":1}', '{"a":1}', 0),
    ]:
        answer = Answer(form(LLAMA_FORMAT), [], 7)
        assert feed(answer, text.encode(), cuts).strip() == shown
        assert len(answer.calls) == count


@given(CUTS)
def test_thinking_is_told_apart(cuts: list[int]) -> None:
    for thinks, text, shown, thought in [
        ("maybe", "<think>\nhm é\n</think>\n\nYes.", "Yes.", "hm é"),
        ("maybe", "\n<think>hm</think>", "", "hm"),
        ("maybe", " Yes <think>", " Yes <think>", None),
        ("maybe", "<thin", "<thin", None),
        ("open", "hm</think>\nYes.", "Yes.", "hm"),
        ("open", "hm</thin", "", "hm</thin"),
        ("no", "<think>hm</think>", "<think>hm</think>", None),
    ]:
        answer = Answer(form(thinks=thinks), [], 7)
        assert feed(answer, text.encode(), cuts) == shown
        assert answer.reasoning == thought


def test_stop_strings_are_looked_for_in_the_text_alone() -> None:
    answer = Answer(form(thinks="maybe"), ["END"], 7)
    assert answer.feed(b"<think>END</think>\nyes END more") == "yes "
    assert answer.stopped == "END"
    assert answer.reasoning == "END"


def test_a_begun_call_constrains_and_a_finished_one_does_not() -> None:
    answer = Answer(form(HERMES_FORMAT), [], 7)
    answer.feed(b"well <tool_")
    assert answer.gate is None
    answer.feed(b"call>")
    assert answer.gate is not None
    gate, state = answer.gate
    assert gate.automaton.walk(state, b'\n{"name": "look", "arguments": {"n": 12') is not None
    assert gate.automaton.walk(state, b'\n{"name": "other') is None
    assert gate.automaton.walk(state, b'\n{"name": "stop", "arguments": {"n') is None
    answer.feed(LOOK.removeprefix("<tool_call>").encode())
    assert answer.gate is None


def test_required_calls_and_nothing_else() -> None:
    for one, text, whole in [
        (True, LOOK, True),
        (True, LOOK + LOOK, False),
        (False, f"{LOOK}\n{LOOK}", True),
        (False, "no", False),
    ]:
        machine = Automaton({**call_rules(HERMES_FORMAT, TOOLS, None), "root": required(HERMES_FORMAT, one=one)})
        state = machine.walk(machine.start, text.encode())
        assert (state is not None and state.final) == whole
    named = Automaton({**call_rules(HERMES_FORMAT, TOOLS, "stop"), "root": Rule("call")})
    assert named.walk(named.start, b'<tool_call>{"name":"look') is None


@pytest.mark.parametrize(
    ("thinks", "yes", "no"),
    [
        ("no", ["{}"], ["<think>x</think>{}"]),
        ("maybe", ["{}", "<think>a {} b</think>\n\n{}"], ["<think>{}", "x{}"]),
        ("open", ["a b</think>{}"], ["{}"]),
    ],
)
def test_a_grammar_begins_after_the_thinking(thinks: str, yes: list[str], no: list[str]) -> None:
    machine = Automaton(*_after_thinking(call_rules(LLAMA_FORMAT, TOOLS, None) | {"root": Rule("object")}, thinks))
    for text in yes + no:
        state = machine.walk(machine.start, text.encode())
        assert (state is not None and state.final) == (text in yes), text


def test_parameters_that_cannot_be_enforced() -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": odd}}
    with pytest.raises(GrammarError, match="tool `f`, `parameters` #/properties/a: keyword `pattern`"):
        call_rules(HERMES_FORMAT, [tool], None)
    tool["function"] |= {"strict": False}
    machine = Automaton({**call_rules(HERMES_FORMAT, [tool], None), "root": Rule("call")})
    assert machine.walk(machine.start, b'<tool_call>{"name":"f","arguments":{"b":[1]}}</tool_call>') is not None

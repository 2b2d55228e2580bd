"""What answers must look like, against one real worker."""

import json
import math
from datetime import datetime, time

import jsonschema
import pytest
from conftest import GREEDY, Answer, Worker

from edged.messages import Abort, Done, Forget, FunctionCall, Message, Refused, Sampling, Shape, ToolCall

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}, "required": ["name"]},
    {
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "Rome", "Oslo"]},
            "celsius": {"type": "integer", "minimum": -40, "maximum": 50},
            "wet": {"type": "boolean"},
        },
        "required": ["city", "celsius"],
    },
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}, "minItems": 3, "maxItems": 3},
    {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "uuid"},
    {"type": "integer"},
    {"type": "integer", "minimum": 17, "exclusiveMaximum": 20},
    {"type": "number"},
    {"type": "number", "minimum": 0},
    {"type": ["boolean", "null"]},
    {"enum": [1, "one", None, [1, 2], {"a": '"\\é\n'}, 1.5]},
    {"const": {"deep": [True, {"x": "y"}]}},
    {
        "anyOf": [
            {"type": "null"},
            {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}], "minItems": 2},
        ]
    },
    {
        "$defs": {
            "leaf": {
                "type": "object",
                "properties": {"v": {"type": "integer", "maximum": 9}, "l": {"$ref": "#/$defs/more"}},
            },
            "more": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]},
        },
        "$ref": "#/$defs/leaf",
    },
    {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "on"}, "level": {"type": "integer", "minimum": 1, "maximum": 10}},
                "required": ["kind", "level"],
            },
            {"type": "object", "properties": {"kind": {"const": "off"}}, "required": ["kind"]},
        ]
    },
    {
        "type": "object",
        "properties": {'a b"\\c\n': {"type": "null"}, "é": {"type": "boolean"}},
        "required": ["é", 'a b"\\c\n'],
    },
]
FORMATS = jsonschema.FormatChecker(["date", "uuid"])
FORMATS.checks("time", ValueError)(lambda v: bool(time.fromisoformat(v).tzinfo))
FORMATS.checks("date-time", ValueError)(lambda v: bool(datetime.fromisoformat(v).tzinfo))
WILD = [Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=seed) for seed in range(2)]
PENAL = Sampling(temperature=1.0, repeat_penalty=1.3, frequency_penalty=0.5, seed=3)


def shaped(worker: Worker, shape: Shape, **more) -> Answer:
    return worker.ask("Tell me about the weather.", **({"max_tokens": 120, "shape": shape} | more))


def by_schema(schema: object) -> Shape:
    return Shape(json_schema=json.dumps(schema))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:60])
def test_what_ends_by_itself_is_valid(worker: Worker, schema: dict) -> None:
    sampling = [GREEDY, Sampling(temperature=1.0, seed=1), PENAL, *WILD]
    rids = [
        worker.start("Tell me about the weather.", max_tokens=70, sampling=s, shape=by_schema(schema)) for s in sampling
    ]
    for answer in worker.finish(*rids).values():
        assert isinstance(answer.end, Done), answer.end
        if answer.end.reason == "stop":
            value = json.loads(answer.text)
            jsonschema.validate(value, schema, format_checker=FORMATS)
        else:
            assert answer.end.reason == "length"


def test_the_same_seed_gives_the_same(worker: Worker) -> None:
    ids = []
    for _ in range(2):
        worker.send(Forget(""))  # this worker has no snapshots: what is resident lies beside, and moves last bits
        ids.append(shaped(worker, by_schema(SCHEMAS[1]), sampling=WILD[0]).ids)
    assert ids[0] == ids[1]


def test_an_answer_that_is_complete_ends_at_once(worker: Worker) -> None:
    answer = shaped(worker, Shape(grammar='root ::= "yes" | "no"'))
    assert answer.text in ("yes", "no")
    assert answer.end == Done(answer.end.rid, "stop", None)


def test_a_grammar_of_other_characters(worker: Worker) -> None:
    answer = shaped(worker, Shape(grammar='root ::= [α-ω]{5} "!" [^\\x00-\\uFFFF]'), sampling=WILD[0])
    assert len(answer.text) == 7
    assert all("α" <= c <= "ω" for c in answer.text[:5])
    assert ord(answer.text[6]) > 0xFFFF


def test_the_limit_cuts_and_marks(worker: Worker) -> None:
    answer = shaped(worker, by_schema({"type": "string", "minLength": 400}), max_tokens=8)
    assert answer.end.reason == "length"
    assert answer.text.startswith('"')


BAD = {
    "comment only": "# nothing\n\n",
    "no root": 'main ::= "a"',
    "left recursion": 'root ::= root "a" | "b"',
    "hidden left recursion": 'root ::= e root "a" | "b"\ne ::= "x"?',
    "undefined": "root ::= foo",
    "counts": 'root ::= "a"{1,100000}',
    "counts multiplied": 'root ::= ((("a"{0,900}){0,900}){0,900}){0,900}',
    "deep": "root ::= " + "(" * 30000 + '"a"' + ")" * 30000,
    "never ends": 'root ::= "a" root',
    "never ends, by two": 'root ::= x\nx ::= "a" root',
    "escape": 'root ::= "\\q"',
    "surrogate": 'root ::= "\\uD800"',
    "beyond": 'root ::= "\\UFFFFFFFF"',
    "short escape": 'root ::= "\\x1"',
    "open literal": 'root ::= "abc',
    "open class": "root ::= [a-",
    "open group": 'root ::= ("a"',
    "empty class": "root ::= []",
    "no rule": "root",
    "twice": 'root ::= "a"\nroot ::= "b"',
    "backwards": "root ::= [z-a]",
    "doubling": "\n".join(f'r{i} ::= r{i + 1} "a" | r{i + 1} "b"' for i in range(40)) + '\nr40 ::= "x"\nroot ::= r0',
    "many stars": 'root ::= "a"' + "*" * 100,
    "many empties": 'e ::= ""\nroot ::= ' + "e " * 30_000 + '"a"',
    "many rules": "".join(f"a{i}::=b\n" for i in range(6000)) + 'root ::= "x"',
    "ambiguous while matching": 'root ::= "a" root "b" | "a" root "c" | "a"',
}
ODD = {
    "many classes": "root ::= " + "[^a-z]" * 10_000,
    "empty text": "root ::= ",
    "empty alternatives": 'root ::= | | "a"',
    "stars of stars": 'root ::= (("a"*)* ("a"* "a"*)*)*',
    "dead branch": 'root ::= "a" [] | "b"',
    "right recursion": 'root ::= "a" root | "b"',
    "deep recursion": 'root ::= "(" root ")" | "x"',
}


@pytest.mark.parametrize("name", sorted(BAD | ODD))
def test_no_grammar_harms_the_worker(worker: Worker, name: str) -> None:
    answer = shaped(worker, Shape(grammar=(BAD | ODD)[name]), max_tokens=40)
    if name == "ambiguous while matching":
        assert isinstance(answer.end, Refused | Done)
    elif name in BAD:
        assert isinstance(answer.end, Refused), answer.end
        assert answer.end.code == "bad_request"
        assert "`grammar`" in answer.end.message
    else:
        assert isinstance(answer.end, Done), answer.end
    assert worker.process.poll() is None
    assert len(worker.ask("Hi", max_tokens=3).ids) == 3


def test_a_refused_schema_names_keyword_and_place(worker: Worker) -> None:
    answer = shaped(worker, by_schema({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 3}}}))
    assert isinstance(answer.end, Refused)
    assert answer.end.code == "bad_request"
    assert "`multipleOf`" in answer.end.message
    assert "#/properties/a" in answer.end.message


def test_logprobs_are_of_the_model_itself(worker: Worker) -> None:
    hot = Sampling(temperature=1.5, seed=5, logit_bias=[(260, -100.0)])
    for sampling in (GREEDY, hot):
        answer = worker.ask("Tell me a story.", max_tokens=10, sampling=sampling, shape=Shape(logprobs=20))
        assert [entry.id for entry in answer.logprobs] == answer.ids
        for entry in answer.logprobs:
            values = [top.logprob for top in entry.top]
            assert values == sorted(values, reverse=True)
            assert len(values) == 20
            assert sum(math.exp(v) for v in values) <= 1.001
            assert entry.logprob <= 0
            if sampling is GREEDY:
                assert (entry.id, entry.token, entry.logprob) == (entry.top[0].id, entry.top[0].token, values[0])
    first = worker.ask("Tell me a story.", max_tokens=1, shape=Shape(logprobs=1)).logprobs[0]
    biased = worker.ask(
        "Tell me a story.", max_tokens=1, sampling=Sampling(0, logit_bias=[(first.id, -100)]), shape=Shape(logprobs=1)
    ).logprobs[0]
    assert biased.top == first.top, "before the bias"
    assert biased.id != first.id


def test_a_bias_forces_and_bans(worker: Worker) -> None:
    (token,) = worker.tokens(text=" dog").tokens
    forced = worker.ask("Hi", max_tokens=3, sampling=Sampling(0.7, seed=1, logit_bias=[(token, 100)]))
    assert forced.ids == [token] * 3
    plain = worker.ask("Hi", max_tokens=6)
    banned = worker.ask("Hi", max_tokens=6, sampling=Sampling(0, logit_bias=[(t, -100) for t in set(plain.ids)]))
    assert not set(plain.ids) & set(banned.ids)
    outside = worker.ask("Hi", sampling=Sampling(0, logit_bias=[(10**6, 1)]))
    assert isinstance(outside.end, Refused)
    assert str(worker.hello.vocab) in outside.end.message


def test_a_bias_counts_among_what_a_grammar_allows(worker: Worker) -> None:
    (yes,) = worker.tokens(text="yes").tokens
    answer = shaped(worker, Shape(grammar='root ::= "yes" | "no"'), sampling=Sampling(0, logit_bias=[(yes, 100)]))
    assert answer.text == "yes"


def test_what_the_template_does_not_have_is_refused(worker: Worker) -> None:
    tools = json.dumps([{"type": "function", "function": {"name": "f"}}])
    for shape in (Shape(tools=tools), Shape(thinking=True)):
        answer = shaped(worker, shape)
        assert isinstance(answer.end, Refused), shape
        assert answer.end.code == "bad_request"
        assert "chat template" in answer.end.message
    assert isinstance(shaped(worker, Shape(thinking=False), max_tokens=4).end, Done)
    assert isinstance(shaped(worker, Shape(tools=tools, tool_choice="none"), max_tokens=4).end, Done)
    call = ToolCall("c", FunctionCall("f", "{}"))
    answer = worker.ask([Message("user", "Hi"), Message("assistant", "", [call])])
    assert "tool_calls" in answer.end.message


def test_an_abort_of_a_constrained_answer_leaves_nothing(worker: Worker) -> None:
    rid = worker.start("Hi", max_tokens=400, shape=by_schema({"type": "array", "items": {"type": "string"}}))
    worker.send(Abort(rid))
    assert worker.until_slots(lambda s: s.busy + s.waiting == 0).cells_used == 0

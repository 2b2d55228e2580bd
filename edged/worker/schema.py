"""JSON schemas → grammars. Pure.

The one rule: what is accepted is enforced. Every text of the grammar is valid under the schema; a keyword that would
not hold is an error that names it and its place. (The other way round does not hold: of what a schema allows, only
some is written: members in the order declared, no others where `properties` are given, no more items than
`prefixItems` when there are no `items`.)

A keyword of another type than `type` says is no trouble: it asserts nothing of this type. Without `type`, the
keywords tell it. `$ref` leads to a place in the same document, never elsewhere; schemas that contain themselves
become rules that do. Bounds: DEPTH levels, and what the automaton allows (edged.worker.automaton).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from edged.worker import jsontext
from edged.worker.grammar import Choice, GrammarError, Node, Rule, Rules, text

DEPTH: Final = 64

ANNOTATIONS: Final = frozenset(
    "title description default examples $schema $id $comment deprecated readOnly writeOnly $defs definitions".split()  # noqa: SIM905 - shorter so
)
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
FORMATS: Final = frozenset({"date", "time", "date-time", "uuid"})
_ASSERTIONS: Final = frozenset().union(*KEYWORDS.values())
_WHOLE: Final = ("$ref", "anyOf", "oneOf", "allOf", "const", "enum")
"""Keywords that stand alone; beside `const` and `enum` there may be `type`."""


class SchemaError(GrammarError):
    """`#/properties/age: keyword `multipleOf` cannot be enforced`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path if len(path) <= 200 else path[:199] + '…'}: {why}")


def to_rules(schema: dict[str, Any]) -> dict[str, Node]:
    """Rules with `root`. Raises GrammarError."""
    return Converter(schema).rules()


class Converter:
    """One document; `made` are the rules it needs beside those of `jsontext`, named after `prefix`."""

    def __init__(self, document: dict[str, Any], base: Rules = jsontext.BASE, prefix: str = "") -> None:
        self._document, self._prefix = document, prefix
        self.made: dict[str, Node] = {}
        self._base = base
        self._refs: dict[str, Rule] = {}
        self._count = 0

    def rules(self) -> dict[str, Node]:
        root = self.visit(self._document, "#", 0)
        return {**self._base, **self.made, "root": root}

    def add(self, node: Node) -> Rule:
        """A new rule."""
        self._count += 1
        name = f"{self._prefix}.{self._count}"
        self.made[name] = node
        return Rule(name)

    def visit(self, schema: Any, path: str, depth: int) -> Node:
        if schema is True or schema == {}:
            return Rule("value")
        if not isinstance(schema, dict):
            raise SchemaError(path, "`false` allows nothing" if schema is False else "a schema is an object")
        if depth > DEPTH:
            raise SchemaError(path, f"nested more than {DEPTH} deep")
        self._check_keywords(schema, path)
        whole = [k for k in _WHOLE if k in schema]
        if whole:
            return self._alone(whole[0], schema, path, depth)
        options = [self._typed(kind, schema, path, depth) for kind in _types(schema, path)]
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _check_keywords(self, schema: dict[str, Any], path: str) -> None:
        known = _ASSERTIONS | ANNOTATIONS | {*_WHOLE, "type"}
        for keyword in schema:
            if keyword not in known:
                raise SchemaError(path, f"keyword `{keyword[:64]}` cannot be enforced")
        if "$id" in schema and path != "#":
            raise SchemaError(path, "keyword `$id` is taken at the root only")

    def _alone(self, keyword: str, schema: dict[str, Any], path: str, depth: int) -> Node:
        beside = [k for k in schema if k != keyword and k not in ANNOTATIONS]
        value = schema[keyword]
        if keyword in ("const", "enum") and set(beside) <= {"type"}:
            values = [value] if keyword == "const" else value
            if not isinstance(values, list) or not values:
                raise SchemaError(path, "`enum` is a list with values")
            kinds = _types(schema, path) if "type" in schema else None
            fits = [v for v in values if kinds is None or _kinds_of(v) & set(kinds)]
            if not fits:
                raise SchemaError(path, f"no value of `{keyword}` is of this `type`")
            return jsontext.literals(fits)
        if beside:
            raise SchemaError(path, f"keyword `{beside[0]}` beside `{keyword}` cannot be enforced")
        if keyword == "$ref":
            return self._ref(value, path, depth)
        if not isinstance(value, list) or not value:
            raise SchemaError(path, f"`{keyword}` is a list of schemas")
        if keyword == "allOf" and len(value) > 1:
            raise SchemaError(path, "keyword `allOf` with several schemas cannot be enforced")
        if keyword == "oneOf":
            self._need_disjoint(value, path)
        options = [self.visit(s, f"{path}/{keyword}/{i}", depth + 1) for i, s in enumerate(value)]
        return options[0] if len(options) == 1 else Choice(tuple(options))

    # ---- references

    def _ref(self, ref: Any, path: str, depth: int) -> Node:
        target = self._target(ref, path)
        if ref in self._refs:
            return self._refs[ref]
        rule = self._refs[ref] = self.add(text(""))
        if isinstance(target, dict) and "$ref" in target:
            self._follow(target, path)
        self.made[rule.name] = self.visit(target, ref, depth + 1)
        return rule

    def _follow(self, target: Any, path: str) -> None:
        """A reference that leads to nothing but references."""
        seen: set[str] = set()
        while isinstance(target, dict) and isinstance(target.get("$ref"), str):
            if target["$ref"] in seen:
                raise SchemaError(path, "`$ref` leads in a circle")
            seen.add(target["$ref"])
            target = self._target(target["$ref"], path)

    def _target(self, ref: Any, path: str) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise SchemaError(path, "`$ref` must lead to a place in this schema (`#/…`); nothing is fetched")
        target: Any = self._document
        for part in ref.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and len(key) < 6 and int(key) < len(target):
                target = target[int(key)]
            else:
                raise SchemaError(path, "`$ref` leads nowhere")
        return target

    def _need_disjoint(self, options: list[Any], path: str) -> None:
        """`oneOf` forbids what two of its schemas allow: they must be of different types, or differ in a constant."""
        faces = [self._face(o, path) for o in options]
        for i, (kinds, constants) in enumerate(faces):
            for other, their in faces[:i]:
                common = kinds & other
                apart = any(not (constants[k] & their[k]) for k in constants.keys() & their.keys())
                if common and not (common == {"object"} and apart):
                    raise SchemaError(path, "the schemas of `oneOf` may overlap; use `anyOf`")

    def _face(self, option: Any, path: str) -> tuple[set[str], dict[str, set[str]]]:
        """The types of a schema, and of its required members the values of constant ones."""
        if isinstance(option, dict) and "$ref" in option:
            self._follow(option, path)
            return self._face(self._target(option["$ref"], path), path)
        if not isinstance(option, dict) or any(k in option for k in ("anyOf", "oneOf", "allOf")):
            return set(KEYWORDS), {}
        if "const" in option or "enum" in option:
            values = [option["const"]] if "const" in option else option["enum"]
            return {k for v in values for k in _kinds_of(v)} if isinstance(values, list) else set(KEYWORDS), {}
        kinds = set(_types(option, path))
        kinds |= {"integer", "number"} if kinds & {"integer", "number"} else set()
        constants: dict[str, set[str]] = {}
        properties = option.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        for name in option.get("required", []):
            member = properties.get(name) if isinstance(name, str) else None
            if isinstance(member, dict) and ("const" in member or isinstance(member.get("enum"), list)):
                values = [member["const"]] if "const" in member else member["enum"]
                constants[name] = {v for v in values if isinstance(v, str)}
                if len(constants[name]) != len(values):
                    del constants[name]
        return kinds, constants

    # ---- one type

    def _typed(self, kind: str, schema: dict[str, Any], path: str, depth: int) -> Node:
        match kind:
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "string":
                return self._string(schema, path)
            case "integer":
                return _integer(schema, path)
            case "number":
                return _number(schema, path)
        return Rule(kind)

    def _object(self, schema: dict[str, Any], path: str, depth: int) -> Node:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        extra = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise SchemaError(path, "`properties` is an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise SchemaError(path, "`required` is a list of names")
        members: list[tuple[str, Node, bool]] = []
        for name, value in properties.items():
            if value is False:
                if name in required:
                    raise SchemaError(path, f"member `{name[:64]}` is required and may not be")
                continue
            members.append((name, self.visit(value, f"{path}/properties/{name}", depth + 1), name in required))
        for name in dict.fromkeys(required):
            if name not in properties:
                if extra is False:
                    raise SchemaError(path, f"member `{name[:64]}` is required, and `additionalProperties` is false")
                members.append((name, self.visit(extra, f"{path}/additionalProperties", depth + 1), True))
        if members or properties or extra is False:
            self.visit(
                {} if extra is False else extra, f"{path}/additionalProperties", depth + 1
            )  # checked all the same
            return jsontext.obj(members, self.add)
        if extra is True or extra == {}:
            return Rule("object")
        return jsontext.mapping(self.add(self.visit(extra, f"{path}/additionalProperties", depth + 1)))

    def _array(self, schema: dict[str, Any], path: str, depth: int) -> Node:
        if schema.get("uniqueItems", False) is not False:
            raise SchemaError(path, "keyword `uniqueItems` cannot be enforced")
        least, most = _count(schema, "minItems", path) or 0, _count(schema, "maxItems", path)
        items, first = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list) or not isinstance(first, list):
            raise SchemaError(path, "`items` is one schema; a list of them is `prefixItems`")
        if most is not None and most < least:
            raise SchemaError(path, "`maxItems` is less than `minItems`")
        heads = [self.visit(s, f"{path}/prefixItems/{i}", depth + 1) for i, s in enumerate(first)][:most]
        more = None
        if items is not False and ("items" in schema or not heads or least > len(heads)):
            more = self.visit(items, f"{path}/items", depth + 1)
            more = more if isinstance(more, Rule) else self.add(more)
        if more is None and least > len(heads):
            raise SchemaError(path, "`minItems` is more than there may be")
        if most is not None and len(heads) >= most:
            more = None
        return jsontext.array(heads, more, least, most)

    def _string(self, schema: dict[str, Any], path: str) -> Node:
        least, most = _count(schema, "minLength", path), _count(schema, "maxLength", path)
        if "format" in schema:
            if not isinstance(schema["format"], str) or schema["format"] not in FORMATS:
                raise SchemaError(path, f"keyword `format`: only {', '.join(sorted(FORMATS))} can be enforced")
            if least is not None or most is not None:
                raise SchemaError(path, "keyword `minLength` or `maxLength` beside `format` cannot be enforced")
            return Rule(schema["format"])
        if most is not None and most < (least or 0):
            raise SchemaError(path, "`maxLength` is less than `minLength`")
        return Rule("string") if least is None and most is None else jsontext.string(least or 0, most)


def _types(schema: dict[str, Any], path: str) -> list[str]:
    given = schema.get("type")
    if given is None:
        told = [kind for kind, words in KEYWORDS.items() if words & schema.keys() and kind != "integer"]
        return told or [k for k in KEYWORDS if k != "integer"]
    kinds = given if isinstance(given, list) else [given]
    if not kinds or not all(isinstance(k, str) and k in KEYWORDS for k in kinds):
        raise SchemaError(path, "`type` is one or a list of " + ", ".join(sorted(KEYWORDS)))
    return [k for k in dict.fromkeys(kinds) if not (k == "integer" and "number" in kinds)]


def _kinds_of(value: Any) -> set[str]:
    match value:
        case bool():
            return {"boolean"}
        case None:
            return {"null"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
    return {"object"}


def _count(schema: dict[str, Any], keyword: str, path: str) -> int | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10_000:
        raise SchemaError(path, f"`{keyword}` is a whole number 0…10000")
    return value


def _bound(schema: dict[str, Any], keyword: str, path: str) -> float | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 2**53:
        raise SchemaError(path, f"`{keyword}` is a number within ±2^53")
    return value


def _integer(schema: dict[str, Any], path: str) -> Node:
    low, above = _bound(schema, "minimum", path), _bound(schema, "exclusiveMinimum", path)
    high, below = _bound(schema, "maximum", path), _bound(schema, "exclusiveMaximum", path)
    lows = [-(-low // 1)] if low is not None else []
    lows += [above // 1 + 1] if above is not None else []
    highs = [high // 1] if high is not None else []
    highs += [-(-below // 1) - 1] if below is not None else []
    least, most = int(max(lows)) if lows else None, int(min(highs)) if highs else None
    if least is None and most is None:
        return Rule("integer")
    if least is not None and most is not None and least > most:
        raise SchemaError(path, "no whole number is within these bounds")
    return jsontext.integer(least, most)


def _number(schema: dict[str, Any], path: str) -> Node:
    bounds = [k for k in sorted(KEYWORDS["number"]) if k in schema]
    if not bounds:
        return Rule("number")
    if bounds == ["minimum"] and schema["minimum"] == 0 and not isinstance(schema["minimum"], bool):
        return Rule("positive")
    raise SchemaError(
        path, f"keyword `{bounds[0]}` of a `number` cannot be enforced (`minimum` 0 can, and an `integer`'s)"
    )

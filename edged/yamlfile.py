"""Reads YAML as configuration wants it: UTF-8, no key twice, keys that are text. Raises ConfigError for the rest.

PyYAML has no bounds, so here they are: MAX_BYTES, MAX_DEPTH levels, and MAX_VALUES values with every alias written out,
since ten of ten of ten aliases are a few lines. The levels are counted while it scans, which takes it the square of
them. Its constructors raise what they like (`!!float ''` an IndexError, `!!bool x` a KeyError): here it is YAMLError.
"""

from __future__ import annotations

import os
import stat
from typing import Any

import yaml

from edged.errors import ConfigError

MAX_BYTES = 128 << 10
"""config.yaml, with all its comments, has a tenth of it."""
MAX_DEPTH = 16
"""Levels of nesting; config.yaml has four."""
MAX_VALUES = 5000


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key written twice, where the later one would win unseen, and what is nested too deeply."""

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - PyYAML's name
        super().fetch_flow_collection_start(TokenClass)
        self._hold(self.flow_level)

    def add_indent(self, column: int) -> bool:
        added: bool = super().add_indent(column)
        self._hold(len(self.indents))
        return added

    def _hold(self, levels: int) -> None:
        if levels > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels", problem_mark=self.get_mark())


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node.value, str) else repr(key_node.value)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"key {show(key)} stands twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(name: str) -> Any:
    """The decoded file; None when it is empty. Raises ConfigError."""
    try:
        with open(name, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(name, "(file)", "a regular file", "a pipe, device or socket")
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(name, "(file)", "a readable UTF-8 file", str(error)) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(name, "(file)", f"at most {MAX_BYTES} bytes", "more")
    try:
        return decode(text)
    except yaml.YAMLError as error:
        raise ConfigError(name, "(syntax)", "YAML", reason(error)) from None


def _at_once(name: str, flags: int) -> int:
    """A FIFO would be waited for, by a daemon that serves others."""
    return os.open(name, flags | os.O_NONBLOCK)


def decode(text: str) -> Any:
    """The values; None when there are none. Raises yaml.YAMLError."""
    return _with_loader(text, construct=True)


def compose(text: str) -> yaml.Node | None:
    """The nodes, with their places in the text. Raises yaml.YAMLError."""
    node: yaml.Node | None = _with_loader(text, construct=False)
    return node


def reason(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


def _with_loader(text: str, *, construct: bool) -> Any:
    try:
        loader = _StrictLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _weigh(node, {})
            return loader.construct_document(node) if construct else node
        finally:
            loader.dispose()
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise yaml.YAMLError(f"{type(error).__name__}: {error}") from None


def _weigh(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Values and levels with every alias written out. What an alias leads to was met before, so each node is met once.
    Raises yaml.YAMLError."""
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, yaml.ScalarNode):
        node.value.encode()  # no lone surrogates, which `"\ud800"` makes
    known[id(node)] = (MAX_VALUES, MAX_DEPTH)  # until it is known: an alias in it that leads to itself is too much
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    weights = [_weigh(part, known) for part in parts] if isinstance(parts, list) else []
    values = 1 + sum(values for values, _ in weights)
    levels = 1 + max((levels for _, levels in weights), default=0)
    if values > MAX_VALUES or levels > MAX_DEPTH + 1:
        problem = f"more than {MAX_VALUES} values or {MAX_DEPTH} levels, aliases written out"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    known[id(node)] = (values, levels)
    return values, levels


def only_text_keys(name: str, value: object, path: str = "", depth: int = 0) -> None:
    """YAML allows keys that are no strings; config.yaml has none."""
    if depth > MAX_DEPTH:
        raise ConfigError(name, path, f"at most {MAX_DEPTH} levels", "more, or an alias that holds itself")
    for key, item in value.items() if isinstance(value, dict) else ():
        here = f"{path}.{shown_key(key)}" if path else shown_key(key)
        if not isinstance(key, str):
            raise ConfigError(name, here, "a key of config.yaml", f"a key that is a {type(key).__name__}")
        only_text_keys(name, item, here, depth + 1)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        only_text_keys(name, item, f"{path}[{index}]", depth + 1)


def shown_key(key: object) -> str:
    """A key as an error may show it: in one printable line."""
    text = str(key)
    return text if text.isprintable() and len(text) <= 64 else show(key)


def show(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "…"

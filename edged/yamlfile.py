"""Reads YAML as configuration wants it: UTF-8, no key twice, keys that are text. Raises ConfigError for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edged.errors import ConfigError

MAX_DEPTH = 16
"""Levels of nesting; config.yaml has four."""


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key written twice: the later one would win unseen."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node.value, str) else repr(key_node.value)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(name: str) -> Any:
    """The decoded file; None when it is empty. Raises ConfigError."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(name, "(file)", "a readable UTF-8 file", str(error)) from None
    try:
        data = yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader with one more check
    except yaml.YAMLError as error:
        raise ConfigError(name, "(syntax)", "YAML", " ".join(str(error).split())) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, "(syntax)", "YAML", f"{type(error).__name__}: {error}") from None
    return data


def only_text_keys(name: str, value: object, path: str = "", depth: int = 0) -> None:
    """YAML allows keys that are no strings, and aliases that hold themselves; config.yaml has neither."""
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

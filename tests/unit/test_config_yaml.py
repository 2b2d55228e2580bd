"""config.yaml documents every key and says nothing but the defaults."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import msgspec
import yaml

from edged import config

FILE = Path(__file__).parents[2] / "config.yaml"


def key_paths(struct, prefix=""):
    """Every key of the schema, `profiles[].name` for what lies in a list."""
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.name}"
        if struct is config.Config and field.name == "path":
            continue  # where it came from, not a key
        yield path
        inner = field.type
        if inner_struct := section_of(inner):
            yield from key_paths(inner_struct, f"{path}[]." if inner_struct is config.Profile else f"{path}.")


def section_of(annotation):
    info = msgspec.inspect.type_info(annotation)
    if isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if isinstance(info, msgspec.inspect.ListType):
        info = info.item_type
    return info.cls if isinstance(info, msgspec.inspect.StructType) else None


def paths_of(data, prefix=""):
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from paths_of(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from paths_of(item, f"{prefix}{key}[].")


def test_its_values_are_the_defaults():
    assert config.load(FILE) == config.parse({}, str(FILE))


def test_every_key_of_the_schema_stands_in_it():
    written = set(paths_of(yaml.safe_load(FILE.read_text(encoding="utf-8"))))
    assert written == set(key_paths(config.Config))
    assert {"limits.queue", "profiles[].kv_type", "watchdog.restart.max"} <= written


def test_every_key_has_a_comment():
    """The line above a key that holds a value is a comment (the sampling defaults share their head's)."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    bare = [
        line.strip()
        for before, line in pairwise(lines)
        if re.match(r" *(- )?[a-z_0-9]+: \S", line) and "#" not in before
    ]
    assert bare == []

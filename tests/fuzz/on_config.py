"""Targets: the configuration file, and `edgectl model use`, which edits it."""

from __future__ import annotations

import msgspec

from edged import config
from edged.errors import ConfigError
from edged.models import switch

from .scratch import scratch

ERRORS = (ConfigError,)
SWITCH_ERRORS = (switch.CannotEditError,)

MODEL = "/models/other model.gguf"
SHA256 = "ab" * 32


def configuration(data: bytes) -> str:
    """What is taken is taken again, with the same meaning, when it is written out."""
    path = scratch() / "config.yaml"
    path.write_bytes(data)
    found = config.load(path)
    written = msgspec.to_builtins(found)
    del written["path"]
    assert config.parse(written, str(path)) == found
    assert all("\n" not in doubt for doubt in config.doubts(found))
    return "default" if found == config.parse({}, str(path)) else "other"


def model_use(data: bytes) -> str:
    """Nothing but the two values changes, and doing it twice is doing it once."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "no text"
    edited = switch.edit(text, MODEL, SHA256)
    assert switch.edit(edited, MODEL, SHA256) == edited
    return "edited"

"""Where things lie when the configuration does not say (design 2, protocol 1)."""

from __future__ import annotations

import os
from pathlib import Path


def fallback_runtime_dir() -> str:
    """Where everybody may make directories: it has to be checked that this one is ours."""
    return f"/tmp/edged-{os.getuid()}"  # noqa: S108 - it is checked


def default_runtime_dir() -> str:
    """`$RUNTIME_DIRECTORY`, else `$XDG_RUNTIME_DIR/edged`, else `/tmp/edged-UID` (protocol 1)."""
    systemd = os.environ.get("RUNTIME_DIRECTORY")
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    return systemd.split(":")[0] if systemd else f"{xdg}/edged" if xdg else fallback_runtime_dir()


def default_state_dir() -> str:
    """`$STATE_DIRECTORY`, else `$XDG_STATE_HOME/edged`, else `~/.local/state/edged` (design 2)."""
    systemd = os.environ.get("STATE_DIRECTORY")
    xdg = os.environ.get("XDG_STATE_HOME")
    if systemd:
        return systemd.split(":")[0]
    return str(Path(xdg) / "edged") if xdg else str(Path.home() / ".local/state/edged")


def models_dir() -> Path:
    """`/var/lib/edged/models` if there (also if closed to us), else `$XDG_DATA_HOME/edged/models`, else
    `~/.local/share/edged/models`."""
    system = Path("/var/lib/edged/models")
    try:
        if system.is_dir():
            return system
    except PermissionError:  # the state directory of a service, which is for its group
        return system
    xdg = os.environ.get("XDG_DATA_HOME")
    return (Path(xdg) if xdg else Path.home() / ".local/share") / "edged/models"


EMBEDDED_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""File name of the embedded default, the self-test model."""

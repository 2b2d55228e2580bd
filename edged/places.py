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


SYSTEM_CONFIG = "/etc/edged"
SERVER_KEY = "keys/server.key_secret"
"""Below the configuration's directory."""
CREDENTIAL = "keys_server.key_secret"
"""systemd's name for it, with LoadCredential=keys:/etc/edged/keys (systemd.exec(5))."""


SOCKETS_AFRESH = (
    "sudo systemctl stop edged; sudo systemctl restart edged.socket edged-control.socket; sudo systemctl start edged"
)
"""When a file of systemd's sockets was removed: a restart of the service alone does not bring it back."""


def user_config() -> str:
    """`$XDG_CONFIG_HOME/edged`, else `~/.config/edged`."""
    xdg = os.environ.get("XDG_CONFIG_HOME")
    return str((Path(xdg) if xdg else Path.home() / ".config") / "edged")


def clients_dir() -> str:
    """`/etc/edged/clients` if there, else `clients` in the user's configuration (protocol 9)."""
    system = f"{SYSTEM_CONFIG}/clients"
    return system if os.path.isdir(system) else f"{user_config()}/clients"


def credentials_dir() -> str | None:
    """Where systemd puts the unit's credentials."""
    return os.environ.get("CREDENTIALS_DIRECTORY")


def server_key() -> str:
    """The credential if there, else `/etc/edged/keys/server.key_secret` if there, else the user's. If none of them can
    be seen, the first that may be there all the same; but a service whose credentials systemd handed over knows by them
    that there is none, since `/etc/edged/keys` is closed to it."""
    credentials = credentials_dir()
    places = [f"{credentials}/{CREDENTIAL}"] if credentials else []
    places += [f"{SYSTEM_CONFIG}/{SERVER_KEY}", f"{user_config()}/{SERVER_KEY}"]
    seen = next((place for place in places if os.path.exists(place)), None)
    if seen is None and credentials and os.path.isdir(credentials) and absent(places[0]):
        return places[0]
    return seen or next((place for place in places if not absent(place)), places[-1])


def absent(path: str) -> bool:
    """Certainly: not so in a directory that is closed to us, and not a link to nowhere."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


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

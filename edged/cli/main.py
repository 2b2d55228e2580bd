"""`edgectl`: the verbs are modules of their own, imported when they are used."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys

import click

from edged import __version__
from edged.cli import failure
from edged.cli.failure import EXIT_ERROR, EXIT_INTERRUPTED, Failed
from edged.cli.number import Number
from edged.cli.output import Session

VERBS = {
    "ask": "edged.cli.ask",
    "cancel": "edged.cli.cancel",
    "chat": "edged.cli.chat",
    "completion": "edged.cli.completion",
    "config": "edged.cli.config",
    "doctor": "edged.cli.doctor",
    "drain": "edged.cli.drain",
    "embed": "edged.cli.embed",
    "events": "edged.cli.events",
    "fleet": "edged.cli.fleet.verb",
    "health": "edged.cli.health",
    "keys": "edged.cli.keys",
    "loglevel": "edged.cli.loglevel",
    "model": "edged.cli.model",
    "ping": "edged.cli.ping",
    "profile": "edged.cli.profile",
    "reload": "edged.cli.reload",
    "report": "edged.cli.report.verb",
    "requests": "edged.cli.requests",
    "result": "edged.cli.result",
    "resume": "edged.cli.resume",
    "session": "edged.cli.session",
    "status": "edged.cli.status",
    "tokenize": "edged.cli.tokenize",
    "top": "edged.cli.top.verb",
    "verify": "edged.cli.verify",
    "warm": "edged.cli.warm",
}
"""Verb → the module whose `command` it is."""

STDOUT = 1


class _LazyGroup(click.Group):
    """`edgectl status` on a small board should not pay for what `edgectl ask` imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        module = VERBS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader went away: `edgectl … | head`
            _leave_output()
            sys.exit(128 + signal.SIGPIPE)
        return done


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done; 1 the daemon answered with an error; 2 usage; 3 nothing answered; "
    "78 the configuration is wrong; 130 interrupted. `doctor`, `health`, `result` and `verify` have their own: see "
    "their --help.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="Configuration that tells where the daemon listens. Default: $EDGED_CONFIG, else ./config.yaml, "
    "else /etc/edged/config.yaml, else the built-in defaults.",
)
@click.option(
    "--endpoint",
    multiple=True,
    metavar="ENDPOINT",
    help="Talk to this endpoint, ipc:///path or tcp://host:port, whatever the configuration. May be given several "
    "times, or with commas: ask, embed, result, tokenize and warm ask any of them. Default: $EDGED_ENDPOINT.",
)
@click.option(
    "--key",
    envvar="EDGED_KEY",
    metavar="KEY",
    help="The secret key of this device for tcp://: a NAME.key_secret file or Z85. Default: $EDGED_KEY.",
)
@click.option(
    "--server-key",
    multiple=True,
    metavar="KEY",
    help="The public key of the box for tcp://: a file or Z85; several are tried in turn. Of several boxes, "
    "ENDPOINT=KEY for each. Default: $EDGED_SERVER_KEY.",
)
@click.option(
    "--timeout",
    type=Number(min=0.05),
    metavar="S",
    help="Seconds to wait for a sign of life (default: 5; ask, chat and tokenize: 30; embed and warm: 120).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.version_option(__version__, prog_name="edgectl")
@click.pass_context
def cli(
    ctx: click.Context,
    config: str | None,
    endpoint: tuple[str, ...],
    timeout: float | None,
    *,
    key: str | None,
    server_key: tuple[str, ...],
    as_json: bool,
) -> None:
    """Ask and watch the edged daemon of this machine.

    \b
    Examples:
      edgectl status
      edgectl ask "Why is the sky blue?"
    """
    ctx.obj = Session(config, endpoint, timeout, as_json=as_json, key=key, server_key=server_key)


def _leave_output() -> None:
    """The flush at exit must have somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def main() -> None:
    """The console script: every way out has its status, none a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us: `edgectl status >&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows "?"
    try:
        status = _run()
    except Failed as failed:
        status = failed.status
        _put(failure.text(failed) if failure.is_json(sys.argv[1:]) else None)
    sys.exit(status)


def _run() -> int:
    """The exit status. Raises Failed when it was told what is wrong."""
    try:
        status = cli.main(prog_name="edgectl", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise Failed("a verb is missing: `--help` lists them", error.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise Failed(error.format_message(), error.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        raise Failed("interrupted", EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except OSError as error:  # /dev/full, a disk without room
        name = f"{error.filename}: " if error.filename else ""
        words = f"{name}{error.strerror or error}"
        sys.stderr.write(f"edgectl: {words}\n")
        raise Failed(words, EXIT_ERROR) from None
    return status if isinstance(status, int) else 0


def _put(line: str | None) -> None:
    """On stdout, if that can be written at all: it may be what failed."""
    try:
        if line is not None:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError:
        _leave_output()


if __name__ == "__main__":
    main()

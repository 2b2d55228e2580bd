"""`edged --config FILE`: runs the daemon in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Final

from edged import __version__, config
from edged.daemon import Daemon
from edged.errors import EXIT_CONFIG, ConfigError
from edged.observe.log import Log
from edged.system.notify import MissingError, Notifier
from edged.waiting import Waiting
from edged.wakes import Wakes
from edged.wire.activation import Activated, passed
from edged.wire.listeners import ListenError

EXIT_LISTEN: Final = 1

_EPILOG = """exit status: 0 stopped as asked, 1 the sockets cannot be had, 2 usage, 78 the configuration is wrong.
signals: SIGTERM and SIGINT stop (a second one at once), SIGHUP reads the configuration again.
With sockets passed by systemd a wrong configuration does not end it: it answers `unavailable` until SIGHUP."""


def main(argv: list[str] | None = None) -> int:
    """Exit statuses: see the epilog."""
    arguments = parser().parse_args(argv)
    wakes = Wakes()
    try:
        notifier, activated = Notifier(os.environ), passed(os.environ)
    except MissingError as error:
        return _failed(error, EXIT_CONFIG)
    while True:
        try:
            settings = config.load(arguments.config)
            log = Log(settings.log_level)
            daemon = Daemon(settings, log, arguments.worker, wakes=wakes, activated=activated, notifier=notifier)
        except (ConfigError, ListenError) as error:
            if not activated:
                return _failed(error, EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_LISTEN)
            status = _wait(arguments.config, error, wakes, activated, notifier)
            if status is not None:
                return status
        else:
            return daemon.run()


def _wait(
    path: str | None, error: ConfigError | ListenError, wakes: Wakes, activated: Activated, notifier: Notifier
) -> int | None:
    """Until there is a good configuration: None; else the exit status."""
    with contextlib.closing(Log()) as log:
        try:
            return Waiting(path, error, log, wakes=wakes, activated=activated, notifier=notifier).run()
        except (ConfigError, ListenError) as worse:
            return _failed(worse, EXIT_LISTEN)


def _failed(error: Exception, status: int) -> int:
    print(f"edged: {error}", file=sys.stderr)  # noqa: T201 - before there is a log
    return status


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="edged",
        description="Serves a small language model over ZeroMQ.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="configuration (YAML); without it the defaults are in force")
    parser.add_argument("--version", action="version", version=f"edged {__version__}")
    parser.add_argument("--worker", default="edged.worker", metavar="MODULE", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

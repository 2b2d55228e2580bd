"""`edged --config FILE`: runs the daemon in the foreground."""

from __future__ import annotations

import argparse
import sys

from edged import __version__, config
from edged.daemon import Daemon
from edged.errors import EXIT_CONFIG, ConfigError
from edged.observe.log import Log
from edged.wire.listeners import ListenError

_EPILOG = """exit status: 0 stopped as asked, 1 the sockets cannot be had, 2 usage, 78 the configuration is wrong.
signals: SIGTERM and SIGINT stop (a second one at once), SIGHUP reads the configuration again."""


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


def main(argv: list[str] | None = None) -> int:
    """Exit statuses: see the epilog."""
    arguments = parser().parse_args(argv)
    try:
        settings = config.load(arguments.config)
        log = Log(settings.log_level)
        daemon = Daemon(settings, log, arguments.worker)
    except ConfigError as error:
        print(f"edged: {error}", file=sys.stderr)  # noqa: T201 - before there is a log
        return EXIT_CONFIG
    except ListenError as error:
        print(f"edged: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return daemon.run()


if __name__ == "__main__":
    sys.exit(main())

"""What the verbs share: where the daemon is, how an error is told, what may go to a terminal."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NoReturn

import click

from edged import client, config, places
from edged.errors import EXIT_CONFIG, ConfigError

EXIT_ERROR = 1
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130

SYSTEM_SOCKET = "/run/edged/request.sock"
"""Where the systemd unit's daemon listens; its $RUNTIME_DIRECTORY is not in an operator's environment."""


class Session:
    """The global options, and what follows from them."""

    def __init__(self, path: str | None, endpoint: str | None, timeout: float | None, *, as_json: bool) -> None:
        self._path = path
        self._endpoint = endpoint
        self._timeout = timeout
        self.as_json = as_json

    def timeout(self, default: float) -> float:
        return self._timeout if self._timeout is not None else default

    @cached_property
    def config(self) -> config.Config:
        try:
            return config.load(self._path or _default_config())
        except ConfigError as error:
            fail(str(error), EXIT_CONFIG)

    @cached_property
    def endpoint(self) -> str:
        return self._endpoint or connectable(self.config)

    @contextmanager
    def client(self) -> Iterator[client.Client]:
        """A client whose errors are told in one line, each with its exit status."""
        why = _unreachable(self.endpoint)
        if why:
            fail(why, EXIT_NO_ANSWER)
        try:
            with client.Client(self.endpoint) as found:
                yield found
        except client.ReplyError as error:
            tell_error(error)
        except client.NoAnswer as error:
            fail(f"nothing answers at {self.endpoint} within {error.waited_s:.3g} s: {_START}", EXIT_NO_ANSWER)
        except client.BadEndpoint as error:
            fail(str(error), click.UsageError.exit_code)


_START = "start it with `make serve` or `systemctl start edged`"


def _default_config() -> str | None:
    given = os.environ.get("EDGED_CONFIG")
    if given:
        return given
    return next((path for path in ("config.yaml", "/etc/edged/config.yaml") if os.path.exists(path)), None)


def connectable(settings: config.Config) -> str:
    """The first `request` endpoint, an ipc one if there is one, as a client has to write it."""
    endpoints = sorted(settings.request_endpoints, key=lambda e: not e.startswith("ipc://"))
    endpoint = endpoints[0]
    for anywhere in ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:"):
        endpoint = endpoint.replace(anywhere, "tcp://127.0.0.1:")
    default_place = not settings.listen.request and settings.runtime_dir == places.default_runtime_dir()
    if default_place and not os.path.exists(endpoint.removeprefix("ipc://")) and os.path.exists(SYSTEM_SOCKET):
        return f"ipc://{SYSTEM_SOCKET}"
    return endpoint


def _unreachable(endpoint: str) -> str | None:
    """Why it is no use waiting, in words: no socket, no permission."""
    if not endpoint.startswith("ipc:///"):
        return None
    path = endpoint.removeprefix("ipc://")
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return f"{path} is not a socket"
    except PermissionError:
        return _not_allowed(path)
    except OSError:
        return f"nothing answers at {endpoint}: {_START}"
    return None if os.access(path, os.W_OK) else _not_allowed(path)


def _not_allowed(path: str) -> str:
    return f"no permission for {path}: your user must be in the socket's group (`sudo adduser $USER edged`)"


def fail(message: str, status: int) -> NoReturn:
    """One line on stderr, then the exit status."""
    click.echo(f"edgectl: {printable(' '.join(message.split()))}", err=True)
    sys.exit(status)


def tell_error(error: client.ReplyError) -> NoReturn:
    again = ""
    if error.retryable:
        after = f" in {error.retry_after:.3g} s" if error.retry_after else " later"
        again = f" (try again{after})"
    fail(f"{error.code}: {error.message}{again}", EXIT_ERROR)


def print_json(value: dict[str, Any]) -> None:
    """One line; escaped to ASCII, so that no control character reaches a terminal."""
    click.echo(json.dumps(value))


def printable(text: str) -> str:
    """Without control characters, newline and tab apart: what a model says must not drive a terminal."""
    return "".join(c for c in text if c in "\n\t" or not (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0))


def model_text(text: str) -> str:
    """Model output as it goes to stdout: untouched into a pipe or file, harmless on a terminal."""
    return printable(text) if sys.stdout.isatty() else text

"""What the verbs share: the daemon they talk to, how an error is told, what may go to a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NoReturn

import click

from edged import client, config
from edged.cli import failure, reach
from edged.cli.failure import Failed
from edged.client.where import several
from edged.errors import EXIT_CONFIG, ConfigError

EXIT_ERROR = failure.EXIT_ERROR
EXIT_NO_ANSWER = failure.EXIT_NO_ANSWER
EXIT_NOT_YET = failure.EXIT_NOT_YET
EXIT_INTERRUPTED = failure.EXIT_INTERRUPTED

ANSWER_S = 5.0
"""For what is answered at once; `--timeout` says otherwise."""


class Session:
    """The global options, and what follows from them."""

    def __init__(
        self,
        path: str | None,
        endpoints: Sequence[str],
        timeout: float | None,
        *,
        as_json: bool,
        key: str | None = None,
        server_key: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        said = list(endpoints) or [os.environ.get("EDGED_ENDPOINT", "")]
        self._endpoints = [each for one in said for each in several(one) if each]
        self._timeout = timeout
        self._key = key
        self._server_key = server_key
        self.as_json = as_json

    def timeout(self, default: float = ANSWER_S) -> float:
        return self._timeout if self._timeout is not None else default

    @property
    def config_path(self) -> str | None:
        return self.path or reach.default_config()

    def configuration(self) -> config.Config:
        """Raises ConfigError."""
        return config.load(self.config_path)

    @cached_property
    def config(self) -> config.Config:
        try:
            return self.configuration()
        except ConfigError as error:
            fail(str(error), EXIT_CONFIG)

    @property
    def _endpoint(self) -> str | None:
        """`--endpoint`, for a verb that asks one box."""
        if len(self._endpoints) > 1:
            fail("this verb asks one box: give one --endpoint", click.UsageError.exit_code)
        return self._endpoints[0] if self._endpoints else None

    @cached_property
    def endpoint(self) -> str:
        return self._endpoint or reach.connectable(self.config)

    @cached_property
    def control(self) -> str:
        if not self._endpoint:
            return reach.control(self.config)
        beside = reach.control_beside(self._endpoint)
        if beside is None:
            fail("this verb goes over the control socket of the box itself, never over TCP", click.UsageError.exit_code)
        return beside

    @property
    def given(self) -> str | None:
        """`--endpoint`."""
        return self._endpoint

    @property
    def streams(self) -> dict[str, str]:
        """The stream endpoint that goes with the request endpoint, where the configuration tells."""
        return {} if self._endpoint else {self.endpoint: reach.stream(self.config, self.endpoint)}

    def connect(self, endpoint: str | list[str], streams: dict[str, str] | None = None) -> client.Client:
        """With the keys that were given. An endpoint or a key that is none is told here; errors of calls are not."""
        try:
            return client.Client(endpoint, streams=streams, key=self._key, server_key=self._server_key or None)
        except (client.BadEndpoint, client.BadKey) as error:
            fail(str(error), click.UsageError.exit_code)

    @contextmanager
    def client(self, *, control: bool = False, any_of: bool = False) -> Iterator[client.Client]:
        """A client whose errors are told in one line, each with its exit status. `any_of`: of several boxes any may
        answer; other verbs ask one.
        """
        many = any_of and len(self._endpoints) > 1
        endpoint = "" if many else self.control if control else self.endpoint
        why = None if many else reach.unreachable(endpoint)
        if why:
            fail(why, EXIT_NO_ANSWER)
        try:
            streams = {} if control or many else self.streams
            with self.connect(self._endpoints if many else endpoint, streams) as found:
                yield found
        except client.ReplyError as error:
            refused(error)
        except client.NoAnswer as error:
            fail(str(error) if many else silence_words(endpoint, error), EXIT_NO_ANSWER)
        except client.BadEndpoint as error:
            fail(str(error), click.UsageError.exit_code)

    def call(self, op: str, *, control: bool = False, **fields: Any) -> dict[str, Any]:
        """One question, one answer."""
        with self.client(control=control) as edged:
            return edged.call(op, deadline_s=self.timeout(), **fields)


def one_line(message: str) -> str:
    return printable(" ".join(message.split()))


def fail(message: str, status: int) -> NoReturn:
    """One line on stderr, then the exit status; with --json `edged.cli.main` puts an object on stdout."""
    click.echo(f"edgectl: {one_line(message)}", err=True)
    raise Failed(message, status)


def refused(error: client.ReplyError) -> NoReturn:
    """What the daemon said to it; with --json the whole reply."""
    words = error_words(error)
    click.echo(f"edgectl: {one_line(words)}", err=True)
    raise Failed(words, EXIT_ERROR, error.raw)


def silence_words(endpoint: str, error: client.NoAnswer) -> str:
    return str(error) if isinstance(error, client.NotAdmitted) else reach.silent(endpoint, error.waited_s)


def error_words(error: client.ReplyError) -> str:
    again = ""
    if error.retryable:
        after = f" in {error.retry_after:.3g} s" if error.retry_after else " later"
        again = f" (try again{after})"
    return f"{error.code}: {error.message}{again}"


def print_json(value: dict[str, Any]) -> None:
    """The one object: an error that comes after it is no second one. One line; escaped to ASCII, so that no control
    character reaches a terminal."""
    failure.STDOUT.whole = True
    click.echo(json.dumps(value))


def print_lines(values: Iterable[dict[str, Any]]) -> None:
    """Of a verb that goes on: one object a line, and an error that ends it is the last one."""
    failure.STDOUT.lines = True
    for value in values:
        click.echo(json.dumps(value))


def printable(text: str) -> str:
    """Without control characters, newline and tab apart: what a model says must not drive a terminal."""
    return "".join(c for c in text if c in "\n\t" or not (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0))


def model_text(text: str) -> str:
    """Model output as it goes to stdout: untouched into a pipe or file, harmless on a terminal."""
    return printable(text) if sys.stdout.isatty() else text

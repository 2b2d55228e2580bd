"""The last word of `edgectl keys`: what was done has been done, whether or not a daemon takes it."""

from __future__ import annotations

from typing import Any, Final

import click

from edged import client
from edged.cli.output import EXIT_ERROR, Session, error_words, fail, print_json

IN_FORCE: Final = "in force after a reload: `systemctl reload edged`, or `edgectl config apply`, or --reload here"
NOT_KNOWN: Final = f"NOT in force, as far as is known: {IN_FORCE}"
"""Also for a daemon that did not answer in time: it may have read the keys all the same."""


def last_word(session: Session, fields: dict[str, Any], *, reload: bool, otherwise: str) -> None:
    """`fields`: of the one JSON object. `otherwise`: in words, without `reload`. Ends the process when the
    daemon does not take it."""
    applied: dict[str, Any] | None = None
    try:
        if reload:
            applied = _apply(session)
    finally:
        if session.as_json:
            config = {key: value for key, value in (applied or {}).items() if key == "config"}
            print_json(fields | {"reloaded": applied is not None} | config)
        elif reload:
            click.echo("in force now" if applied is not None else NOT_KNOWN)
        else:
            click.echo(otherwise)


def _apply(session: Session) -> dict[str, Any]:
    """A refusal goes to stderr alone: stdout has one object."""
    with session.client(control=True) as edged:
        try:
            return edged.call("config", deadline_s=session.timeout(), action="apply")
        except client.ReplyError as error:
            fail(error_words(error), EXIT_ERROR)

"""`edgectl chat`: a conversation at the terminal, or line by line from a pipe.

All turns are sent each time; the daemon keeps nothing of them. With --session it is the other way round: the daemon
keeps them, and only new ones are sent.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

import click

from edged import client
from edged.cli import answering, reach, shaping
from edged.cli.conversation import Conversation
from edged.cli.lineedit import Lines, write_private
from edged.cli.options import EXITS, deadline_option, given, json_option, sampling_options, utf8
from edged.cli.output import EXIT_INTERRUPTED, Session, error_words, fail, one_line, print_lines

PATIENCE_S: Final = 30.0
DEADLINE_S: Final = 120.0
"""How long a refused answer is tried again, when --deadline does not say."""
LATER_S: Final = 1.0
"""Before the next try, when the daemon does not say."""
LOST_MAX: Final = 2
"""Of an answer that ended in `worker_lost` or the like: the question itself may be to blame."""
REFUSALS: Final = ("busy", "loading", "unavailable", "shutting_down", "overheated", "low_memory")

HELP = """\
/reset      forget everything said so far
/save FILE  write the conversation: as JSON if FILE ends in .json, else as text
/help       this
/quit       leave; so does Ctrl-D
A line that begins with a blank goes to the model even if a / follows. Ctrl-C cancels an answer, or clears the line."""


@click.command(epilog=EXITS)
@click.option("--system", help="A system message before everything.")
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Keep the lines typed in FILE (mode 0600). Without it they are forgotten at the end: they are your prompts.",
)
@shaping.session_option
@sampling_options
@deadline_option
@json_option("Print one JSON object per answer, one a line.")
@click.pass_obj
def command(
    session: Session,
    /,
    system: str | None,
    history: str | None,
    talk: str | None,
    deadline: float | None,
    **sampling: Any,
) -> None:
    """Talk with the model, turn by turn. /help lists what can be typed.

    Ctrl-C cancels the answer that is being written, Ctrl-D leaves. What was cancelled is not remembered. From a pipe,
    each line is a turn, and the first error ends the chat.

    \b
    Examples:
      edgectl chat --system "Be brief."
      edgectl chat --session kitchen
      printf '%s\\n' "Name a bird." "And one that cannot fly?" | edgectl chat
    """
    said = Conversation(None if system is None else utf8(system, "--system"), kept=talk is not None)
    options = given(sampling) | ({} if talk is None else {"session": talk})
    with session.client() as edged, Lines(history) as lines:
        Chat(session, edged, lines, said, deadline_s=deadline, options=options).run()


class Chat:
    def __init__(
        self,
        session: Session,
        edged: client.Client,
        lines: Lines,
        talk: Conversation,
        *,
        deadline_s: float | None,
        options: dict[str, Any],
    ) -> None:
        self._session = session
        self._edged = edged
        self._lines = lines
        self._talk = talk
        self._deadline_s = deadline_s
        self._options = options
        self._dropped = 0

    @property
    def _kept(self) -> bool:
        """The daemon keeps the conversation."""
        return "session" in self._options

    def run(self) -> None:
        if self._lines.interactive:
            note("/help lists what can be typed")
        while True:
            try:
                line = self._lines.read()
            except EOFError:
                if self._lines.interactive:
                    click.echo()
                return
            except KeyboardInterrupt:
                self._interrupted("")
                continue
            if line.rstrip() == "/quit":
                return
            try:
                self._take(line)
            except KeyboardInterrupt:
                self._interrupted("cancelled, and not remembered")

    def _interrupted(self, what: str) -> None:
        """At a terminal it is the answer that ends, or the line; in a pipe all of it."""
        if not self._lines.interactive:
            fail("cancelled", EXIT_INTERRUPTED)
        click.echo()
        if what:
            note(what)

    def _take(self, line: str) -> None:
        if line.startswith("/"):
            self._obey(*line.split(maxsplit=1))
        elif line.strip():
            try:
                self._turn(utf8(line.strip(), "the line"))
            except click.UsageError as error:
                self._failed(error, error.message)
            except client.ReplyError as error:
                self._failed(error, error_words(error))
            except client.NotAdmitted as error:
                self._failed(error, str(error))
            except client.NoAnswer as error:
                self._failed(error, reach.silent(self._session.endpoint, error.waited_s))

    def _failed(self, error: Exception, words: str) -> None:
        """At a terminal the next line may go better."""
        if not self._lines.interactive:
            raise error
        click.echo(f"edgectl: {one_line(words)}", err=True)

    # ---- what begins with / ------------------------------------------------------------------------------------

    def _obey(self, word: str, rest: str = "") -> None:
        if word == "/reset":
            self._talk.reset()
            if self._kept:  # in force with the next turn
                self._options["reset"] = True
                self._dropped = 0
            note("forgotten")
        elif word == "/save":
            self._save(rest.strip())
        elif word == "/help":
            click.echo(HELP, err=True)
        else:
            note(f"{word}: no such command; /help lists them, and a blank in front sends the line as it is")

    def _save(self, name: str) -> None:
        if not name:
            note("/save FILE: which file?")
            return
        path = os.path.expanduser(name)
        text = self._talk.as_json() if path.endswith(".json") else self._talk.as_text()
        try:
            write_private(path, text, os.O_EXCL)
        except FileExistsError:
            note(f"{path} is there already: choose another name")
        except OSError as error:
            note(f"{path}: {error.strerror}")
        else:
            note(f"{len(self._talk)} turns in {path}")

    # ---- a turn ------------------------------------------------------------------------------------------------

    def _turn(self, question: str) -> None:
        asked = False
        while True:
            try:
                result = self._answer(question)
                break
            except client.ContextOverflow as error:
                if self._kept or not len(self._talk):
                    raise
                if not asked:
                    note(f"the conversation no longer fits: {error.message}")
                    if not self._lines.agreed("Forget the oldest turns?"):
                        note("nothing was forgotten; /reset begins anew")
                        return
                    asked = True
                self._talk.forget_oldest()
                note(f"the oldest turn is forgotten, {len(self._talk)} left")
        if result.finish_reason not in ("stop", "length"):
            note(f"cut off: {result.finish_reason}; this turn is not remembered")
            return
        if result.finish_reason == "length":
            note("the answer reached its length: --max-tokens, or the end of the context")
        if self._kept:
            self._remark(result)
        self._talk.keep(question, result.text)

    def _remark(self, result: client.Result) -> None:
        """A session's turn has ended."""
        if result.stored:
            self._options.pop("reset", None)
        if result.dropped_turns > self._dropped or not result.stored:
            self._dropped = result.dropped_turns
            for remark in shaping.remarks(result):
                note(remark)

    def _answer(self, question: str) -> client.Result:
        """Tried again while the daemon asks for it, in words: a person wants to know why nothing comes."""
        request_id, lost = client.new_id(), 0
        until = time.monotonic() + (self._deadline_s or DEADLINE_S)
        while True:
            try:
                return self._stream(request_id, question, until)
            except client.ReplyError as error:
                wait = error.retry_after or LATER_S
                lost += error.code not in REFUSALS
                if not error.retryable or lost > LOST_MAX or time.monotonic() + wait >= until:
                    raise
                note(f"{error.code}: {error.message}; again in {wait:.3g} s")
                time.sleep(wait)

    def _stream(self, request_id: str, question: str, until: float) -> client.Result:
        deadline = None if self._deadline_s is None else until - time.monotonic()
        with self._edged.stream(
            self._talk.asking(question),
            id=request_id,
            deadline_s=deadline,
            answer_s=self._session.timeout(PATIENCE_S),
            retry=False,
            **self._options,
        ) as stream:
            if self._session.as_json:
                print_lines([stream.result.raw])
                return stream.result
            return answering.whole(stream)


def note(text: str) -> None:
    """About the chat, not of it."""
    click.echo(f"({one_line(text)})", err=True)

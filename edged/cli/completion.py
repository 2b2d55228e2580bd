"""`edgectl completion bash|zsh|fish`: the shell's side of completion, made by click."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edged.cli.options import json_option
from edged.cli.output import Session, print_json


@click.command(epilog="Exit status: 0 done; 2 usage.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option('Print {"ok", "shell", "script"} as one JSON object.')
@click.pass_obj
@click.pass_context
def command(ctx: click.Context, session: Session, /, shell: str) -> None:
    """Print a completion script, to be sourced.

    \b
    Examples:
      bash: edgectl completion bash > ~/.local/share/bash-completion/completions/edgectl
      zsh:  edgectl completion zsh > "${fpath[1]}/_edgectl"
      fish: edgectl completion fish > ~/.config/fish/completions/edgectl.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three"
    script = kind(ctx.find_root().command, {}, "edgectl", "_EDGECTL_COMPLETE").source()
    if session.as_json:
        print_json({"ok": True, "shell": shell, "script": script})
    else:
        click.echo(script)

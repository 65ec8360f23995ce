"""``lash completion``: completion scripts for shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lash.cli.command import command

if TYPE_CHECKING:
    from lash.cli.shell import Shell


@command("completion", "lash completion bash", "lash completion zsh > _lash", storage=False)
@click.argument("kind", metavar="bash|zsh|fish", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: Shell, kind: str) -> None:
    """Write the completion script of a shell; in bash: eval "$(lash completion bash)"."""
    from click.shell_completion import get_completion_class

    from lash.cli.root import root

    made = get_completion_class(kind)
    assert made is not None
    shell.text(made(root, {}, "lash", "_LASH_COMPLETE").source())

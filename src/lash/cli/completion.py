"""``lash completion``: completion scripts for shells."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from lash.cli.command import command

if TYPE_CHECKING:
    from lash.cli.shell import Shell

VARIABLE: Final = "_LASH_COMPLETE"
"""The variable that names the shell which wants completions."""
_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' line kind value
    COMPREPLY=()
    while IFS= read -r line; do
        kind="${line%%%%,*}" value="${line#*,}"
        case "$kind" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$(printf '%%q' "$value")") ;;
        esac
    done < <(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2> /dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion for bash that takes the line as it is typed.

    Bash splits words at colons, which ids may contain, and replaces only the last piece by a completion.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one that is completed."""
        from click.shell_completion import split_arg_string

        if "COMP_LINE" not in os.environ:
            # A script of an earlier version.
            return super().get_completion_args()
        line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(line)
        if not words or line[-1:].isspace():
            words.append("")
        return words[1:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return completions of the last piece of the word only."""
        found = super().get_completions(args, incomplete)
        typed = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        breaks = [sign for sign in ":=@" if sign in os.environ.get("COMP_BREAKS", "")]
        start = max((typed.rfind(sign) + 1 for sign in breaks), default=0)
        return [CompletionItem(str(each.value)[start:], type=each.type) for each in found]


add_completion_class(Bash)


@command(
    "completion",
    "lash completion bash > lash.bash",
    "lash completion zsh > _lash",
    "lash completion fish > lash.fish",
    storage=False,
)
@click.argument("kind", metavar="bash|zsh|fish", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: Shell, kind: str) -> None:
    """Write the script that completes commands, options and ids in a shell.

    For bash, put eval "$(lash completion bash)" into ~/.bashrc. For zsh, write the script to a file _lash in a
    directory of $fpath, before compinit runs. For fish, write it to ~/.config/fish/completions/lash.fish.

    Ids are read from the storage of --url or LASH_URL, for two seconds at most; nothing is offered if that fails.
    """
    from lash.cli.root import root

    made = get_completion_class(kind)
    assert made is not None
    shell.text(made(root, {}, "lash", VARIABLE).source().strip("\n"))

"""The `attendo completion` command: scripts that complete commands, options and values in a shell."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from attendo.cli.language import translate

Shell = Literal["bash", "zsh", "fish"]

# Each script calls `attendo completion SHELL --words ...` for suggestions. Without suggestions the shell offers files.
_BASH = """\
_attendo() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _attendo attendo
"""
_ZSH = """\
#compdef attendo
_attendo() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n ${found[1]} ]]; then _describe attendo found; else _files; fi
}
if [[ ${funcstack[1]} == _attendo ]]; then _attendo "$@"; else compdef _attendo attendo; fi
"""
_FISH = """\
function __attendo_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] completion fish --words -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command attendo --no-files --arguments '(__attendo_complete)'
"""


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]", help="With --words: the words typed so far.", hidden=True)
    ] = None,
    suggests: Annotated[bool, typer.Option("--words", hidden=True)] = False,
) -> None:
    """Print the script that completes commands and options in a shell.

    bash: add `eval "$(attendo completion bash)"` to ~/.bashrc.

    zsh: add `eval "$(attendo completion zsh)"` to ~/.zshrc, below compinit.

    fish: attendo completion fish > ~/.config/fish/completions/attendo.fish
    """
    if not suggests:
        print({"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell], end="")
        return
    for name, text in suggest(context.find_root().command, words or [""]):
        separator = ":" if shell == "zsh" else "\t"
        print(name if shell == "bash" or not text else f"{name}{separator}{text}")


def suggest(command: Any, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the completions of the last word, each with its help text; nothing if a file is expected."""
    *typed, last = words[1:] if words[0] == "help" and len(words) > 1 else words
    while typed and hasattr(command, "commands"):
        name = typed.pop(0)
        if name not in command.commands:
            return []
        command = command.commands[name]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    found: list[tuple[str, str]] = []
    if value := next((each for each in options if typed and typed[-1] in each.opts and not each.is_flag), None):
        found = [(str(choice), "") for choice in value.type_descriptor.choices or ()]
    elif last.startswith("-"):
        found = [(name, translate(each.help or "")) for each in options for name in (*each.opts, *each.secondary_opts)]
        found.append(("--help", translate("Show this message and exit.")))
    elif hasattr(command, "commands"):
        found = [row for rows in command.list_helps().values() for row in rows]
    return [(name, text) for name, text in found if name.startswith(last)]

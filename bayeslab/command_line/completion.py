"""Scripts that complete the command in a shell: its commands, and the options of each."""

import argparse
from typing import Any

BASH = """_bayeslab() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words
    case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="" ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    elif [[ "$word" == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _bayeslab bayeslab
"""
"""The script for bash; zsh understands it too."""
SHELLS = ("bash", "zsh", "fish")
"""The shells that there are scripts for."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell, to be evaluated when it starts."""
    commands = _commands(parser)
    top = [*commands, *_options(parser)]
    if shell == "fish":
        lines = ["complete -c bayeslab -n __fish_use_subcommand -f -a '" + " ".join(commands) + "'"]
        for name, command in commands.items():
            for option in _options(command):
                flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                lines.append(f"complete -c bayeslab -n '__fish_seen_subcommand_from {name}' {flag}")
        return "\n".join(lines) + "\n"
    cases = "\n".join(f'    {name}) words="{" ".join(_options(command))}" ;;' for name, command in commands.items())
    start = "autoload -Uz bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return start + BASH.format(cases=cases, commands=" ".join(top))


class PrintCompletion(argparse.Action):
    """Prints the script and ends, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        print(completion_script(parser, str(values)), end="")
        parser.exit()


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of commands by name."""
    [subparsers] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(subparsers.choices)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser, long ones where they have one."""
    flags = [action.option_strings for action in parser._actions if action.option_strings]
    return [text for each in flags for text in ([flag for flag in each if flag.startswith("--")] or each)]

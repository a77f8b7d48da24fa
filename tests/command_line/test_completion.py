"""What the shell completes is what the command has."""

import subprocess
from typing import Any

import pytest

from bayeslab.command_line.main import main


def script(shell: str, capsys: Any) -> str:
    with pytest.raises(SystemExit) as end:
        main(["--completion", shell])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["bayeslab", "su"], "summary"),
        (["bayeslab", "topics", "letters", "--num-t"], "--num-topics"),
        (["bayeslab", "structure", "--pop"], "--popdata --popflag --populations"),
        (["bayeslab", "models", "--nothing"], ""),
    ],
)
def test_bash_completes_commands_and_options(line: list[str], expected: str, capsys: Any) -> None:
    words = " ".join(f"'{word}'" for word in line)
    asked = f'COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _bayeslab; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script("bash", capsys) + asked], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == expected.split()


def test_other_shells_have_a_script(capsys: Any) -> None:
    assert script("zsh", capsys).startswith("autoload -Uz bashcompinit")
    assert "complete -c bayeslab -n '__fish_seen_subcommand_from topics' -l num-topics" in script("fish", capsys)
    assert main(["--completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err

"""The `bayeslab` command. Its parts are imported where they are used, so that help and mistakes cost little."""

import argparse
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslab.command_line.completion import SHELLS, PrintCompletion
from bayeslab.command_line.options import add_fit, add_results
from bayeslab.command_line.reporting.structure_options import add_structure
from bayeslab.command_line.reporting.topics_options import add_topics
from bayeslab.command_line.values import positive_integer

if TYPE_CHECKING:
    from types import ModuleType


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for a mistake or what JAX cannot run (one sentence on stderr), 3
    where a result has problems, 130 when interrupted."""
    try:
        arguments = _parser().parse_args(argv)
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print("bayeslab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # what was printed into is closed, as head does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (Python flushes it at its end)
        return 0
    except (OSError, TypeError, ValueError) as error:
        print(f"bayeslab: {_sentence(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"bayeslab: the memory of this machine is too small for it: {_sentence(error)}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if "jax" not in sys.modules or not isinstance(error, sys.modules["jax"].errors.JaxRuntimeError):
            raise
        print(f"bayeslab: JAX could not run it: {_sentence(error)}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """Reports a mistake as an exception, like everything else here."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="bayeslab", description="Bayesian models of a course, by every method, side by side.")
    parser.add_argument("--version", action="version", version=f"bayeslab {version('bayeslab')}")
    parser.add_argument("--completion", action=PrintCompletion, choices=SHELLS, metavar="SHELL",
                        help='a script that completes commands and options: eval "$(bayeslab --completion bash)" in '
                        ".bashrc; zsh likewise; fish: bayeslab --completion fish | source")  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    models = commands.add_parser("models", help="list the models")
    models.set_defaults(run=_models)

    explain = commands.add_parser("explain", help="show the sites of a model on its real data")
    explain.add_argument("name", metavar="NAME")
    explain.set_defaults(run=_explain)

    demo = commands.add_parser("demo", help="fit a model to its real data by every method and compare")
    demo.add_argument("name", metavar="NAME")
    demo.add_argument("--out", type=Path, metavar="FOLDER", help="for figures and results (default: demo/NAME)")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--draws", type=positive_integer, default=1000, help="of each of four chains (default: 1000)")
    demo.set_defaults(run=_demo)

    methods = commands.add_parser("methods", help="list the methods of `bayeslab fit`")
    methods.set_defaults(run=_methods)

    add_fit(commands, _fit)
    add_results(commands, _predict, _compare, _join, _summary)
    add_structure(commands, _structure)
    add_topics(commands, _topics)
    return parser


def _models(arguments: argparse.Namespace) -> int:
    from bayeslab.reports.demonstration import first_line

    lectures = _lectures()
    width = max(map(len, lectures))
    for name, lecture in lectures.items():
        print(f"{name.ljust(width)}  {first_line(lecture)}")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from bayeslab.explaining import explain

    lecture = _lecture(arguments.name)
    print(explain(lecture.model, getattr(lecture, "data", lecture.example)()))
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    lecture = _lecture(arguments.name)
    folder = arguments.out or Path("demo") / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    import matplotlib

    matplotlib.use("Agg")
    from bayeslab.reports.demonstration import demo

    demo(lecture, folder, arguments.seed, arguments.draws, progress=sys.stderr.isatty())
    return 0


def _methods(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.method_choice import methods

    known = methods()
    width = max(map(len, known))
    for name, kind in known.items():
        print(f"{name.ljust(width)}  {(kind.__doc__ or '').strip().partition(chr(10))[0]}")
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.fit_command import run

    return run(arguments, _lecture(arguments.name))


def _predict(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.result_commands import predict

    return predict(arguments, _lectures())


def _compare(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.result_commands import compare

    return compare(arguments, _lectures())


def _join(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.result_commands import join

    return join(arguments)


def _summary(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.result_commands import summary

    return summary(arguments)


def _structure(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.reporting.structure_command import run

    return run(arguments)


def _topics(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.reporting.topics_command import run

    return run(arguments)


def _lectures() -> "dict[str, ModuleType]":
    from bayeslab.models import LECTURES

    return {lecture.__name__.rpartition(".")[2]: lecture for lecture in LECTURES}


def _lecture(name: str) -> "ModuleType":
    from bayeslab.programs.binding import suggestion

    lectures = _lectures()
    if name not in lectures:
        raise ValueError(f"there is no model '{name}'.{suggestion(name, lectures)} `bayeslab models` lists them")
    return lectures[name]


def _sentence(error: Exception) -> str:
    """The message of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())

"""The `bayeslab` command. Its parts are imported where they are used, so that help and mistakes cost little."""

import argparse
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslab.command_line.options import add_fit, add_results
from bayeslab.command_line.values import alpha_or_learn, ascending_numbers, positive_integer

if TYPE_CHECKING:
    from types import ModuleType


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for a mistake (one sentence on stderr), 3 where a result has
    problems, 130 when interrupted."""
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


class _Parser(argparse.ArgumentParser):
    """Reports a mistake as an exception, like everything else here."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="bayeslab", description="Bayesian models of a course, by every method, side by side.")
    parser.add_argument("--version", action="version", version=f"bayeslab {version('bayeslab')}")
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
    add_results(commands, _predict, _compare, _summary)
    _add_structure(commands)
    return parser


def _add_structure(commands: Any) -> None:
    """Adds the command `structure`."""
    structure = commands.add_parser("structure", help="population structure of a file of genotypes: which K, ancestry")
    structure.set_defaults(run=_structure)
    structure.add_argument("file", type=Path, metavar="FILE", help=".bed, .vcf, .vcf.gz, .bcf, .str, .txt or .nc")
    structure.add_argument("-k", dest="populations", type=ascending_numbers, default=(1, 2, 3, 4, 5), metavar="K",
                           help="numbers of populations, 2-6 or 2,3,5 (default: 1-5)")  # fmt: skip
    structure.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER",
                           help="for the report and all results; of the same command, it is gone on with")  # fmt: skip
    structure.add_argument("--seed", type=int, default=0)
    structure.add_argument("--chains", type=positive_integer, default=4)
    structure.add_argument(
        "--warmup", type=positive_integer, default=200, help="sweeps before the first draw (default: 200)"
    )
    structure.add_argument("--draws", type=positive_integer, default=200, help="of each chain (default: 200)")
    structure.add_argument("--thinning", type=positive_integer, default=2, help="sweeps for a draw (default: 2)")
    structure.add_argument("--share", type=float, default=0.1, help="of genotypes hidden to choose K (default: 0.1)")
    structure.add_argument("--alpha", type=alpha_or_learn, default="learn", metavar="NUMBER",
                           help="of the Dirichlet of ancestry (default: learn)")  # fmt: skip
    structure.add_argument("--independent", action="store_true",
                           help="frequencies with a uniform prior, in place of drifted ones")  # fmt: skip
    filters = structure.add_argument_group("filters, in this order")
    filters.add_argument("--max-missing-individual", dest="max_missing_individual", type=float, metavar="SHARE")
    filters.add_argument("--max-missing-locus", dest="max_missing_locus", type=float, metavar="SHARE")
    filters.add_argument("--maf", dest="min_minor_allele_frequency", type=float, metavar="SHARE",
                         help="smallest minor allele frequency")  # fmt: skip
    filters.add_argument(
        "--thin", dest="thin_distance", type=positive_integer, metavar="BASES", help="smallest distance of loci"
    )
    filters.add_argument("--r2", dest="max_r2", type=float, metavar="R2", help="largest correlation of loci nearby")
    reading = structure.add_argument_group("files of STRUCTURE (.str, .stru, .txt)")
    reading.add_argument("--ploidy", type=positive_integer, metavar="N", help="(default: 2)")
    reading.add_argument("--missing", type=int, metavar="CODE", help="of a copy that was not read (default: -9)")
    reading.add_argument(
        "--num-loci", dest="num_loci", type=positive_integer, metavar="N", help="where loci are not named"
    )
    reading.add_argument("--one-row", dest="one_row", action="store_true", default=None, help="per individual")
    reading.add_argument("--populations", dest="populations_column", action="store_true", default=None,
                         help="a column of them follows the labels")  # fmt: skip
    reading.add_argument("--no-labels", dest="labels", action="store_false", default=None,
                         help="the first column is no label")  # fmt: skip


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


def _summary(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.result_commands import summary

    return summary(arguments)


def _structure(arguments: argparse.Namespace) -> int:
    from bayeslab.models import structure_admixture, structure_correlated
    from bayeslab.populations.run import Settings, run_structure
    from bayeslab.reports.population_structure import choice_verdict, write_report

    filters = ("max_missing_individual", "max_missing_locus", "min_minor_allele_frequency", "thin_distance", "max_r2")
    reading = ("ploidy", "missing", "num_loci", "one_row", "populations", "labels")
    options = vars(arguments) | {"populations": arguments.populations_column}
    settings = Settings(
        str(arguments.file),
        arguments.populations,
        **{
            name: options[name]
            for name in ("seed", "chains", "warmup", "draws", "thinning", "share", "alpha", "independent")
        },
        reading={name: options[name] for name in reading if options[name] is not None},
        filters={name: options[name] for name in filters if options[name] is not None},
    )
    progress = sys.stderr.isatty()
    models = structure_admixture.model, structure_correlated.model
    results = run_structure(*models, settings, arguments.out, _say, progress)
    _say("writing tables, figures and the report")
    report = write_report(results, settings, arguments.out)
    print(choice_verdict(results.choice))
    print(f"Written: {report}")
    return 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


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

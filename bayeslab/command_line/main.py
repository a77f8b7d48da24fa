"""The `bayeslab` command. Its parts are imported where they are used, so that help and mistakes cost little."""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from xarray import DataTree

    from bayeslab.programs.program import Data, Program
    from bayeslab.sampling.protocols import Method


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for a mistake (one sentence on stderr), 130 when interrupted."""
    try:
        arguments = _parser().parse_args(argv)
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print("bayeslab: interrupted", file=sys.stderr)
        return 130
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
    demo.add_argument("--draws", type=_positive_integer, default=1000, help="of each of four chains (default: 1000)")
    demo.set_defaults(run=_demo)

    fit = commands.add_parser("fit", help="fit a model to the columns of a CSV file")
    fit.add_argument("name", metavar="NAME")
    fit.add_argument("table", type=Path, metavar="DATA.csv")
    fit.add_argument("-o", "--out", type=Path, required=True, metavar="FIT.nc", help="the result, as netCDF")
    fit.add_argument("--target", metavar="COLUMN", help="of a regression, on all other columns")
    fit.add_argument("--column", action="append", default=[], metavar="NAME=COLUMN[,COLUMN...]",
                     help="the column, or columns, of an argument or a site of the model")  # fmt: skip
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an argument of the model")
    fit.add_argument("--method", choices=["exact", "gibbs", "nuts", "svi", "laplace", "map"],
                     help="(default: as `explain` plans)")  # fmt: skip
    fit.add_argument("--draws", type=_positive_integer, help="of each chain")
    fit.add_argument("--warmup", type=_positive_integer)
    fit.add_argument("--chains", type=_positive_integer)
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--resume", action="store_true",
                     help="write the draws about every minute, and go on from FIT.nc if it is there")  # fmt: skip
    fit.set_defaults(run=_fit)

    _add_structure(commands)
    return parser


def _add_structure(commands: Any) -> None:
    """Adds the command `structure`."""
    structure = commands.add_parser("structure", help="population structure of a file of genotypes: which K, ancestry")
    structure.set_defaults(run=_structure)
    structure.add_argument("file", type=Path, metavar="FILE", help=".bed, .vcf, .vcf.gz, .bcf, .str, .txt or .nc")
    structure.add_argument("-k", dest="populations", type=_ascending_numbers, default=(1, 2, 3, 4, 5), metavar="K",
                           help="numbers of populations, 2-6 or 2,3,5 (default: 1-5)")  # fmt: skip
    structure.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER",
                           help="for the report and all results; of the same command, it is gone on with")  # fmt: skip
    structure.add_argument("--seed", type=int, default=0)
    structure.add_argument("--chains", type=_positive_integer, default=4)
    structure.add_argument(
        "--warmup", type=_positive_integer, default=200, help="sweeps before the first draw (default: 200)"
    )
    structure.add_argument("--draws", type=_positive_integer, default=200, help="of each chain (default: 200)")
    structure.add_argument("--thinning", type=_positive_integer, default=2, help="sweeps for a draw (default: 2)")
    structure.add_argument("--share", type=float, default=0.1, help="of genotypes hidden to choose K (default: 0.1)")
    structure.add_argument("--alpha", type=_alpha_or_learn, default="learn", metavar="NUMBER",
                           help="of the Dirichlet of ancestry (default: learn)")  # fmt: skip
    structure.add_argument("--independent", action="store_true",
                           help="frequencies with a uniform prior, in place of drifted ones")  # fmt: skip
    filters = structure.add_argument_group("filters, in this order")
    filters.add_argument("--max-missing-individual", dest="max_missing_individual", type=float, metavar="SHARE")
    filters.add_argument("--max-missing-locus", dest="max_missing_locus", type=float, metavar="SHARE")
    filters.add_argument("--maf", dest="min_minor_allele_frequency", type=float, metavar="SHARE",
                         help="smallest minor allele frequency")  # fmt: skip
    filters.add_argument(
        "--thin", dest="thin_distance", type=_positive_integer, metavar="BASES", help="smallest distance of loci"
    )
    filters.add_argument("--r2", dest="max_r2", type=float, metavar="R2", help="largest correlation of loci nearby")
    reading = structure.add_argument_group("files of STRUCTURE (.str, .stru, .txt)")
    reading.add_argument("--ploidy", type=_positive_integer, metavar="N", help="(default: 2)")
    reading.add_argument("--missing", type=int, metavar="CODE", help="of a copy that was not read (default: -9)")
    reading.add_argument(
        "--num-loci", dest="num_loci", type=_positive_integer, metavar="N", help="where loci are not named"
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


def _fit(arguments: argparse.Namespace) -> int:
    from bayeslab.command_line.csv_data import model_data, read_table
    from bayeslab.results.saving import require_writable, save

    lecture = _lecture(arguments.name)
    frame = read_table(arguments.table)
    require_writable(arguments.out)
    columns, values = _parse_pairs(arguments.column, "--column"), _parse_pairs(arguments.set, "--set")
    data = model_data(lecture, frame, arguments.target, columns, values)
    method = _method(arguments, lecture.model, data)
    from bayeslab.diagnostics.diagnose import diagnose
    from bayeslab.fitting import fit

    checkpoint = arguments.out if arguments.resume else None
    tree = fit(arguments.seed, lecture.model, data, method, checkpoint=checkpoint, progress=sys.stderr.isatty())
    if checkpoint is None:
        save(tree, arguments.out)
    print(_summary(tree))
    if problems := diagnose(tree):
        print(f"\n{problems}")
    print(f"\nWritten: {arguments.out}")
    if tree.attrs["interrupted"]:
        print(f"bayeslab: interrupted; the finished draws are in '{arguments.out}'", file=sys.stderr)
        return 130
    return 0


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


def _method(arguments: argparse.Namespace, model: "Program", data: "Data") -> "Method":
    """The method asked for, or the one that the program allows, with the settings given."""
    from dataclasses import fields, replace

    import bayeslab as bl
    from bayeslab.planning import default_method
    from bayeslab.programs.program import precision_scope
    from bayeslab.transforms.analysis import Analysis

    settings = {"num_samples": arguments.draws, "num_warmup": arguments.warmup, "num_chains": arguments.chains}
    changes = {name: value for name, value in settings.items() if value is not None}
    methods: Any = {
        "exact": bl.Exact,
        "gibbs": bl.Gibbs,
        "nuts": bl.NUTS,
        "svi": bl.SVI,
        "laplace": bl.Laplace,
        "map": bl.MAP,
    }
    method: Any
    if arguments.method is None:
        with precision_scope():
            method = default_method(Analysis(bl.bind(model, data))).method
    else:
        method = methods[arguments.method]()
    for name in changes.keys() - {field.name for field in fields(method)}:
        option = {"num_samples": "--draws", "num_warmup": "--warmup", "num_chains": "--chains"}[name]
        raise ValueError(f"{option} does not apply to the method {type(method).__name__}")
    return replace(method, **changes)


def _parse_pairs(texts: list[str], option: str) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE, by name."""
    for text in texts:
        if "=" not in text:
            raise ValueError(f"{option} takes NAME=..., not '{text}'")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def _summary(tree: "DataTree") -> str:
    """ArviZ's summary of continuous sites, or of discrete ones where there are no others; of a point estimate, its
    values."""
    from arviz_stats import summary

    from bayeslab.results.parameters import stacked_parameters

    posterior = tree["posterior"].to_dataset()
    if posterior.sizes["draw"] > 1:
        continuous = [name for name, values in posterior.data_vars.items() if values.dtype.kind == "f"]
        return summary(tree, var_names=continuous or None).to_string()
    draws = stacked_parameters(posterior)
    return draws.isel(chain=0, draw=0).to_series().to_string()


def _positive_integer(text: str) -> int:
    """The positive whole number that a text stands for."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def _ascending_numbers(text: str) -> tuple[int, ...]:
    """The ascending numbers from 1 that a text such as 2-6, 3 or 2,4,6 stands for."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(first) < 1:
            raise argparse.ArgumentTypeError(f"'{text}' is no range such as 2-6, and no list such as 2,3,5")
        numbers |= set(range(int(first), int(last or first) + 1))
    if not numbers:
        raise argparse.ArgumentTypeError(f"'{text}' has no number in it")
    return tuple(sorted(numbers))


def _alpha_or_learn(text: str) -> float | None:
    """The positive number that a text stands for, None for "learn"."""
    if text == "learn":
        return None
    try:
        alpha = float(text)
    except ValueError:
        alpha = -1.0
    if not 0 < alpha < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither a positive number nor 'learn'")
    return alpha


def _sentence(error: Exception) -> str:
    """The message of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())

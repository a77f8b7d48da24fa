"""The options of the commands that read tables and results."""

import argparse
from pathlib import Path
from typing import Any

from bayeslab.command_line.method_choice import GUIDES
from bayeslab.command_line.values import existing_file, positive_integer, separator, thousands

FIT_EXAMPLES = """
examples:
  a regression on all other columns:
    bayeslab fit linear_regression houses.csv --target price -o fit.nc
  classes, from a file of semicolons and decimal commas:
    bayeslab fit logistic_regression patients.csv --target diagnosis -o fit.nc
  columns of a model by name, and a prior:
    bayeslab fit normal_gamma people.csv --column y=height --set mu0=170 -o fit.nc
  what is missing, what is left out, what is a date, what are levels:
    bayeslab fit linear_regression houses.csv --target price --missing "n/a?" --drop id --date sold --categorical town
        --drop-missing -o fit.nc

exit codes: 0; 2 for a mistake, or too large data; 3 where the result has problems, which are said with what to do;
130 when interrupted.
"""
RESULT_EXAMPLES = {
    "predict": "\nexample:\n  bayeslab predict fit.nc new_houses.csv -o prices.csv\n",
    "compare": "\nexamples:\n  two methods: bayeslab compare nuts.nc svi.nc\n  two models of the same rows: "
    "bayeslab compare linear.nc lasso.nc\n",
    "join": "\nexample:\n  four jobs, each with one chain:\n    bayeslab fit linear_regression houses.csv --target "
    "price --method nuts --chain 0 -o 0.nc   (and 1, 2, 3)\n    bayeslab join 0.nc 1.nc 2.nc 3.nc -o all.nc\n",
    "summary": "\nexample:\n  bayeslab summary fit.nc --json\n",
}


def add_fit(commands: Any, run: Any) -> None:
    """Adds the command `fit`."""
    fit = _command(commands, "fit", "fit a model to the columns of a CSV file", FIT_EXAMPLES)
    fit.set_defaults(run=run)
    fit.add_argument("name", metavar="NAME", help="of a model, as `bayeslab models` lists them")
    fit.add_argument(
        "table", type=existing_file, metavar="DATA.csv", help="a table with the names of its columns first"
    )
    fit.add_argument("-o", "--out", type=Path, required=True, metavar="FIT.nc", help="the result, as netCDF")
    fit.add_argument("--target", metavar="COLUMN", help="of a regression or classifier, on all other columns")
    fit.add_argument("--column", action="append", default=[], metavar="NAME=COLUMN[,COLUMN...]",
                     help="the column, or columns, of an argument or a site of the model")  # fmt: skip
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an argument of the model")
    _add_columns(fit)
    method = fit.add_argument_group("method")
    method.add_argument("--method", metavar="METHOD", help="exact, gibbs, nuts, svi, laplace, map, em, mean-field or "
                        "another of `bayeslab methods` (default: as `bayeslab explain` plans)")  # fmt: skip
    method.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    for option, what in {
        "draws": "of each chain",
        "warmup": "steps of each chain before the first draw",
        "chains": "",
        "thinning": "steps for a draw",
        "steps": "of an optimiser, at most",
        "starts": "of an optimiser",
    }.items():
        method.add_argument(f"--{option}", type=positive_integer, metavar="N", help=what or "independent runs")
    method.add_argument("--chain", type=int, metavar="NUMBER", help="only this chain, from 0 on: a job of its own, for "
                        "`bayeslab join`")  # fmt: skip
    method.add_argument("--target-accept", type=float, metavar="SHARE", help="of proposals of nuts, below 1")
    method.add_argument("--max-tree-depth", type=positive_integer, metavar="N", help="of nuts")
    method.add_argument("--guide", choices=list(GUIDES), help="of svi")
    fit.add_argument("--resume", action="store_true",
                     help="write the draws about every minute, and go on from FIT.nc if it is there")  # fmt: skip
    _add_output(fit)


def add_results(commands: Any, predict: Any, compare: Any, join: Any, summary: Any) -> None:
    """Adds the commands that take results."""
    command = _command(commands, "predict", "predict the rows of a new file from a result", RESULT_EXAMPLES["predict"])
    command.set_defaults(run=predict)
    command.add_argument("result", type=existing_file, metavar="FIT.nc", help="a result of `bayeslab fit`")
    command.add_argument("table", type=existing_file, metavar="NEW.csv", help="a table with the columns of the fit")
    command.add_argument("-o", "--out", type=Path, metavar="FILE.csv", help="for all predictions")
    command.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    _add_format(command)
    _add_output(command)

    command = _command(commands, "compare", "compare results of one table with the first", RESULT_EXAMPLES["compare"])
    command.set_defaults(run=compare)
    command.add_argument("results", type=existing_file, nargs="+", metavar="FIT.nc")
    command.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    _add_output(command)

    command = _command(commands, "join", "put chains of several results into one", RESULT_EXAMPLES["join"])
    command.set_defaults(run=join)
    command.add_argument("results", type=existing_file, nargs="+", metavar="FIT.nc")
    command.add_argument("-o", "--out", type=Path, required=True, metavar="ALL.nc", help="the result, as netCDF")
    _add_output(command)

    command = _command(commands, "summary", "show what a result says", RESULT_EXAMPLES["summary"])
    command.set_defaults(run=summary)
    command.add_argument("result", type=existing_file, metavar="FIT.nc", help="a result of `bayeslab fit`")
    _add_output(command)


def _command(commands: Any, name: str, what: str, examples: str) -> Any:
    """A command whose help ends in examples."""
    raw = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(
        name, help=what, description=what[0].upper() + what[1:] + ".", epilog=examples, formatter_class=raw
    )


def _add_columns(command: Any) -> None:
    """Adds what says how columns are read."""
    columns = command.add_argument_group("columns, several set apart by commas")
    columns.add_argument("--drop", action="append", default=[], metavar="COLUMN", help="leave it out")
    columns.add_argument("--categorical", action="append", default=[], metavar="COLUMN",
                         help="of levels, whatever is in it and however many they are")  # fmt: skip
    columns.add_argument("--date", action="append", default=[], metavar="COLUMN",
                         help="of dates, which become days since the first of them")  # fmt: skip
    columns.add_argument("--missing", action="append", default=[], metavar="TEXT",
                         help="a cell that is a missing value, besides empty ones, NA, NaN and null")  # fmt: skip
    columns.add_argument("--drop-missing", action="store_true", help="leave out rows with missing values")
    columns.add_argument("--decimal", choices=[".", ","], default="", help="sign in numbers (default: found out)")
    columns.add_argument("--thousands", type=thousands, choices=[".", ",", " ", "'"], default="",
                         help="sign in numbers; a blank is any blank, an apostrophe any apostrophe")  # fmt: skip
    _add_format(command)


def _add_format(command: Any) -> None:
    """Adds what says how a file is read."""
    command.add_argument("--separator", type=separator, metavar="SIGN", help="between columns (default: found out)")
    command.add_argument("--encoding", metavar="NAME", help="of the text (default: UTF-8, else Windows-1252)")


def _add_output(command: Any) -> None:
    """Adds what says what is printed."""
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--quiet", action="store_true", help="print problems only")

"""`bayeslab fit`: a model, the columns of a file, a result."""

import json
import sys
from argparse import Namespace
from collections.abc import Collection
from types import ModuleType

from bayeslab.command_line.method_choice import chosen_method
from bayeslab.command_line.result_text import problems, result_record, result_text
from bayeslab.command_line.tables.coding import ATTRIBUTE, Reading, in_terms_of_file
from bayeslab.command_line.tables.csv_data import model_data, used_columns, without_missing
from bayeslab.command_line.tables.table_file import read_table

EXIT_PROBLEMS = 3
"""The exit code of a result with which something is wrong."""
EXIT_INTERRUPTED = 130
"""The exit code of a fit that was interrupted."""


def run(arguments: Namespace, lecture: ModuleType) -> int:
    """Fit a model to a file; returns the exit code."""
    from bayeslab.fitting import fit
    from bayeslab.results.saving import require_writable, save

    table = read_table(arguments.table, arguments.separator, arguments.encoding)
    require_writable(arguments.out)
    columns, values = parse_pairs(arguments.column, "--column"), parse_pairs(arguments.set, "--set")
    reading = reading_of(arguments, table.columns)
    notes = [*table.notes]
    if arguments.drop_missing:
        used = used_columns(lecture, table, reading, columns, values)
        table, said = without_missing(table, used, reading)
        notes.append(said)
    inputs = model_data(lecture, table, reading, arguments.target, columns, values)
    for note in [*notes, *inputs.notes] if not arguments.quiet else []:
        print(f"{table.path}: {note}", file=sys.stderr)
    checkpoint = arguments.out if arguments.resume else None
    progress = sys.stderr.isatty() and not arguments.quiet
    chain = arguments.chain or 0
    try:
        method = chosen_method(arguments, lecture.model, inputs.data)
        tree = fit(
            arguments.seed, lecture.model, inputs.data, method, checkpoint=checkpoint, first_chain=chain,
            progress=progress,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(in_terms_of_file(str(error), table, inputs.coding)) from error
    tree.attrs[ATTRIBUTE] = inputs.coding.to_json()
    save(tree, arguments.out)
    complaints = problems(tree)
    if arguments.json:
        print(json.dumps(result_record(tree) | {"file": str(arguments.out), "seed": arguments.seed}, indent=1))
    elif not arguments.quiet:
        print(result_text(tree))
        print(f"\nWritten: {arguments.out}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if tree.attrs["interrupted"]:
        print(f"bayeslab: interrupted; the finished draws are in '{arguments.out}'", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_PROBLEMS if complaints else 0


def reading_of(arguments: Namespace, columns: Collection[str]) -> Reading:
    """What the options say of columns.

    Raises ValueError where one sign is to stand for two things.
    """
    if arguments.thousands and arguments.thousands == arguments.decimal:
        raise ValueError(f"--thousands and --decimal are both '{arguments.decimal}'; expected two signs")
    return Reading(
        tuple(arguments.missing),
        _listed(arguments.categorical, columns),
        dict.fromkeys(_listed(arguments.date, columns)),
        _listed(arguments.drop, columns),
        decimal=arguments.decimal,
        thousands=arguments.thousands,
    )


def parse_pairs(texts: list[str], option: str) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE, by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{option} takes NAME=..., not '{text}'")
        if name in pairs:
            raise ValueError(f"{option} gives '{name}' twice, {pairs[name]} and {value}")
        pairs[name] = value
    return pairs


def _listed(texts: list[str], columns: Collection[str]) -> tuple[str, ...]:
    """The columns that an option names, in one or in several of its values; a name may have commas in it."""
    return tuple(name for text in texts for name in ([text] if text in columns else text.split(",")))

"""`bayeslab structure`: from a file of genotypes to a report."""

import re
import sys
import warnings
from argparse import Namespace
from typing import Any

from bayeslab.command_line.reporting.result_folder import require_folder
from bayeslab.command_line.reporting.structure_options import FILTERS, NUMBERS, SWITCHES

SETTINGS = ("seed", "chains", "warmup", "draws", "thinning", "share", "alpha", "independent", "location_prior",
            "supervised")  # fmt: skip
"""The options that are settings of a run by the same name."""


PHRASES = {
    "drop_empty=True": "--max-missing-individual 0.99",
    "labels, populations, population_flags, locations, phenotypes or extra_columns": "--label, --popdata, --popflag, "
    "--locdata, --phenotype or --extra-columns",
    "populations, population_flags, locations, phenotypes and extra_columns": "--popdata, --popflag, --locdata, "
    "--phenotype and --extra-columns",
}
"""What readers say, and what it is for the command, beyond single arguments."""


def run(arguments: Namespace) -> int:
    """Read, choose, fit and report; returns the exit code. Messages name options in place of Python's arguments."""

    def say_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        _say(with_options(str(message)))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = say_warning
            report = _run(arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(with_options(str(error))) from error
    print(report)
    return 0


def with_options(sentence: str) -> str:
    """A sentence with options of the command in place of arguments of Python."""
    for said, option in PHRASES.items():
        sentence = sentence.replace(said, option)
    for name, (flags, _) in SWITCHES.items():
        negative = f"--no-{flags[0][2:]}"
        sentence = re.sub(rf"\b{name}=True\b", flags[0], sentence)
        sentence = re.sub(rf"\b{name}=False\b", negative, sentence)
    for name, (flags, _) in NUMBERS.items():
        sentence = re.sub(rf"\b{name}=('?)(-?\w+|[.?-])\1", rf"{flags[0]} \2", sentence)
    sentence = re.sub(r"\blocation_prior\b", "--locprior", re.sub(r"\bsupervised\b", "--supervised", sentence))
    listed = " is read with " in sentence  # what a reader has and what it was given
    names = {name: flags[0] for name, (flags, _) in (SWITCHES | NUMBERS).items() if "_" in name or listed} | FILTERS
    for name, flag in names.items():
        sentence = re.sub(rf"\b{name}\b", flag, sentence)
    return sentence


def _run(arguments: Namespace) -> str:
    """Run all steps; returns what is printed at the end."""
    from bayeslab.datasets import structure_options
    from bayeslab.models import structure_admixture, structure_correlated
    from bayeslab.populations.run import Settings, run_structure
    from bayeslab.reports.population_structure import choice_verdict, write_report

    require_folder(arguments.out)
    options = vars(arguments)
    reading: dict[str, Any] = {} if arguments.mainparams is None else structure_options(arguments.mainparams)
    reading |= {name: options[name] for name in (*NUMBERS, *SWITCHES) if options[name] is not None}
    settings = Settings(
        str(arguments.file),
        arguments.numbers,
        **{name: options[name] for name in SETTINGS},
        start_from=None if arguments.start_from is None else tuple(arguments.start_from),
        reading=reading,
        filters={name: options[name] for name in FILTERS if options[name] is not None},
    )
    models = structure_admixture.model, structure_correlated.model
    results = run_structure(*models, settings, arguments.out, _say, sys.stderr.isatty())
    _say("writing tables, figures and the report")
    report = write_report(results, settings, arguments.out)
    lines = [choice_verdict(results.choice), f"Written: {report}"]
    if arguments.export:
        from bayeslab.reports.population_files import export

        lines.append(f"Written: {export(results, arguments.out / 'export')}")
    return "\n".join(lines)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)

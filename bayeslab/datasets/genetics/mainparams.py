"""The options of `read_structure` from a file mainparams of the program STRUCTURE."""

import re
from os import PathLike
from typing import Any

from bayeslab.datasets.arguments import as_path
from bayeslab.datasets.files.text import lines_of, read_text

DEFINITION = re.compile(r"\s*#define\s+([A-Za-z_]+)(?:\s+([^\s/]\S*))?")
"""A line that gives a parameter its value; what follows is a comment."""
SWITCHES = {
    "ONEROWPERIND": "one_row",
    "LABEL": "labels",
    "POPDATA": "populations",
    "POPFLAG": "population_flags",
    "LOCDATA": "locations",
    "PHENOTYPE": "phenotypes",
    "MARKERNAMES": "marker_names",
    "RECESSIVEALLELES": "recessive_alleles",
    "MAPDISTANCES": "map_distances",
    "PHASEINFO": "phase_rows",
}
"""Parameters that are 0 or 1, and the options that they are."""
NUMBERS = {
    "PLOIDY": "ploidy",
    "MISSING": "missing",
    "NUMLOCI": "num_loci",
    "NUMINDS": "num_individuals",
    "EXTRACOLS": "extra_columns",
}
"""Parameters that are integers, and the options that they are."""


def structure_options(path: str | PathLike[str]) -> dict[str, Any]:
    """The options of `read_structure` that a file mainparams of STRUCTURE has: `read_structure(data, **options)`.

    Parameters that say nothing of the file of data are passed over, as are those without a value; of one that occurs
    twice the last counts, as in STRUCTURE. Raises FileNotFoundError, and ValueError, with the line, for a value that is
    none, and for a file without any of them.
    """
    path = as_path(path)
    text, _ = read_text(path)
    options: dict[str, Any] = {}
    for number, line in enumerate(lines_of(text), 1):
        match = DEFINITION.match(line)
        if match is None or match[2] is None:
            continue
        name, value = match[1].upper(), match[2]
        where = f"line {number} of {path} has {value!r} as {name}; expected"
        if name in SWITCHES:
            if value not in ("0", "1"):
                raise ValueError(f"{where} 0 or 1.")
            options[SWITCHES[name]] = value == "1"
        elif name in NUMBERS:
            if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
                raise ValueError(f"{where} an integer.")
            options[NUMBERS[name]] = int(value)
    if not options:
        raise ValueError(f"{path} has no line such as '#define NUMLOCI 10'; expected a file mainparams of STRUCTURE.")
    return options

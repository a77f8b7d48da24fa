"""The form that readers of genotype files return, and what they have in common."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import xarray as xr
from pandas.api.types import infer_dtype

from bayeslab.datasets.arguments import checked_labels, short_repr
from bayeslab.datasets.files.text import DAMAGED, beside_cut_cell, open_bytes
from bayeslab.programs.data import FILL_ATTRIBUTE, MISSING_COPY

QUOTED_COLUMN = re.compile(r'"([^"]+)"')
"""A column in quotes."""
BYTES_PER_BLOCK = 2**20
"""The number of bytes that are read together to find the last one."""
MAX_ALLELES_IN_ONE_BYTE = 127
"""The most alleles of a locus whose codes fit into one byte; more need integers of two."""


def genotype_dataset(
    path: Path,
    y: np.ndarray,
    alleles: Sequence[Sequence[str]],
    coords: Mapping[str, tuple[str, Any]],
    counts: Mapping[str, int] | None = None,
) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) as a Dataset, with the names of alleles (locus, allele).

    alleles: of every locus; padded with "". coords: name -> (dimension, values), `individual` and `locus` among them.
    counts: of what the reader left out or found, for the attributes.
    """
    names = np.full((len(alleles), max(map(len, alleles), default=0)), "", object)
    for locus, known in enumerate(alleles):
        names[locus, : len(known)] = known
    partly = [(read.any(1) & ~read.all(1)).sum() for read in (y[i] != MISSING_COPY for i in range(len(y)))]
    return xr.Dataset(
        {
            "y": (("individual", "locus", "copy"), y, {FILL_ATTRIBUTE: MISSING_COPY}),
            "alleles": (("locus", "allele"), names),
        },
        {name: (dim, _column_values(values)) for name, (dim, values) in coords.items()},
        {
            "source": path.name,
            "individuals_read": y.shape[0],
            "loci_read": y.shape[1],
            "loci_not_biallelic": sum(len(known) != 2 for known in alleles),
            "copies_missing": int(sum(np.count_nonzero(genotypes == MISSING_COPY) for genotypes in y)),
            "genotypes_partly_missing": int(sum(partly)),
            **(counts or {}),
        },
    )


def check_form(dataset: xr.Dataset, source: str) -> None:
    """Raise ValueError where a Dataset has not the form that the readers return; source says which one it is."""
    if not isinstance(dataset, xr.Dataset):
        raise TypeError(f"{source} is {short_repr(dataset)}; expected a Dataset of xarray, as read_genotypes gives it.")
    wanted = {"y": ("individual", "locus", "copy"), "alleles": ("locus", "allele")}
    wanted |= {"individual": ("individual",), "locus": ("locus",)}
    wanted |= {name: ("locus",) for name in ("chromosome", "position") if name in dataset.variables}
    for name, dims in wanted.items():
        found_dims = dataset[name].dims if name in dataset.variables else None
        if found_dims != dims:
            what = "no variable" if found_dims is None else f"dimensions ({', '.join(map(str, found_dims))}) of"
            raise ValueError(f"{source} has {what} {name}; expected {name} ({', '.join(dims)}).")
    y = dataset["y"]
    fill = y.attrs.get(FILL_ATTRIBUTE)
    if y.dtype.kind != "i" or not isinstance(fill, int | float | np.number) or fill != MISSING_COPY:
        raise ValueError(
            f"{source} has y of {y.dtype}; expected integers with the attribute {FILL_ATTRIBUTE} = "
            f"{MISSING_COPY}, as read_genotypes gives them, or xarray with mask_and_scale=False."
        )
    if not y.size:
        raise ValueError(f"{source} has y of shape {y.shape}; expected individuals, loci and copies.")
    for dim in ("individual", "locus"):
        names = checked_labels(f"an element of {dim} of {source}", dataset[dim].values.tolist())
        refuse_repeated(names, f"{source} has {dim}", lambda position: f"position {position}")
    if infer_dtype(dataset["alleles"].values.ravel(), skipna=False) not in ("string", "empty"):
        raise ValueError(f"{source} has alleles of {dataset['alleles'].dtype}; expected their names as text.")
    if "position" in dataset.variables and dataset["position"].dtype.kind not in "iu":
        raise ValueError(f"{source} has position of {dataset['position'].dtype}; expected integers.")
    named = (dataset["alleles"].values != "").sum(1)
    wrong = np.flatnonzero((y.values.max((0, 2)) >= named) | (y.values.min((0, 2)) < MISSING_COPY))
    if wrong.size:
        locus = wrong[0]
        raise ValueError(
            f"{source} has a number at locus {dataset['locus'].values[locus]!s} that stands for no allele; expected "
            f"{MISSING_COPY} to {named[locus] - 1}, as {named[locus]} alleles are named."
        )


def refuse_cut_end(path: Path, number: int, texts: Sequence[str], what: str) -> None:
    """Raise ValueError where a file ends within a line, and its last cell may have lost its end.

    number: of the last line. texts: what stands at the same locus, or beside the last cell, which is the last of them.
    """
    if (beside := beside_cut_cell(texts)) is None or ends_line(path):
        return
    raise ValueError(
        f"line {number} of {path}, the last, does not end in a line break, and {what} {texts[-1]!r} stands beside "
        f"{beside!r}: the file may be cut off. If it is whole, end it with a line break."
    )


def ends_line(path: Path) -> bool:
    """Whether the last byte of what a file holds is a line break."""
    last = b""
    with open_bytes(path) as file:
        while block := file.read(BYTES_PER_BLOCK):
            last = block
    return last.endswith((b"\n", b"\r"))


def existing_file(path: Path, why: str = "") -> Path:
    """The path of a file that is there; raises FileNotFoundError otherwise."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}{why}.")
    return path


def counted(number: int, what: str) -> str:
    """The number and what it counts as text, as in "1 column" and "2 columns"."""
    return f"{number} {what}{'s' * (number != 1)}"


def columns_of_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the columns of every line that is not blank; columns are set apart by spaces or tabs.

    Lines that begin with # above all others are comments and passed over; quotes around a column, as R writes them,
    are left out. Compressed files are read as what they hold. Raises ValueError for bytes that are no text, and for
    compressed ones that are cut off.
    """
    above = True
    with open_bytes(path) as file:
        for number, line in _numbered_lines(path, file):
            try:
                columns = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
            except UnicodeDecodeError:
                raise ValueError(f"line {number} of {path} is no text in UTF-8.") from None
            if b"\0" in line:
                raise ValueError(f"line {number} of {path} has a byte of zero; expected text.")
            if above and columns and columns[0].startswith("#"):
                continue
            if columns:
                above = False
                yield number, [QUOTED_COLUMN.sub(r"\1", column) for column in columns] if b'"' in line else columns


def _numbered_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, from 1; a carriage return alone ends a line too, where no line feed does."""
    try:
        for number, line in enumerate(file, 1):
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ValueError(f"line 1 of {path} is no text in UTF-8 but in UTF-16; convert it.")
            if number == 1 and b"\r" in line.rstrip(b"\r\n"):
                rest = b"".join([line, *file])
                yield from enumerate(rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), 1)
                return
            yield number, line
    except DAMAGED as error:
        raise ValueError(f"{path} is cut off or damaged: its compressed data cannot be read ({error}).") from error


def locus_names(
    names: Sequence[str], chromosomes: Sequence[str], positions: Sequence[int], alleles: Sequence[Sequence[str]]
) -> list[str]:
    """A name for every locus: its own, or chromosome:position in place of ".".

    Those that are not unique become chromosome:position:allele:allele.
    """
    positioned = [f"{chromosome}:{position}" for chromosome, position in zip(chromosomes, positions, strict=True)]
    first_names = [
        position_name if name == "." else name for name, position_name in zip(names, positioned, strict=True)
    ]
    occurrences = Counter(first_names)
    loci = zip(first_names, positioned, alleles, strict=True)
    return [
        name if occurrences[name] == 1 else ":".join((position_name, *known)) for name, position_name, known in loci
    ]


def refuse_repeated(names: Sequence[str], what: str, place: Callable[[int], str]) -> None:
    """Raise ValueError where a name occurs twice; place says where in the file the one at a position is."""
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if first.setdefault(name, position) != position:
            raise ValueError(f"{what} {name!r} twice, at {place(first[name])} and {place(position)}; expected it once.")


def _column_values(values: Any) -> np.ndarray:
    """The values as an array, text as objects: in an array of one width each would take that of the longest name."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "US" else array

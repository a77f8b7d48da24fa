"""Genotypes from the binary files of PLINK."""

import re
from os import PathLike
from pathlib import Path

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_path
from bayeslab.datasets.files.text import COMPRESSED_SUFFIXES
from bayeslab.datasets.genetics.form import (
    columns_of_lines,
    counted,
    existing_file,
    genotype_dataset,
    locus_names,
    refuse_repeated,
)
from bayeslab.datasets.genetics.plink_text import individual_coords
from bayeslab.programs.data import MISSING_COPY

BED_MAGIC = bytes([0x6C, 0x1B])
"""The two bytes that a .bed begins with."""
GENOTYPES_PER_BLOCK = 2**21
"""The number of genotypes that are decoded together."""

POSITION_PATTERN = re.compile(r"-?[0-9]{1,18}")
"""A position in base pairs that fits into 64 bits."""
COLUMN_NAMES = {
    ".bim": "chromosome, name, centimorgans, position, allele 1, allele 2",
    ".fam": "family, individual, father, mother, sex, phenotype",
}
"""What the columns of a file hold, for messages."""


def read_plink(path: str | PathLike[str]) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from PLINK's files .bed, .bim and .fam.

    path: of the .bed, or what the three begin with.
    Allele 1 of the .bim, the one that PLINK counts, is 1, allele 2 is 0: alleles are (A2, A1), and the copies of y add
    up to the count of A1. A genotype of both is (0, 1); one that was not read is -1 in both copies. Individuals have
    their own id, or family:individual where those repeat. Where the family is neither "0" nor the individual's id it is
    the population; others have "". Loci named "." are chromosome:position, and names that repeat become
    chromosome:position:A2:A1.
    A .fam with up to three individuals more than the .bed has can have its length all the same, and is then read.
    Raises FileNotFoundError where one of the files is missing, ImportError without bed-reader, and ValueError for files
    that are damaged or do not belong together, and for individuals and loci that cannot be told apart.
    """
    path = as_path(path)
    if path.suffix.lower() in COMPRESSED_SUFFIXES and path.is_file():
        raise ValueError(f"{path} is compressed; uncompress it, as PLINK reads no other .bed.")
    bed = existing_file(path if path.suffix.lower() == ".bed" else Path(f"{path}.bed"))
    loci, locus_lines = _read_table(bed.with_suffix(".bim"))
    people, people_lines = _read_table(bed.with_suffix(".fam"))
    positions = _positions(bed.with_suffix(".bim"), [row[3] for row in loci], locus_lines)
    alleles = [(row[5], row[4]) for row in loci]
    for number, (first, second) in zip(locus_lines, alleles, strict=True):
        if first == second != "0":
            raise ValueError(f"line {number} of {bed.with_suffix('.bim')} has {first!r} as both alleles.")
    chromosomes = [row[0] for row in loci]
    names = locus_names([row[1] for row in loci], chromosomes, positions, alleles)
    refuse_repeated(names, f"{bed.with_suffix('.bim')} has locus", lambda locus: f"line {locus_lines[locus]}")
    coords = {
        **individual_coords(bed.with_suffix(".fam"), people, people_lines),
        "locus": ("locus", names),
        "chromosome": ("locus", chromosomes),
        "position": ("locus", positions),
    }
    return genotype_dataset(bed, _read_alleles(bed, len(people), len(loci)), alleles, coords)


def _read_table(path: Path) -> tuple[list[list[str]], list[int]]:
    """The rows of a .bim or .fam, and the lines that they are on."""
    rows, lines = [], []
    for number, columns in columns_of_lines(existing_file(path, "; PLINK keeps .bed, .bim and .fam side by side")):
        if len(columns) != 6:
            width = counted(len(columns), "column")
            raise ValueError(f"line {number} of {path} has {width}; expected 6 ({COLUMN_NAMES[path.suffix]}).")
        rows.append(columns)
        lines.append(number)
    if not rows:
        raise ValueError(f"{path} is empty; expected a line with 6 columns ({COLUMN_NAMES[path.suffix]}) for each.")
    return rows, lines


def _positions(path: Path, column: list[str], lines: list[int]) -> list[int]:
    """The positions as integers; raises ValueError that names the line of one that is none."""
    for position, number in zip(column, lines, strict=True):
        if not POSITION_PATTERN.fullmatch(position):
            raise ValueError(f"line {number} of {path} has position {position!r}; expected an integer in column 4.")
    return list(map(int, column))


def _read_alleles(bed: Path, individuals: int, loci: int) -> np.ndarray:
    """The alleles (individual, locus, copy) of a .bed."""
    try:
        from bed_reader import open_bed
    except ImportError as error:
        raise ImportError("reading .bed needs the package bed-reader: pip install 'bayeslab[genetics]'.") from error
    width = -(-individuals // 4)
    _check_size(bed, individuals, loci, 3 + loci * width)
    y = np.empty((individuals, loci, 2), np.int8)
    step = max(1, GENOTYPES_PER_BLOCK // individuals)
    with open_bed(bed, iid_count=individuals, sid_count=loci) as file:
        for start in range(0, loci, step):
            block = slice(start, min(start + step, loci))
            _check_padding(bed, individuals, block, width)
            count = file.read(np.s_[:, block], dtype="int8")  # of A1; negative where none was read
            for copy, least_count in enumerate((2, 1)):
                y[:, block, copy] = np.where(count < 0, MISSING_COPY, count >= least_count)
    return y


def _check_size(bed: Path, individuals: int, loci: int, expected: int) -> None:
    """Raise ValueError where a .bed does not begin as it must, or has not the expected number of bytes."""
    with bed.open("rb") as file:
        start = file.read(3)
    if start[:2] != BED_MAGIC:
        problem = f"starts with the bytes {start[:2].hex(' ')}" if start else "is empty"
        raise ValueError(f"{bed} {problem}; expected {BED_MAGIC.hex(' ')}, as every .bed of PLINK 1 has.")
    if start[2:] != b"\x01":
        if start[2:] == b"\0":
            raise ValueError(f"{bed} has individual after individual (byte 3 is 0); convert it with plink --make-bed.")
        raise ValueError(f"{bed} has {start[2:].hex() or 'nothing'} as byte 3; expected 01, locus after locus.")
    if (size := bed.stat().st_size) != expected:
        raise ValueError(
            f"{bed} has {size} bytes; expected {expected} for the {individuals} individuals of the .fam and the {loci} "
            "loci of the .bim."
        )


def _check_padding(bed: Path, individuals: int, block: slice, width: int) -> None:
    """Raise ValueError where bits beyond the last individual are not zero: they belong to some that the .fam lacks."""
    if not individuals % 4:
        return
    raw = np.fromfile(bed, np.uint8, (block.stop - block.start) * width, offset=3 + block.start * width)
    wrong = np.flatnonzero(raw[width - 1 :: width] >> 2 * (individuals % 4))
    if wrong.size:
        byte = 3 + (block.start + int(wrong[0]) + 1) * width
        raise ValueError(f"byte {byte} of {bed} has genotypes beyond the {individuals} individuals of the .fam.")

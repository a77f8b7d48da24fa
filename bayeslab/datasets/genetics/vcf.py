"""Genotypes from VCF and BCF."""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedReader
from itertools import batched
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_path, require_flags
from bayeslab.datasets.genetics.form import (
    MAX_ALLELES_IN_ONE_BYTE,
    counted,
    existing_file,
    genotype_dataset,
    locus_names,
    refuse_repeated,
)
from bayeslab.programs.data import MISSING_COPY

GENOTYPES_PER_BLOCK = 2**21
"""The number of genotypes that are held before they enter the matrix, and of bytes that are skipped together."""

GZIP_MAGIC = b"\x1f\x8b"
"""The bytes that compressed files begin with."""
BGZF_END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that bgzip writes at the end of a file."""
FIXED_COLUMNS = b"#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT".split()
"""The columns of a VCF before those of individuals."""
DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
"""A translation of every digit to 0."""
ALLELE_WITH_ZERO = re.compile(rb"(?:^|\t)(?:[^\t:]*[/|])?0[0-9]")
"""A genotype with digits after a 0, such as 01."""
MAX_POSITION = 2**31 - 1
"""The largest position that cyvcf2 reads."""
FIVE_DIGIT_ALLELE = re.compile(rb"(?:^|\t)[^\t:]*[0-9]{5}")
"""A genotype with an allele of five digits or more."""


class Site(NamedTuple):
    """The site that a record is of; passed is False where its FILTER names filters."""

    chromosome: str
    position: int
    name: str
    alleles: tuple[str, ...]
    passed: bool


class Contents(NamedTuple):
    """How many records a file has, and how many lines precede them; None in BCF, which has no lines."""

    records: int
    lines_before: int | None

    def place(self, record: int) -> str:
        """Where a record is in the file, for messages."""
        return f"record {record + 1}" if self.lines_before is None else f"line {self.lines_before + record + 1}"


def read_vcf(path: str | PathLike[str], *, passed_only: bool = False) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from a .vcf, .vcf.gz or .bcf: 0 is the reference, 1 the first alternative.

    passed_only: leave out sites that failed a filter, that is have neither PASS nor "." as FILTER. As in PLINK and
        bcftools, by default all are read. attrs["loci_not_passed"] counts them in any case.
    Sites with several alternatives, and with none, are kept. A call keeps the copies that were read; one with fewer
    copies than others, such as of X in males, has -1 in place of those it lacks. Loci without an id are
    chromosome:position, and names that repeat become chromosome:position:reference:alternative.
    Raises FileNotFoundError, ImportError without cyvcf2, and ValueError that names the line for a file that is damaged,
    cut off or no VCF, for a site without genotypes and for names that cannot be told apart.
    """
    require_flags(passed_only=passed_only)
    path = existing_file(as_path(path))
    contents = _read_contents(path)
    file = _open_with_cyvcf2(path)
    samples = list(file.samples)
    y = np.full((len(samples), contents.records, 1), MISSING_COPY, np.int8)
    all_sites: list[Site] = []
    num_read = 0
    for block in batched(_records(path, file, contents), max(1, GENOTYPES_PER_BLOCK // len(samples))):
        all_sites += [site for site, _ in block]
        kept = [(site, codes) for site, codes in block if site.passed or not passed_only]
        if kept:
            y = _with_room_for(y, kept)
            y[:, num_read : num_read + len(kept)] = _stack_loci([codes for _, codes in kept], y.shape[2])
            num_read += len(kept)
    numbers = [number for number, site in enumerate(all_sites) if site.passed or not passed_only]
    if not numbers:
        raise ValueError(f"{path} has no site that passed its filters; {len(all_sites)} failed one.")
    sites = [all_sites[number] for number in numbers]
    chromosomes, positions, names, alleles, _ = zip(*sites, strict=True)
    loci = locus_names(names, chromosomes, positions, alleles)
    refuse_repeated(loci, f"{path} has locus", lambda locus: contents.place(numbers[locus]))
    coords = {
        "individual": ("individual", samples),
        "locus": ("locus", loci),
        "chromosome": ("locus", chromosomes),
        "position": ("locus", positions),
    }
    failed = sum(not site.passed for site in all_sites)
    counts = {"loci_not_passed": failed, "removed_loci_not_passed": len(all_sites) - len(sites)}
    return genotype_dataset(path, y[:, : len(sites)], alleles, coords, {"loci_read": len(all_sites), **counts})


def _read_contents(path: Path) -> Contents:
    """The contents of a file, which is read once to be checked: htslib accepts what is cut off or has no genotypes."""
    with path.open("rb") as file:
        start = file.read(len(BGZF_END_BLOCK))
        file.seek(-min(path.stat().st_size, len(BGZF_END_BLOCK)), 2)
        end = file.read()
    if not start:
        raise ValueError(f"{path} is empty; expected ##fileformat=VCF in line 1.")
    if start.startswith((b"BZh", b"\xfd7zXZ")):
        raise ValueError(
            f"{path} is compressed by bzip2 or xz; expected a VCF as text, or compressed by gzip or bgzip."
        )
    try:
        with (gzip.open if start.startswith(GZIP_MAGIC) else open)(path, "rb") as opened:
            stream = BufferedReader(opened)
            contents = (_bcf_contents if stream.peek(3).startswith(b"BCF") else _vcf_contents)(path, stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is cut off or damaged: its compressed data cannot be read ({error}).") from error
    if start.startswith(GZIP_MAGIC) and start[12:14] == b"BC" and end != BGZF_END_BLOCK:
        raise ValueError(f"{path} is cut off: it lacks the empty block that ends a file compressed by bgzip.")
    if not contents.records:
        raise ValueError(f"{path} has no variants.")
    return contents


def _vcf_contents(path: Path, stream: BinaryIO) -> Contents:
    """The contents of a VCF, every line of which is checked."""
    number, line = 1, stream.readline()
    if line.startswith(codecs.BOM_UTF8):
        raise ValueError(f"line 1 of {path} begins with a byte order mark, which htslib cannot read; take it out.")
    if not line.startswith(b"##fileformat=VCF"):
        raise ValueError(f"{path} does not begin with ##fileformat=VCF in line 1, so it is no VCF.")
    while line.startswith(b"##"):
        number, line = number + 1, stream.readline()
    header = line.rstrip(b"\r\n").split(b"\t")
    if header[:8] != FIXED_COLUMNS[:8]:
        raise ValueError(f"line {number} of {path} begins with {_quoted(line)}; expected #CHROM and the fixed columns.")
    if header[8:9] != FIXED_COLUMNS[8:] or len(header) == 9:
        raise ValueError(f"line {number} of {path} names no individuals: the file has sites without genotypes.")
    names = _decode_utf8(path, number, line).rstrip("\r\n").split("\t")[9:]
    refuse_repeated(names, f"{path} has individual", lambda one: f"column {one + 10} of line {number}")
    before = last = number
    for last, line in enumerate(stream, before + 1):
        _check_line(path, last, line, len(header))
    return Contents(last - before, before)


def _check_line(path: Path, number: int, line: bytes, width: int) -> None:
    """Raise ValueError where a line is no record with genotypes, or has another number of columns than the header."""
    where = f"line {number} of {path}"
    columns = line.rstrip(b"\r\n").split(b"\t", 9)
    if (num_columns := line.count(b"\t") + 1) != width:
        raise ValueError(
            f"{where} has {counted(num_columns, 'column')} set apart by tabs; expected {width} as in the header."
        )
    if not all(columns[:9]):
        raise ValueError(f"{where} has nothing as {FIXED_COLUMNS[columns.index(b'')].decode()}.")
    _decode_utf8(path, number, b"\t".join(columns[:9]))
    if not (columns[1].isdigit() and len(columns[1]) < 19):
        raise ValueError(f"{where} has position {_quoted(columns[1])}; expected an integer.")
    if int(columns[1]) > MAX_POSITION:
        raise ValueError(f"{where} has position {_quoted(columns[1])}; expected at most {MAX_POSITION}.")
    if columns[8].split(b":")[0] != b"GT":
        raise ValueError(f"{where} has no genotypes: FORMAT is {_quoted(columns[8])}; expected GT first.")
    digits = columns[9].translate(DIGITS_TO_ZERO)
    if b"00000" in digits and FIVE_DIGIT_ALLELE.search(columns[9]):  # cyvcf2 keeps 16 bits of an allele
        raise ValueError(f"{where} has an allele of five digits; expected the number of one of its alleles.")
    doubtful = digits.startswith(b"00") or any(start in digits for start in (b"\t00", b"/00", b"|00"))
    if doubtful and ALLELE_WITH_ZERO.search(columns[9]):
        raise ValueError(f"{where} has a genotype with digits after a 0; expected copies set apart, such as 0/1.")
    if not line.endswith(b"\n"):
        raise ValueError(f"{where} does not end in a line break: the file is cut off.")


def _bcf_contents(path: Path, stream: BinaryIO) -> Contents:
    """The contents of a BCF: it is a header of text, and records that begin with the lengths of their two parts."""
    if stream.read(4) != b"BCF\2":
        raise ValueError(f"{path} is no BCF of version 2.")
    is_complete = len(start := stream.read(5)) == 5 and _skip_bytes(stream, int.from_bytes(start[1:], "little"))
    records = 0
    while is_complete and (start := stream.read(8)):
        size = int.from_bytes(start[:4], "little") + int.from_bytes(start[4:], "little")
        is_complete = len(start) == 8 and _skip_bytes(stream, size)
        records += 1
    if not is_complete:
        raise ValueError(f"{path} is cut off in {f'record {records}' if records else 'its header'}.")
    return Contents(records, None)


def _skip_bytes(stream: BinaryIO, size: int) -> bool:
    """Whether so many bytes could be skipped; a damaged length may ask for more than there is memory for."""
    while size and (chunk := stream.read(min(size, GENOTYPES_PER_BLOCK))):
        size -= len(chunk)
    return not size


def _open_with_cyvcf2(path: Path) -> Any:
    """The file as cyvcf2 opens it; raises ValueError where htslib cannot read its header, or it names nobody."""
    try:
        from cyvcf2 import VCF
    except ImportError as error:
        raise ImportError("reading VCF needs the package cyvcf2: pip install 'bayeslab[genetics]'.") from error
    try:
        file = VCF(path)
        samples = file.samples
    except Exception as error:  # of no narrower type, here and below
        raise ValueError(f"{path} has a header that htslib cannot read ({error}).") from error
    if not samples:
        raise ValueError(f"{path} names no individuals: it has sites without genotypes.")
    return file


def _records(path: Path, file: Any, contents: Contents) -> Iterator[tuple[Site, np.ndarray]]:
    """The site of every record and its alleles (individual, copy), MISSING where none was read."""
    variants = iter(file)
    for record in range(contents.records):
        where = f"{contents.place(record)} of {path}"
        try:
            variant = next(variants)
            codes = variant.genotype.array()[:, :-1]  # the last column is the phase
            alleles = (variant.REF, *variant.ALT)
            name = variant.ID or "."
            site = Site(variant.CHROM, variant.POS, name, alleles, variant.FILTER is None)
        except Exception as error:
            raise ValueError(f"{where} has genotypes that htslib cannot read ({error}).") from error
        if len({text.upper() for text in alleles}) < len(alleles):
            raise ValueError(f"{where} has alleles {', '.join(alleles)[:60]}; expected each allele once.")
        if codes.max() >= len(alleles) or codes.min() < -2:
            raise ValueError(f"{where} has an allele beyond the {len(alleles)} that it names.")
        yield site, np.maximum(codes, MISSING_COPY)


def _with_room_for(y: np.ndarray, kept: Sequence[tuple[Site, np.ndarray]]) -> np.ndarray:
    """The matrix with as many copies, and bytes of an allele, as these records need."""
    ploidy = max(codes.shape[1] for _, codes in kept)
    if max(len(site.alleles) for site, _ in kept) > MAX_ALLELES_IN_ONE_BYTE:
        y = y.astype(np.int16, copy=False)
    if ploidy <= y.shape[2]:
        return y
    wider = np.full((*y.shape[:2], ploidy), MISSING_COPY, y.dtype)
    wider[:, :, : y.shape[2]] = y
    return wider


def _stack_loci(codes: Sequence[np.ndarray], ploidy: int) -> np.ndarray:
    """The alleles of some loci as (individual, locus, copy), with MISSING in place of copies that a locus lacks."""
    block = np.full((len(codes), len(codes[0]), ploidy), MISSING_COPY, np.int16)
    for locus, locus_codes in enumerate(codes):
        block[locus, :, : locus_codes.shape[1]] = locus_codes
    return block.swapaxes(0, 1)


def _decode_utf8(path: Path, number: int, line: bytes) -> str:
    """The line as text; raises ValueError for bytes that are none."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise ValueError(f"line {number} of {path} is no text in UTF-8.") from None


def _quoted(text: bytes) -> str:
    """The beginning of a text, in quotes, for messages."""
    return repr(text[:40].decode(errors="replace"))

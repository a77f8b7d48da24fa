"""Genotypes from files of every known format."""

import codecs
import inspect
import re
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr

from bayeslab.datasets.arguments import as_path
from bayeslab.datasets.files.text import COMPRESSED_SUFFIXES, DAMAGED, open_bytes
from bayeslab.datasets.genetics.form import check_form, existing_file
from bayeslab.datasets.genetics.genepop import read_genepop
from bayeslab.datasets.genetics.plink import read_plink
from bayeslab.datasets.genetics.plink_text import RAW_HEADER, read_ped, read_raw
from bayeslab.datasets.genetics.structure_text import read_structure
from bayeslab.datasets.genetics.vcf import read_vcf

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
"""The bytes that a file of HDF5 begins with."""


def read_genotypes(path: str | PathLike[str], **options: Any) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from a file, read as what it holds, whatever it is called.

    PLINK's .bed, or what its three files begin with: `read_plink`; .ped: `read_ped`; .raw: `read_raw`. VCF and BCF,
    compressed or not: `read_vcf`. GENEPOP: `read_genepop`. A Dataset that one of them returned, saved by its method
    `to_netcdf`. Any other text, compressed or not: that of STRUCTURE, `read_structure`.
    options: of the reader.
    All return y in small integers with alleles counted from 0, -1 where a copy was not read, and `alleles`
    (locus, allele) with their names; `genotypes` makes data of a model from it.
    Raises FileNotFoundError, TypeError for options that the reader does not have, and ValueError for a file that is not
    what its suffix says, and for one that goes with another file.
    """
    path = as_path(path)
    if not path.is_file() and Path(f"{path}.bed").is_file():
        return _read(read_plink, path, options)
    return _read(_reader_of(existing_file(path)), path, options)


def _reader_of(path: Path) -> Callable[..., xr.Dataset]:
    """The reader of a file, by its suffix without that of compression, or else by what it holds."""
    suffixes = [suffix for suffix in Path(path.name.lower()).suffixes if suffix not in COMPRESSED_SUFFIXES]
    suffix = suffixes[-1] if suffixes else ""
    if suffix in READERS:
        return READERS[suffix]
    if suffix in BESIDE:
        raise ValueError(f"{path} goes with another file that holds the genotypes: name {BESIDE[suffix]}.")
    if suffix in OF_OTHERS:
        raise ValueError(f"{path} is {OF_OTHERS[suffix]}")
    with path.open("rb") as file:
        if file.read(len(HDF5_MAGIC)) == HDF5_MAGIC:
            return _read_netcdf
    try:
        with open_bytes(path) as opened:
            start = opened.read(NUM_BYTES_OF_START).removeprefix(codecs.BOM_UTF8)
    except DAMAGED as error:
        raise ValueError(f"{path} is cut off or damaged: its compressed data cannot be read ({error}).") from error
    if start.startswith((b"##fileformat=VCF", b"BCF")):
        return read_vcf
    if start.split(maxsplit=6)[:6] == [name.encode() for name in RAW_HEADER]:
        return read_raw
    if re.search(rb"(?i)(?:^|[\r\n])[ \t]*pop[ \t]*(?:$|[\r\n])", start):
        return read_genepop
    return read_structure


def _read(reader: Callable[..., xr.Dataset], path: Path, options: Mapping[str, Any]) -> xr.Dataset:
    """What the reader returns; raises TypeError for options that it does not have."""
    known = [*inspect.signature(reader).parameters][1:]
    if unknown := [name for name in options if name not in known]:
        has = f"options {', '.join(known)}" if known else "no options"
        raise TypeError(f"{path} is read with {has}, but {', '.join(unknown)} is given.")
    return reader(path, **options)


def _read_netcdf(path: Path) -> xr.Dataset:
    with path.open("rb") as file:
        start = file.read(len(HDF5_MAGIC))
    if start != HDF5_MAGIC:
        raise ValueError(f"{path} is no netCDF file: it begins with {start.hex(' ') or 'nothing'}, not as HDF5 does.")
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf", mask_and_scale=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged, or no dataset of xarray ({error}).") from error
    check_form(dataset, str(path))
    return dataset


READERS: Mapping[str, Callable[..., xr.Dataset]] = {
    ".bed": read_plink,
    ".ped": read_ped,
    ".raw": read_raw,
    ".vcf": read_vcf,
    ".bcf": read_vcf,
    ".gen": read_genepop,
    ".genepop": read_genepop,
    ".str": read_structure,
    ".stru": read_structure,
    ".structure": read_structure,
    ".strct_in": read_structure,
    ".nc": _read_netcdf,
}
"""The reader of files by their suffix; others are told by what they hold."""
BESIDE = {".fam": "the .bed", ".bim": "the .bed", ".map": "the .ped", ".tbi": "the VCF", ".csi": "the VCF or BCF"}
"""The suffixes of files beside those that hold genotypes."""
OF_OTHERS = {
    **dict.fromkeys((".tped", ".tfam"), "transposed PLINK; convert it by plink --tfile NAME --make-bed."),
    ".traw": "transposed counts of PLINK; export them by plink --recode A, as .raw.",
    **dict.fromkeys((".pgen", ".pvar", ".psam"), "of PLINK 2; convert it by plink2 --pfile NAME --make-bed."),
    **dict.fromkeys((".geno", ".ind", ".snp"), "of EIGENSOFT; convert it by convertf to PLINK's .bed."),
    ".bgen": "of BGEN; convert it by plink2 --bgen NAME --make-bed.",
    ".arp": "of Arlequin; convert it by PGDSpider to the text of STRUCTURE.",
    **dict.fromkeys((".q", ".p"), "a result of ADMIXTURE; expected genotypes, and it as a start: --start-from Q P."),
}
"""Files of other programs that are not read, by their suffix, and what to do."""
NUM_BYTES_OF_START = 2**20
"""How much of a file is looked at to tell what it is."""

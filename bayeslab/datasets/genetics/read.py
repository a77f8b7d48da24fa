"""Genotypes from files of every known format."""

import inspect
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import xarray as xr

from bayeslab.datasets.arguments import as_path
from bayeslab.datasets.genetics.form import check_form, existing_file
from bayeslab.datasets.genetics.plink import read_plink
from bayeslab.datasets.genetics.structure_text import read_structure
from bayeslab.datasets.genetics.vcf import read_vcf

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
"""The bytes that a file of HDF5 begins with."""


def read_genotypes(path: str | PathLike[str], **options: Any) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from a file, read as its suffix says.

    .bed, or what PLINK's three files begin with: `read_plink`. .vcf, .vcf.gz, .vcf.bgz and .bcf: `read_vcf`. .str,
    .stru and .txt: `read_structure`. .nc: a Dataset that one of them returned, saved by its method `to_netcdf`.
    options: of the reader.
    All return y in small integers with alleles counted from 0, -1 where a copy was not read, and `alleles`
    (locus, allele) with their names; `genotypes` makes data of a model from it.
    Raises FileNotFoundError, TypeError for options that the reader does not have, and ValueError for another suffix and
    for a file that is not what its suffix says.
    """
    path = as_path(path)
    for suffix, reader in READERS.items():
        if path.name.lower().endswith(suffix):
            return _read(reader, existing_file(path), options)
    if Path(f"{path}.bed").is_file():
        return _read(read_plink, path, options)
    existing_file(path)
    raise ValueError(f"{path} has none of the suffixes {', '.join(READERS)} that tell how to read it.")


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
    ".vcf": read_vcf,
    ".vcf.gz": read_vcf,
    ".vcf.bgz": read_vcf,
    ".bcf": read_vcf,
    ".str": read_structure,
    ".stru": read_structure,
    ".txt": read_structure,
    ".nc": _read_netcdf,
}
"""The reader of files by their suffix."""

"""Genotypes as the data of a model of populations, and genotypes simulated from one."""

import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from bayeslab.datasets.arguments import (
    MAX_MAGNITUDE,
    as_integer,
    as_number,
    as_positive,
    axis_lengths,
    require_flags,
)
from bayeslab.programs.data import FILL_ATTRIBUTE, MISSING_COPY, as_numpy_array, values_and_presence

MIN_GAMMA_SUM = 1e-300
"""The smallest sum of Gamma draws that is normalised: below it their shape is so small that floats do not hold them."""


def genotypes(
    y: ArrayLike | xr.DataArray | xr.Dataset, num_alleles: ArrayLike | None = None, *, drop_empty: bool = False
) -> dict[str, Any]:
    """The data of a model of populations: num_individuals, num_alleles (locus,), ploidy and y.

    y: (individual, locus, copy), alleles counted from 0 at every locus; NaN or masked where a copy was not read, or
        integers with the attribute _FillValue, as `read_plink` and the other readers of files return them.
    num_alleles: (locus,); by default up to the largest allele that is there.
    drop_empty: leave out individuals of whom no copy was read. They say nothing, and their ancestry stays that of the
        prior; a warning names them in any case.
    Loci where all that was read is one allele say nothing of populations: they are dropped, with a warning that counts
    them. y comes back as small integers, -1 where a copy was not read, and says so in that attribute.
    Raises ValueError for another shape or order of axes, for an allele that is no integer from 0 to its number less
    one, where nothing was read, and for a Dataset with recessive alleles, which no model here has, and says where.
    """
    if isinstance(y, xr.Dataset) and "y" not in y:
        raise ValueError(f"the Dataset has no variable y, only {sorted(map(str, y.data_vars))}.")
    require_flags(drop_empty=drop_empty)
    _refuse_recessive(y)
    source = y["y"] if isinstance(y, xr.Dataset) else y
    codes, is_read = _allele_codes(source)
    array = source if isinstance(source, xr.DataArray) else xr.DataArray(codes)
    names = dict(zip(array.dims, ("individual", "locus", "copy"), strict=True))
    for dim, wanted in names.items():
        if dim != wanted and wanted in (*array.dims, *array.coords):
            raise ValueError(f"y has {wanted} elsewhere and dimension {dim} in its place; transpose it, or rename one.")
    empty = ~is_read.any((1, 2))
    if empty.all():
        raise ValueError("y has no genotype: all copies of all individuals are missing.")
    if empty.any():
        _tell_empty(array[array.dims[0]].values[empty].tolist(), drop_empty)
        if drop_empty:
            array, codes, is_read = array[~empty], codes[~empty], is_read[~empty]
    largest = codes.max((0, 2))
    alleles = largest.astype(int) + 1 if num_alleles is None else as_numpy_array(num_alleles, "num_alleles")
    if alleles.shape != largest.shape:
        raise ValueError(f"num_alleles has shape {alleles.shape}, but y has {len(largest)} loci.")
    if alleles.dtype.kind not in "iu":
        raise TypeError(f"num_alleles holds {alleles.dtype}, where whole numbers are expected.")
    if (largest >= alleles).any():
        _refuse(codes >= alleles[:, None], codes, "which num_alleles does not allow at this locus")
    varies = largest > np.where(is_read, codes, largest[:, None]).min((0, 2))
    if not varies.any():
        raise ValueError("no locus has two alleles, so there is nothing to tell populations by.")
    if not varies.all():
        warnings.warn(f"{(~varies).sum()} of {varies.size} loci have a single allele and are dropped.", stacklevel=2)
        codes, alleles = codes[:, varies], alleles[varies]
    labelled = array[:, varies].copy(data=codes).rename(names)
    labelled = labelled.assign_coords(
        {dim: labelled[dim] for dim in labelled.dims}
    )  # numbers, where there are no names
    labelled.attrs[FILL_ATTRIBUTE] = MISSING_COPY
    return {"num_individuals": labelled.shape[0], "num_alleles": alleles, "ploidy": labelled.shape[2], "y": labelled}


def simulated_genotypes(
    num_individuals: int,
    num_loci: int,
    num_populations: int,
    *,
    seed: int = 0,
    fst: float = 0.1,
    admixture: float | None = 0.5,
    num_alleles: int = 2,
    ploidy: int = 2,
    missing: float = 0.0,
) -> xr.Dataset:
    """Simulated genotypes y (individual, locus, copy), with the frequencies (population, locus, allele) and the
    ancestry (individual, population) behind them.

    fst: how far populations have drifted from the one that they come from: frequencies are Dirichlet about its own,
        with concentration (1 - fst) / fst (D. Balding and R. Nichols 1995, Genetica 96:3).
    admixture: of the Dirichlet that shares come from; None for individuals of one population each, in equal numbers.
    missing: the share of copies that were not read, NaN in y.
    Raises ValueError for numbers below 1, a single allele, shares outside of their range and seeds below 0, TypeError
    for what is no number.
    """
    num_alleles = as_integer("num_alleles", num_alleles, 2)
    num_individuals, num_loci, num_populations, ploidy, _ = axis_lengths(
        num_individuals=num_individuals, num_loci=num_loci, num_populations=num_populations, ploidy=ploidy,
        num_alleles=num_alleles,
    )  # fmt: skip
    fst = as_number("fst", fst, "a number above 0 and below 1", lambda share: 0 < share < 1)
    missing = as_number("missing", missing, "a number from 0, below 1", lambda share: 0 <= share < 1)
    admixture = None if admixture is None else as_positive("admixture", admixture)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    origin = rng.uniform(0.05, 0.95, (num_loci, num_alleles))
    origin /= origin.sum(-1, keepdims=True)
    concentration = np.tile(origin * min((1 - fst) / fst, MAX_MAGNITUDE), (num_populations, 1, 1))
    drifted = rng.gamma(concentration)
    is_fixed = (
        drifted.sum(-1) < MIN_GAMMA_SUM
    )  # with fst near 1 one allele is left, as likely as it is frequent in the origin
    race = rng.exponential(1 / concentration[is_fixed])
    drifted[is_fixed] = race == race.min(-1, keepdims=True)
    frequencies = drifted / drifted.sum(-1, keepdims=True)
    if admixture is None:
        ancestry = (np.arange(num_individuals)[:, None] % num_populations == np.arange(num_populations)).astype(float)
    else:
        ancestry = rng.dirichlet(np.full(num_populations, admixture), num_individuals)
    below = np.cumsum(np.einsum("ik,klj->ilj", ancestry, frequencies), -1)[:, :, None]
    y = (rng.random((num_individuals, num_loci, ploidy, 1)) * below[..., -1:] > below[..., :-1]).sum(-1)
    y = np.where(rng.random(y.shape) < missing, np.nan, y)
    return xr.Dataset(
        {
            "y": (("individual", "locus", "copy"), y),
            "frequencies": (("population", "locus", "allele"), frequencies),
            "ancestry": (("individual", "population"), ancestry),
        }
    )


def _allele_codes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The alleles as small integers, MISSING where none was read, and a mask of those that were."""
    values, is_read = values_and_presence(y)
    if values.ndim != 3 or not values.size:
        raise ValueError(f"y has shape {values.shape}; expected (individual, locus, copy), none of them empty.")
    if values.dtype.kind not in "iufb":
        raise TypeError(f"y holds {values.dtype}, where numbers of alleles are expected.")
    filled = np.where(is_read, values, 0)
    wrong = (filled < 0) | (filled != np.floor(filled)) | (filled >= 2**53)
    _refuse(wrong, filled, "which is no allele; they count from 0")
    codes = filled.astype(np.min_scalar_type(-1 - int(filled.max())))
    codes[~is_read] = MISSING_COPY
    return codes, is_read


def _refuse_recessive(y: Any) -> None:
    """Raise ValueError for a Dataset of which some loci have a recessive allele."""
    if isinstance(y, xr.Dataset) and "recessive_allele" in y.coords and "alleles" in y:
        alleles, recessive = y["alleles"].values, y["recessive_allele"].values
        has = np.array([text in known for text, known in zip(recessive, alleles, strict=True)])
        if has.any():
            locus = y["locus"].values[has.argmax()]
            raise ValueError(
                f"locus {locus!s} has the recessive allele {recessive[has.argmax()]}, as {has.sum()} loci have one; "
                "the models here take alleles as they were read, so leave such loci out."
            )


def _tell_empty(names: list[Any], drop_empty: bool) -> None:
    """Warn of individuals of whom nothing was read."""
    listed = ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    many = len(names) > 1
    done = (
        "left out" if drop_empty else "kept, and their ancestry is that of the prior: drop_empty=True leaves them out"
    )
    warnings.warn(f"individual{'s' * many} {listed} {'have' if many else 'has'} no genotype: {done}.", stacklevel=3)


def _refuse(wrong: np.ndarray, values: np.ndarray, why: str) -> None:
    """Raise ValueError that names the first wrong copy, if there is one."""
    for individual, locus, copy in np.argwhere(wrong)[:1]:
        finding = f"{values[individual, locus, copy]:g} for individual {individual} at locus {locus}, copy {copy}"
        raise ValueError(f"y is {finding}, {why}.")

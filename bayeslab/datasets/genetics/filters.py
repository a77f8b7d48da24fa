"""The filters that genotypes pass before a model sees them."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, as_share
from bayeslab.datasets.genetics.form import check_form
from bayeslab.programs.data import MISSING_COPY

COPIES_PER_BLOCK = 2**21
"""The number of copies whose alleles are counted together."""


class Tally(NamedTuple):
    """What was read of every locus, each (locus,).

    missing: the share of copies that were not read. several: whether those read have several alleles.
    common: the most common allele. minor: the share of the others among the copies read.
    """

    missing: np.ndarray
    several: np.ndarray
    common: np.ndarray
    minor: np.ndarray


def filter_genotypes(
    dataset: xr.Dataset,
    *,
    max_missing_individual: float = 1.0,
    max_missing_locus: float = 1.0,
    min_minor_allele_frequency: float = 0.0,
    thin_distance: int = 0,
    max_r2: float | None = None,
    window: int = 50,
) -> xr.Dataset:
    """The individuals and loci that pass, in the form in which the readers of files return them.

    The filters come in this order, each on what those before it left; a value at its threshold passes, as in PLINK.

    max_missing_individual: share of the copies of an individual that were not read (--mind).
    max_missing_locus: the same of a locus (--geno).
    Loci where at most one allele was read are removed in any case.
    min_minor_allele_frequency: of all alleles but the most common one together (--maf).
    thin_distance: in base pairs; along each chromosome, loci closer than this to the last one kept are removed
        (--bp-space). Those of a position below 1, which is unknown, stay.
    max_r2: squared correlation of two loci of a chromosome, less than `window` loci apart, above which the one with the
        lower minor allele frequency is removed, of equal ones the later (--indep-pairwise window 1 max_r2). It is that
        of copies of the most common allele, over the individuals with all copies of both loci. Without the coordinate
        chromosome all loci are of one; they are in the order of their positions, without these in that of the file.
    attrs has removed_individuals_missing, removed_loci_missing, removed_loci_one_allele, removed_loci_rare,
    removed_loci_near and removed_loci_linked, summed over all filterings since the file was read.
    Raises ValueError for thresholds outside of 0 to 1, a Dataset of another form, thinning without positions, and where
    nothing is left, with the number that each filter removed; TypeError for what is no Dataset or number.
    """
    max_missing_individual = as_share("max_missing_individual", max_missing_individual)
    max_missing_locus = as_share("max_missing_locus", max_missing_locus)
    min_minor_allele_frequency = as_share("min_minor_allele_frequency", min_minor_allele_frequency)
    max_r2 = None if max_r2 is None else as_share("max_r2", max_r2)
    thin_distance, window = as_integer("thin_distance", thin_distance), as_integer("window", window)
    if thin_distance < 0 or window < 2:
        raise ValueError(f"thin_distance is {thin_distance} and window {window}; expected at least 0 and 2.")
    check_form(dataset, "the dataset")
    if thin_distance and "position" not in dataset.coords:
        raise ValueError("the dataset has no coordinate position, so thin_distance means nothing.")

    y = dataset["y"].values
    unread = np.array([np.count_nonzero(genotypes == MISSING_COPY) for genotypes in y]) / y[0].size
    individuals = np.flatnonzero(unread <= max_missing_individual)
    removed = {"individuals_missing": len(y) - len(individuals)}
    if not len(individuals):
        raise ValueError(f"no individual is left: all {len(y)} have more missing than max_missing_individual.")
    tally = _tally(y, individuals)
    loci = np.arange(y.shape[1])
    filters = {
        "loci_missing": lambda: tally.missing[loci] <= max_missing_locus,
        "loci_one_allele": lambda: tally.several[loci],
        "loci_rare": lambda: tally.minor[loci] >= min_minor_allele_frequency,
        "loci_near": lambda: _far_enough(dataset, loci, thin_distance),
        "loci_linked": lambda: _unlinked(dataset, individuals, loci, tally, max_r2, window),
    }
    for name, passing in filters.items():
        passes = passing()
        removed[name] = int((~passes).sum())
        loci = loci[passes]
        if not len(loci):
            by_filter = ", ".join(f"removed_{name} {count}" for name, count in removed.items())
            raise ValueError(f"no locus is left of {y.shape[1]}: {by_filter}.")
    filtered = dataset.isel(individual=individuals, locus=loci)
    counts = {f"removed_{name}": count for name, count in removed.items()}
    before = {name: as_integer(f"attribute {name} of the dataset", dataset.attrs.get(name, 0), 0) for name in counts}
    return filtered.assign_attrs({name: before[name] + count for name, count in counts.items()})


def _tally(y: np.ndarray, individuals: np.ndarray) -> Tally:
    """The tally of all loci over some individuals."""
    size = max(int(y.max()), 0) + 2  # alleles from 1, behind those that were not read
    step = max(1, COPIES_PER_BLOCK // (len(individuals) * y.shape[2]))
    counts = []
    for start in range(0, y.shape[1], step):
        block = y[individuals, start : start + step]
        codes = block + 1 + size * np.arange(block.shape[1])[:, None]
        counts.append(_tally_of_counts(np.bincount(codes.ravel(), minlength=size * block.shape[1]).reshape(-1, size)))
    return Tally(*map(np.concatenate, zip(*counts, strict=True)))


def _tally_of_counts(counts: np.ndarray) -> Tally:
    """The tally of some loci. counts: (locus, allele), the first one of copies that were not read."""
    alleles = counts[:, 1:]
    total = alleles.sum(1)
    return Tally(
        counts[:, 0] / counts.sum(1),
        (alleles > 0).sum(1) > 1,
        alleles.argmax(1),
        (total - alleles.max(1)) / np.maximum(total, 1),
    )


def chromosomes(dataset: xr.Dataset, loci: np.ndarray) -> list[np.ndarray]:
    """The indices of the loci on each chromosome, in the order of their positions."""
    nothing = np.zeros(len(loci), int)
    position = dataset["position"].values[loci] if "position" in dataset.coords else nothing
    chromosome = dataset["chromosome"].values[loci] if "chromosome" in dataset.coords else nothing
    number = np.unique(list(map(str, chromosome.tolist())), return_inverse=True)[1]
    order = np.lexsort((position, number))
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1)


def _far_enough(dataset: xr.Dataset, loci: np.ndarray, distance: int) -> np.ndarray:
    """Whether each locus stays, as it is at least that distance from the last one before it that stays."""
    passes = np.ones(len(loci), bool)
    if not distance:
        return passes
    for indices in chromosomes(dataset, loci):
        last_position = -np.inf
        for index, position in zip(indices, dataset["position"].values[loci[indices]].tolist(), strict=True):
            passes[index] = position < 1 or position - last_position >= distance
            if passes[index] and position >= 1:
                last_position = position
    return passes


def _unlinked(
    dataset: xr.Dataset, individuals: np.ndarray, loci: np.ndarray, tally: Tally, max_r2: float | None, window: int
) -> np.ndarray:
    """Whether each locus stays when pairs of neighbours are visited in order, and one of a linked pair is removed."""
    passes = np.ones(len(loci), bool)
    if max_r2 is None:
        return passes
    minor = tally.minor[loci].tolist()
    step = min(max(window, 64), 256)
    for indices in chromosomes(dataset, loci):
        for start in range(0, len(indices) - 1, step):
            neighbours = indices[start : start + step + window - 1]
            y = dataset["y"].values[np.ix_(individuals, loci[neighbours])]
            copies = np.ascontiguousarray(np.moveaxis(y, -1, 0))
            is_read = (copies != MISSING_COPY).all(0)
            count = (copies == tally.common[loci[neighbours]]).sum(0) * is_read
            first, second = np.nonzero(_exceeds_r2(count, is_read, step, max_r2))
            in_window = (first < second) & (second - first < window)
            for i, j in zip(neighbours[first[in_window]].tolist(), neighbours[second[in_window]].tolist(), strict=True):
                if passes[i] and passes[j]:
                    passes[j if minor[j] <= minor[i] else i] = False
    return passes


def _exceeds_r2(count: np.ndarray, read: np.ndarray, step: int, max_r2: float) -> np.ndarray:
    """Whether r2 exceeds max_r2, (first, locus), for each of the first `step` loci with every one of them.

    count: copies of the common allele, 0 where not read.
    Sums are of whole numbers, so that a correlation of one is exactly that.
    """
    terms = np.stack([read, count, count**2]).astype(float)
    sums = np.tensordot(terms[:, :, :step], terms, (1, 1)).swapaxes(1, 2)
    both, first, second = sums[0, 0], sums[1, 0], sums[0, 1]
    covariance = both * sums[1, 1] - first * second
    return covariance**2 > max_r2 * (both * sums[2, 0] - first**2) * (both * sums[0, 2] - second**2)

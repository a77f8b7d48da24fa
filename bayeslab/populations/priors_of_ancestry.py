"""What a run says of ancestry beforehand: places of sampling, known origins, and where chains begin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bayeslab.populations.admixture_files import admixture_start, read_frequencies, read_q
from bayeslab.populations.known_origins import ancestry_prior, known_populations

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset


class AncestrySettings(Protocol):
    """The settings of a run that speak of ancestry."""

    @property
    def alpha(self) -> float | None: ...
    @property
    def supervised(self) -> bool: ...
    @property
    def location_prior(self) -> bool: ...
    @property
    def populations(self) -> tuple[int, ...]: ...
    @property
    def start_from(self) -> tuple[str, str] | None: ...


def ancestry_arguments(genotypes: Dataset, settings: AncestrySettings, number: int) -> dict[str, Any]:
    """The arguments alpha, and location where there is one, of a program with this number of populations."""
    if settings.supervised:
        return {"alpha": _known_origins(genotypes, settings, number)}
    if settings.location_prior and number > 1:
        return {"alpha": settings.alpha, "location": places(genotypes)[1]}
    return {"alpha": settings.alpha}


def prior_of_choice(genotypes: Dataset, settings: AncestrySettings, number: int) -> float | DataArray:
    """The alpha of the fits that choose among numbers of populations: 1 where it is learned.

    With places of sampling these fits begin the choice: draws with the prior by places then predict what is hidden.
    """
    if settings.supervised:
        return _known_origins(genotypes, settings, number)
    return 1.0 if settings.alpha is None else settings.alpha


def places(genotypes: Dataset) -> tuple[list[str], NDArray[Any]]:
    """The places that individuals were sampled in, in the order in which they first appear, and the number of that of
    every individual (individual,).

    They are the coordinate location (STRUCTURE's LOCDATA), or without one population (its LOCISPOP).
    Raises ValueError where there is neither, where an individual has none, and where all have the same.
    """
    name = next((name for name in ("location", "population") if name in genotypes.coords), None)
    if name is None:
        raise ValueError(
            "the genotypes have neither locations nor populations, which a prior by places of sampling needs; expected "
            "a file of STRUCTURE with locations=True or populations=True, or populations as families of PLINK"
        )
    labels = genotypes[name].values.astype(str)
    if (labels == "").any():
        individual = genotypes["individual"].values[labels == ""][0]
        raise ValueError(f"individual {individual} has no {name}; expected that of every individual")
    known = list(dict.fromkeys(labels.tolist()))
    if len(known) == 1:
        raise ValueError(f"all individuals have the {name} {known[0]}; expected several places to tell them by")
    return known, np.array([known.index(label) for label in labels])


def start_of_chains(genotypes: Dataset, settings: AncestrySettings) -> dict[str, NDArray[Any]] | None:
    """The start at the files of ADMIXTURE that settings name, None where there are none.

    They are of the individuals and loci that passed the filters, or of all that were read.
    Raises ValueError where they do not fit, and for a number of populations that is not run.
    """
    if settings.start_from is None:
        return None
    q_path, p_path = settings.start_from
    q, p = read_q(q_path), read_frequencies(p_path)
    if q.shape[1] not in settings.populations:
        raise ValueError(
            f"'{Path(q_path).name}' has {q.shape[1]} populations, which is none of {list(settings.populations)} that "
            "are run; expected one of them"
        )
    return admixture_start(genotypes, _kept_rows(q, genotypes, "individual"), _kept_rows(p, genotypes, "locus"))


def with_rows_of_file(genotypes: Dataset) -> Dataset:
    """Genotypes with the numbers of individuals and loci in their file, which tell rows of a .Q and a .P."""
    sizes = {dim: genotypes.sizes[dim] for dim in ("individual", "locus")}
    numbered = genotypes.assign_coords({f"row_of_{dim}": (dim, np.arange(size)) for dim, size in sizes.items()})
    return numbered.assign_attrs({f"rows_of_{dim}": size for dim, size in sizes.items()})


def _kept_rows(rows: NDArray[Any], genotypes: Dataset, dim: str) -> NDArray[Any]:
    """The rows that passed the filters, of rows of all that the file has; others as they are."""
    return rows[genotypes[f"row_of_{dim}"].values] if len(rows) == genotypes.attrs[f"rows_of_{dim}"] else rows


def _known_origins(genotypes: Dataset, settings: AncestrySettings, number: int) -> DataArray:
    """The prior of known origins (individual, population), with the labels of the populations that are known."""
    from xarray import DataArray

    origins = genotypes["origin"].values.astype(str).tolist()
    known = [str(label) for label in known_populations(origins)]
    if number < len(known):
        raise ValueError(
            f"K = {number} is less than the {len(known)} populations that are known, {', '.join(known)}; expected so "
            "many or more"
        )
    names = [*known, *(f"unknown {extra}" for extra in range(1, number - len(known) + 1))]
    prior = ancestry_prior(origins, number, alpha=1.0 if settings.alpha is None else settings.alpha)
    return DataArray(prior, dims=("individual", "population"), coords={"population": names})

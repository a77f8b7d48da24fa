"""How many populations genotypes speak of: how well those that are hidden are predicted, for several numbers.

A model has ancestry (individual, population) and frequencies (population, locus, allele), as `structure_admixture`
does, and genotypes y (individual, locus, copy).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from bayeslab.diagnostics.score_tables import standard_error, with_differences
from bayeslab.fitting import fit
from bayeslab.mixed_membership.methods import MeanField, counterpart
from bayeslab.programs.arguments import parameters
from bayeslab.programs.data import FILL_ATTRIBUTE, MISSING_COPY, values_and_presence
from bayeslab.programs.program import Data, Program, raw_key
from bayeslab.sampling.protocols import Method
from bayeslab.transforms.masked import Masked

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

K_ARGUMENT = "num_populations"
"""The argument of programs that is chosen."""
POPULATION_SITES = ("ancestry", "frequencies")
"""The sites that populations are read from."""
PROBABILITIES_PER_BLOCK = 2**24
"""The largest number of probabilities that are held at once."""
MAX_SWEEPS = 200
"""The largest number of sweeps of the default method. With more populations than the data have its ascent is long, and
the end of it does not matter."""
MIN_DRIFT = 1e-3
"""The smallest F that a population is given."""
MAX_COUNTS_PER_SPLIT = 2**25
"""The largest number of allele counts that a split looks at."""


class Means(NamedTuple):
    """The means of one chain, or a draw: ancestry (individual, population), frequencies (population, locus, allele)."""

    ancestry: NDArray[Any]
    frequencies: NDArray[Any]


def choose_populations(
    key: Array | int,
    model: Program,
    data: Data,
    values: Iterable[int],
    method: Method | None = None,
    share: float = 0.1,
) -> Dataset:
    """How well hidden genotypes are predicted with several numbers of populations, and the evidence bound of each.

    Of the genotypes that were read a random share is hidden, the same ones for all; the program is fitted to the rest,
    and the log predictive density of what they show, log of the mean of sum_k q_ik p_kl over draws, is added up.
    Starts: one of the method's own, and for every further number the last fit with a population split off along the
    leading direction of what that leaves unexplained. Of the two the one with the larger bound is kept. A method with
    several starts of its own, or that does not count origins, has these alone.
    values: range(1, 7), for example; best in ascending order. method: by default MeanField, whose scores were nearer to
    those of Gibbs than those of a maximum of the likelihood, at a small part of the time.
    Returns a Dataset with a row for every number: log_density (num_populations, individual), their sum log_score with
    its standard error log_score_se, difference and difference_se from the best score, paired by individual, and
    evidence_bound, of all data, NaN where the method has none; genotypes (individual,), how many were hidden.
    attrs["best"] is the number with the largest score, attrs["smallest"] the smallest one that is behind it by no more
    than the standard error of their difference. Standard errors take individuals for independent.
    Raises ValueError for no value, for a program without num_populations, for data without y, for a share that is not
    inside of 0 to 1, and where it hides genotypes of fewer than two individuals.
    """
    values = list(values)
    if not values:
        raise ValueError("choose_populations needs numbers of populations to choose from, got none")
    random = raw_key(key)
    held_out, rows, tree = HeldOutGenotypes(model, data, hide_genotypes(random, model, data, share)), [], None
    for value in values:
        before: Means | None = None if tree is None else means_of_chain(tree)
        row, tree = score_populations(random, held_out, value, method, before)
        rows.append(row)
    return comparison_table(rows)


class HeldOutGenotypes(NamedTuple):
    """A program, its data, and which genotypes (individual, locus) are hidden from it and predicted."""

    model: Program
    data: Data
    hidden: NDArray[Any]


def hide_genotypes(key: Array | int, model: Program, data: Data, share: float) -> NDArray[Any]:
    """Which genotypes (individual, locus) to hide: a share of those that were read, by which no locus and no individual
    loses its last one. Raises ValueError where that are those of fewer than two individuals."""
    if K_ARGUMENT not in parameters(model):
        raise ValueError(f"'{K_ARGUMENT}' is no argument of the program; these are {list(parameters(model))}")
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; expected a share of genotypes to hide, between 0 and 1")
    if "y" not in data:
        raise ValueError(f"data have no entry 'y'; expected genotypes (individual, locus, copy) beside {list(data)}")
    seen = (_allele_codes(data["y"]) != MISSING_COPY).any(2)
    hidden = seen & (np.random.default_rng(np.asarray(raw_key(key)).tolist()).random(seen.shape, np.float32) < share)
    hidden &= (seen & ~hidden).any(0)
    hidden &= (seen & ~hidden).any(1)[:, None]
    if not hidden.any():
        raise ValueError(f"a share of {share} of {seen.sum()} genotypes is none of them; expected some to hide")
    if hidden.any(1).sum() == 1:
        raise ValueError(
            f"a share of {share} of {seen.sum()} genotypes hides those of one individual only; expected two or more, "
            "from whose differences standard errors are found"
        )
    return hidden


def score_populations(
    key: Array | int,
    held_out: HeldOutGenotypes,
    value: int,
    method: Method | None = None,
    before: Means | None = None,
) -> tuple[Dataset, DataTree]:
    """The row of `choose_populations` for one number of populations, and the fit to all data.

    before: means of the fit with one population less.
    """
    from xarray import Dataset

    model, data, hidden = held_out
    method = MeanField(num_steps=MAX_SWEEPS, num_starts=1, num_samples=200, tolerance=0.1) if method is None else method
    method = counterpart(method) or method
    has_own_start = isinstance(method, MeanField) and method.num_starts == 1
    keys = jax.random.split(jax.random.fold_in(raw_key(key), value), 3)
    masked, full_data = Masked(model), dict(data) | {K_ARGUMENT: value}
    y, is_hidden = _allele_codes(data["y"]), hidden[:, :, None]
    shown = np.where(is_hidden, MISSING_COPY, y)
    training_data = full_data | {"y": _with_codes(data["y"], shown)}
    fits = [fit(keys[0], masked, training_data, method, progress=False)]
    bounded = "elbo" in fits[0].attrs
    if has_own_start and bounded and before is not None and len(before.frequencies) == value - 1:
        start = split_population(before, shown)._asdict()
        fits.append(fit(keys[1], masked, training_data, method, start=start, progress=False))
    best = max(fits, key=lambda tree: tree.attrs.get("elbo", 0.0))
    tree, bound = best, np.nan
    if bounded:
        initial = means_of_chain(best)._asdict() if has_own_start else None
        tree = fit(keys[2], masked, full_data, method, start=initial, progress=False)
        bound = tree.attrs["elbo"]
    density = log_densities(np.where(is_hidden, y, MISSING_COPY), draws_of(best))
    ancestry = best["posterior"].to_dataset()["ancestry"]
    row = Dataset(
        {
            "log_density": ("individual", density),
            "genotypes": ("individual", hidden.sum(1)),
            "log_score": density.sum(),
            "log_score_se": standard_error(density[hidden.any(1)]),
            "evidence_bound": bound,
        },
        {"individual": ancestry["individual"].values, K_ARGUMENT: value},
        {"method": type(method).__name__},
    )
    return row, tree


def comparison_table(rows: Sequence[Dataset]) -> Dataset:
    """The table of `choose_populations`, of one row for every number."""
    from xarray import concat

    table = concat([row.drop_vars("genotypes") for row in rows], dim=K_ARGUMENT, combine_attrs="drop_conflicts")
    table = with_differences(table, K_ARGUMENT, rows[0]["genotypes"].values > 0)
    return table.assign(genotypes=rows[0]["genotypes"])


def log_densities(y: ArrayLike, draws: Sequence[Means]) -> NDArray[Any]:
    """The log predictive density of every individual (individual,): of each copy by itself, averaged over draws.

    y: (individual, locus, copy), negative where there is nothing to predict.
    """
    y, log_density = np.asarray(y), np.empty(len(np.asarray(y)))
    block_size = max(1, PROBABILITIES_PER_BLOCK // max(y[0].size, draws[0].frequencies[0].size))
    for first in range(0, len(y), block_size):
        block = y[first : first + block_size]
        total = np.zeros(block.shape)
        for ancestry, frequencies in draws:
            probabilities = np.tensordot(
                ancestry[first : first + block_size], frequencies, 1
            )  # (individual, locus, allele)
            total += np.take_along_axis(probabilities, np.maximum(block, 0), 2)
        logs = np.log(np.maximum(total / len(draws), np.finfo(float).tiny))
        log_density[first : first + block_size] = np.where(block >= 0, logs, 0.0).sum((1, 2))
    return log_density


def evanno(y: ArrayLike, trees: Mapping[int, DataTree]) -> Dataset:
    """Delta K of G. Evanno, S. Regnaut and J. Goudet (2005), Molecular Ecology 14:2611, for those who are asked for it.

    y: genotypes (individual, locus, copy), negative where they were not read. trees: fits by their number of
    populations, with several chains each, which are its runs.
    Returns log_likelihood (num_populations, run), of the means of a chain, mean and sd over runs, and delta, the second
    difference of the means over the sd: NaN for the first and the last number and where a neighbour is missing. It can
    never pick the smallest number, so it cannot say that there is one population.
    Raises ValueError for a fit with a single chain, for fits with different numbers of chains, for a key that is not
    the number of populations of its fit, and for genotypes other than those of the fits.
    """
    from xarray import Dataset

    chains = {value: _means_of_all_chains(trees[value]) for value in sorted(trees)}
    runs = {value: len(chain_list) for value, chain_list in chains.items()}
    if len(set(runs.values())) != 1 or min(runs.values()) < 2:
        raise ValueError(f"the fits have {runs} chains; expected the same number for each, at least 2")
    codes = _allele_codes(y)
    for value, [chain_means, *_] in chains.items():
        _check_fit(value, chain_means, codes)
    likelihood = np.array(
        [[log_densities(codes, [chain_means]).sum() for chain_means in chain_list] for chain_list in chains.values()]
    )
    mean, sd, values = likelihood.mean(1), likelihood.std(1, ddof=1), np.array(list(chains))
    delta = np.full(len(values), np.nan)
    inner = np.flatnonzero((values[2:] == values[1:-1] + 1) & (values[1:-1] == values[:-2] + 1)) + 1
    with np.errstate(divide="ignore"):
        delta[inner] = np.abs(mean[inner + 1] - 2 * mean[inner] + mean[inner - 1]) / sd[inner]
    rows = {"mean": (K_ARGUMENT, mean), "sd": (K_ARGUMENT, sd), "delta": (K_ARGUMENT, delta)}
    return Dataset({"log_likelihood": ((K_ARGUMENT, "run"), likelihood), **rows}, {K_ARGUMENT: values})


def split_population(before: Means, y: NDArray[Any]) -> Means:
    """A start with one population more, which takes over from all others what they explain least.

    Individuals give their share of it by the leading left singular vector of the frequencies that they show less those
    that are expected, in the direction in which few of them stand out.
    y: (individual, locus, copy), negative where a copy was not read.
    """
    from sklearn.utils.extmath import randomized_svd

    alleles, individuals = before.frequencies.shape[2], len(y)
    some_loci = np.random.default_rng(0).permutation(y.shape[1])[
        : max(1, MAX_COUNTS_PER_SPLIT // (individuals * alleles))
    ]
    residuals = _frequency_residuals(before.ancestry, before.frequencies[:, some_loci], y[:, some_loci])
    direction = randomized_svd(residuals.reshape(individuals, -1), 1, random_state=0)[0][:, 0]
    direction = direction * (np.sign((direction**3).sum()) or 1.0)
    scale = np.quantile(direction, 0.98)
    shares = 0.9 * np.clip(direction / (scale if scale > 0 else 1.0), 0.0, 1.0)
    weight = shares / max(shares.sum(), np.finfo(float).tiny)
    mean = np.tensordot(weight @ before.ancestry, before.frequencies, 1)
    block_size = max(1, PROBABILITIES_PER_BLOCK // before.frequencies[0].size)
    for first in range(0, individuals, block_size):
        block = slice(first, first + block_size)
        residuals = _frequency_residuals(before.ancestry[block], before.frequencies, y[block])
        mean = mean + np.tensordot(weight[block], residuals, 1)
    is_allele = (before.frequencies > 0).any(0)
    new = np.where(is_allele, np.maximum(mean, 0.01), 0.0)
    ancestry = np.concatenate([(1 - shares)[:, None] * before.ancestry, shares[:, None]], 1)
    return Means(ancestry, np.concatenate([before.frequencies, new[None] / new.sum(-1)[None, :, None]]))


def empirical_drift(data: Data, means: Means) -> dict[str, NDArray[Any]]:
    """Values of ancestral (locus, allele) and drift (population,) for `structure_correlated`, by empirical Bayes.

    ancestral: frequencies among all copies that were read, with half a copy of every allele more. drift: the mean
    square of what populations differ from them by, less the sampling variance that copies of this ancestry leave, over
    that of an allele drawn from them: Wright's F, at least MIN_DRIFT.
    data: y and num_alleles. means: of a fit.
    """
    y, alleles = _allele_codes(data["y"]), np.asarray(data["num_alleles"])
    numbers = np.arange(means.frequencies.shape[2])
    counts = np.stack([(y == allele).sum((0, 2)) for allele in numbers], -1) + 0.5 * (numbers < alleles[:, None])
    ancestral = counts / counts.sum(-1, keepdims=True)
    variance = (ancestral * (1 - ancestral)).mean()
    copies = y.shape[2] * np.maximum((means.ancestry**2).sum(0), 1.0)
    drift = ((means.frequencies - ancestral) ** 2).mean((1, 2)) / variance - 1 / copies
    return {"ancestral": ancestral, "drift": np.clip(drift, MIN_DRIFT, 0.9)}


def means_of_chain(tree: DataTree, chain: int = 0) -> Means:
    """The means of a chain, in its own order of populations; rows sum to 1 in double precision."""
    site_means = [_site_mean(tree, site, chain) for site in POPULATION_SITES]
    return Means(*(site_mean / site_mean.sum(-1, keepdims=True) for site_mean in site_means))


def _site_mean(tree: DataTree, site: str, chain: int) -> NDArray[Any]:
    """The mean of a site in a chain, as it was kept or from draws."""
    posterior = tree["posterior"].to_dataset()
    if "posterior_mean" in tree.children and site in (kept_means := tree["posterior_mean"].to_dataset()):
        return kept_means[site].values[chain].astype(float)
    if site not in posterior:
        raise ValueError(f"the result has no site '{site}', only {sorted(map(str, posterior.data_vars))}")
    return posterior[site].values[chain].mean(0, dtype=float)


def _means_of_all_chains(tree: DataTree) -> list[Means]:
    """The means of every chain."""
    return [means_of_chain(tree, chain) for chain in range(tree["posterior"].sizes["chain"])]


def _check_fit(value: int, means: Means, y: NDArray[Any]) -> None:
    """Raises ValueError unless a fit has so many populations, and the individuals, loci and alleles of the data."""
    number, *loci_alleles = means.frequencies.shape
    if number != value:
        raise ValueError(f"the fit at {value} of trees has {number} populations; expected fits by that number")
    fitted_sizes = {"individuals": len(means.ancestry), "loci": loci_alleles[0]}
    sizes = {"individuals": y.shape[0], "loci": y.shape[1]}
    if fitted_sizes != sizes:
        raise ValueError(
            f"y has {sizes}, but the fit of {value} populations {fitted_sizes}; expected the genotypes of the fit"
        )
    if y.size and y.max() >= loci_alleles[1]:
        raise ValueError(
            f"y has allele {y.max()}, but the fit of {value} populations has alleles 0 to {loci_alleles[1] - 1}; "
            "expected the genotypes of the fit"
        )


def draws_of(tree: DataTree) -> list[Means]:
    """All draws; where those of frequencies are not kept, each chain counts as one draw, that of its means."""
    posterior = tree["posterior"].to_dataset()
    if not all(site in posterior for site in POPULATION_SITES):
        return _means_of_all_chains(tree)
    flat = (posterior[site].values.reshape(-1, *posterior[site].shape[2:]) for site in POPULATION_SITES)
    return [Means(*draw) for draw in zip(*flat, strict=True)]


def _frequency_residuals(ancestry: NDArray[Any], frequencies: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Residuals (individual, locus, allele): shares of alleles among the copies that were read, less those expected;
    0 where none was read."""
    seen = (y >= 0).sum(2)
    counts = np.stack([(y == allele).sum(2) for allele in range(frequencies.shape[2])], -1, dtype=np.float32)
    residuals = counts / np.maximum(seen, 1)[..., None] - np.tensordot(ancestry, frequencies, 1).astype(np.float32)
    return np.where((seen > 0)[..., None], residuals, 0.0)


def _allele_codes(y: Any) -> NDArray[Any]:
    """Alleles as integers (individual, locus, copy), MISSING where they were not read."""
    value, seen = values_and_presence(y)
    if value.ndim != 3:
        raise ValueError(f"genotypes y have shape {value.shape}; expected three axes, (individual, locus, copy)")
    return np.where(seen, value, MISSING_COPY).astype(value.dtype if value.dtype.kind == "i" else np.int16)


def _with_codes(y: Any, codes: NDArray[Any]) -> DataArray:
    """Codes in place of those of y, with its names and labels."""
    from xarray import DataArray

    recoded = y.copy(data=codes) if isinstance(y, DataArray) else DataArray(codes)
    recoded.attrs[FILL_ATTRIBUTE] = MISSING_COPY
    return recoded

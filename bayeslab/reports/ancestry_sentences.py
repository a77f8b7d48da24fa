"""What the report of `bayeslab structure` says of the prior of ancestry, and of ADMIXTURE's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslab.populations.admixture_files import AncestryComparison, compare_ancestry
from bayeslab.populations.ancestry import ancestry_summary
from bayeslab.populations.choice import Means, log_densities, means_of_chain
from bayeslab.populations.known_origins import known_populations
from bayeslab.populations.priors_of_ancestry import places, start_of_chains
from bayeslab.populations.run import Results, Settings

if TYPE_CHECKING:
    from pandas import DataFrame

UNINFORMATIVE_PRECISION = 1.0
"""The r above which places tell little, by the advice of STRUCTURE's authors: those that tell have about 1 or less."""


def ancestry_sentences(results: Results, settings: Settings) -> list[str]:
    """Sentences on the model of ancestry: its alpha, places of sampling, known origins, and the start of chains."""
    genotypes = results.genotypes
    learned = settings.alpha is None and not settings.supervised
    alpha = "learned" if learned else f"{settings.alpha or 1.0:g}"
    sentences = [f"Model: STRUCTURE with admixture; the alpha of the Dirichlet prior of ancestry is {alpha}."]
    if settings.supervised:
        origins = genotypes["origin"].values.astype(str)
        known = [str(label) for label in known_populations(origins.tolist())]
        sentences.append(
            f"The origin of {(origins != '').sum()} of {len(origins)} individuals is known and kept: "
            + ", ".join(f"{(origins == label).sum()} of {label}" for label in known)
            + "."
        )
    if settings.location_prior:
        sentences += _location_sentences(results)
    if settings.start_from:
        sentences += _comparison_sentences(results, settings)
    return sentences


def _location_sentences(results: Results) -> list[str]:
    """Sentences on how much places of sampling tell, for each number of populations that has more than one."""
    sentences = [
        f"Ancestry has a prior for each of the {len(places(results.genotypes)[0])} places of sampling, "
        "Dirichlet(alpha_s) with alpha_s ~ Gamma(r alpha, r), and r ~ Uniform(0, 20) (Hubisz et al. 2009). K was "
        "chosen with it, by what its draws predict."
    ]
    for number, tree in results.fits.items():
        posterior = tree["posterior"].to_dataset()
        if "location_precision" not in posterior:
            continue
        low, middle, high = np.quantile(posterior["location_precision"].values, (0.05, 0.5, 0.95))
        told = "places tell of ancestry" if high < UNINFORMATIVE_PRECISION else "places tell little or nothing"
        if low < UNINFORMATIVE_PRECISION <= high:
            told = "the data leave open whether places tell of ancestry"
        sentences.append(f"K = {number}: r is {middle:.2g}, 90 % interval {low:.2g} to {high:.2g}: {told}.")
    return sentences


def _comparison_sentences(results: Results, settings: Settings) -> list[str]:
    """Sentences on how far the fit is from the files that its chains began at."""
    compared = _compared(results, settings)
    start = start_of_chains(results.genotypes, settings)
    if compared is None or start is None or settings.start_from is None:
        return []
    number, comparison = compared
    y = results.genotypes["y"].transpose("individual", "locus", "copy").values
    tree = results.fits[number]
    fitted = max(
        log_densities(y, [means_of_chain(tree, chain)]).sum() for chain in range(tree["posterior"].sizes["chain"])
    )
    theirs = log_densities(y, [Means(start["ancestry"], start["frequencies"])]).sum()
    return [
        f"The chains of K = {number} began at {settings.start_from[0]} and {settings.start_from[1]}. Mean ancestry "
        f"differs from that of the .Q by {comparison.mean:.3f} on average and {comparison.largest:.2f} at most, of "
        f"individual {comparison.individual} (comparison.csv). The log likelihood of the genotypes is {theirs:,.0f} at "
        f"these files, and {fitted:,.0f} at the posterior means of the best chain. ADMIXTURE looks for its maximum, so "
        "that of its files is the higher one where both are at the same mode."
    ]


def comparison_table(results: Results, settings: Settings) -> DataFrame | None:
    """A row for every individual and population: individual, population, mean, start, difference; None without files of
    ADMIXTURE."""
    from pandas import DataFrame

    compared = _compared(results, settings)
    if compared is None:
        return None
    number, comparison = compared
    summary = ancestry_summary(results.fits[number])
    mean = summary["mean"].transpose("individual", "population").values
    individuals, populations = mean.shape
    return DataFrame(
        {
            "individual": np.repeat(summary["individual"].values, populations),
            "population": np.tile(summary["population"].values, individuals),
            "mean": mean.ravel(),
            "start": (mean - comparison.difference).ravel(),
            "difference": comparison.difference.ravel(),
        }
    )


def _compared(results: Results, settings: Settings) -> tuple[int, AncestryComparison] | None:
    """The number of populations of the files of ADMIXTURE, and the comparison of the fit with their ancestry."""
    start = start_of_chains(results.genotypes, settings)
    if start is None:
        return None
    number = start["ancestry"].shape[1]
    return number, compare_ancestry(ancestry_summary(results.fits[number]), start["ancestry"])

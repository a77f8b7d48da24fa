"""STRUCTURE with admixture: every copy of every locus of an individual has an origin of its own.

    p_kl    ~ Dirichlet(concentration, ..., concentration) over the J_l alleles,    population k = 1..K, locus l = 1..L
    q_i     ~ Dirichlet(alpha, ..., alpha) over the K populations,                  individual i = 1..n
    z_ila   ~ Categorical(q_i),                                                     copy a = 1..ploidy of every locus
    y_ila   ~ Categorical(p_{z_ila, l})

Mukherjee, Probabilistic Machine Learning, 14; Pritchard, Stephens and Donnelly (2000), Genetics 155:945. The sites are
frequencies (p) and ancestry (q). Where alpha is not given it is drawn too, as STRUCTURE does:

    alpha   ~ Uniform(0, 10)

Where the places are given that individuals were sampled in, each place s has an alpha of its own (Hubisz, Falush,
Stephens and Pritchard 2009, Molecular Ecology Resources 9:1322, STRUCTURE's LOCPRIOR; no lecture has it):

    alpha_k  ~ Uniform(0, 10),                       population k = 1..K, where it is not given
    r        ~ Uniform(0, max_location_precision)
    alpha_sk ~ Gamma(r alpha_k, r),                  place s, of mean alpha_k and variance alpha_k / r
    q_i      ~ Dirichlet(alpha_{s(i)})

so that r says what places tell: about 1 or below, that individuals of a place are alike in their ancestry; far above 1,
that places say nothing, all alpha_s are alpha, and the prior is that without them. These sites are alpha,
location_precision (r) and location_alpha.

Given the origins z both kinds of probabilities are Dirichlet, the frequencies with the counts of alleles (the lecture's
sampler prints the counts of another index) and the ancestry with the counts of origins. With z summed out a copy has
the probabilities sum_k q_ik p_kl. `align(tree, SITE_DIMS, LABELS)` gives the populations of all draws one order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import PaddedCategorical
from bayeslab.models.structure import allele_frequencies, require_individuals

SITE_DIMS = {"frequencies": "population", "ancestry": "population"}
LOCATION_SITE_DIMS = {**SITE_DIMS, "location_alpha": "population"}
"""Those of results with places of sampling, and "alpha" beside them where it is drawn."""
LABELS = ("z",)


def model(
    num_individuals: int,
    num_alleles: Array,
    num_populations: int,
    ploidy: int = 2,
    alpha: Array | float | None = 1.0,
    concentration: float = 1.0,
    location: Array | None = None,
    max_location_precision: float = 20.0,
) -> None:
    """Draw frequencies (population, locus, allele), ancestry (individual, population), origins z and genotypes y
    (individual, locus, copy), and alpha if it is None.

    num_alleles: (locus,), the number of alleles of every locus; y counts them from 0. alpha: one number, (population,),
    or (individual, population), as `bl.populations.ancestry_prior` makes it of known origins. location: (individual,),
    the number of the place that each was sampled in, from 0; with it location_alpha (location, population) and
    location_precision are drawn, and alpha, if it is None, is (population,).
    """
    frequencies = allele_frequencies(num_populations, num_alleles, concentration)
    prior = ancestry_concentration(num_individuals, num_populations, alpha, location, max_location_precision)
    admixed(frequencies, num_individuals, num_alleles, ploidy, prior)


def ancestry_concentration(
    num_individuals: int,
    num_populations: int,
    alpha: Array | float | None,
    location: Array | None,
    max_location_precision: float,
) -> Array:
    """The parameters (population,) or (individual, population) of the Dirichlet of ancestry; drawn as far as they are
    not given.

    Raises ValueError for an alpha of another shape, and for locations that are not a number from 0 for each individual.
    """
    if location is None:
        drawn = numpyro.sample("alpha", dist.Uniform(0.0, 10.0)) if alpha is None else alpha
        return _concentration(drawn, num_individuals, num_populations)
    places = np.asarray(location)
    if places.shape != (num_individuals,) or places.dtype.kind not in "iu" or places.min() < 0:
        raise ValueError(
            f"location has shape {places.shape} and values of {places.dtype}; expected ({num_individuals},), the "
            "number of the place of every individual, from 0"
        )
    if alpha is not None and jnp.ndim(alpha) == 2:
        raise ValueError("alpha is given for every individual, and location too; expected one of them")
    if alpha is None:
        with numpyro.plate("population", num_populations):
            alpha = numpyro.sample("alpha", dist.Uniform(0.0, 10.0))
    overall = _concentration(alpha, num_individuals, num_populations)
    precision = numpyro.sample("location_precision", dist.Uniform(0.0, max_location_precision))
    with numpyro.plate("location", places.max() + 1, dim=-2), numpyro.plate("population", num_populations, dim=-1):
        of_location = numpyro.sample("location_alpha", dist.Gamma(overall * precision, precision))
    return of_location[places]


def admixed(frequencies: Array, num_individuals: int, num_alleles: Array, ploidy: int, concentration: Array) -> None:
    """Draw what individuals are made of, and what they show. concentration: of the Dirichlet of ancestry."""
    require_individuals(num_individuals, len(frequencies))
    alleles = np.asarray(num_alleles)
    with numpyro.plate("individual", num_individuals):
        share = dist.Dirichlet(concentration)
        ancestry = numpyro.sample("ancestry", share, infer={"event_dims": ["population"]})
    individuals = numpyro.plate("individual", num_individuals, dim=-3)
    with individuals, numpyro.plate("locus", len(alleles), dim=-2), numpyro.plate("copy", ploidy, dim=-1):
        z = numpyro.sample("z", dist.Categorical(ancestry[:, None, None]))
        here = np.arange(len(alleles))[:, None]
        numpyro.sample("y", PaddedCategorical(frequencies[z, here], alleles[:, None]))


def _concentration(alpha: Array | float, individuals: int, populations: int) -> Array:
    """The parameters (population,) or (individual, population) of the Dirichlet of ancestry."""
    shape = jnp.shape(alpha)
    if shape not in ((), (populations,), (individuals, populations)):
        expected = f"one number, ({populations},) or ({individuals}, {populations})"
        raise ValueError(f"alpha has shape {shape}; expected {expected}")
    return jnp.asarray(alpha) if shape else jnp.full(populations, alpha)


def example() -> dict[str, Any]:
    """Three individuals at three loci of two, three and two alleles, with one copy missing."""
    y = [[[0, 1], [2, 2], [0, 0]], [[0, 0], [2, 1], [0, -1]], [[1, 1], [0, 0], [1, 1]]]
    sizes = {"num_individuals": 3, "num_alleles": np.array([2, 3, 2]), "num_populations": 2}
    return {**sizes, "alpha": 0.7, "concentration": 0.5, "y": np.ma.masked_less(y, 0)}


def data() -> dict[str, Any]:
    """Thirty simulated individuals of two populations and between them, at thirty loci (the lecture has no data)."""
    from bayeslab.datasets import genotypes, simulated_genotypes

    return {**genotypes(simulated_genotypes(30, 30, 2)["y"]), "num_populations": 2}

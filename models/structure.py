"""STRUCTURE without admixture: genotypes of individuals from populations that nobody sampled one by one.

    p_kl    ~ Dirichlet(concentration, ..., concentration) over the J_l alleles,    population k = 1..K, locus l = 1..L
    z_i     ~ Uniform{1, ..., K},                                                  individual i = 1..n
    y_ila   ~ Categorical(p_{z_i, l}),                                             copy a = 1..ploidy of every locus

Mukherjee, Probabilistic Machine Learning, 14; Pritchard, Stephens and Donnelly (2000), Genetics 155:945 (their x is y
here). Copies are independent given the population: Hardy-Weinberg and linkage equilibrium inside of populations. Given
the origins z the frequencies are Dirichlet with the counts of alleles, given the frequencies every origin is one of K.
Loci differ in their number of alleles: frequencies beyond it are zero. `align(tree, SITE_DIMS, LABELS)` gives the
populations of all draws one order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import PaddedCategorical, PaddedDirichlet

SITE_DIMS = {"frequencies": "population"}
LABELS = ("z",)


def model(
    num_individuals: int,
    num_alleles: Array,
    num_populations: int,
    ploidy: int = 2,
    concentration: float = 1.0,
) -> None:
    """Draw frequencies (population, locus, allele), origins z (individual,), genotypes y (individual, locus, copy).

    num_alleles: (locus,), the number of alleles of every locus; y counts them from 0.
    """
    require_individuals(num_individuals, num_populations)
    frequencies = allele_frequencies(num_populations, num_alleles, concentration)
    with numpyro.plate("individual", num_individuals):
        z = numpyro.sample("z", dist.Categorical(jnp.full(num_populations, 1 / num_populations)))
        of_copies = jnp.repeat(frequencies[z][:, :, None], ploidy, 2)
        alleles = PaddedCategorical(of_copies, np.asarray(num_alleles)[:, None]).to_event(2)
        numpyro.sample("y", alleles, infer={"event_dims": ["locus", "copy"]})


def allele_frequencies(num_populations: int, num_alleles: Array, concentration: float) -> Array:
    """Draw frequencies (population, locus, allele), of populations that know nothing of each other."""
    alleles = np.asarray(num_alleles)
    prior = PaddedDirichlet(jnp.full(alleles.max(), concentration), alleles)
    with numpyro.plate("population", num_populations, dim=-2), numpyro.plate("locus", len(alleles), dim=-1):
        return numpyro.sample("frequencies", prior, infer={"event_dims": ["allele"]})


def require_individuals(num_individuals: int, num_populations: int) -> None:
    """Raise ValueError for more populations than there are individuals to tell them by."""
    if num_populations > num_individuals:
        raise ValueError(f"num_populations is {num_populations}, more than the {num_individuals} individuals")


def example() -> dict[str, Any]:
    """Four individuals at three loci of two, three and two alleles, with one copy missing."""
    y = [[[0, 1], [2, 2], [0, 0]], [[0, 0], [2, 1], [0, -1]], [[1, 1], [0, 0], [1, 1]], [[1, 1], [0, 1], [1, 0]]]
    sizes = {"num_individuals": 4, "num_alleles": np.array([2, 3, 2]), "num_populations": 2}
    return {**sizes, "concentration": 0.5, "y": np.ma.masked_less(y, 0)}


def data() -> dict[str, Any]:
    """Forty simulated individuals of two populations at thirty loci (the lecture has no data)."""
    from bayeslab.datasets import genotypes, simulated_genotypes

    return {**genotypes(simulated_genotypes(40, 30, 2, admixture=None)["y"]), "num_populations": 2}

"""Frequencies of alleles in one population: STRUCTURE before there is anything to cluster.

    p_l       ~ Dirichlet(concentration_l1, ..., concentration_lJ) over the J_l alleles,    locus l = 1..L
    y_ila | p ~ Categorical(p_l),    copy a = 1..ploidy of locus l in individual i = 1..n

Mukherjee, Probabilistic Machine Learning, 14, where this is the step before populations; alleles count from 0 here.
With two alleles p_l is Beta(alpha, beta), and with S_l copies of the first among N its posterior is Beta(alpha + S_l,
beta + N - S_l); a line of the lecture leaves the prior out on the way. It is `structure` with one population.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.scipy.special import gammaln

from bayeslab.distributions import PaddedCategorical, PaddedDirichlet


def model(num_individuals: int, num_alleles: Array, ploidy: int = 2, concentration: Array | float = 1.0) -> None:
    """Draw frequencies (locus, allele) and genotypes y (individual, locus, copy).

    num_alleles: (locus,), the number of alleles of every locus; y counts them from 0. concentration: prior counts, one
    number or an array that broadcasts to (locus, allele).
    """
    alleles = np.asarray(num_alleles)
    frequencies = _frequencies(jnp.broadcast_to(concentration, (len(alleles), alleles.max())), alleles)
    with numpyro.plate("individual", num_individuals):
        of_copies = PaddedCategorical(jnp.repeat(frequencies[:, None], ploidy, 1), alleles[:, None]).to_event(2)
        numpyro.sample("y", of_copies, infer={"event_dims": ["locus", "copy"]})


def posterior(y: Array, num_alleles: Array, concentration: Array | float) -> None:
    """Draw frequencies from p(frequencies | y)."""
    _frequencies(concentration + _counts(y, num_alleles), np.asarray(num_alleles))


def evidence(y: Array, num_alleles: Array, concentration: Array | float) -> Array:
    """log p(y) of the copies in their order: a sum over the loci."""
    counts, alleles = _counts(y, num_alleles), np.asarray(num_alleles)
    is_allele = np.arange(alleles.max()) < alleles[:, None]
    prior = jnp.where(is_allele, concentration, 0.0)
    totals = gammaln(prior.sum(1)) - gammaln(prior.sum(1) + counts.sum(1))
    of_alleles = gammaln(concentration + counts) - gammaln(concentration)
    return jnp.sum(totals) + jnp.sum(jnp.where(is_allele, of_alleles, 0.0))


def example() -> dict[str, Any]:
    """Four individuals at three loci of two, three and two alleles, of which the first is common in the prior."""
    y = [[[0, 1], [2, 2], [0, 0]], [[0, 0], [2, 1], [0, 1]], [[1, 1], [0, 0], [1, 1]], [[1, 1], [0, 1], [1, 0]]]
    concentration = np.array([1.5, 0.5, 0.7])
    return {"num_individuals": 4, "num_alleles": np.array([2, 3, 2]), "concentration": concentration, "y": np.array(y)}


def data() -> dict[str, Any]:
    """Blood groups M, MN and N of 1,029 people in Hong Kong in 1937."""
    from bayeslab.datasets import blood_groups

    y = blood_groups()
    return {"num_individuals": len(y), "num_alleles": np.array([2]), "y": y}


def _frequencies(concentration: Array, num_alleles: np.ndarray) -> Array:
    """Draw frequencies (locus, allele), from Dirichlet distributions with a concentration (locus, allele)."""
    with numpyro.plate("locus", len(num_alleles)):
        prior = PaddedDirichlet(concentration, num_alleles)
        return numpyro.sample("frequencies", prior, infer={"event_dims": ["allele"]})


def _counts(y: Array, num_alleles: Array) -> Array:
    """How often each allele was seen, (locus, allele)."""
    return jax.nn.one_hot(y, int(np.max(num_alleles))).sum((0, 2))

"""Programs and numbers of mixed membership that several tests share."""

from itertools import product
from typing import Any

import numpy as np
from scipy.special import gammaln

from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape

Array = np.ndarray[Any, Any]


def log_dirichlet_multinomial(counts: Array, concentration: float) -> Array:
    """Of counts (..., category), one sequence of draws."""
    total, size = counts.sum(-1), counts.shape[-1]
    each = gammaln(concentration + counts) - gammaln(concentration)
    return each.sum(-1) + gammaln(size * concentration) - gammaln(size * concentration + total)


Array = np.ndarray[Any, Any]


SHAPES = [
    GenotypeShape(individuals=7, loci=30, copies=1, alleles=4, populations=2),
    GenotypeShape(individuals=130, loci=300, copies=2, alleles=2, populations=3),
    GenotypeShape(individuals=50, loci=200, copies=3, alleles=6, populations=5),
    GenotypeShape(individuals=4, loci=2000, copies=2, alleles=9, populations=9),
    GenotypeShape(individuals=5, loci=20_000, copies=2, alleles=2, populations=4),
]


def simulated(shape: GenotypeShape, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, shape.alleles, shape[:3])
    q = rng.dirichlet(np.ones(shape.populations), shape.individuals)
    p = rng.dirichlet(np.ones(shape.alleles), (shape.populations, shape.loci))
    return y, rng.random(y.shape) > 0.1, q, p


def log_joint_of_origins(data: dict[str, Any]) -> tuple[Array, Array]:
    """Of all assignments, with both kinds of probabilities integrated out; origins (assignment, individual,
    population) of each."""
    x, states = data["y"], data["num_populations"]
    places = np.argwhere(~np.ma.getmaskarray(x))
    values = x[tuple(places.T)]
    origins = np.array(list(product(range(states), repeat=len(places))), np.int8)
    is_origin = (origins[:, :, None] == np.arange(states)).astype(np.int8)
    mine = np.stack([is_origin[:, places[:, 0] == individual].sum(1) for individual in range(len(x))], 1)
    log_joint = log_dirichlet_multinomial(mine, data["alpha"]).sum(1)
    for locus, alleles in enumerate(data["num_alleles"]):
        here = places[:, 1] == locus
        counts = np.stack([is_origin[:, here & (values == j)].sum(1) for j in range(alleles)], -1)
        log_joint += log_dirichlet_multinomial(counts, data["concentration"]).sum(-1)
    return log_joint, mine


def shared_ancestry(data: dict[str, Any]) -> Array:
    """E[sum_k q_ik q_jk] for pairs of individuals."""
    log_joint, mine = log_joint_of_origins(data)
    weight = np.exp(log_joint - log_joint.max())
    mean = (mine + data["alpha"]) / (mine + data["alpha"]).sum(-1, keepdims=True)
    return np.einsum("a,aik,ajk->ij", weight / weight.sum(), mean, mean)[np.triu_indices(len(data["y"]), 1)]

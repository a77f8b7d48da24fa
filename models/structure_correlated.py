"""STRUCTURE with admixture and correlated frequencies: populations drifted, each its own way, from a common ancestor.

    a_l     ~ Dirichlet(concentration, ..., concentration) over the J_l alleles,    locus l = 1..L
    F_k     ~ Beta(drift_alpha, drift_beta),                                        population k = 1..K
    p_kl    ~ Dirichlet(a_l (1 - F_k) / F_k)

and ancestry q, origins z and genotypes y as in `structure_admixture`. Falush, Stephens and Pritchard (2003), Genetics
164:1567, the F model; no lecture has it. The sites are ancestral (a) and drift (F), which is the F_ST of a population
against the ancestor. STRUCTURE takes a Gamma of mean 0.01 and standard deviation 0.05 for F; the Beta here has the
whole range from 0 to 1 and no pole at 0. Frequencies, ancestry and origins have conditionals in closed form, the
ancestral frequencies and the drift have none. `align(tree, SITE_DIMS, LABELS)` gives the populations of all draws one
order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import PaddedDirichlet
from bayeslab.models import structure_admixture
from bayeslab.models.structure_admixture import admixed, ancestry_concentration

SITE_DIMS = {"frequencies": "population", "ancestry": "population", "drift": "population"}
LOCATION_SITE_DIMS = {**SITE_DIMS, "location_alpha": "population"}
LABELS = ("z",)


def model(
    num_individuals: int,
    num_alleles: Array,
    num_populations: int,
    ploidy: int = 2,
    alpha: Array | float | None = 1.0,
    concentration: float = 1.0,
    drift_alpha: float = 1.0,
    drift_beta: float = 9.0,
    location: Array | None = None,
    max_location_precision: float = 20.0,
) -> None:
    """Draw ancestral (locus, allele), drift (population,), frequencies (population, locus, allele), ancestry
    (individual, population), origins z and genotypes y (individual, locus, copy), and alpha if it is None.

    num_alleles: (locus,), the number of alleles of every locus; y counts them from 0. alpha: one number, (population,),
    or (individual, population), as `bl.populations.ancestry_prior` makes it of known origins. location: (individual,),
    the number of the place that each was sampled in, from 0, as in `structure_admixture`.
    """
    alleles = np.asarray(num_alleles)
    loci = numpyro.plate("locus", len(alleles), dim=-1)
    with loci:
        prior = PaddedDirichlet(jnp.full(alleles.max(), concentration), alleles)
        ancestral = numpyro.sample("ancestral", prior, infer={"event_dims": ["allele"]})
    with numpyro.plate("population", num_populations):
        drift = numpyro.sample("drift", dist.Beta(drift_alpha, drift_beta))
    with numpyro.plate("population", num_populations, dim=-2), loci:
        about = PaddedDirichlet(ancestral * ((1 - drift) / drift)[:, None, None], alleles)
        frequencies = numpyro.sample("frequencies", about, infer={"event_dims": ["allele"]})
    concentrations = ancestry_concentration(num_individuals, num_populations, alpha, location, max_location_precision)
    admixed(frequencies, num_individuals, num_alleles, ploidy, concentrations)


def example() -> dict[str, Any]:
    """The individuals of `structure_admixture`, under a prior that is not the default."""
    return {**structure_admixture.example(), "drift_alpha": 1.5, "drift_beta": 6.0}


def data() -> dict[str, Any]:
    """The genotypes of `structure_admixture`."""
    return structure_admixture.data()

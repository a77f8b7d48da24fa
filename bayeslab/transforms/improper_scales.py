"""Scales with improper priors of which the data say nothing, once the Normal sites beside them are integrated out.

The log joint of a regression that has as many coefficients as rows rises without bound as the noise goes to zero, and
has no line along which it is constant. Integrated over the coefficients it is: nothing is left over that could tell the
size of the noise.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.constraints import positive

from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.unconstrained import log_posterior
from bayeslab.programs.wrapped_distributions import describe_constraint
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import marginal
from bayeslab.verification.points.likely_points import in_double_precision

LOGARITHMS = np.array([30.0, 50.0, 70.0, 90.0])
"""Logarithms of a scale, or of its inverse, over which a density of it that has an integral falls."""
TOLERANCE = 1e-6
"""Largest change, relative to the log density, that may be rounding."""


def refuse_improper_scale(analysis: Analysis) -> None:
    """Raises ValueError where the posterior of a positive number with an improper prior does not fall towards zero, or
    does not fall towards infinity, after all other sites are integrated out, all of them Normal.

    Looked at are programs with one such number and no site that is not Normal given it.
    """
    bound = analysis.bound.plain
    improper = [site for site in bound.sites.values() if site.improper and site.role == "latent" and not site.learned]
    scales = [site.name for site in improper if site.support == describe_constraint(positive) and not site.shape]
    others = [name for name in bound.latent if name not in scales]
    if len(scales) != 1:
        return
    try:
        rules = {finding.site: finding.rule for finding in analysis.findings}
        if not all((rule := rules.get(name)) is not None and rule.family.is_normal for name in others):
            return
        collapsed = marginal(bound, others, analysis)
    except ValueError:  # the program cannot be taken apart, or its sites cannot be integrated out together
        return
    with precision_scope(jnp.float64), np.errstate(all="ignore"):
        wide = in_double_precision(collapsed)
        for end, logarithms in (("zero", -LOGARITHMS), ("infinity", LOGARITHMS)):
            along = evaluate_all([_density_of_logarithm(scales[0])], (wide, logarithms))[0]
            if np.isfinite(along).all() and np.ptp(along) <= TOLERANCE * max(1.0, abs(along).max()):
                raise ValueError(
                    f"the posterior is improper: the log density of log '{scales[0]}', all else integrated out, is "
                    f"constant towards {end}, as where there are no more rows than coefficients; give '{scales[0]}' a "
                    "proper prior, or more data"
                )


@lru_cache(maxsize=64)
def _density_of_logarithm(name: str) -> Callable[[Any], Array]:
    """A function from a Bound and logarithms (point,) of a site to their log densities (point,)."""

    def densities(argument: Any) -> Array:
        bound, logarithms = argument
        return jax.vmap(lambda at: log_posterior(bound, {name: at}))(logarithms)

    return densities

"""Whether a log posterior is concave, as far as random lines through it show.

That decides what is fast, not what is right: a log joint that is concave on all of these lines and not elsewhere is
drawn from correctly, with a worse start of warm-up.
"""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.unconstrained import flat_log_posterior, unconstrained_shapes

LINES_PER_SCALE = 16
"""Lines at every scale."""
SCALES = (0.1, 1.0, 4.0)
"""Distances of the points of a line from its middle, which is about as far from zero, in unconstrained coordinates."""
POINTS_PER_CALL = 16
"""Points at which the density is evaluated together."""


def has_fixed_priors(bound: Bound) -> bool:
    """Whether no latent site is in the prior of another."""
    return not any(prior.depends for prior in terms(bound).priors.values())


def is_concave(bound: Bound) -> bool:
    """Whether the log posterior of continuous sites bends downwards along all lines that are tried."""
    if num_coordinates(bound) == 0:
        return False
    lower, middle, upper = evaluate_all([_along_lines], bound)[0]
    with np.errstate(invalid="ignore"):
        bend = lower - 2 * middle + upper
        rounding = np.sqrt(np.finfo(bend.dtype).eps) * (np.abs(lower) + np.abs(upper) + np.abs(middle))
    compared = np.isfinite(bend)
    return bool(compared.sum() >= LINES_PER_SCALE and (bend <= rounding)[compared].all())


def _along_lines(bound: Bound) -> tuple[Array, Array, Array]:
    """The log posterior before, in and after the middle of lines, (line,) each; half of them move one coordinate."""
    size = num_coordinates(bound)
    rng = np.random.default_rng(0)
    middles, directions = rng.normal(size=(2, len(SCALES), LINES_PER_SCALE, size))
    for scale in directions:
        for direction in scale[::2]:
            direction[np.arange(size) != rng.integers(size)] = 0.0
    scales = np.array(SCALES)[:, None, None]
    middles, directions = (jnp.asarray((scales * each).reshape(-1, size)) for each in (middles, directions))
    points = jnp.concatenate([middles - directions, middles, middles + directions])
    values = jax.lax.map(lambda point: flat_log_posterior(bound, point), points, batch_size=POINTS_PER_CALL)
    first, second, third = jnp.split(values, 3)
    return first, second, third


def num_coordinates(bound: Bound) -> int:
    """The number of unconstrained coordinates."""
    return sum(prod(shape) for _, shape in unconstrained_shapes(bound))

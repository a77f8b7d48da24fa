"""Polya-Gamma variates on whole arrays.

For whole concentrations b these are sums of b variates with concentration 1, drawn by the method of Devroye (2009) as
Polson, Scott and Windle (2013) have it, exactly. For others they are sums of gamma variates,

    x = 1 / (2 pi^2) sum over k of g_k / ((k - 1/2)^2 + c^2 / (4 pi^2)),    g_k ~ Gamma(b, 1),

the first ones drawn and the rest replaced by one Gamma with the mean and the variance of it: of the third cumulant a
share of less than 1e-8 is wrong.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtri
from scipy import special

from bayeslab.distributions.gamma import log_gamma_variates

MAX_SUMMED = 16
"""The largest whole concentration for which variates are summed."""
NUM_GAMMAS = 32
"""Gamma variates that are drawn; the others are one."""
SPLIT = 0.64
"""Where the two proposals of Devroye's method meet."""
TAIL = float(special.ndtr(-1 / np.sqrt(SPLIT)))
"""The probability that a standard normal variable is below minus the root of 1 / SPLIT."""
NUM_TERMS = 5
"""Terms of the alternating series; further ones are below 1e-17 of the first."""


def polya_gamma_variates(key: Array, concentration: Array, tilt: Array, shape: tuple[int, ...]) -> Array:
    """Variates of a shape; NaN where the concentration is not positive or a number is not finite."""
    dtype = jnp.result_type(float, concentration, tilt)
    b = jnp.broadcast_to(jnp.asarray(concentration, dtype), shape)
    c = jnp.broadcast_to(jnp.abs(jnp.asarray(tilt, dtype)), shape)
    valid = (b > 0) & jnp.isfinite(b) & jnp.isfinite(c)
    b, c = jnp.where(valid, b, 1.0), jnp.where(valid, c, 0.0)
    summed = ((b == jnp.round(b)) & (b <= MAX_SUMMED)).all()
    drawn = jax.lax.cond(summed, _sums_of_ones, _sums_of_gammas, key, b, c)
    return jnp.where(valid, jnp.maximum(drawn, jnp.finfo(dtype).tiny), jnp.nan)


def variates_of_one(key: Array, tilt: Array) -> Array:
    """Variates of concentration 1, of the shape of the tilt; NaN where that is not finite."""
    valid = jnp.isfinite(tilt)
    return jnp.where(valid, _ones(key, jnp.where(valid, jnp.abs(tilt), 0.0) / 2) / 4, jnp.nan)


def _sums_of_ones(key: Array, b: Array, c: Array) -> Array:
    """Sums of b variates of concentration 1."""

    def add(index: Array, total: Array) -> Array:
        one = variates_of_one(jax.random.fold_in(key, index), c)
        return total + jnp.where(index < b, one, 0.0)

    return jax.lax.fori_loop(0, b.max(initial=0.0).astype(int), add, jnp.zeros_like(b))


def _sums_of_gammas(key: Array, b: Array, c: Array) -> Array:
    """Sums of gamma variates, and one for the infinitely many that are left."""
    shift = c / (2 * np.pi)
    places = np.arange(NUM_GAMMAS) + 0.5
    first, second = _sums_beyond(shift)
    mean, variance = b * first, b * second
    shapes = jnp.concatenate([jnp.repeat(b[..., None], NUM_GAMMAS, -1), (mean**2 / variance)[..., None]], -1)
    gammas = jnp.exp(log_gamma_variates(key, shapes, shapes.shape))
    drawn = (gammas[..., :-1] / (places**2 + shift[..., None] ** 2)).sum(-1)
    return (drawn + gammas[..., -1] * variance / mean) / (2 * np.pi**2)


def _sums_beyond(shift: Array) -> tuple[Array, Array]:
    """Sums of 1 / ((k - 1/2)^2 + shift^2), and of its square, over k > NUM_GAMMAS: integrals with a correction."""
    size, square = NUM_GAMMAS, NUM_GAMMAS**2 + shift**2
    angle = jnp.arctan2(shift, float(size))
    small = angle < 1e-2
    safe_shift, safe_angle = jnp.where(small, 1.0, shift), jnp.where(small, 1.0, angle)
    ratio = shift / size
    first = jnp.where(small, (1 - ratio**2 / 3 + ratio**4 / 5) / size, safe_angle / safe_shift)
    gap = (safe_angle - jnp.sin(safe_angle) * jnp.cos(safe_angle)) / (2 * safe_shift**3)
    second = jnp.where(small, (1 / 3 - 2 * ratio**2 / 5 + 3 * ratio**4 / 7) / size**3, gap)
    return first - size / (12 * square**2), second - size / (6 * square**3)


def _ones(key: Array, z: Array) -> Array:
    """Four times variates of concentration 1 with tilt 2 z >= 0.

    Beyond SPLIT the proposal is exponential, below it the reciprocal of the square of a normal variable in its tails
    or, with a large tilt, inverse Gaussian. Random numbers are drawn in one call, which compiles once.
    """
    rate = np.pi**2 / 8 + z**2 / 2
    wide = z < 1 / SPLIT  # the mean of the inverse Gaussian is beyond SPLIT
    mean = 1 / jnp.where(wide, 1.0, z)
    log_left = jnp.where(wide, np.log(4 * TAIL), np.log(2) - z)
    prob_right = jax.nn.sigmoid(jnp.log(np.pi / 2 / rate) - rate * SPLIT - log_left)

    def propose(state: tuple[Array, Array]) -> tuple[Array, Array]:
        key, x = state
        key, key_now = jax.random.split(key)
        u = jax.random.uniform(key_now, (5, *z.shape), z.dtype, minval=jnp.finfo(z.dtype).tiny)
        right, log_first = u[0] < prob_right, jnp.log(u[1])
        levy = 1 / ndtri(TAIL * u[1]) ** 2
        half = -mean * log_first * jnp.cos(2 * np.pi * u[2]) ** 2
        # the smaller root of Michael, Schucany and Haas (1976), without cancellation
        smaller = mean / (1 + half + jnp.sqrt(half * (2 + half)))
        gaussian = jnp.where(u[3] <= mean / (mean + smaller), smaller, mean**2 / smaller)
        new = jnp.where(right, SPLIT - log_first / rate, jnp.where(wide, levy, gaussian))
        log_kept = jnp.where(wide, -(z**2) * new / 2, jnp.where(new < SPLIT, 0.0, -jnp.inf))
        kept = u[4] < _series(new) * jnp.exp(jnp.where(right, 0.0, log_kept))
        return key, jnp.where(jnp.isnan(x) & kept, new, x)

    return jax.lax.while_loop(lambda state: jnp.isnan(state[1]).any(), propose, (key, jnp.full_like(z, jnp.nan)))[1]


def _series(x: Array) -> Array:
    """The alternating series over its first term: the probability of keeping a proposal."""
    total = jnp.zeros_like(x)
    for n in range(NUM_TERMS):
        weight = n * (n + 1.0)  # (n + 1/2)^2 - 1/4
        log_ratio = -weight * jnp.where(x > SPLIT, np.pi**2 * x / 2, 2 / x)
        total += (-1) ** n * (2 * n + 1) * jnp.exp(log_ratio)
    return total

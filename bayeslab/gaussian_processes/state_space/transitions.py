"""The transition of the state of a quasiseparable kernel from one input to the next.

The noise of a step is never a difference of nearly equal covariances: inputs may be much closer than the length scale.
"""

from collections.abc import Callable
from functools import partial
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tinygp.kernels import quasisep

from bayeslab.gaussian_processes.state_space.kalman import StateTransition
from bayeslab.gaussian_processes.state_space.kernels import Stretched
from bayeslab.gaussian_processes.state_space.small_matrices import (
    Matrix,
    added_matrix,
    block_diagonal,
    full,
    kronecker,
    lower,
    multiply_entries,
    sandwich,
    scaled_matrix,
)

NUM_QUADRATURE_NODES = 5
"""The number of nodes of the Gauss-Legendre quadrature for the noise of a short step: exact to rounding."""
MAX_STEP_FOR_QUADRATURE = 0.25
"""The largest length of a step, times the norm of the scaled design matrix, whose noise is found by quadrature."""
NUM_SERIES_TERMS = 16
"""The number of terms of the series of the Gamma distribution function: exact to rounding."""


def state_transition(kernel: Any, steps: tuple[Array, Array]) -> StateTransition:
    """The transitions of the states from inputs (row,) to those that follow them; steps: the former and the latter."""
    before, after = steps
    return _TRANSITIONS.get(type(kernel), _general)(kernel, before, after)


def _exponential(kernel: quasisep.Exp, before: Array, after: Array) -> StateTransition:
    step = (after - before) / kernel.scale
    return StateTransition((kernel.sigma,), ((jnp.ones(()),),), ((jnp.exp(-step),),), ((-jnp.expm1(-2 * step),),))


def _matern32(kernel: quasisep.Matern32, before: Array, after: Array) -> StateTransition:
    """The transition of a state of the value and its derivative, in units of scale / sqrt(3)."""
    u = np.sqrt(3) * (after - before) / kernel.scale
    decay, unit = jnp.exp(-u), jnp.ones(())
    decay_u = decay * u
    matrix = ((decay + decay_u, decay_u), (-decay_u, decay - decay_u))
    variance = _gamma_cdf(3, 2 * u)
    noise = ((variance,), (2 * decay_u * decay_u, variance + 4 * decay_u * decay))
    return StateTransition((kernel.sigma, None), ((unit,), (None, unit)), matrix, noise)


def _matern52(kernel: quasisep.Matern52, before: Array, after: Array) -> StateTransition:
    """The transition of a state of the value and two derivatives, in units of scale / sqrt(5).

    The noise is 16 / 3 times the integral of the products of r = (s^2 / 2, s - s^2 / 2, 1 - 2 s + s^2 / 2) exp(-s).
    """
    u = np.sqrt(5) * (after - before) / kernel.scale
    decay, unit = jnp.exp(-u), jnp.ones(())
    square, stationary_derivative_variance = u * u / 2, jnp.full((), 1 / 3)
    response, other_response = square * decay, (u - square) * decay
    matrix = (
        ((1 + u + square) * decay, (u + u * u) * decay, response),
        (-response, (1 + u - 2 * square) * decay, other_response),
        ((square - u) * decay, (2 * square - 3 * u) * decay, (1 - 2 * u + square) * decay),
    )
    variance = _gamma_cdf(5, 2 * u)
    derivative_variance = variance / 3 + 16 / 9 * (1 - u / 4) * u**3 * decay**2
    curvature_variance = variance + 16 / 3 * u * (1 - u + u * u) * decay**2
    noise = (
        (variance,),
        (8 / 3 * response**2, derivative_variance),
        (16 / 3 * response * other_response - derivative_variance, 8 / 3 * other_response**2, curvature_variance),
    )
    start = ((unit,), (None, stationary_derivative_variance), (-stationary_derivative_variance, None, unit))
    return StateTransition((kernel.sigma, None, None), start, matrix, noise)


def _carma(kernel: quasisep.CARMA, before: Array, after: Array) -> StateTransition:
    """The transition of a state of the value of the autoregression and its derivatives, in units of the fastest root.

    tinygp's own state has no covariance where some of its parts count negatively.
    """
    roots, order = kernel.arroots, np.arange(len(kernel.arroots))
    unit = jnp.max(jnp.abs(roots))
    between = (roots[:, None] - roots) * (roots[:, None].conj() + roots)
    weights = -1 / (2 * roots.real * jnp.where(order[:, None] == order, 1.0, between).prod(0))
    powers = (roots / unit) ** order[:, None]
    inverse = jnp.linalg.inv(powers)
    start = ((powers * weights) @ (powers * (-1.0) ** order[:, None]).T).real
    beta = kernel.sigma * kernel.beta * unit ** order[: len(kernel.beta)]

    def moved(before: Array, after: Array) -> Array:
        return ((powers * jnp.exp(roots * (after - before))) @ inverse).real

    transition = _with_integrated_noise(((powers * roots) @ inverse).real, start, moved, before, after)
    return transition._replace(observed=(*beta, *(None,) * (len(roots) - len(beta))))


def _general(kernel: quasisep.Quasisep, before: Array, after: Array) -> StateTransition:
    """The transition of any kernel, in the state that tinygp gives it."""
    start, design = kernel.stationary_covariance(), kernel.design_matrix()

    def moved(before: Array, after: Array) -> Array:
        return kernel.transition_matrix(before, after).T

    observed = jax.vmap(kernel.observation_model)(before)
    return _with_integrated_noise(design, start, moved, before, after)._replace(observed=tuple(observed.T))


def _first_entry_observed(kernel: quasisep.SHO | quasisep.Cosine, before: Array, after: Array) -> StateTransition:
    """The transition of a kernel whose value is the first entry of its state, times sigma."""
    return _general(kernel, before, after)._replace(observed=(kernel.sigma, None))


def _with_integrated_noise(
    design: Array, start: Array, transition_matrix: Callable, before: Array, after: Array
) -> StateTransition:
    """The transition without its observation, from a function that gives transition matrices.

    The noise of a short step is the integral over the step of what is added at every moment, by Gauss-Legendre
    quadrature; that of a long step is a difference of covariances.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NUM_QUADRATURE_NODES)
    positions, weights = np.append(nodes, 1.0), np.append(weights, 0.0)
    length = after - before
    moments = before + (positions[:, None] + 1) / 2 * length
    within = _entries(jax.vmap(jax.vmap(transition_matrix), (None, 0))(before, moments))
    matrix = jax.tree.map(lambda entry: entry[-1], within)
    added_rate, stationary = lower(_entries(-(design @ start + start @ design.T))), lower(_entries(start))
    scale = jnp.sqrt(jnp.diagonal(start))
    is_short = jnp.linalg.norm(design * scale / scale[:, None]) * length < MAX_STEP_FOR_QUADRATURE

    def noise_entry(rate: Array, stationary: Array, kept: Array) -> Array:
        return jnp.where(is_short, (weights @ rate) / 2 * length, stationary - kept)

    noise = jax.tree.map(noise_entry, sandwich(within, added_rate), stationary, sandwich(matrix, stationary))
    return StateTransition((), stationary, matrix, noise)


def _sum(kernel: quasisep.Sum, before: Array, after: Array) -> StateTransition:
    left, right = state_transition(kernel.kernel1, (before, after)), state_transition(kernel.kernel2, (before, after))
    pairs = ((left.start, right.start), (left.noise, right.noise))
    start, noise = (lower(block_diagonal(full(first), full(second))) for first, second in pairs)
    return StateTransition((*left.observed, *right.observed), start, block_diagonal(left.matrix, right.matrix), noise)


def _product(kernel: quasisep.Product, before: Array, after: Array) -> StateTransition:
    left, right = state_transition(kernel.kernel1, (before, after)), state_transition(kernel.kernel2, (before, after))
    predicted_start = sandwich(right.matrix, right.start)
    noise = added_matrix(
        kronecker(full(left.start), full(right.noise)), kronecker(full(left.noise), full(predicted_start))
    )
    observed = tuple(multiply_entries(a, b) for a in left.observed for b in right.observed)
    start = lower(kronecker(full(left.start), full(right.start)))
    return StateTransition(observed, start, kronecker(left.matrix, right.matrix), lower(noise))


def _scale(kernel: quasisep.Scale, before: Array, after: Array) -> StateTransition:
    transition = state_transition(kernel.kernel, (before, after))
    start, noise = (scaled_matrix(matrix, kernel.scale) for matrix in (transition.start, transition.noise))
    return transition._replace(start=start, noise=noise)


def _stretched(kernel: Stretched, before: Array, after: Array) -> StateTransition:
    return state_transition(kernel.kernel, (kernel.factor * before, kernel.factor * after))


def _entries(matrices: Array) -> Matrix:
    """Matrices (..., row, column) as tuples of their entries, each of them (...)."""
    indices = range(matrices.shape[-1])
    return tuple(tuple(matrices[..., row, column] for column in indices) for row in indices)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gamma_cdf(count: int, v: Array) -> Array:
    """The distribution function of a Gamma(count, 1) variable at v, by its series where v is below 1."""
    low, series, sums = jnp.minimum(v, 1.0), jnp.ones_like(v), jnp.ones_like(v)
    for power in range(NUM_SERIES_TERMS, 0, -1):
        series = 1.0 + series * low / (count + power)
    for power in range(count - 1, 0, -1):
        sums = 1.0 + sums * v / power
    decay = jnp.exp(-v)
    return jnp.where(v < 1, decay * series * v**count / factorial(count), 1 - decay * sums)


@_gamma_cdf.defjvp
def _gamma_cdf_jvp(count: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (v,), (change,) = primals, tangents
    return _gamma_cdf(count, v), v ** (count - 1) * jnp.exp(-v) / factorial(count - 1) * change


_TRANSITIONS: dict[type, Callable[[Any, Array, Array], StateTransition]] = {
    quasisep.Exp: _exponential,
    quasisep.Matern32: _matern32,
    quasisep.Matern52: _matern52,
    quasisep.SHO: _first_entry_observed,
    quasisep.Cosine: _first_entry_observed,
    quasisep.CARMA: _carma,
    quasisep.Sum: _sum,
    quasisep.Product: _product,
    quasisep.Scale: _scale,
    Stretched: _stretched,
}
"""How the transition is found, by class of kernel; kernels of other classes take the matrices that tinygp gives."""

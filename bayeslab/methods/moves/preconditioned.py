"""NUTS around a Normal approximation of the posterior, for log joints that are concave: those of regressions.

Coordinates z have the mode of the posterior at zero and its curvature there as unit, so that no warm-up has to find
scales and correlations. A step solves the motion under a standard Normal exactly, a rotation of position and momentum,
and lets gradients correct it by what the posterior differs from that (Shahbaba, Lan, Johnson and Neal 2014, Statistics
and Computing 24, split Hamiltonian Monte Carlo): where it hardly differs, three steps make a trajectory. Warm-up
refines the coordinates by means and covariances of draws, shrunk towards unit ones (Chen, Wiesel, Eldar and Hero 2010,
IEEE Transactions on Signal Processing 58).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import welford_algorithm
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc import nuts
from blackjax.mcmc.hmc import HMCState
from blackjax.mcmc.integrators import IntegratorState
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import build_adaptation_schedule

from bayeslab.methods.moves.initial_positions import ascend
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, unconstrained_shapes
from bayeslab.sampling.protocols import Draws, Sampler

TURNED, NOT_BACK = 1.03 * np.pi, 1.85 * np.pi
"""Radians from which on a trajectory has turned, and those up to which it is seen to have."""
LONGEST_STEP = 1.1
"""Radians of a step, at most: three are a trajectory."""
FIRST_STEP = 0.5
"""Radians of the first step."""
MIN_NORMAL_SHARE = 0.8
"""Share of the squares of gradients at draws that those of a standard Normal explain, from which on steps rotate."""
MIN_GAIN_NATS = 0.5
"""Nats that the ascent must gain to go on; Newton's method goes the rest of the way."""
MAX_NEWTON_STEPS = 8
"""Steps of Newton's method, at most."""
NEWTON_DECREMENT = 0.1
"""Nats to the maximum, as the curvature has them, below which Newton's method ends."""
DRAWS_PER_INDEPENDENT_ONE = 4
"""Draws of a chain that tell as much about squares as one independent draw, about: a draw is often the last one again
with another sign."""
NUM_COLUMNS = 32
"""Columns of the Hessian that are computed together."""


class PreconditionedState(NamedTuple):
    """The state of a chain.

    chain: of NUTS, in coordinates z. centre (d,), factor (d, d): flat unconstrained coordinates are centre + factor z.
    step_size: of dual averaging. moments: mean and covariance of z in the present window of warm-up. products: sums of
    z'z, z'g and g'g in it, with g the gradient. rotates: whether steps rotate. num_draws: that were made.
    """

    key: Array
    chain: HMCState
    centre: Array
    factor: Array
    step_size: Any
    moments: Any
    products: Array
    rotates: Array
    num_draws: Array


@dataclass(frozen=True)
class PreconditionedSampler(Sampler):
    """NUTS in coordinates in which the posterior is about a standard Normal. structure: of the Bound."""

    structure: Any
    num_warmup: int
    target_accept_prob: float
    max_tree_depth: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> PreconditionedState:
        """From a likely position, and not from the mode: R-hat needs chains that start apart."""
        key, start_key = jax.random.split(key)
        density = partial(flat_log_posterior, bound)
        shapes = dict(unconstrained_shapes(bound))
        likely, top = ascend(start_key, shapes, lambda p: density(ravel_pytree(p)[0]), MIN_GAIN_NATS)
        first, _ = ravel_pytree(likely)
        mode, factor = newton(density, ravel_pytree(top)[0])
        z = jnp.linalg.solve(factor, first - mode)
        chain = nuts.init(z, lambda z: density(mode + factor @ z))
        moments = welford_algorithm(is_diagonal_matrix=False)[0](z.size)
        none = jnp.zeros((), int)
        step_size, products = self._averaging[0](FIRST_STEP), jnp.zeros(3, z.dtype)
        return PreconditionedState(key, chain, mode, factor, step_size, moments, products, jnp.array(True), none)

    def advance(self, state: PreconditionedState, bound: Bound) -> tuple[PreconditionedState, Draws]:
        key, draw_key = jax.random.split(state.key)

        def density(z: Array) -> Array:
            return flat_log_posterior(bound, state.centre + state.factor @ z)

        adapts = state.num_draws < self.num_warmup
        log_step = jnp.where(adapts, state.step_size.log_step_size, state.step_size.log_step_size_avg)
        step_size = turning_step(jnp.minimum(jnp.exp(log_step), LONGEST_STEP), state.rotates, self.max_tree_depth)
        integrator = partial(split_step, state.rotates)
        unit = jnp.ones_like(state.centre)
        kernel = nuts.build_kernel(integrator)
        chain, info = kernel(draw_key, state.chain, density, step_size, unit, self.max_tree_depth)
        draws = Draws(
            constrain_flat(bound, state.centre + state.factor @ chain.position),
            {
                "diverging": info.is_divergent,
                "acceptance_rate": info.acceptance_rate,
                "n_steps": info.num_integration_steps,
                "energy": info.energy,
                "lp": chain.logdensity,
                "tree_depth": info.num_trajectory_expansions,
                "step_size": step_size,
                "reached_max_tree_depth": info.num_integration_steps >= 2**self.max_tree_depth - 1,
            },
        )
        state = state._replace(key=key, chain=chain, num_draws=state.num_draws + 1)
        adapt = partial(self._adapted, acceptance=info.acceptance_rate)
        return jax.lax.cond(adapts, adapt, lambda state: state, state), draws

    def _adapted(self, state: PreconditionedState, acceptance: Array) -> PreconditionedState:
        """The state after a draw of warm-up, whose acceptance tells about the step size."""
        state = state._replace(step_size=self._averaging[1](state.step_size, acceptance))
        windows = build_adaptation_schedule(self.num_warmup)[1:-1]
        if not windows:
            return state
        ends = np.array([window.end + 1 for window in windows])
        begun = (state.num_draws > windows[0].start) & (state.num_draws <= windows[-1].end + 1)
        state = jax.lax.cond(begun, self._counted, lambda state: state, state)
        return jax.lax.cond(jnp.isin(state.num_draws, ends), self._refined, lambda state: state, state)

    def _counted(self, state: PreconditionedState) -> PreconditionedState:
        """The state with its position among those of the window."""
        z, slope = state.chain.position, state.chain.logdensity_grad
        moments = welford_algorithm(is_diagonal_matrix=False)[1](state.moments, z)
        return state._replace(moments=moments, products=state.products + jnp.stack([z @ z, z @ slope, slope @ slope]))

    def _refined(self, state: PreconditionedState) -> PreconditionedState:
        """The same position in coordinates with the mean and the covariance of the window that ends."""
        start, _, summarise = welford_algorithm(is_diagonal_matrix=False)
        covariance, num_draws, mean = summarise(state.moments)
        count = num_draws / DRAWS_PER_INDEPENDENT_ONE
        mean, root = shrunk_mean(mean, count), jnp.linalg.cholesky(shrunk_covariance(covariance, count))
        chain = HMCState(
            jax.scipy.linalg.solve_triangular(root, state.chain.position - mean, lower=True),
            state.chain.logdensity,
            root.T @ state.chain.logdensity_grad,
        )
        positions, both, slopes = state.products
        return state._replace(
            chain=chain,
            centre=state.centre + state.factor @ mean,
            factor=state.factor @ root,
            step_size=self._averaging[0](jnp.minimum(jnp.exp(state.step_size.log_step_size_avg), LONGEST_STEP)),
            moments=start(mean.size),
            products=jnp.zeros_like(state.products),
            rotates=both**2 >= MIN_NORMAL_SHARE * positions * slopes,
        )

    @property
    def _averaging(self) -> tuple[Callable[..., Any], ...]:
        return dual_averaging_adaptation(self.target_accept_prob)


def turning_step(size: Array, rotates: Array, max_tree_depth: int) -> Array:
    """A step size, shorter where 3, 7, 15, ... rotations of that size first fall short of half a turn and then go once
    around: such a trajectory seems never to turn."""
    num_steps = 2.0 ** np.arange(2, max(max_tree_depth, 2) + 1) - 1
    first = jnp.where(num_steps * size > TURNED, num_steps, num_steps[-1]).min()
    return jnp.where(rotates, jnp.minimum(size, NOT_BACK / first), size).astype(size.dtype)


def split_step(
    rotates: Array, log_density: Callable[[Array], Array], _: Any
) -> Callable[[IntegratorState, Array], IntegratorState]:
    """An integrator of BlackJAX: kicks by the gradient of log p(z) + z'z / 2, and between them the motion under
    -z'z / 2 alone; leapfrog steps, without these terms, where it does not rotate. Both keep volumes, and a step back
    undoes a step."""
    value_and_slope = jax.value_and_grad(log_density)

    def step(state: IntegratorState, size: Array) -> IntegratorState:
        share = jnp.where(rotates, 1.0, 0.0)
        cosine, sine = jnp.where(rotates, jnp.cos(size), 1.0), jnp.where(rotates, jnp.sin(size), size)
        kicked = state.momentum + 0.5 * size * (state.logdensity_grad + share * state.position)
        position = cosine * state.position + sine * kicked
        momentum = cosine * kicked - share * sine * state.position
        value, slope = value_and_slope(position)
        return IntegratorState(position, momentum + 0.5 * size * (slope + share * position), value, slope)

    return step


def newton(density: Callable[[Array], Array], flat: Array) -> tuple[Array, Array]:
    """The maximum of a log density near flat coordinates (d,), and a factor (d, d) of the inverse of the curvature."""
    slope = jax.grad(density)

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        flat, _, _, count = state
        columns = jax.lax.map(
            lambda direction: jax.jvp(slope, (flat,), (direction,))[1], jnp.eye(flat.size), batch_size=NUM_COLUMNS
        )
        factor = inverse_root(-columns)
        ascent = factor.T @ slope(flat)
        moved = flat + factor @ ascent
        improves = density(moved) > density(flat)
        left = jnp.where(improves, 0.5 * ascent @ ascent, 0.0)
        return jnp.where(improves, moved, flat), factor, left, count + 1

    begin = (flat, jnp.eye(flat.size, dtype=flat.dtype), jnp.asarray(jnp.inf, flat.dtype), jnp.zeros((), int))
    mode, factor, *_ = jax.lax.while_loop(
        lambda state: (state[2] > NEWTON_DECREMENT) & (state[3] < MAX_NEWTON_STEPS), step, begin
    )
    return mode, factor


def inverse_root(precision: Array) -> Array:
    """A factor F with F F' the inverse of a precision matrix, its eigenvalues made positive; the identity where it is
    not finite. A coordinate without curvature, as of a density that is linear in it there, keeps its unit."""
    precision = precision + jnp.diag(jnp.where(jnp.diag(precision) == 0, 1.0, 0.0))
    scale = jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(precision)), jnp.finfo(precision.dtype).tiny))
    values, vectors = jnp.linalg.eigh(precision / scale / scale[:, None])
    values = jnp.abs(values)
    smallest = jnp.finfo(values.dtype).eps ** 0.75 * values.max()  # where rounding begins
    root = vectors / scale[:, None] / jnp.sqrt(jnp.maximum(values, smallest))
    return jnp.where(jnp.isfinite(root).all(), root, jnp.eye(len(root)))


def shrunk_mean(mean: Array, count: Array) -> Array:
    """A mean (d,) of so many draws with about unit covariance, shrunk towards zero as James and Stein have it."""
    return mean * jnp.maximum(0.0, 1 - (mean.size - 2) / jnp.maximum(count * mean @ mean, 1e-30))


def shrunk_covariance(covariance: Array, count: Array) -> Array:
    """A covariance (d, d) of so many Normal draws, shrunk towards the unit one: all the way where it is no further from
    that than the covariance of so many standard Normal draws is in expectation."""
    size = len(covariance)
    unit = jnp.eye(size)
    share = jnp.clip(size * (size + 1) / (count * jnp.sum((covariance - unit) ** 2)), 0.0, 1.0)
    return (1 - share) * covariance + share * unit

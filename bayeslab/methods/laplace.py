"""The posterior mode, and the Normal approximation around it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from bayeslab.methods.moves.initial_positions import RADIUS_GROWTH
from bayeslab.methods.setting_checks import require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.methods.wrappers.compressed import row_replacement
from bayeslab.methods.wrappers.explanation import ExplanationSampler
from bayeslab.methods.wrappers.information import gauss_newton_precision, require_information
from bayeslab.methods.wrappers.multistart import best_of_starts
from bayeslab.programs import unconstrained
from bayeslab.programs.missing.masked_latents import with_masks
from bayeslab.programs.program import Bound, compilation_signature
from bayeslab.programs.unconstrained import constrain_flat, flat_log_joint, flat_log_posterior
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import modes_of_eliminated
from bayeslab.transforms.whole_field import rule_of_all_elements
from bayeslab.verification.optimum import check_maximum, gradient_tolerance

EVALUATIONS_PER_LBFGS_RUN = 200
"""The usual number of evaluations of the log joint until L-BFGS has converged, roughly."""
MAX_STARTS_TRIED = 100
"""Random points, at most, that are tried until one is possible."""


@dataclass(frozen=True)
class MAP(Method):
    """The maximum of p(latent | observed) as a density of the sites as they are written, by L-BFGS.

    The mode depends on the parametrisation: that of a precision is not the inverse of that of a variance.
    The result has one chain with one draw; `tree.attrs["converged"]` says whether that is a maximum, be it a kink, and
    `attrs["why_not_converged"]` why not: the steps were too few, the density jumps, or it does not fall along some
    direction however far one goes (a flat prior and separable data), so that there is none.
    Discrete sites are summed over, and so are those of `collapse`, such as ("w",); at the maximum of the others they
    have their most probable values given these. Where all sites are discrete the result is the most probable
    explanation of the data, exact, and `attrs["log_probability"]` says how probable it is.
    num_starts: random starts, run together; the best is the result, group `history` has all.
    """

    num_steps: int = 1000
    num_starts: int = 1
    collapse: tuple[str, ...] = ()

    num_samples = 1
    num_chains = 1
    thinning = 1
    learns = moves_coordinates = finds_maximum = True

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        bound = analysis.bound
        if not self.collapse and bound.latent and all(bound.sites[name].is_discrete for name in bound.latent):
            return ExplanationSampler(rule_of_all_elements(bound))
        marginal_bound = without_discrete_sites(analysis, self)
        summary = row_replacement(marginal_bound, analysis, EVALUATIONS_PER_LBFGS_RUN * self.num_starts)
        sampler = best_of_starts(PointSampler(summary.structure(marginal_bound)), self.num_starts, "log_joint")
        return collapsed_sampler(summary.around(sampler), marginal_bound, analysis.bound, modes_of_eliminated)


@dataclass(frozen=True)
class Laplace(Method):
    """A Normal in the unconstrained space: mean at the mode there, precision the negative Hessian at it.

    Its mode is that of the unconstrained density, Jacobian included, so it is not where `MAP` is.
    Raises ValueError where there is no such mode, or where it is a kink, which has no curvature.
    Discrete sites are summed over, and so are those of `collapse`, such as ("w",); they are drawn given each draw of
    the others.
    gauss_newton: take the Fisher information of the observations about the sites, J' F J with F that of the parameters
    of their distributions and J the Jacobian of these, in place of minus the Hessian of the log likelihood (Martens
    2020, Journal of Machine Learning Research 21:146). It leaves out what the residuals say of how parameters bend, is
    never indefinite, as the Hessian of a neural network may be, and is the same in a linear model.
    """

    num_steps: int = 1000
    num_samples: int = 1000
    collapse: tuple[str, ...] = ()
    gauss_newton: bool = False

    num_chains = 1
    thinning = 1
    moves_coordinates = finds_maximum = True

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_samples")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        marginal_bound = without_discrete_sites(analysis, self)
        if self.gauss_newton:
            require_information(marginal_bound)
            return LaplaceSampler(compilation_signature(marginal_bound), gauss_newton=True)
        summary = row_replacement(marginal_bound, analysis, EVALUATIONS_PER_LBFGS_RUN + self.num_samples)
        return collapsed_sampler(
            summary.around(LaplaceSampler(summary.structure(marginal_bound))), marginal_bound, analysis.bound
        )


def _log_joint(bound: Bound, flat: Array) -> Array:
    """The log joint whose mode is found: what masks hide has no part in it, so padding moves no mode."""
    return flat_log_joint(with_masks(bound), flat)


def _log_posterior(bound: Bound, flat: Array) -> Array:
    """The same in unconstrained coordinates."""
    return flat_log_posterior(with_masks(bound), flat)


class LBFGSState(NamedTuple):
    """The state of L-BFGS.

    position: flat unconstrained coordinates. best: the position of the highest density so far. loss: minus the log
    density there.
    """

    position: Array
    optimizer: Any
    converged: Array
    key: Array
    best: Array
    loss: Array


@dataclass(frozen=True)
class PointSampler(Sampler):
    """The sampler of MAP. structure: of the Bound, because the optimiser is compiled for it."""

    structure: Any

    def start(self, key: Array, bound: Bound) -> LBFGSState:
        return _random_start(key, bound, _log_joint)

    def adapt(self, state: LBFGSState, bound: Bound) -> tuple[LBFGSState, Draws]:
        return lbfgs_step(lambda flat: _log_joint(bound, flat), state)

    def convergence_verdict(self, state: LBFGSState, bound: Bound, _: Any) -> tuple[LBFGSState | None, str]:
        optimum = check_maximum(_log_joint, bound, state.best)
        if optimum.kink is None:
            return None, optimum.why
        return state._replace(best=jnp.asarray(optimum.kink, state.best.dtype), converged=jnp.array(True)), optimum.why

    def advance(self, state: LBFGSState, bound: Bound) -> tuple[LBFGSState, Draws]:
        return state, Draws(constrain_flat(bound, state.best), {"lp": _log_joint(bound, state.best)})


class LaplaceState(NamedTuple):
    """A Normal around a mode.

    climb: the state of the optimiser that finds the mode. factor: the Cholesky factor of the precision, zeros until it
    is computed. known: whether it is.
    """

    climb: LBFGSState
    factor: Array
    known: Array


@dataclass(frozen=True)
class LaplaceSampler(Sampler):
    """The sampler of Laplace.

    structure: of the Bound, because the optimiser is compiled for it. gauss_newton: see `Laplace`.
    """

    structure: Any
    gauss_newton: bool = False

    def start(self, key: Array, bound: Bound) -> LaplaceState:
        climb = _random_start(key, bound, _log_posterior)
        size = climb.best.size
        return LaplaceState(climb, jnp.zeros((size, size)), jnp.array(False))

    def adapt(self, state: LaplaceState, bound: Bound) -> tuple[LaplaceState, Draws]:
        climb, draws = lbfgs_step(lambda flat: _log_posterior(bound, flat), state.climb)
        return state._replace(climb=climb, known=jnp.array(False)), draws

    def convergence_verdict(self, state: LaplaceState, bound: Bound, _: Any) -> tuple[None, str]:
        """Raises ValueError where the posterior has no peak that a Normal could be put around."""
        optimum = check_maximum(_log_posterior, bound, state.climb.best)
        if optimum.kink is not None:
            raise ValueError(
                "the log joint has a kink at its maximum (a hinge or an absolute value), and no curvature there, so it "
                "has no Laplace approximation; use NUTS(), or smooth it"
            )
        if optimum.lasting and not self.gauss_newton:  # which has a Normal for every point
            raise ValueError(f"no Laplace approximation: {optimum.why}")
        if state.known and np.isfinite(state.climb.loss) and not _is_positive_definite(np.asarray(state.factor)):
            raise ValueError(
                "no Laplace approximation: where the ascent ended the log joint is flat, or rises, along a curve "
                "(factors that may be rotated, a saddle), so minus its Hessian is not positive definite; use NUTS()"
            )
        return None, optimum.why

    def advance(self, state: LaplaceState, bound: Bound) -> tuple[LaplaceState, Draws]:
        state = jax.lax.cond(state.known, lambda s: s, partial(self._newton_step_and_factor, bound=bound), state)
        key, noise_key = jax.random.split(state.climb.key)
        flat, log_q = normal_draw(noise_key, state.climb.best, state.factor)
        samples = constrain_flat(bound, flat)
        stats = {"lp": _log_posterior(bound, flat), "log_q": log_q}
        return state._replace(climb=state.climb._replace(key=key)), Draws(samples, stats)

    def _newton_step_and_factor(self, state: LaplaceState, bound: Bound) -> LaplaceState:
        """The state with the curvature at the mode, after a last Newton step."""

        def density(flat: Array) -> Array:
            return _log_posterior(bound, flat)

        def precision(flat: Array) -> Array:
            return gauss_newton_precision(bound, flat) if self.gauss_newton else -jax.hessian(density)(flat)

        mode = state.climb.best
        step = jax.scipy.linalg.solve(precision(mode), jax.grad(density)(mode), assume_a="pos")
        improves = density(mode + step) >= density(mode)
        climb = state.climb._replace(best=jnp.where(improves, mode + step, mode))
        return LaplaceState(climb, jnp.linalg.cholesky(precision(climb.best)), jnp.array(True))


def normal_draw(key: Array, mean: Array, factor: Array) -> tuple[Array, Array]:
    """A draw (d,) of a Normal, and its log density there. factor: the lower Cholesky factor of the precision (d, d)."""
    noise = jax.random.normal(key, mean.shape)
    log_q = -0.5 * noise @ noise + jnp.log(jnp.diag(factor)).sum() - 0.5 * noise.size * jnp.log(2 * jnp.pi)
    return mean + jax.scipy.linalg.solve_triangular(factor.T, noise), log_q


def _is_positive_definite(factor: np.ndarray) -> bool:
    """Whether the precision of a Cholesky factor, with ones on its diagonal, has no eigenvalue that is rounding."""
    if not np.isfinite(factor).all():
        return False
    rows = factor / np.linalg.norm(factor, axis=1, keepdims=True)
    return bool(np.linalg.svd(rows, compute_uv=False)[-1] ** 2 > np.finfo(factor.dtype).eps ** (2 / 3))


def _random_start(key: Array, bound: Bound, log_density: Callable[[Bound, Array], Array]) -> LBFGSState:
    """The state of L-BFGS at a random point: the first that is possible, in ever wider boxes, or the last one tried."""
    key, start_key = jax.random.split(key)

    def drawn(key: Array, radius: Array | float) -> Array:
        return ravel_pytree(unconstrained.random_position(key, bound, radius))[0]

    def is_impossible(tried: tuple[Array, Array]) -> Array:
        return ~jnp.isfinite(log_density(bound, tried[0])) & (tried[1] < MAX_STARTS_TRIED)

    def try_another(tried: tuple[Array, Array]) -> tuple[Array, Array]:
        number = tried[1] + 1
        return drawn(jax.random.fold_in(start_key, number), 1.0 + RADIUS_GROWTH * number), number

    flat, _ = jax.lax.while_loop(is_impossible, try_another, (drawn(start_key, 1.0), jnp.array(0)))
    return lbfgs_start(key, flat)


def lbfgs_start(key: Array, flat: Array) -> LBFGSState:
    """The state of L-BFGS at flat coordinates."""
    return LBFGSState(flat, optax.lbfgs().init(flat), jnp.array(False), key, flat, jnp.array(jnp.inf, flat.dtype))


def lbfgs_step(density: Any, state: LBFGSState) -> tuple[LBFGSState, Draws]:
    """The state after one step of L-BFGS with a line search; the same once gradient or density are zero to rounding."""
    optimizer, impossible = optax.lbfgs(), 1e300 if state.position.dtype == jnp.float64 else 1e30

    def loss(flat: Array) -> Array:
        value = -density(flat)
        return jnp.where(jnp.isfinite(value), value, impossible)

    def step(state: LBFGSState) -> tuple[LBFGSState, Array]:
        value, gradient = optax.value_and_grad_from_state(loss)(state.position, state=state.optimizer)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer, state.position, value=value, grad=gradient, value_fn=loss
        )
        position = optax.apply_updates(state.position, updates)
        is_stationary = jnp.max(jnp.abs(gradient)) <= gradient_tolerance(value)
        new_loss = optax.tree_utils.tree_get(optimizer_state, "value")
        improves = new_loss < state.loss
        best, lowest = jnp.where(improves, position, state.best), jnp.where(improves, new_loss, state.loss)
        # where the gradient vanishes a further step is rounding, and may end where it does not
        rounding = 8 * jnp.finfo(value.dtype).eps * jnp.maximum(1.0, jnp.abs(value))
        stays = is_stationary & (value <= state.loss + rounding)
        best, lowest = jnp.where(stays, state.position, best), jnp.where(stays, value, lowest)
        stops = is_stationary | (value >= impossible)
        return LBFGSState(position, optimizer_state, stops, state.key, best, lowest), -value

    optimizer_state, value = jax.lax.cond(state.converged, lambda s: (s, jnp.nan), step, state)
    return optimizer_state, Draws({}, {}, {"log_joint": value, "converged": optimizer_state.converged})

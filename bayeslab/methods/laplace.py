"""The posterior mode, and the Normal approximation around it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from bayeslab.methods.setting_checks import require_names, require_positive
from bayeslab.methods.wrappers.collapsed import continuous, recovering
from bayeslab.methods.wrappers.compressed import summary_of
from bayeslab.methods.wrappers.multistart import best_of
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import flat_log_posterior
from bayeslab.sampling.protocols import Draws, Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import most_probable
from bayeslab.verification.optimum import tolerance, verdict

EVALUATIONS = 200
"""Of the log joint until L-BFGS has converged, roughly."""


@dataclass(frozen=True)
class MAP:
    """The maximum of p(latent | observed) as a density of the sites as they are written, by L-BFGS.

    The mode depends on the parametrisation: that of a precision is not the inverse of that of a variance.
    The result has one chain with one draw; `tree.attrs["converged"]` says whether that is a maximum, be it a kink, and
    `attrs["why_not_converged"]` why not: the steps were too few, the density jumps, or it does not fall along some
    direction however far one goes (a flat prior and separable data), so that there is none.
    Discrete sites are summed over, and so are those of `collapse`, such as ("w",); at the maximum of the others they
    have their most probable values given these.
    num_starts: random starts, run together; the best is the result, group `history` has all.
    """

    num_steps: int = 1000
    num_starts: int = 1
    collapse: tuple[str, ...] = ()

    num_samples = 1
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        left = continuous(analysis, self)
        summary = summary_of(left, analysis, EVALUATIONS * self.num_starts)
        sampler = best_of(PointSampler(summary.structure(left)), self.num_starts, "log_joint")
        return recovering(summary.around(sampler), left, analysis.bound, most_probable)


@dataclass(frozen=True)
class Laplace:
    """A Normal in the unconstrained space: mean at the mode there, precision the negative Hessian at it.

    Its mode is that of the unconstrained density, Jacobian included, so it is not where `MAP` is.
    Raises ValueError where there is no such mode, or where it is a kink, which has no curvature.
    Discrete sites are summed over, and so are those of `collapse`, such as ("w",); they are drawn given each draw of
    the others.
    """

    num_steps: int = 1000
    num_samples: int = 1000
    collapse: tuple[str, ...] = ()

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_samples")
        require_names(self, "collapse")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        left = continuous(analysis, self)
        summary = summary_of(left, analysis, EVALUATIONS + self.num_samples)
        return recovering(summary.around(LaplaceSampler(summary.structure(left))), left, analysis.bound)


class Climb(NamedTuple):
    """The state of an ascent. position: flat. best: the highest so far. loss: minus the log density there."""

    position: Array
    optimizer: Any
    converged: Array
    key: Array
    best: Array
    loss: Array


@dataclass(frozen=True)
class PointSampler(Sampler):
    """structure: of the Bound, because the optimiser is compiled for it."""

    structure: Any

    def start(self, key: Array, bound: Bound) -> Climb:
        return _start(key, bound)

    def adapt(self, state: Climb, bound: Bound) -> tuple[Climb, Draws]:
        return _ascend(lambda flat: _log_joint(bound, flat), state)

    def ended(self, state: Climb, bound: Bound, _: Any) -> tuple[Climb | None, str]:
        found = verdict(_log_joint, bound, state.best)
        if found.kink is None:
            return None, found.why
        return state._replace(best=jnp.asarray(found.kink, state.best.dtype), converged=jnp.array(True)), found.why

    def advance(self, state: Climb, bound: Bound) -> tuple[Climb, Draws]:
        position = unconstrained.unravel(bound)(state.best)
        return state, Draws(unconstrained.constrained(bound, position), {"lp": _log_joint(bound, state.best)})


class Fitted(NamedTuple):
    """A Normal around a mode: factor is the Cholesky factor of the precision, zeros until it is known."""

    climb: Climb
    factor: Array
    known: Array


@dataclass(frozen=True)
class LaplaceSampler(Sampler):
    structure: Any

    def start(self, key: Array, bound: Bound) -> Fitted:
        climb = _start(key, bound)
        size = climb.best.size
        return Fitted(climb, jnp.zeros((size, size)), jnp.array(False))

    def adapt(self, state: Fitted, bound: Bound) -> tuple[Fitted, Draws]:
        climb, draws = _ascend(lambda flat: flat_log_posterior(bound, flat), state.climb)
        return state._replace(climb=climb, known=jnp.array(False)), draws

    def ended(self, state: Fitted, bound: Bound, _: Any) -> tuple[None, str]:
        """Raises ValueError where the posterior has no peak that a Normal could be put around."""
        found = verdict(flat_log_posterior, bound, state.climb.best)
        if found.kink is not None:
            raise ValueError(
                "the log joint has a kink at its maximum (a hinge or an absolute value), and no curvature there, so it "
                "has no Laplace approximation; use NUTS(), or smooth it"
            )
        if found.lasting:
            raise ValueError(f"no Laplace approximation: {found.why}")
        return None, found.why

    def advance(self, state: Fitted, bound: Bound) -> tuple[Fitted, Draws]:
        state = jax.lax.cond(state.known, lambda s: s, lambda s: _curve(s, bound), state)
        key, now = jax.random.split(state.climb.key)
        noise = jax.random.normal(now, state.climb.best.shape)
        flat = state.climb.best + jax.scipy.linalg.solve_triangular(state.factor.T, noise)
        log_q = -0.5 * noise @ noise + jnp.log(jnp.diag(state.factor)).sum()
        log_q -= 0.5 * noise.size * jnp.log(2 * jnp.pi)
        samples = unconstrained.constrained(bound, unconstrained.unravel(bound)(flat))
        stats = {"lp": flat_log_posterior(bound, flat), "log_q": log_q}
        return state._replace(climb=state.climb._replace(key=key)), Draws(samples, stats)


def _curve(state: Fitted, bound: Bound) -> Fitted:
    """The curvature at the mode, after a last step of Newton's."""

    def density(flat: Array) -> Array:
        return flat_log_posterior(bound, flat)

    at = state.climb.best
    step = jax.scipy.linalg.solve(-jax.hessian(density)(at), jax.grad(density)(at), assume_a="pos")
    better = density(at + step) >= density(at)
    climb = state.climb._replace(best=jnp.where(better, at + step, at))
    factor = jnp.linalg.cholesky(-jax.hessian(density)(climb.best))
    return Fitted(climb, factor, jnp.array(True))


def _start(key: Array, bound: Bound) -> Climb:
    key, now = jax.random.split(key)
    flat, _ = ravel_pytree(unconstrained.start(now, bound))
    return Climb(flat, optax.lbfgs().init(flat), jnp.array(False), key, flat, jnp.array(jnp.inf, flat.dtype))


def _ascend(density: Any, state: Climb) -> tuple[Climb, Draws]:
    """One step of L-BFGS with a line search; none once the gradient is zero to rounding, or the density."""
    optimizer, impossible = optax.lbfgs(), 1e300 if state.position.dtype == jnp.float64 else 1e30

    def loss(flat: Array) -> Array:
        value = -density(flat)
        return jnp.where(jnp.isfinite(value), value, impossible)

    def step(state: Climb) -> tuple[Climb, Array]:
        value, gradient = optax.value_and_grad_from_state(loss)(state.position, state=state.optimizer)
        updates, new = optimizer.update(
            gradient, state.optimizer, state.position, value=value, grad=gradient, value_fn=loss
        )
        position = optax.apply_updates(state.position, updates)
        stops = (jnp.max(jnp.abs(gradient)) <= tolerance(value)) | (value >= impossible)
        reached = optax.tree_utils.tree_get(new, "value")
        better = reached < state.loss
        best, lowest = jnp.where(better, position, state.best), jnp.where(better, reached, state.loss)
        return Climb(position, new, stops, state.key, best, lowest), -value

    new, value = jax.lax.cond(state.converged, lambda s: (s, jnp.nan), step, state)
    return new, Draws({}, {}, {"log_joint": value, "converged": new.converged})


def _log_joint(bound: Bound, flat: Array) -> Array:
    """log p(latent, observed) in the space that the sites are written in: without Jacobians."""
    values: Values = unconstrained.constrained(bound, unconstrained.unravel(bound)(flat))
    return bound.log_joint({name: values[name] for name in bound.latent})

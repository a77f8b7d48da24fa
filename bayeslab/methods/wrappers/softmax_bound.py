"""Mean field of softmax regressions: one Normal, under a quadratic bound of the likelihood.

Whatever the probabilities of the classes, minus the Hessian of log softmax in its logits is at most half of the matrix
that centres them. So where logits are linear in Normal coefficients the log joint is at least a quadratic that touches
it at any point, and minus the Hessian B of that is the same everywhere. Among the Normals that bound is largest for the
one with mean at the mode m of the posterior and precision B; it is log p(m, y) + d / 2 log(2 pi) - log det(B) / 2.

D. Boehning (1992), Multinomial logistic regression algorithm, Annals of the Institute of Statistical Mathematics 44,
197-200.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import block

from bayeslab.distributions.fisher_information import curvature_bound_coordinates
from bayeslab.methods.laplace import LBFGSState, lbfgs_start, lbfgs_step, normal_draw
from bayeslab.methods.moves.concavity import num_coordinates
from bayeslab.methods.wrappers.information import observed_sites, scaled_coordinates
from bayeslab.programs.program import Bound, compilation_signature, evaluate
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, log_posterior, unravel
from bayeslab.sampling.protocols import Draws, Sampler
from bayeslab.verification.optimum import check_maximum
from bayeslab.verification.points.likely_points import in_double_precision

NUM_COLUMNS = 32
"""Columns of the precision that are computed together."""
LINES_PER_SCALE = 4
"""Lines along which it is seen that logits are linear and all else is quadratic, at every scale."""
SCALES = (0.1, 1.0, 10.0)
"""Lengths of the steps along a line, per coordinate."""
LINE_TOLERANCE = 1e-8
"""What a line may show of a bend of logits, or of a third difference of the rest, relative to what changes on it."""


class SoftmaxBoundState(NamedTuple):
    """A Normal. climb: the state of the optimiser that finds its mean. factor: the Cholesky factor of its precision."""

    climb: LBFGSState
    factor: Array


@dataclass(frozen=True)
class SoftmaxBoundSampler(Sampler):
    """The sampler of MeanField for softmax regressions. structure: of the Bound, for which it is compiled."""

    structure: Any

    def start(self, key: Array, bound: Bound) -> SoftmaxBoundState:
        factor = jnp.linalg.cholesky(_bounding_precision(bound))
        return SoftmaxBoundState(lbfgs_start(key, jnp.zeros(len(factor))), factor)

    def adapt(self, state: SoftmaxBoundState, bound: Bound) -> tuple[SoftmaxBoundState, Draws]:
        climb, _ = lbfgs_step(lambda flat: flat_log_posterior(bound, flat), state.climb)
        new = state._replace(climb=climb)
        elbo = jnp.where(state.climb.converged, jnp.nan, _evidence_bound(new))
        return new, Draws({}, {}, {"elbo": elbo, "converged": climb.converged})

    def convergence_verdict(self, state: SoftmaxBoundState, bound: Bound, _: Any) -> tuple[None, str]:
        return None, check_maximum(flat_log_posterior, bound, state.climb.best).why

    def advance(self, state: SoftmaxBoundState, bound: Bound) -> tuple[SoftmaxBoundState, Draws]:
        key, draw_key = jax.random.split(state.climb.key)
        flat, log_q = normal_draw(draw_key, state.climb.best, state.factor)
        stats = {"lp": flat_log_posterior(bound, flat), "log_q": log_q, "evidence_bound": _evidence_bound(state)}
        return state._replace(climb=state.climb._replace(key=key)), Draws(constrain_flat(bound, flat), stats)


def softmax_bound_sampler(bound: Bound) -> SoftmaxBoundSampler | None:
    """The sampler for a program whose log joint is that of Categorical observations with logits linear in the latent
    sites, in unconstrained coordinates, and else quadratic; None for other programs."""
    if bound.transform is not None or bound.moving or bound.learned or not bound.latent:
        return None
    if any(bound.sites[name].is_discrete for name in bound.latent):
        return None
    if not jax.eval_shape(_logit_coordinates, bound, jnp.zeros(num_coordinates(bound))).size:
        return None
    with jax.enable_x64(True):
        bends = evaluate_all([_bends_along_lines], in_double_precision(bound))[0]
    return SoftmaxBoundSampler(compilation_signature(bound)) if np.max(bends) <= LINE_TOLERANCE else None


def _evidence_bound(state: SoftmaxBoundState) -> Array:
    """The evidence lower bound of the Normal around the best point so far."""
    half_dimensions = 0.5 * len(state.factor)
    return half_dimensions * jnp.log(2 * jnp.pi) - state.climb.loss - jnp.log(jnp.diag(state.factor)).sum()


def _is_softmax(site: dict[str, Any]) -> bool:
    is_observed = site["type"] == "sample" and site["is_observed"]
    return is_observed and curvature_bound_coordinates(site["fn"]) is not None


def _without_softmax(bound: Bound) -> Any:
    with block(hide_fn=_is_softmax):
        return evaluate(bound)


def _remaining_log_density(bound: Bound, flat: Array) -> Array:
    """The log joint without its Categorical observations."""
    return log_posterior(bound, unravel(bound)(flat), _without_softmax)


def _logit_coordinates(bound: Bound, flat: Array) -> Array:
    """The coordinates, in which the bound of the curvature is the identity, of all Categorical observations."""
    sites = [site for site in observed_sites(bound, flat).values() if _is_softmax(site)]
    coordinates = [scaled_coordinates(site, curvature_bound_coordinates).ravel() for site in sites]
    return jnp.concatenate([jnp.zeros(0), *coordinates])


def _bounding_precision(bound: Bound) -> Array:
    """Minus the Hessian of the quadratic below the log joint, (d, d)."""
    origin = jnp.zeros(num_coordinates(bound))

    def quadratic(flat: Array) -> Array:
        coordinates = _logit_coordinates(bound, flat)
        return _remaining_log_density(bound, flat) - 0.5 * coordinates @ coordinates

    def column(direction: Array) -> Array:
        return -jax.jvp(jax.grad(quadratic), (origin,), (direction,))[1]

    return jax.lax.map(column, jnp.eye(origin.size), batch_size=NUM_COLUMNS)


def _bends_along_lines(bound: Bound) -> Array:
    """For every line the largest second difference of logits, and the third difference of the rest of the log joint,
    relative to what changes: zero, to rounding, where the former are linear and the latter is quadratic."""
    rng, size = np.random.default_rng(0), num_coordinates(bound)
    middles, directions = rng.normal(size=(2, len(SCALES), LINES_PER_SCALE, size)) * np.reshape(SCALES, (1, -1, 1, 1))
    steps = np.arange(-1.5, 2.0)

    def bends(line: tuple[Array, Array]) -> Array:
        points = line[0] + steps[:, None] * line[1]
        logits = jax.lax.map(lambda at: _logit_coordinates(bound, at), points)
        rest = jax.lax.map(lambda at: _remaining_log_density(bound, at), points)
        differences = (jnp.diff(logits, 2, axis=0), jnp.diff(rest, 3))
        changes = (jnp.abs(logits), jnp.abs(rest))
        return jnp.stack([jnp.abs(d).max() / (1 + c.max()) for d, c in zip(differences, changes, strict=True)])

    lines = jnp.asarray(middles.reshape(-1, size)), jnp.asarray(directions.reshape(-1, size))
    values = jax.lax.map(bends, lines)
    return jnp.where(jnp.isfinite(values), values, jnp.inf)

"""Latent sites of rows that no elimination removes, integrated out of the likelihood of each row by quadrature.

A row, a tank or a person, may have a few numbers of its own: an effect under a logit, a rate under a Poisson. Given the
draw of all else the rows are independent, so their integrals have one to three dimensions each. Around the mode of the
integrand, on the scale of its curvature there, Gauss-Hermite nodes are exact for nearly Normal integrands (Naylor and
Smith 1982; Pinheiro and Bates 1995); single numbers get nodes on either side of the mode, which may be skewed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import biject_to

from bayeslab.elimination.conditional import sum_to_site
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import number_or_zero_mass
from bayeslab.transforms.collapse import Marginal
from bayeslab.transforms.sufficient_statistics.tables import Statistics

NUM_NODES = {1: 61, 2: 25, 3: 13}
"""Nodes on every axis, by the number of sites of a row."""
MAX_NEWTON_STEPS = 40
"""Steps to the mode of the integrand, at most; less than ten are the rule."""
NEWTON_TOLERANCE = 1e-4
"""Step at which the mode is near enough to put nodes around it."""
MAX_STEP = 2.0
"""The longest step of a coordinate."""
NEGLIGIBLE_NATS = 35.0
"""Nats below its top at which an integrand is over."""
WIDENING, NUM_WIDENINGS = 1.6, 25
"""Factor by which a side is widened until the integrand is over, and how often, at most: to 100,000 deviations."""
QUADRATURE_TOLERANCE = 5e-3
"""Nats by which two thirds of the nodes may differ; the error of all of them is a small part of that."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["statistics"],
    meta_fields=["rules", "rows", "row_sites", "num_nodes"],
)
@dataclass(frozen=True)
class RowQuadrature(Marginal):
    """Latent sites of rows integrated out by quadrature: a transform of a Bound for the likelihoods of its rows."""

    row_sites: tuple[str, ...] = ()
    num_nodes: int = 0
    statistics: Statistics | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        return self.row_sites

    def terms(self, bound: Bound) -> tuple[Term, ...]:
        return _terms_without(terms(bound).terms, self.row_sites, self.num_nodes)


def with_rows_integrated(bound: Bound, sites: tuple[str, ...], values: list[Values]) -> Bound | None:
    """The plain Bound with sites of its rows integrated out by quadrature; None where that cannot be done well.

    values: a few draws of the other sites, at which fewer nodes must give the same.
    """
    priors, number = terms(bound).priors, len(sites)
    if number not in NUM_NODES or any(
        bound.sites[name].is_discrete or bound.sites[name].event_dim or priors[name].shape != priors[sites[0]].shape
        for name in sites
    ):
        return None
    shape = priors[sites[0]].shape
    known = [name for name in bound.latent if name not in sites]
    for term in terms(bound).terms:
        reached = not term.depends.isdisjoint(sites)
        if reached and jax.eval_shape(term.density, bound, bound.latent_shapes).shape != shape:
            return None
    full, fewer = (
        replace(bound, transform=RowQuadrature((), row_sites=sites, num_nodes=nodes))
        for nodes in (NUM_NODES[number], NUM_NODES[number] * 2 // 3)
    )
    for draw in values:
        given = {name: draw[name] for name in known}
        first, second = (np.asarray(_integrals(each, given)) for each in (full, fewer))
        if not np.allclose(first, second, rtol=0.0, atol=QUADRATURE_TOLERANCE):  # NaN is refused, too
            return None
    return full


@jax.jit
def _integrals(bound: Bound, values: Values) -> Array:
    assert isinstance(bound.transform, RowQuadrature)
    [term] = [term for term in bound.transform.terms(bound.plain) if term.name.startswith("integral")]
    return term.density(bound.plain, values)


@lru_cache(maxsize=64)
def _terms_without(log_joint_terms: tuple[Term, ...], sites: tuple[str, ...], num_nodes: int) -> tuple[Term, ...]:
    """The terms with those that sites of rows reach replaced by the integrals over these, an element a row."""
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(sites)]
    others = [term for term in log_joint_terms if term not in reached]

    def density(bound: Bound, values: Values) -> Array:
        priors = terms(bound).priors
        transforms = {}
        for name in sites:
            transforms[name] = biject_to(priors[name].distribution(bound, values).support)

        def log_integrand(free: Array) -> Array:
            """At unconstrained values (site, *batch), an element a row."""
            own, volume = {}, jnp.zeros(free.shape[1:])
            for name, position in zip(sites, free, strict=True):
                own[name] = transforms[name](position)
                volume += transforms[name].log_abs_det_jacobian(position, own[name])
            parts = [sum_to_site(term.density(bound, values | own), term, priors[sites[0]])[0] for term in reached]
            return reduce(jnp.add, parts, volume)

        return _log_integrals(log_integrand, (len(sites), *priors[sites[0]].shape), num_nodes)

    holds = frozenset().union(*(term.holds or {term.name} for term in reached))
    depends = frozenset().union(*(term.depends for term in reached)) - set(sites)
    return (*others, Term(f"integral of {', '.join(sites)}", depends, density, None, holds=holds))


def _log_integrals(log_integrand: Callable[[Array], Array], shape: tuple[int, ...], num_nodes: int) -> Array:
    """The log of the integral over every element of a batch. shape: (dimension, *batch)."""
    size = shape[0]
    gradient = jax.grad(lambda free: log_integrand(free).sum())
    directions = jnp.eye(size).reshape(size, size, *(1 for _ in shape[1:])) * jnp.ones(shape)

    def slope_and_precision(free: Array) -> tuple[Array, Array]:
        """The gradient (*batch, dimension) and minus the Hessian, made positive definite."""
        slope, change = jax.linearize(gradient, free)
        hessian = jnp.moveaxis(jax.vmap(change)(directions), (0, 1), (-2, -1))
        if size == 1:
            own = jnp.abs(hessian)
            return jnp.moveaxis(slope, 0, -1), jnp.where(jnp.isfinite(own), jnp.maximum(own, 1e-6), 1.0)
        spectrum, vectors = jnp.linalg.eigh(-(hessian + hessian.mT) / 2)
        spectrum = jnp.where(jnp.isfinite(spectrum), jnp.maximum(jnp.abs(spectrum), 1e-6), 1.0)
        return jnp.moveaxis(slope, 0, -1), (vectors * spectrum[..., None, :]) @ vectors.mT

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        free, _, count = state
        slope, precision = slope_and_precision(free)
        whole = slope / precision[..., 0] if size == 1 else jnp.linalg.solve(precision, slope[..., None])[..., 0]
        step = jnp.clip(whole, -MAX_STEP, MAX_STEP)
        step = jnp.moveaxis(jnp.where(jnp.isfinite(step), step, 0.0), -1, 0)
        # half of the step, or a quarter, where the whole one overshoots
        tried = jnp.stack([free + share * step for share in (1.0, 0.5, 0.1, 0.0)])
        height = jax.vmap(log_integrand)(tried)
        best = jnp.argmax(number_or_zero_mass(height), axis=0)
        new = jnp.take_along_axis(tried, best[None, None], axis=0)[0]
        return new, jnp.abs(new - free).max(initial=0.0) > NEWTON_TOLERANCE, count + 1

    def is_moving(state: tuple[Array, Array, Array]) -> Array:
        return state[1] & (state[2] < MAX_NEWTON_STEPS)

    mode, *_ = jax.lax.while_loop(is_moving, newton, (jnp.zeros(shape), jnp.array(True), jnp.zeros((), int)))
    precision = slope_and_precision(mode)[1]
    if size == 1:
        return _integral_of_both_sides(lambda free: log_integrand(free[None]), mode[0], precision[..., 0, 0], num_nodes)
    factor = jnp.linalg.cholesky(precision)
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
    log_weights = np.log(np.stack(np.meshgrid(*[weights] * size, indexing="ij"), -1).reshape(-1, size)).sum(-1)

    def at_node(node: Array) -> Array:
        right = jnp.broadcast_to(node, factor.shape[:-1])[..., None]
        step = jax.scipy.linalg.solve_triangular(factor, right, trans=1, lower=True)
        return log_integrand(mode + jnp.moveaxis(step[..., 0], -1, 0)) + 0.5 * node @ node

    heights = jax.lax.map(at_node, jnp.asarray(grid)) + log_weights.reshape(-1, *(1 for _ in shape[1:]))
    log_volume = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return logsumexp(heights, axis=0) - log_volume


def _integral_of_both_sides(
    log_integrand: Callable[[Array], Array], mode: Array, precision: Array, num_nodes: int
) -> Array:
    """The log of integrals over the line (*batch), by Gauss-Legendre nodes on either side of the modes.

    Each side ends where the integrand has fallen far: a logit whose counts are all zero falls a hundred times faster on
    one side than on the other.
    """
    top = log_integrand(mode)
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes // 2)
    sides = []
    for sign in (-1.0, 1.0):

        def widen(_: int, width: Array, sign: float = sign) -> Array:
            is_high = log_integrand(mode + sign * width) > top - NEGLIGIBLE_NATS
            return jnp.where(is_high, WIDENING * width, width)

        width = jax.lax.fori_loop(0, NUM_WIDENINGS, widen, 1 / jnp.sqrt(precision))

        def at_node(node: Array, width: Array = width, sign: float = sign) -> Array:
            return log_integrand(mode + sign * width * (1 + node) / 2)

        heights = jax.lax.map(at_node, jnp.asarray(nodes))
        logs = jnp.log(jnp.asarray(weights) / 2).reshape(-1, *(1 for _ in mode.shape))
        sides.append(logsumexp(heights + logs, axis=0) + jnp.log(width))
    return jnp.logaddexp(*sides)

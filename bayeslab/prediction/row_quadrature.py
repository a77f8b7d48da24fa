"""Latent sites of rows or groups that no elimination removes, integrated out of their likelihood by quadrature.

A row, a tank or a person, may have a few numbers of its own: an effect under a logit, a rate under a Poisson. Given the
draw of all else the rows are independent, so their integrals have one to three dimensions each. Around the mode of the
integrand, on the scale of its curvature there, Gauss-Hermite nodes are exact for nearly Normal integrands (Naylor and
Smith 1982; Pinheiro and Bates 1995); single numbers get nodes on either side of the mode, which may be skewed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ops import segment_sum
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from numpyro.distributions import biject_to

from bayeslab.elimination.terms import Term, terms
from bayeslab.prediction.group_elements import GroupElements, reached_terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import number_or_zero_mass
from bayeslab.programs.wrapped_distributions import elementwise_constraint
from bayeslab.transforms.collapse import Marginal
from bayeslab.transforms.sufficient_statistics.tables import Statistics

NUM_NODES = {1: (48, 96, 192), 2: (15, 30, 60), 3: (9, 18, 36)}
"""Nodes on every axis, by the numbers of a group: the first that as good as agree with the next are taken."""
MAX_NEWTON_STEPS = 40
"""Steps to the mode of the integrand, at most; less than ten are the rule."""
NEWTON_TOLERANCE = 1e-3
"""Step, in deviations, at which the mode is near enough to put nodes around it."""
MAX_STEP = 2.0
"""The longest step of a coordinate that is tried beside the whole one."""
MIN_PRECISION = 1e-16
"""The least curvature: that of deviations of 1e8."""
NEGLIGIBLE_NATS = 35.0
"""Nats below its top at which an integrand is over."""
WIDENING, NUM_WIDENINGS = 1.6, 40
"""Factor by which a side is widened until the integrand is over, and how often, at most: to 1e8 deviations."""
QUADRATURE_TOLERANCE = 1e-3
"""Nats of a row by which twice the nodes may differ."""


NOTHING = GroupElements({}, {}, {})
"""No elements of any group."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["own", "places", "statistics"],
    meta_fields=["rules", "rows", "shape", "num_nodes"],
)
@dataclass(frozen=True)
class RowQuadrature(Marginal):
    """What belongs to rows, or to groups of them, integrated out by quadrature: a transform of a Bound.

    own: the elements of every group. shape: of the integrals. places: the flat position of every group among these.
    """

    own: GroupElements = NOTHING
    places: Array | None = None
    shape: tuple[int, ...] = ()
    num_nodes: int = 0
    statistics: Statistics | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.own.elements)

    def terms(self, bound: Bound) -> tuple[Term, ...]:
        log_joint_terms = terms(bound).terms
        reached = reached_terms(log_joint_terms, self.own.elements)
        holds = frozenset().union(*(term.holds or {term.name} for term in reached))
        depends = frozenset().union(*(term.depends for term in reached)) - set(self.sites)
        name = f"integral of {', '.join(self.sites)}"
        others = (term for term in log_joint_terms if term not in reached)
        return (*others, Term(name, depends, lambda *point: self.integrals(*point)[0], None, holds=holds))

    def integral(self, bound: Bound) -> Term:
        """The term that is the integral. bound: the plain one."""
        return self.terms(bound)[-1]

    def integrals(self, bound: Bound, values: Values, *more_nodes: int) -> Array:
        """The integrals (rule, *shape) of all groups at their places, zero at others, also by rules of more nodes."""
        priors, reached = terms(bound).priors, reached_terms(terms(bound).terms, self.own.elements)
        elements = {name: self.own.elements[name] for name in bound.latent if name in self.own.elements}
        num_groups = len(self.own.elements[self.sites[0]])
        size = sum(positions.shape[1] for positions in elements.values())

        def log_integrand(free: Array) -> Array:
            """At unconstrained values (number, group), an element a group."""
            all_values, volume, start = dict(values), jnp.zeros(num_groups), 0
            for name, positions in elements.items():
                transform = biject_to(elementwise_constraint(priors[name].distribution(bound, all_values).support))
                own = free[start : start + positions.shape[1]].T
                start += positions.shape[1]
                shape = priors[name].shape
                whole = jnp.zeros(prod(shape)).at[positions].set(own, mode="drop").reshape(shape)
                all_values[name] = transform(whole)
                log_volumes = jnp.broadcast_to(transform.log_abs_det_jacobian(whole, all_values[name]), shape)
                log_volumes = log_volumes.ravel().at[positions].get(mode="fill", fill_value=0.0)
                # a group without an element integrates over a standard Normal in its place
                volume += jnp.where(positions < prod(shape), log_volumes, norm.logpdf(own)).sum(-1)
                if name in self.own.kept:
                    all_values[name] = jnp.where(self.own.kept[name], values[name], all_values[name])
            parts = [
                segment_sum(term.density(bound, all_values).ravel(), self.own.outputs[term.name], num_groups + 1)[:-1]
                for term in reached
            ]
            return reduce(jnp.add, parts, volume)

        integrals = _log_integrals(log_integrand, (size, num_groups), (self.num_nodes, *more_nodes))
        whole = jnp.zeros((len(integrals), prod(self.shape))).at[:, self.places].set(integrals)
        return whole.reshape(len(integrals), *self.shape)


def with_groups_integrated(
    bound: Bound, own: GroupElements, places: np.ndarray, shape: tuple[int, ...], values: list[Values]
) -> Bound:
    """The plain Bound with what belongs to groups integrated out by quadrature.

    places, shape: see `RowQuadrature`. values: a few draws, at which twice as many nodes must give the same.
    Raises ValueError where no number of nodes is enough.
    """
    number = sum(positions.shape[1] for positions in own.elements.values())
    draws = [{n: draw[n] for n in bound.latent if n not in own.elements or n in own.kept} for draw in values]
    for num_nodes, more_nodes in pairwise(NUM_NODES[number]):
        transform = RowQuadrature((), own=own, places=jnp.asarray(places), shape=shape, num_nodes=num_nodes)
        integrated = replace(bound, transform=transform)
        for draw in draws:
            first, second = np.asarray(_integrals(integrated, draw, more_nodes))
            if not (difference := np.abs(first - second).max()) <= QUADRATURE_TOLERANCE:  # so it is with NaN, too
                break
        else:
            return integrated
    raise ValueError(
        f"quadrature over {', '.join(own.elements)} does not settle: from {num_nodes} to {more_nodes} nodes an axis a "
        f"log likelihood changes by {difference:.2g}"
    )


@partial(jax.jit, static_argnames="more_nodes")
def _integrals(bound: Bound, values: Values, more_nodes: int) -> Array:
    """The integrals (rule, *row) given a draw, by the rule of the transform and by one of more nodes."""
    transform = bound.transform
    assert isinstance(transform, RowQuadrature)
    return transform.integrals(bound.plain, values, more_nodes)


def _log_integrals(
    log_integrand: Callable[[Array], Array], shape: tuple[int, ...], num_nodes: tuple[int, ...]
) -> Array:
    """The logs of the integrals over every element of a batch (rule, *batch), by rules of some numbers of nodes.

    shape: (dimension, *batch).
    """
    size = shape[0]
    gradient = jax.grad(lambda free: log_integrand(free).sum())
    directions = jnp.eye(size).reshape(size, size, *(1 for _ in shape[1:])) * jnp.ones(shape)

    def slope_and_precision(free: Array) -> tuple[Array, Array]:
        """The gradient (*batch, dimension) and minus the Hessian, made positive definite."""
        slope, change = jax.linearize(gradient, free)
        hessian = jnp.moveaxis(jax.vmap(change)(directions), (0, 1), (-2, -1))
        if size == 1:
            own = jnp.abs(hessian)
            return jnp.moveaxis(slope, 0, -1), jnp.where(jnp.isfinite(own), jnp.maximum(own, MIN_PRECISION), 1.0)
        spectrum, vectors = jnp.linalg.eigh(-(hessian + hessian.mT) / 2)
        spectrum = jnp.where(jnp.isfinite(spectrum), jnp.maximum(jnp.abs(spectrum), MIN_PRECISION), 1.0)
        return jnp.moveaxis(slope, 0, -1), (vectors * spectrum[..., None, :]) @ vectors.mT

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        free, _, count = state
        slope, precision = slope_and_precision(free)
        whole = slope / precision[..., 0] if size == 1 else jnp.linalg.solve(precision, slope[..., None])[..., 0]
        whole = jnp.moveaxis(jnp.where(jnp.isfinite(whole), whole, 0.0), -1, 0)
        step = jnp.clip(whole, -MAX_STEP, MAX_STEP)
        # effects may be anywhere, so the whole step comes first, and shorter ones where it overshoots
        tried = jnp.stack([free + each for each in (whole, step, 0.3 * step, 0.05 * step, jnp.zeros_like(step))])
        height = jax.vmap(log_integrand)(tried)
        best = jnp.argmax(number_or_zero_mass(height), axis=0)
        new = jnp.take_along_axis(tried, best[None, None], axis=0)[0]
        deviations = jnp.abs(new - free) * jnp.sqrt(jnp.moveaxis(jnp.diagonal(precision, axis1=-2, axis2=-1), -1, 0))
        return new, deviations.max(initial=0.0) > NEWTON_TOLERANCE, count + 1

    def is_moving(state: tuple[Array, Array, Array]) -> Array:
        return state[1] & (state[2] < MAX_NEWTON_STEPS)

    mode, *_ = jax.lax.while_loop(is_moving, newton, (jnp.zeros(shape), jnp.array(True), jnp.zeros((), int)))
    precision = slope_and_precision(mode)[1]
    if size == 1:
        curvature = precision[..., 0, 0]
        return _integrals_of_both_sides(lambda free: log_integrand(free[None]), mode[0], curvature, num_nodes)
    factor = jnp.linalg.cholesky(precision)
    log_volume = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)

    def at_node(node: Array) -> Array:
        right = jnp.broadcast_to(node, factor.shape[:-1])[..., None]
        step = jax.scipy.linalg.solve_triangular(factor, right, trans=1, lower=True)
        return log_integrand(mode + jnp.moveaxis(step[..., 0], -1, 0)) + 0.5 * node @ node

    integrals = []
    for number in num_nodes:
        nodes, weights = np.polynomial.hermite_e.hermegauss(number)
        grid, grid_weights = (np.stack(np.meshgrid(*[axis] * size, indexing="ij"), -1) for axis in (nodes, weights))
        heights = jax.lax.map(at_node, jnp.asarray(grid.reshape(-1, size)))
        log_weights = np.log(grid_weights).sum(-1).reshape(-1, *(1 for _ in shape[1:]))
        integrals.append(logsumexp(heights + log_weights, axis=0) - log_volume)
    return jnp.stack(integrals)


def _integrals_of_both_sides(
    log_integrand: Callable[[Array], Array], mode: Array, precision: Array, num_nodes: tuple[int, ...]
) -> Array:
    """The logs of integrals over the line (rule, *batch), by Gauss-Legendre nodes on either side of the modes.

    Each side ends where the integrand has fallen far: a logit whose counts are all zero falls a hundred times faster on
    one side than on the other. Distances from the mode grow as expm1 of the coordinate of the nodes, so that heavy
    tails are covered by some of them and the middle by most.
    """
    top = log_integrand(mode)
    signs = jnp.array([-1.0, 1.0]).reshape(2, *(1 for _ in mode.shape))

    def widen(_: int, widths: Array) -> Array:
        is_high = jax.vmap(log_integrand)(mode + signs * widths) > top - NEGLIGIBLE_NATS
        return jnp.where(is_high, WIDENING * widths, widths)

    widths = jax.lax.fori_loop(0, NUM_WIDENINGS, widen, jnp.broadcast_to(1 / jnp.sqrt(precision), (2, *mode.shape)))
    stretch = jnp.log1p(widths * jnp.sqrt(precision))
    scale = widths / jnp.expm1(stretch)

    def at_share(share: Array) -> Array:
        """Both sides together, at a share of their widths."""
        points = mode + signs * scale * jnp.expm1(stretch * share)
        return jnp.logaddexp(*jax.vmap(log_integrand)(points) + jnp.log(scale * stretch) + stretch * share)

    integrals = []
    for number in num_nodes:
        nodes, weights = np.polynomial.legendre.leggauss(number // 2)
        heights = jax.lax.map(at_share, jnp.asarray((1 + nodes) / 2))
        logs = jnp.log(jnp.asarray(weights) / 2).reshape(-1, *(1 for _ in mode.shape))
        integrals.append(logsumexp(heights + logs, axis=0))
    return jnp.stack(integrals)

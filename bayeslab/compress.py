"""Sufficient statistics of the data, found from a program by probing.

Let a few sites x_1, ..., x_g have statistics t_1, ..., t_g, each with a leading 1. If the terms that they reach are
multilinear in them,

    l(x_1, ..., x_g) = sum over (i, ..., j) of M[i, ..., j] t_1[i](x_1) ... t_g[j](x_g),

then the table M is all that the data say. Its entries are read from values of l on a grid of probes, around a likely
value of every site, so that nothing is lost to rounding; the law of `bayeslab.proof`, at other points, proves or
refutes it. Afterwards l and the conditionals of its sites cost nothing that depends on the number of rows.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.distributions import JointNormal
from bayeslab.elimination import ENUMERATED, NORMAL, Rule, conditional, family_of
from bayeslab.program import Bound, Values, structure
from bayeslab.proof import Found, points, spread
from bayeslab.sweep import settled
from bayeslab.terms import Prior, Term, terms, terms_of

LARGEST = 4096
"""Entries of a table, at most."""
LEAST = 2000
"""Numbers that terms read and write, below which a table is not worth its compilation."""
TOLERANCE = 1e-10


class Group(NamedTuple):
    """terms: names of those that a table replaces. rules: of the sites that they reach, all other sites given.

    proportional: Normal sites whose precision matrix is a multiple of one matrix, whatever the other sites.
    """

    terms: tuple[str, ...]
    rules: tuple[Rule, ...]
    proportional: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"statistics of {', '.join(rule.site for rule in self.rules)}"


class Frame(NamedTuple):
    """Where a site is probed: a likely value, its spread (of Normal sites), the probes and what reads them.

    centre, scale: (*site). probes: (probe, *site). reader: (statistic, probe).
    """

    centre: Array
    scale: Array
    probes: Array
    reader: Array


class Table(NamedTuple):
    """coefficients: an axis for every site of the group, as long as its statistics."""

    centres: tuple[Array, ...]
    scales: tuple[Array, ...]
    coefficients: Array


def compressible(bound: Bound, found: Sequence[Found]) -> tuple[Group, ...]:
    """Groups of terms that a table replaces for less than they cost, proven on the data of the fit."""
    groups = _groups(bound, {one.site: one.rule for one in found if one.rule is not None})
    if not groups or any(one.rule is None for one in found):
        return ()
    rules = tuple(one.rule for one in found if one.rule is not None)
    residuals, directions = jax.device_get(_law(groups, rules, points(bound)))
    passed = []
    for group, residual, apart in zip(groups, residuals, directions, strict=True):
        if np.max(residual) <= TOLERANCE:
            one = tuple(site for site, difference in apart.items() if np.max(difference) <= TOLERANCE)
            passed.append(group._replace(proportional=one))
    return tuple(passed)


def compressed(groups: tuple[Group, ...], bound: Bound) -> tuple[Term, ...]:
    """The terms of a program, those of the groups replaced.

    The new ones look for their tables among the values, under the name of the group.
    """
    return _compressed(groups, structure(bound))


@lru_cache(maxsize=64)
def _compressed(groups: tuple[Group, ...], shapes: tuple) -> tuple[Term, ...]:
    priors, of = terms_of(shapes)
    replaced = {name for group in groups for name in group.terms}
    return (*(term for term in of if term.name not in replaced), *(_term(group, priors) for group in groups))


def tabulated(groups: tuple[Group, ...], bound: Bound, values: Values) -> dict[str, Any]:
    """The tables of the groups. values: likely ones of all sites; the tables do not depend on them but for rounding."""
    priors, of = terms(bound)
    return {group.name: _table(group, of, priors, bound, values) for group in groups}


def table_size(group: Group, bound: Bound) -> int:
    """How many numbers a table has."""
    priors = terms(bound).priors
    return prod(_count(rule, priors[rule.site]) for rule in group.rules)


def _groups(bound: Bound, rules: dict[str, Rule]) -> tuple[Group, ...]:
    """The largest sets of sites with statistics that meet in a term, with all terms that they reach, if that pays."""
    priors, of = terms(bound)
    able = {name for name, rule in rules.items() if _count(rule, priors[name])}
    sets: list[frozenset[str]] = []
    for term in sorted(of, key=lambda term: -len(term.depends)):
        if term.depends and term.depends <= able and not any(term.depends <= other for other in sets):
            sets.append(term.depends)
    groups, taken = [], set[str]()
    for sites in sets:
        mine = [term for term in of if term.depends and term.depends <= sites and term.name not in taken]
        group = Group(tuple(t.name for t in mine), tuple(rules[n] for n in priors if n in sites))
        size = table_size(group, bound)
        if size <= LARGEST and max(2 * size, LEAST) <= sum(term.cost for term in mine):
            groups.append(group)
            taken |= set(group.terms)
    return tuple(groups)


def _count(rule: Rule, prior: Prior) -> int:
    """How many statistics a site has, the leading 1 included; 0 where its family has none."""
    size = prod(prior.shape)
    if rule.family == ENUMERATED:
        return 0
    if rule.family != NORMAL:
        shape = jax.ShapeDtypeStruct(prior.shape, float)
        statistics = family_of(rule, prior).statistics
        if statistics is None:
            return 0
        return 1 + sum(prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(statistics, shape)))
    block = prod(prior.shape[axis] for axis in rule.coupled)
    return 1 + size + size * (block + 1) // 2


def _frame(rule: Rule, prior: Prior, q: Distribution) -> Frame:
    if rule.family == NORMAL:
        scale = _deviations(q)
        steps, reader = _quadratic_probes(prior.shape, rule.coupled)
        return Frame(q.mean, scale, q.mean + scale * steps, jnp.asarray(reader))
    centre = q.sample(jax.random.PRNGKey(3))
    transform = biject_to(q.support)
    middle = transform.inv(centre)
    noise = np.random.default_rng(0).normal(size=(2 * _count(rule, prior), *middle.shape))
    probes = transform(middle + 0.7 * noise)
    ones = jnp.ones(prior.shape)
    at = jax.vmap(lambda x: _statistics(rule, prior, ones, ones, x))(probes)
    largest = jnp.abs(at).max(0)
    return Frame(centre, ones, probes, jnp.linalg.pinv(at / largest) / largest[:, None])


def _deviations(q: Distribution) -> Array:
    """The standard deviation of every element given the others."""
    return q.conditional_scale if isinstance(q, JointNormal) else q.scale


@lru_cache(maxsize=64)
def _quadratic_probes(shape: tuple[int, ...], coupled: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (probe, *shape) that tell all quadratic functions of blocks apart, and the inverse of their statistics."""
    size = prod(shape)
    unit = np.eye(size)
    index = _blocks(shape, coupled)
    pairs = [unit[i] + unit[j] for block in index for k, i in enumerate(block) for j in block[:k]]
    steps = np.concatenate([np.zeros((1, size)), unit, -unit, np.array(pairs).reshape(-1, size)])
    first, second = _pairs(shape, coupled)
    at = np.concatenate([np.ones((len(steps), 1)), steps, steps[:, first] * steps[:, second]], axis=1)
    return steps.reshape(-1, *shape), np.linalg.inv(at)


def _blocks(shape: tuple[int, ...], coupled: tuple[int, ...]) -> np.ndarray:
    """Places in the flat array, a row for every block of elements that are joint."""
    apart = [axis for axis in range(len(shape)) if axis not in coupled]
    block = prod(shape[axis] for axis in coupled)
    return np.arange(prod(shape)).reshape(shape).transpose(*apart, *coupled).reshape(-1, block)


def _pairs(shape: tuple[int, ...], coupled: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Places of the two factors of every product, block by block, the lower triangle row by row."""
    index = _blocks(shape, coupled)
    rows, columns = np.tril_indices(index.shape[1])
    return index[:, rows].ravel(), index[:, columns].ravel()


def _statistics(rule: Rule, prior: Prior, centre: Array, scale: Array, x: Array) -> Array:
    """The statistics of a value, with a leading 1."""
    if rule.family == NORMAL:
        u = ((x - centre) / scale).ravel()
        first, second = _pairs(prior.shape, rule.coupled)
        return jnp.concatenate([jnp.ones(1), u, u[first] * u[second]])
    leaves = jax.tree.leaves(family_of(rule, prior).statistics(x))  # type: ignore[misc]
    return jnp.concatenate([jnp.ones(1), *(jnp.ravel(leaf) for leaf in leaves)])


def _table(group: Group, of: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Table:
    mine = [term for term in of if term.name in group.terms]
    frames = []
    for rule in group.rules:
        q = conditional(rule, of, bound, values, near=values[rule.site]).distribution
        frames.append(_frame(rule, priors[rule.site], q))

    def at(index: Array) -> Array:
        places = jnp.unravel_index(index, [len(frame.probes) for frame in frames])
        given = {r.site: f.probes[p] for r, f, p in zip(group.rules, frames, places, strict=True)}
        return sum((term.density(bound, values | given).sum() for term in mine), jnp.zeros(()))

    sizes = [len(frame.probes) for frame in frames]
    coefficients = jax.lax.map(at, jnp.arange(prod(sizes))).reshape(sizes)
    for frame in frames:  # every turn reads the first axis and makes it the last
        coefficients = jnp.moveaxis(jnp.tensordot(frame.reader, coefficients, 1), 0, -1)
    return Table(tuple(f.centre for f in frames), tuple(f.scale for f in frames), coefficients)


def _term(group: Group, priors: dict[str, Prior]) -> Term:
    sites = [rule.site for rule in group.rules]

    def contracted(values: dict[str, Any], but: str | None) -> Array:
        """The table at some values; as a function of one site, the coefficients of its statistics."""
        table = values[group.name]
        total = table.coefficients
        for rule, centre, scale in zip(group.rules[::-1], table.centres[::-1], table.scales[::-1], strict=True):
            if rule.site == but:
                total = jnp.moveaxis(total, -1, 0)
            else:
                total = total @ _statistics(rule, priors[rule.site], centre, scale, values[rule.site])
        return total

    def density(bound: Bound, values: Values) -> Array:
        return contracted(values, None)

    def read(site: str, bound: Bound, values: Values) -> tuple[Distribution, Array]:
        """The conditional of a site that only this term reaches, and a value of it."""
        place = sites.index(site)
        rule, prior = group.rules[place], priors[site]
        table: Any = values[group.name]
        eta = contracted(values, site)
        if rule.family == NORMAL:
            matrix = _products(group, place, prior, table)[1] if site in group.proportional else None
            return _normal(rule, prior.shape, table.centres[place], table.scales[place], eta[1:], matrix)
        statistics = family_of(rule, prior).statistics
        assert statistics is not None
        like = jax.eval_shape(statistics, jax.ShapeDtypeStruct(prior.shape, eta.dtype))
        leaves, tree = jax.tree.flatten(like)
        ends = np.cumsum([prod(leaf.shape) for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(eta[1:], ends), leaves, strict=True)]
        drawn = prior.distribution(bound, values | {site: jnp.zeros(prior.shape)})
        built = family_of(rule, prior).build(jax.tree.unflatten(tree, parts), drawn)
        return built, table.centres[place]

    return Term(group.name, frozenset(sites), density, 0, sum(_count(r, priors[r.site]) for r in group.rules), read)


def _products(group: Group, place: int, prior: Prior, table: Table) -> tuple[Array, Array]:
    """How far the coefficients of products are from multiples of one vector, and that vector, pointing downwards."""
    matrix = jnp.moveaxis(table.coefficients, place, 0).reshape(table.coefficients.shape[place], -1)
    matrix = matrix[1 + prod(prior.shape) :]
    largest = matrix[:, jnp.argmax((matrix**2).sum(0))]
    away = matrix - jnp.outer(largest, largest @ matrix / (largest @ largest))
    first, second = _pairs(prior.shape, group.rules[place].coupled)
    sign = jnp.sign(jnp.where(first == second, largest, 0.0).sum())
    return jnp.abs(away).max() / jnp.abs(matrix).max(), -sign * largest


def _normal(
    rule: Rule, shape: tuple[int, ...], centre: Array, scale: Array, eta: Array, matrix: Array | None
) -> tuple[Distribution, Array]:
    """From the coefficients of u and of its products, x = centre + scale u.

    matrix: what the coefficients of products are a positive multiple of, if they are.
    """
    size = prod(shape)
    linear, products = eta[:size], eta[size:]
    if not rule.coupled:
        curvature = -2 * products
        mean = centre + scale * (linear / curvature).reshape(shape)
        return dist.Normal(mean, scale / jnp.sqrt(curvature).reshape(shape)), mean
    index = _blocks(shape, rule.coupled)
    count, block = index.shape
    rows, columns = np.tril_indices(block)
    multiple = jnp.ones(()) if matrix is None else matrix @ products / (matrix @ matrix)
    matrix = products if matrix is None else matrix
    half = jnp.zeros((count, block, block)).at[:, rows, columns].set(-matrix.reshape(count, -1))
    factor = jnp.linalg.cholesky(half + half.mT)
    inverse = None if matrix is products else _inverse(factor)
    if inverse is None:
        mean = jax.scipy.linalg.cho_solve((factor, True), linear[index][..., None])[..., 0]
    else:
        mean = (linear[index][..., None, :] @ inverse.mT @ inverse)[..., 0, :] / multiple
    spread = scale.ravel()[index]
    apart = tuple(n for axis, n in enumerate(shape) if axis not in rule.coupled)
    joint = JointNormal(
        (centre.ravel()[index] + spread * mean).reshape(*apart, block),
        (factor / spread[..., None]).reshape(*apart, block, block),
        rule.coupled,
        shape,
        multiple,
        None if inverse is None else (inverse * spread[..., None, :]).reshape(*apart, block, block),
    )
    return joint, joint.mean


@partial(jax.jit, static_argnames=("groups", "rules"))
def _law(
    groups: tuple[Group, ...], rules: tuple[Rule, ...], at: tuple[Bound, Values]
) -> tuple[list[Array], list[dict[str, Array]]]:
    """The largest relative difference between terms and their tables, for every group at every point.

    With it, for joint Normal sites, how far their precision matrix is from multiples of one matrix.
    """

    def residuals(point: tuple[Bound, Values]) -> tuple[list[Array], list[dict[str, Array]]]:
        bound, values = point
        priors, of = terms(bound)
        values = settled(jax.random.PRNGKey(4), rules, bound, values)
        tables = tabulated(groups, bound, values)
        values = values | tables
        new = {term.name: term for term in compressed(groups, bound)}
        directions: list[dict[str, Array]] = []
        for group in groups:
            joint = [place for place, rule in enumerate(group.rules) if rule.coupled]
            site = [rule.site for rule in group.rules]
            table = tables[group.name]
            directions.append({site[i]: _products(group, i, priors[site[i]], table)[0] for i in joint})
        return [_residual(group, new[group.name], of, bound, values) for group in groups], directions

    return jax.lax.map(residuals, at)


def _residual(group: Group, table: Term, of: Sequence[Term], bound: Bound, values: Values) -> Array:
    mine = [term for term in of if term.name in group.terms]
    drawn = {r.site: spread(conditional(r, of, bound, values, near=values[r.site]).distribution) for r in group.rules}

    def difference(index: Array) -> tuple[Array, Array]:
        places = [(index + place) % len(drawn[rule.site]) for place, rule in enumerate(group.rules)]
        given = values | {r.site: drawn[r.site][p] for r, p in zip(group.rules, places, strict=True)}
        parts = [term.density(bound, given) for term in mine]
        size = jnp.asarray(sum(jnp.abs(part).sum() for part in parts))
        return sum(part.sum() for part in parts) - table.density(bound, given), size

    error, size = jax.lax.map(difference, jnp.arange(2 * len(next(iter(drawn.values())))))
    return (jnp.abs(error - error[0]) / (size + size[0])).max()


def _inverse(factor: Array) -> Array:
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return jax.scipy.linalg.solve_triangular(factor, identity, lower=True)

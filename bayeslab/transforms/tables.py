"""Tables of sufficient statistics in place of terms of a log joint, and Bounds that have them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.replacement import run_with
from bayeslab.elimination.sweep import settled, somewhere
from bayeslab.elimination.terms import Prior, Term, terms, terms_of, total
from bayeslab.programs.program import Bound, Values, structure
from bayeslab.transforms.row_statistics import Labelled
from bayeslab.transforms.site_statistics import Table, count, direction, framed, framed_normal, normal, weighted

AT_ONCE = 2**24
"""Numbers that are read and written at once to fill a table, at most."""


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

    def table(self, of: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Table:
        """values: likely ones of all sites."""
        return _table(self, of, priors, bound, values)

    def term(self, priors: dict[str, Prior]) -> Term:
        """What replaces the terms; it looks for its table among the values."""
        return _term(self, priors)

    def described(self, bound: Bound, priors: dict[str, Prior]) -> str:
        return f"{table_size(self, bound)} {self.name}"


Groups = tuple[Group | Labelled, ...]


def compressed(groups: Groups, bound: Bound) -> tuple[Term, ...]:
    """The terms of a program, those of the groups replaced.

    The new ones look for their tables among the values, under the name of the group.
    """
    return _compressed(groups, structure(bound))


@lru_cache(maxsize=64)
def _compressed(groups: Groups, shapes: tuple) -> tuple[Term, ...]:
    priors, of, *_ = terms_of(shapes)
    replaced = {name for group in groups for name in group.terms}
    return (*(term for term in of if term.name not in replaced), *(group.term(priors) for group in groups))


@partial(jax.tree_util.register_dataclass, data_fields=["tables"], meta_fields=["groups"])
@dataclass(frozen=True)
class Statistics:
    """The rows of a program replaced by tables: a transform of its Bound. tables: by the names of the groups."""

    groups: Groups
    tables: dict[str, Any]

    @property
    def statistics(self) -> "Statistics":
        return self

    def with_statistics(self, statistics: "Statistics") -> "Statistics":
        return statistics

    def run(self, bound: Bound) -> Any:
        return run_with(compressed(self.groups, bound), bound, self.tables)


def summarised(groups: Groups, rules: tuple[Rule, ...], bound: Bound) -> Bound:
    """A Bound whose rows are replaced by tables. rules: of every site given all others."""
    plain, statistics = bound.plain, Statistics((), {})
    if groups:
        first, second = jax.random.split(jax.random.PRNGKey(5))
        values = settled(second, rules, plain, somewhere(first, plain))
        statistics = Statistics(groups, tabulated(groups, plain, values))
    before = bound.transform
    return replace(bound, transform=statistics if before is None else before.with_statistics(statistics))


class Pieces(NamedTuple):
    """A Bound taken apart: the plain one, its terms before any elimination, and the tables that they look for."""

    plain: Bound
    terms: tuple[Term, ...]
    tables: dict[str, Any]


def pieces(bound: Bound) -> Pieces:
    plain, transform = bound.plain, bound.transform
    statistics = None if transform is None else transform.statistics
    if statistics is None:
        return Pieces(plain, terms(plain).terms, {})
    return Pieces(plain, compressed(statistics.groups, plain), statistics.tables)


def tabulated(groups: Groups, bound: Bound, values: Values) -> dict[str, Any]:
    """The tables of the groups. values: likely ones of all sites; the tables do not depend on them but for rounding."""
    priors, of, *_ = terms(bound)
    return {group.name: group.table(of, priors, bound, values) for group in groups}


def table_size(group: Group, bound: Bound) -> int:
    """How many numbers a table has."""
    priors = terms(bound).priors
    return prod(count(rule, priors[rule.site]) for rule in group.rules)


def _table(group: Group, of: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Table:
    mine = [term for term in of if term.name in group.terms]
    frames = []
    for rule in group.rules:
        prior, near = priors[rule.site], values[rule.site]
        if rule.family.joint:
            frames.append(framed_normal(rule, prior, conditional(rule, of, bound, values, near).distribution))
        else:
            frames.append(framed(rule, prior, near, prior.distribution(bound, values).support))

    sizes = [len(frame.probes) for frame in frames]

    def at(index: Array) -> Array:
        places = jnp.unravel_index(index, sizes)
        given = {r.site: f.probes[p] for r, f, p in zip(group.rules, frames, places, strict=True)}
        return total(mine, bound, values | given)

    together = int(np.clip(AT_ONCE // max(sum(term.cost for term in mine), 1), 1, prod(sizes)))
    coefficients = jax.lax.map(at, jnp.arange(prod(sizes)), batch_size=together).reshape(sizes)
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
                total = weighted(total, rule, priors[rule.site], centre, scale, values[rule.site])
        return total

    def density(bound: Bound, values: Values) -> Array:
        return contracted(values, None)

    def read(site: str, bound: Bound, values: Values) -> tuple[Distribution, Array]:
        """The conditional of a site that only this term reaches, and a value of it."""
        place = sites.index(site)
        rule, prior = group.rules[place], priors[site]
        table: Any = values[group.name]
        eta = contracted(values, site)
        if rule.family.joint:
            matrix = direction(rule, place, prior, table)[1] if site in group.proportional else None
            return normal(rule, prior.shape, table.centres[place], table.scales[place], eta[1:], matrix)
        statistics = rule.family.statistics
        assert statistics is not None
        like = jax.eval_shape(statistics, jax.ShapeDtypeStruct(prior.shape, eta.dtype))
        leaves, tree = jax.tree.flatten(like)
        ends = np.cumsum([prod(leaf.shape) for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(eta[1:], ends), leaves, strict=True)]
        drawn = prior.distribution(bound, values | {site: jnp.zeros(prior.shape)})
        built = rule.family.build(jax.tree.unflatten(tree, parts), drawn)
        return built, table.centres[place]

    return Term(group.name, frozenset(sites), density, 0, sum(count(r, priors[r.site]) for r in group.rules), read)

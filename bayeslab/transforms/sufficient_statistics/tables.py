"""Tables of sufficient statistics in place of terms of a log joint, and Bounds that have them."""

from collections.abc import Collection, Sequence
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
from bayeslab.elimination.replacement import run_with_terms
from bayeslab.elimination.sweep import feasible_point, gibbs_start
from bayeslab.elimination.terms import Prior, Term, sum_of_terms, terms, terms_of
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.transforms.sufficient_statistics.row_statistics import LabelledTerm
from bayeslab.transforms.sufficient_statistics.site_statistics import (
    Table,
    build_normal,
    normal_frame,
    num_statistics,
    precision_direction,
    random_frame,
    weighted_statistics,
)

NUMBERS_PER_BATCH = 2**24
"""Numbers that one batch reads and writes to fill a table, at most."""


class Group(NamedTuple):
    """Terms of the log joint that one table replaces.

    terms: their names. rules: of the sites that they reach, all other sites given.
    proportional: Normal sites whose precision matrix is a multiple of one matrix, whatever the other sites.
    """

    terms: tuple[str, ...]
    rules: tuple[Rule, ...]
    proportional: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"statistics of {', '.join(rule.site for rule in self.rules)}"

    def table(self, log_joint_terms: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values) -> Table:
        """The table that replaces the terms. values: likely ones of all sites."""
        return _build_table(self, log_joint_terms, priors, bound, values)

    def term(self, priors: dict[str, Prior]) -> Term:
        """The term that takes the place of these; it looks for its table among the values."""
        return _table_term(self, priors)

    def described(self, bound: Bound, priors: dict[str, Prior]) -> str:
        return f"{table_size(self, bound)} {self.name}"


Groups = tuple[Group | LabelledTerm, ...]


def compressed_terms(groups: Groups, bound: Bound) -> tuple[Term, ...]:
    """The terms of a program, with those of the groups replaced by tables.

    The new ones look for their tables among the values, under the name of the group.
    """
    return _compressed_terms(groups, compilation_signature(bound))


@lru_cache(maxsize=64)
def _compressed_terms(groups: Groups, shapes: tuple) -> tuple[Term, ...]:
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
        return run_with_terms(compressed_terms(self.groups, bound), bound, self.tables)


def replace_rows(groups: Groups, rules: tuple[Rule, ...], bound: Bound) -> Bound:
    """A Bound whose rows are replaced by tables. rules: of every site given all others."""
    plain, statistics = bound.plain, Statistics((), {})
    if groups:
        first, second = jax.random.split(jax.random.PRNGKey(5))
        values = gibbs_start(second, rules, plain, feasible_point(first, plain))
        statistics = Statistics(groups, build_tables(groups, plain, values))
    transform = bound.transform
    return replace(bound, transform=statistics if transform is None else transform.with_statistics(statistics))


class BoundParts(NamedTuple):
    """A Bound taken apart: the plain one, its terms before any elimination, and the tables that they look for."""

    plain: Bound
    terms: tuple[Term, ...]
    tables: dict[str, Any]


def bound_parts(bound: Bound) -> BoundParts:
    """A Bound taken apart, with tables in place of the rows that they replace."""
    plain, transform = bound.plain, bound.transform
    statistics = None if transform is None else transform.statistics
    if statistics is None:
        return BoundParts(plain, terms(plain).terms, {})
    return BoundParts(plain, compressed_terms(statistics.groups, plain), statistics.tables)


def is_collapsed(bound: Bound) -> bool:
    """Whether sites have been integrated out of a Bound."""
    return bound.transform is not None and not isinstance(bound.transform, Statistics)


def program_parts(bound: Bound) -> BoundParts:
    """`bound_parts` for methods that draw all latent sites of a program: that of a collapsed one has terms of its
    own."""
    return BoundParts(bound, terms(bound).terms, {}) if is_collapsed(bound) else bound_parts(bound)


def groups_beside(groups: Groups, bound: Bound, sites: Collection[str]) -> Groups:
    """The groups that leave all terms as they are that some sites reach."""
    reached = {term.name for term in terms(bound).terms if not term.depends.isdisjoint(sites)}
    return tuple(group for group in groups if reached.isdisjoint(group.terms))


def groups_beside_rules(groups: Groups, bound: Bound, rules: Sequence[Rule]) -> Groups:
    """The groups that leave the terms as they are under which discrete sites that meet are eliminated.

    rules: in the order of elimination. Which elements meet is known of terms as the program writes them.
    """
    fields = [rule for rule in rules if rule.field is not None]
    if not fields:
        return groups
    return groups_beside(groups, bound, fields[0].sites) if len(rules) == 1 else ()


def build_tables(groups: Groups, bound: Bound, values: Values) -> dict[str, Any]:
    """The tables of the groups. values: likely ones of all sites; the tables do not depend on them but for rounding."""
    priors, of, *_ = terms(bound)
    return {group.name: group.table(of, priors, bound, values) for group in groups}


def table_size(group: Group, bound: Bound) -> int:
    """How many numbers a table has."""
    priors = terms(bound).priors
    return prod(num_statistics(rule, priors[rule.site]) for rule in group.rules)


def _build_table(
    group: Group, log_joint_terms: Sequence[Term], priors: dict[str, Prior], bound: Bound, values: Values
) -> Table:
    """The table of a group, from its terms on the grid of all probes of its sites."""
    group_terms = [term for term in log_joint_terms if term.name in group.terms]
    frames = []
    for rule in group.rules:
        prior, initial = priors[rule.site], values[rule.site]
        if rule.family.joint:
            frames.append(
                normal_frame(rule, prior, conditional(rule, log_joint_terms, bound, values, initial).distribution)
            )
        else:
            frames.append(random_frame(rule, prior, initial, prior.distribution(bound, values).support))

    sizes = [len(frame.probes) for frame in frames]

    def density_at(index: Array) -> Array:
        indices = jnp.unravel_index(index, sizes)
        probe_values = {r.site: f.probes[p] for r, f, p in zip(group.rules, frames, indices, strict=True)}
        return sum_of_terms(group_terms, bound, values | probe_values)

    batch_size = int(np.clip(NUMBERS_PER_BATCH // max(sum(term.cost for term in group_terms), 1), 1, prod(sizes)))
    coefficients = jax.lax.map(density_at, jnp.arange(prod(sizes)), batch_size=batch_size).reshape(sizes)
    for frame in frames:  # every turn reads the first axis and makes it the last
        coefficients = jnp.moveaxis(jnp.tensordot(frame.reader, coefficients, 1), 0, -1)
    return Table(tuple(f.centre for f in frames), tuple(f.scale for f in frames), coefficients)


def _table_term(group: Group, priors: dict[str, Prior]) -> Term:
    """The term that reads the table of a group, and the conditionals of sites that only it reaches."""
    sites = [rule.site for rule in group.rules]

    def contracted(values: dict[str, Any], but: str | None) -> Array:
        """The table at some values, scalar; the coefficients of the statistics of one site where that is left out."""
        table = values[group.name]
        coefficients = table.coefficients
        for rule, centre, scale in zip(group.rules[::-1], table.centres[::-1], table.scales[::-1], strict=True):
            if rule.site == but:
                coefficients = jnp.moveaxis(coefficients, -1, 0)
            else:
                coefficients = weighted_statistics(
                    coefficients, rule, priors[rule.site], centre, scale, values[rule.site]
                )
        return coefficients

    def density(bound: Bound, values: Values) -> Array:
        return contracted(values, None)

    def read(site: str, bound: Bound, values: Values) -> tuple[Distribution, Array]:
        """The conditional of a site that only this term reaches, and a value of it."""
        index = sites.index(site)
        rule, prior = group.rules[index], priors[site]
        table: Any = values[group.name]
        eta = contracted(values, site)
        if rule.family.joint:
            matrix = precision_direction(rule, index, prior, table)[1] if site in group.proportional else None
            return build_normal(rule, prior.shape, table.centres[index], table.scales[index], eta[1:], matrix)
        statistics = rule.family.statistics
        assert statistics is not None
        shapes = jax.eval_shape(statistics, jax.ShapeDtypeStruct(prior.shape, eta.dtype))
        leaves, tree = jax.tree.flatten(shapes)
        ends = np.cumsum([prod(leaf.shape) for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(eta[1:], ends), leaves, strict=True)]
        prior_distribution = prior.distribution(bound, values | {site: jnp.zeros(prior.shape)})
        q = rule.family.build(jax.tree.unflatten(tree, parts), prior_distribution)
        return q, table.centres[index]

    return Term(
        group.name, frozenset(sites), density, 0, sum(num_statistics(r, priors[r.site]) for r in group.rules), read
    )

"""Sufficient statistics of the data, found from a program by probing.

Let a few sites x_1, ..., x_g have statistics t_1, ..., t_g, each with a leading 1. If the terms that they reach are
multilinear in them,

    l(x_1, ..., x_g) = sum over (i, ..., j) of M[i, ..., j] t_1[i](x_1) ... t_g[j](x_g),

then the table M is all that the data say. Its entries are read from values of l on a grid of probes, around a likely
value of every site, so that nothing is lost to rounding; the law of `bayeslab.verification.findings`, at other points,
proves or refutes it. Afterwards l and the conditionals of its sites cost nothing that depends on the number of rows.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.sweep import settled
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.transforms.row_statistics import Labelled, Sums, candidates, columns_of, residual, sums_of_columns
from bayeslab.transforms.site_statistics import count, direction
from bayeslab.transforms.tables import Group, Groups, compressed, summarised, table_size, tabulated
from bayeslab.verification.findings import LOOSE, Found, find_all, rules_of
from bayeslab.verification.identity import noise_for
from bayeslab.verification.likely_points import widened
from bayeslab.verification.probe_points import Point, further, points, usual

LARGEST = 4096
"""Entries of a table, at most."""
LEAST = 2000
"""Numbers that terms read and write, below which a table is not worth its compilation."""
TOLERANCE = 1e-9
SECONDS_A_NUMBER = 7e-10
"""That a term reads or writes, with its gradient (measured)."""
SECONDS = 5.0
"""That finding statistics takes, about."""


def compressible(bound: Bound, found: Sequence[Found]) -> Groups:
    """Groups of terms that a table replaces for less than they cost, proven on the data of the fit."""
    rules = {one.site: one.rule for one in found if one.rule is not None}
    groups = _groups(bound, rules)
    taken = {name for group in groups for name in group.terms}
    priors, of, *_ = terms(bound)
    rest = [term for term in of if term.name not in taken and term.cost >= LEAST]
    return (*_proven(bound, groups, tuple(rules.values())), *_labelled(bound, candidates(rest, priors, rules), rules))


def _proven(bound: Bound, groups: tuple[Group, ...], rules: tuple[Rule, ...]) -> tuple[Group, ...]:
    if not groups:
        return ()
    check = _law(groups, rules)
    checks = [evaluated([check], point)[0] for point in points(bound)]
    more = [evaluated([check], point)[0][0] for point in further(bound)]
    passed = []
    for place, group in enumerate(groups):
        refuted = any(residuals[place] > LOOSE for residuals in more)
        if not refuted and all(residuals[place] <= TOLERANCE for residuals, _ in checks):
            sites = checks[0][1][place]
            one = tuple(site for site in sites if all(apart[place][site] <= TOLERANCE for _, apart in checks))
            passed.append(group._replace(proportional=one))
    return tuple(passed)


def _labelled(bound: Bound, tried: Sequence[Labelled], rules: dict[str, Rule]) -> tuple[Labelled, ...]:
    """Those of which the rows have statistics, one for every term, with the columns that are there."""
    passed: dict[str, Labelled] = {}
    if tried:
        laws = [_labelled_law(one, tuple(rules.values())) for one in tried]
        wide = jax.tree.map(lambda *each: jnp.stack(each), *(values for _, values in usual(bound)))
        checks = [evaluated(laws, (point, wide)) for point in points(bound)]
        for place, one in enumerate(tried):
            residuals, farther, sums = zip(*(check[place] for check in checks), strict=True)
            refuted = any(some > LOOSE for some in farther)
            if not refuted and max(residuals) <= TOLERANCE and one.replaced not in passed:
                passed[one.replaced] = one._replace(columns=columns_of(sums))
    return tuple(passed.values())


@lru_cache(maxsize=64)
def _labelled_law(one: Labelled, rules: tuple[Rule, ...]) -> Callable[[Any], tuple[Array, Array, Sums]]:
    """Of a point and other values, several on a first axis: the residual at the point and the largest at the others,
    and the sums of columns. The label, the only discrete site of the term, is random."""

    def check(given: tuple[Point, Values]) -> tuple[Array, Array, Sums]:
        (bound, values), others = given
        priors, of, *_ = terms(bound)
        likely = settled(jax.random.PRNGKey(4), rules, bound, values)
        table = one.table(of, priors, bound, likely)
        every = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), values, others)
        errors = jax.lax.map(lambda other: residual(one, table, of, priors, bound, likely, other), every)
        return errors[0], jnp.nanmax(errors), sums_of_columns(one, table, priors, likely)

    return check


def compress(bound: Bound) -> Bound:
    """The same posterior with the rows of the data replaced by their sufficient statistics, where these are found.

    It has the same sites and the same log joint to rounding, at a cost that does not grow with the number of rows, or
    grows less. What needs rows, such as `predict`, takes the Bound that it was made of.
    Raises ValueError with the reasons where no statistics replace rows.
    """
    found = find_all(bound)
    with jax.enable_x64(True):
        groups = compressible(widened(bound.plain), found)
    if not groups:
        raise ValueError(f"no statistics replace the rows of this program{why_not(found)}")
    return summarised(groups, rules_of(found), bound)


def pays(bound: Bound, evaluations: int) -> bool:
    """Whether so many evaluations of the log joint take longer than finding statistics for it."""
    priors, of, *_ = terms(bound.plain)

    def numbers(term: Term) -> int:
        return term.cost * prod(priors[name].num_labels or 1 for name in term.depends)

    return evaluations * sum(map(numbers, of)) * SECONDS_A_NUMBER > SECONDS


def why_not(found: Sequence[Found]) -> str:
    """What to say where nothing is compressible."""
    reasons = "; ".join(f"site '{one.site}': {one.reason}" for one in found if one.rule is None)
    return f" ({reasons})" if reasons else ": there are few of them, or each says something of its own"


def _groups(bound: Bound, rules: dict[str, Rule]) -> tuple[Group, ...]:
    """The largest sets of sites with statistics that meet in a term, with all terms that they reach, if that pays."""
    priors, of, *_ = terms(bound)
    able = {name for name, rule in rules.items() if count(rule, priors[name])}
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


@lru_cache(maxsize=64)
def _law(
    groups: tuple[Group, ...], rules: tuple[Rule, ...]
) -> Callable[[Point], tuple[list[Array], list[dict[str, Array]]]]:
    """The largest relative difference between terms and their tables, for every group.

    With it, for joint Normal sites, how far their precision matrix is from multiples of one matrix.
    """

    def residuals(point: Point) -> tuple[list[Array], list[dict[str, Array]]]:
        bound, values = point
        priors, of, *_ = terms(bound)
        values = settled(jax.random.PRNGKey(4), rules, bound, values)
        tables = tabulated(groups, bound, values)
        values = values | tables
        new = {term.name: term for term in compressed(groups, bound)}
        directions: list[dict[str, Array]] = []
        for group in groups:
            joint = [place for place, rule in enumerate(group.rules) if rule.coupled]
            site = [rule.site for rule in group.rules]
            table = tables[group.name]
            directions.append({site[i]: direction(group.rules[i], i, priors[site[i]], table)[0] for i in joint})
        return [_residual(group, new[group.name], of, bound, values) for group in groups], directions

    return residuals


def _residual(group: Group, table: Term, of: Sequence[Term], bound: Bound, values: Values) -> Array:
    priors = terms(bound).priors
    mine = [term for term in of if term.name in group.terms]
    moves = noise_for(bound, seed=0)
    drawn = {}
    for rule in group.rules:
        here = values[rule.site]
        q = conditional(rule, of, bound, values, near=here).distribution
        drawn[rule.site] = rule.family.around(q, here, moves[str(priors[rule.site].shape)], None)

    def difference(index: Array) -> tuple[Array, Array]:
        places = [(index + place) % len(drawn[rule.site]) for place, rule in enumerate(group.rules)]
        given = values | {r.site: drawn[r.site][p] for r, p in zip(group.rules, places, strict=True)}
        parts = [term.density(bound, given) for term in mine]
        size = jnp.asarray(sum(jnp.abs(part).sum() for part in parts))
        return sum(part.sum() for part in parts) - table.density(bound, given), size

    error, size = jax.lax.map(difference, jnp.arange(2 * len(next(iter(drawn.values())))))
    return (jnp.abs(error - error[0]) / (size + size[0])).max()

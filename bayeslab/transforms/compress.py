"""Sufficient statistics of the data, found from a program by probing.

Let a few sites x_1, ..., x_g have statistics t_1, ..., t_g, each with a leading 1. If the terms that they reach are
multilinear in them,

    l(x_1, ..., x_g) = sum over (i, ..., j) of M[i, ..., j] t_1[i](x_1) ... t_g[j](x_g),

then the table M is all that the data say. Its entries are read from values of l on a grid of probes, around a likely
value of every site, so that nothing is lost to rounding; a numerical identity test at other points, as those of
`bayeslab.verification.findings`, proves or refutes it. Afterwards l and the conditionals of its sites cost nothing that
depends on the number of rows.
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
"""Largest difference between terms and their table, relative to the size of the terms."""
SECONDS_A_NUMBER = 7e-10
"""Seconds for each number that a term reads or writes, with its gradient (measured)."""
SECONDS = 5.0
"""Seconds that finding statistics takes, about."""


def compressible(bound: Bound, found: Sequence[Found]) -> Groups:
    """Groups of terms that a table replaces for less than they cost, proven on the data of the fit."""
    rules = {finding.site: finding.rule for finding in found if finding.rule is not None}
    groups = _groups(bound, rules)
    replaced = {name for group in groups for name in group.terms}
    priors, log_joint_terms, *_ = terms(bound)
    expensive = [term for term in log_joint_terms if term.name not in replaced and term.cost >= LEAST]
    return (
        *_proven(bound, groups, tuple(rules.values())),
        *_labelled(bound, candidates(expensive, priors, rules), rules),
    )


def _proven(bound: Bound, groups: tuple[Group, ...], rules: tuple[Rule, ...]) -> tuple[Group, ...]:
    """The groups whose tables pass the identity test, with the sites whose precision matrix is proportional."""
    if not groups:
        return ()
    check = _law(groups, rules)
    checks = [evaluated([check], point)[0] for point in points(bound)]
    extra_residuals = [evaluated([check], point)[0][0] for point in further(bound)]
    passed = []
    for index, group in enumerate(groups):
        refuted = any(residuals[index] > LOOSE for residuals in extra_residuals)
        if not refuted and all(residuals[index] <= TOLERANCE for residuals, _ in checks):
            sites = checks[0][1][index]
            proportional = tuple(
                site for site in sites if all(distances[index][site] <= TOLERANCE for _, distances in checks)
            )
            passed.append(group._replace(proportional=proportional))
    return tuple(passed)


def _labelled(bound: Bound, tried: Sequence[Labelled], rules: dict[str, Rule]) -> tuple[Labelled, ...]:
    """The candidates whose tables pass the identity test, one for every term, with the columns that are there."""
    passed: dict[str, Labelled] = {}
    if tried:
        laws = [_labelled_law(candidate, tuple(rules.values())) for candidate in tried]
        extra_values = jax.tree.map(lambda *each: jnp.stack(each), *(values for _, values in usual(bound)))
        checks = [evaluated(laws, (point, extra_values)) for point in points(bound)]
        for index, candidate in enumerate(tried):
            residuals, extra_residuals, sums = zip(*(check[index] for check in checks), strict=True)
            refuted = any(extra_residual > LOOSE for extra_residual in extra_residuals)
            if not refuted and max(residuals) <= TOLERANCE and candidate.replaced not in passed:
                passed[candidate.replaced] = candidate._replace(columns=columns_of(sums))
    return tuple(passed.values())


@lru_cache(maxsize=64)
def _labelled_law(one: Labelled, rules: tuple[Rule, ...]) -> Callable[[Any], tuple[Array, Array, Sums]]:
    """A function of a point and of other values, several on a first axis, that tests a table of row statistics.

    It gives the residual at the point, the largest residual at the others, and the sums of columns. The label, the only
    discrete site of the term, is random.
    """

    def check(argument: tuple[Point, Values]) -> tuple[Array, Array, Sums]:
        (bound, values), others = argument
        priors, log_joint_terms, *_ = terms(bound)
        likely = settled(jax.random.PRNGKey(4), rules, bound, values)
        table = one.table(log_joint_terms, priors, bound, likely)
        all_values = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), values, others)
        errors = jax.lax.map(
            lambda other: residual(one, table, log_joint_terms, priors, bound, likely, other), all_values
        )
        return errors[0], jnp.nanmax(errors), sums_of_columns(one, table, priors, likely)

    return check


def compress(bound: Bound) -> Bound:
    """The Bound with the rows of the data replaced by their sufficient statistics, where these are found.

    It has the same posterior, the same sites and the same log joint to rounding, at a cost that does not grow with the
    number of rows, or grows less. What needs rows, such as `predict`, takes the Bound that it was made of.
    Raises ValueError with the reasons where no statistics replace rows.
    """
    findings = find_all(bound)
    with jax.enable_x64(True):
        groups = compressible(widened(bound.plain), findings)
    if not groups:
        raise ValueError(f"no statistics replace the rows of this program{why_not(findings)}")
    return summarised(groups, rules_of(findings), bound)


def pays(bound: Bound, evaluations: int) -> bool:
    """Whether so many evaluations of the log joint take longer than finding statistics for it."""
    priors, log_joint_terms, *_ = terms(bound.plain)

    def numbers(term: Term) -> int:
        return term.cost * prod(priors[name].num_labels or 1 for name in term.depends)

    return evaluations * sum(map(numbers, log_joint_terms)) * SECONDS_A_NUMBER > SECONDS


def why_not(found: Sequence[Found]) -> str:
    """The reasons why nothing is compressible, in words that end an error message."""
    reasons = "; ".join(f"site '{finding.site}': {finding.reason}" for finding in found if finding.rule is None)
    return f" ({reasons})" if reasons else ": there are few of them, or each says something of its own"


def _groups(bound: Bound, rules: dict[str, Rule]) -> tuple[Group, ...]:
    """The largest sets of sites with statistics that meet in a term, with all terms that they reach, if that pays."""
    priors, log_joint_terms, *_ = terms(bound)
    with_statistics = {name for name, rule in rules.items() if count(rule, priors[name])}
    sets: list[frozenset[str]] = []
    for term in sorted(log_joint_terms, key=lambda term: -len(term.depends)):
        if term.depends and term.depends <= with_statistics and not any(term.depends <= other for other in sets):
            sets.append(term.depends)
    groups, replaced = [], set[str]()
    for sites in sets:
        group_terms = [
            term for term in log_joint_terms if term.depends and term.depends <= sites and term.name not in replaced
        ]
        group = Group(tuple(t.name for t in group_terms), tuple(rules[n] for n in priors if n in sites))
        size = table_size(group, bound)
        if size <= LARGEST and max(2 * size, LEAST) <= sum(term.cost for term in group_terms):
            groups.append(group)
            replaced |= set(group.terms)
    return tuple(groups)


@lru_cache(maxsize=64)
def _law(
    groups: tuple[Group, ...], rules: tuple[Rule, ...]
) -> Callable[[Point], tuple[list[Array], list[dict[str, Array]]]]:
    """A function of a point: the largest relative difference between terms and their tables, for every group.

    It also gives, for joint Normal sites, how far their precision matrix is from multiples of one matrix.
    """

    def residuals(point: Point) -> tuple[list[Array], list[dict[str, Array]]]:
        bound, values = point
        priors, log_joint_terms, *_ = terms(bound)
        values = settled(jax.random.PRNGKey(4), rules, bound, values)
        tables = tabulated(groups, bound, values)
        values = values | tables
        table_terms = {term.name: term for term in compressed(groups, bound)}
        directions: list[dict[str, Array]] = []
        for group in groups:
            coupled = [index for index, rule in enumerate(group.rules) if rule.coupled]
            sites = [rule.site for rule in group.rules]
            table = tables[group.name]
            directions.append({sites[i]: direction(group.rules[i], i, priors[sites[i]], table)[0] for i in coupled})
        return [
            _residual(group, table_terms[group.name], log_joint_terms, bound, values) for group in groups
        ], directions

    return residuals


def _residual(group: Group, table: Term, of: Sequence[Term], bound: Bound, values: Values) -> Array:
    """The largest relative difference between the terms of a group and their table, as its sites move."""
    priors = terms(bound).priors
    group_terms = [term for term in of if term.name in group.terms]
    moves = noise_for(bound, seed=0)
    probes = {}
    for rule in group.rules:
        current = values[rule.site]
        q = conditional(rule, of, bound, values, near=current).distribution
        probes[rule.site] = rule.family.around(q, current, moves[str(priors[rule.site].shape)], None)

    def difference(index: Array) -> tuple[Array, Array]:
        indices = [(index + offset) % len(probes[rule.site]) for offset, rule in enumerate(group.rules)]
        probe_values = values | {r.site: probes[r.site][p] for r, p in zip(group.rules, indices, strict=True)}
        parts = [term.density(bound, probe_values) for term in group_terms]
        size = jnp.asarray(sum(jnp.abs(part).sum() for part in parts))
        return sum(part.sum() for part in parts) - table.density(bound, probe_values), size

    error, size = jax.lax.map(difference, jnp.arange(2 * len(next(iter(probes.values())))))
    return (jnp.abs(error - error[0]) / (size + size[0])).max()

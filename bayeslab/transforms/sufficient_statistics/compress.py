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
from bayeslab.elimination.sweep import gibbs_start
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.transforms.sufficient_statistics.row_statistics import (
    ColumnSums,
    LabelledTerm,
    column_sums,
    labelled_candidates,
    labelled_residual,
    proportional_columns,
)
from bayeslab.transforms.sufficient_statistics.site_statistics import num_statistics, precision_direction
from bayeslab.transforms.sufficient_statistics.tables import (
    Group,
    Groups,
    build_tables,
    compressed_terms,
    replace_rows,
    table_size,
)
from bayeslab.verification.findings import LOOSE_TOLERANCE, Finding, find_conditionals, rules_of
from bayeslab.verification.identity import probe_noise
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import Point, extra_points, generic_points, prior_scale_points

MAX_TABLE_ENTRIES = 4096
"""Entries of a table, at most."""
MIN_TERM_COST = 2000
"""Numbers that terms read and write, below which a table is not worth its compilation."""
TABLE_TOLERANCE = 1e-9
"""Largest difference between terms and their table, relative to the size of the terms."""
SECONDS_PER_NUMBER = 7e-10
"""Seconds for each number that a term reads or writes, with its gradient (measured)."""
SEARCH_SECONDS = 5.0
"""Seconds that finding statistics takes, about."""


def compressible(bound: Bound, findings: Sequence[Finding]) -> Groups:
    """Groups of terms that a table replaces for less than they cost, proven on the data of the fit."""
    rules = {finding.site: finding.rule for finding in findings if finding.rule is not None}
    groups = _worthwhile_groups(bound, rules)
    replaced = {name for group in groups for name in group.terms}
    priors, log_joint_terms, *_ = terms(bound)
    expensive = [term for term in log_joint_terms if term.name not in replaced and term.cost >= MIN_TERM_COST]
    return (
        *_verified_groups(bound, groups, tuple(rules.values())),
        *_verified_labelled_terms(bound, labelled_candidates(expensive, priors, rules), rules),
    )


def _verified_groups(bound: Bound, groups: tuple[Group, ...], rules: tuple[Rule, ...]) -> tuple[Group, ...]:
    """The groups whose tables pass the identity test, with the sites whose precision matrix is proportional."""
    if not groups:
        return ()
    check = _table_check(groups, rules)
    checks = [evaluate_all([check], point)[0] for point in generic_points(bound)]
    extra_residuals = [evaluate_all([check], point)[0][0] for point in extra_points(bound)]
    passed = []
    for index, group in enumerate(groups):
        refuted = any(residuals[index] > LOOSE_TOLERANCE for residuals in extra_residuals)
        if not refuted and all(residuals[index] <= TABLE_TOLERANCE for residuals, _ in checks):
            sites = checks[0][1][index]
            proportional = tuple(
                site for site in sites if all(distances[index][site] <= TABLE_TOLERANCE for _, distances in checks)
            )
            passed.append(group._replace(proportional=proportional))
    return tuple(passed)


def _verified_labelled_terms(
    bound: Bound, labelled_terms: Sequence[LabelledTerm], rules: dict[str, Rule]
) -> tuple[LabelledTerm, ...]:
    """The candidates whose tables pass the identity test, one for every term, with the columns that are there."""
    passed: dict[str, LabelledTerm] = {}
    if labelled_terms:
        laws = [_labelled_check(candidate, tuple(rules.values())) for candidate in labelled_terms]
        extra_values = jax.tree.map(lambda *each: jnp.stack(each), *(values for _, values in prior_scale_points(bound)))
        checks = [evaluate_all(laws, (point, extra_values)) for point in generic_points(bound)]
        for index, candidate in enumerate(labelled_terms):
            residuals, extra_residuals, sums = zip(*(check[index] for check in checks), strict=True)
            refuted = any(extra_residual > LOOSE_TOLERANCE for extra_residual in extra_residuals)
            if not refuted and max(residuals) <= TABLE_TOLERANCE and candidate.replaced not in passed:
                passed[candidate.replaced] = candidate._replace(columns=proportional_columns(sums))
    return tuple(passed.values())


@lru_cache(maxsize=64)
def _labelled_check(
    labelled_term: LabelledTerm, rules: tuple[Rule, ...]
) -> Callable[[Any], tuple[Array, Array, ColumnSums]]:
    """A function of a point and of other values, several on a first axis, that tests a table of row statistics.

    It gives the residual at the point, the largest residual at the others, and the sums of columns. The label, the only
    discrete site of the term, is random.
    """

    def check(argument: tuple[Point, Values]) -> tuple[Array, Array, ColumnSums]:
        (bound, values), others = argument
        priors, log_joint_terms, *_ = terms(bound)
        likely = gibbs_start(jax.random.PRNGKey(4), rules, bound, values)
        table = labelled_term.table(log_joint_terms, priors, bound, likely)
        all_values = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), values, others)
        errors = jax.lax.map(
            lambda other: labelled_residual(labelled_term, table, bound, likely, other),
            all_values,
        )
        return errors[0], jnp.nanmax(errors), column_sums(labelled_term, table, priors, likely)

    return check


def compress(bound: Bound) -> Bound:
    """The Bound with the rows of the data replaced by their sufficient statistics, where these are found.

    It has the same posterior, the same sites and the same log joint to rounding, at a cost that does not grow with the
    number of rows, or grows less. What needs rows, such as `predict`, takes the Bound that it was made of.
    Raises ValueError with the reasons where no statistics replace rows.
    """
    findings = find_conditionals(bound)
    with jax.enable_x64(True):
        groups = compressible(in_double_precision(bound.plain), findings)
    if not groups:
        raise ValueError(f"no statistics replace the rows of this program{reasons_against_compression(findings)}")
    return replace_rows(groups, rules_of(findings), bound)


def is_worthwhile(bound: Bound, evaluations: int) -> bool:
    """Whether so many evaluations of the log joint take longer than finding statistics for it."""
    priors, log_joint_terms, *_ = terms(bound.plain)

    def numbers(term: Term) -> int:
        return term.cost * prod(priors[name].num_labels or 1 for name in term.depends)

    return evaluations * sum(map(numbers, log_joint_terms)) * SECONDS_PER_NUMBER > SEARCH_SECONDS


def reasons_against_compression(findings: Sequence[Finding]) -> str:
    """The reasons why nothing is compressible, in words that end an error message."""
    reasons = "; ".join(f"site '{finding.site}': {finding.reason}" for finding in findings if finding.rule is None)
    return f" ({reasons})" if reasons else ": there are few of them, or each says something of its own"


def _worthwhile_groups(bound: Bound, rules: dict[str, Rule]) -> tuple[Group, ...]:
    """The largest sets of sites with statistics that meet in a term, with all terms that they reach, if that pays."""
    priors, log_joint_terms, *_ = terms(bound)
    with_statistics = {name for name, rule in rules.items() if num_statistics(rule, priors[name])}
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
        if size <= MAX_TABLE_ENTRIES and max(2 * size, MIN_TERM_COST) <= sum(term.cost for term in group_terms):
            groups.append(group)
            replaced |= set(group.terms)
    return tuple(groups)


@lru_cache(maxsize=64)
def _table_check(
    groups: tuple[Group, ...], rules: tuple[Rule, ...]
) -> Callable[[Point], tuple[list[Array], list[dict[str, Array]]]]:
    """A function of a point: the largest relative difference between terms and their tables, for every group.

    It also gives, for joint Normal sites, how far their precision matrix is from multiples of one matrix.
    """

    def residuals(point: Point) -> tuple[list[Array], list[dict[str, Array]]]:
        bound, values = point
        priors, log_joint_terms, *_ = terms(bound)
        values = gibbs_start(jax.random.PRNGKey(4), rules, bound, values)
        tables = build_tables(groups, bound, values)
        values = values | tables
        table_terms = {term.name: term for term in compressed_terms(groups, bound)}
        directions: list[dict[str, Array]] = []
        for group in groups:
            coupled = [index for index, rule in enumerate(group.rules) if rule.coupled]
            sites = [rule.site for rule in group.rules]
            table = tables[group.name]
            directions.append(
                {sites[i]: precision_direction(group.rules[i], i, priors[sites[i]], table)[0] for i in coupled}
            )
        return [
            _table_residual(group, table_terms[group.name], log_joint_terms, bound, values) for group in groups
        ], directions

    return residuals


def _table_residual(group: Group, table: Term, log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> Array:
    """The largest relative difference between the terms of a group and their table, as its sites move."""
    priors = terms(bound).priors
    group_terms = [term for term in log_joint_terms if term.name in group.terms]
    moves = probe_noise(bound, seed=0)
    probes = {}
    for rule in group.rules:
        current = values[rule.site]
        q = conditional(rule, log_joint_terms, bound, values, initial=current).distribution
        probes[rule.site] = rule.family.around(q, current, moves[str(priors[rule.site].shape)], None)

    def difference(index: Array) -> tuple[Array, Array]:
        indices = [(index + offset) % len(probes[rule.site]) for offset, rule in enumerate(group.rules)]
        probe_values = values | {r.site: probes[r.site][p] for r, p in zip(group.rules, indices, strict=True)}
        parts = [term.density(bound, probe_values) for term in group_terms]
        size = jnp.asarray(sum(jnp.abs(part).sum() for part in parts))
        return sum(part.sum() for part in parts) - table.density(bound, probe_values), size

    error, size = jax.lax.map(difference, jnp.arange(2 * len(next(iter(probes.values())))))
    return (jnp.abs(error - error[0]) / (size + size[0])).max()

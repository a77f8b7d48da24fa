"""Expectations of the log joint over some sites, exactly.

As a function of a site whose conditional was found, every term of the log joint is linear in a few statistics. So it is
averaged over the choices of a discrete site, element by element, or over a few points that have the right mean
statistics (`bayeslab.elimination.cubature`). Nothing is integrated by hand, and nothing is drawn.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions import MarkovChain
from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution
from bayeslab.distributions.factor_graphs.totals_distribution import TotalsDistribution
from bayeslab.distributions.markov.scored.table_chain import TableChain
from bayeslab.elimination.conditional import Rule, conditional, elimination_stages, sum_to_site
from bayeslab.elimination.discrete.chains.tables import chain_tables
from bayeslab.elimination.discrete.joint import joint_tables
from bayeslab.elimination.family import Family, SiteFunction
from bayeslab.elimination.terms import Prior, Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.tracing.repeated_axes import evaluate_at_choices
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.verification.identity import ALL_PROBES, RESIDUAL_TOLERANCE, identity_check, probe_noise
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import Point, generic_points

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of a value at which it is seen what a log joint is made of."""
AVERAGE_TOLERANCE = 1e-8
"""What the log joint has besides statistics that are averaged over may depend on other sites by no more, relatively."""

Moments = Any
"""What expectations over a site need: the probabilities of its choices (*site, K), cubature points (point, *site), or
the distribution of a discrete site whose elements depend on each other."""


def moments_of_conditional(family: Family, q: Distribution) -> Moments:
    """What expectations need of a conditional: probabilities, cubature points or the distribution."""
    if family.enumerates:
        return innermost_distribution(q).probs
    if isinstance(q, FactorDistribution | TableChain | TotalsDistribution):
        return q.table_probs()
    if family.structured:
        inner = innermost_distribution(q)
        return inner.with_cached_expectations() if isinstance(inner, MarkovChain) else inner
    assert family.points is not None
    return family.points(q)


def named_moments(rule: Rule, q: Distribution) -> dict[str, Moments]:
    """What expectations over the sites of a rule need, by site; points of several sites belong together."""
    moments = moments_of_conditional(rule.family, q)
    return {rule.site: moments} if rule.block is None else rule.named(moments)


def entropy(family: Family, q: Distribution) -> Array:
    """The entropy of a conditional, scalar."""
    moments = moments_of_conditional(family, q)
    if family.enumerates:
        return -jax.scipy.special.xlogy(moments, moments).sum()
    if family.expected is not None:
        return -family.expected(moments, moments).sum()
    return -jax.vmap(lambda x: q.log_prob(x).sum())(moments).mean()


def expected_prior(
    rule: Rule, prior: Prior, blocks: Sequence[tuple[Rule, ...]], bound: Bound, values: Values
) -> Distribution | None:
    """The prior that a conditional updates, from the mean of what its log density is linear in.

    The mean is over the blocks that reach the site. None for other sites: their terms say all that their conditionals
    need. values: with points of the blocks.
    """
    if rule.family.linear is None:
        return None
    forth, back = rule.family.linear
    points = [
        {name: values[moment_key(name)] for r in block for name in r.sites if name in prior.depends} for block in blocks
    ]

    def mean(chosen: Values, remaining: list[Values]) -> Any:
        if not remaining:
            return forth(
                innermost_distribution(
                    prior.distribution(bound, values | chosen | {rule.site: jnp.zeros(prior.shape, int)})
                )
            )
        means = jax.vmap(lambda point: mean(chosen | point, remaining[1:]))(remaining[0])
        return jax.tree.map(lambda leaf: leaf.mean(0) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf[0], means)

    return back(mean({}, [block_points for block_points in points if block_points]))


def moment_key(site: str) -> str:
    """The key among the values of what expectations over a site need."""
    return f"density of {site}"


@lru_cache(maxsize=1024)
def expected_terms(
    rule: Rule, log_joint_terms: tuple[Term, ...], stage: tuple[Term, ...] | None = None
) -> tuple[Term, ...]:
    """The terms with those that a site reaches replaced by their expectations over it; cached.

    stage: the terms under which the site has its conditional, at the values of the others that "given" has and, of
    sites drawn after it, at those of the expectation. Without it the moments of the site are among the values.
    """
    reached = rule.reached(log_joint_terms)
    if rule.field is not None:
        return (*(term for term in log_joint_terms if term not in reached), _expected_tables(rule, reached))
    return tuple(_expected_term(rule, term, stage) if term in reached else term for term in log_joint_terms)


@lru_cache(maxsize=1024)
def jointly_expected_terms(block: tuple[Rule, ...], log_joint_terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The expectations of terms over several sites at once, whose points are among the values and belong together."""
    sites = frozenset(name for rule in block for name in rule.sites)

    def average(term: Term) -> Term:
        def mean(bound: Bound, values: Values) -> Array:
            points = {site: values[moment_key(site)] for site in sites & term.depends}
            return jax.vmap(lambda at: term.density(bound, values | at))(points).mean(0)

        choices = None
        if term.choices is not None:
            at_all_choices = average(term._replace(density=term.choices.statistics, choices=None))
            choices = term.choices._replace(statistics=at_all_choices.density)
        return term._replace(density=mean, depends=term.depends - sites, reader=None, choices=choices)

    return tuple(term if sites.isdisjoint(term.depends) else average(term) for term in log_joint_terms)


def require_linear(log_joint_terms: tuple[Term, ...], block: tuple[Rule, ...], points: Sequence[Point]) -> None:
    """Raises ValueError unless terms have expectations over several sites, each given those eliminated after it.

    For every site the mean over those before it must be linear in its statistics, and their evidence too; the first has
    none before it, and averages over the sites of other blocks change nothing about that.
    points: points in double precision, whose values have "given", see `expected_terms`.
    """
    if len(block) == 1:
        return  # verified already
    before = elimination_stages(block, log_joint_terms)
    checks, expected = [], expected_terms(block[0], log_joint_terms, before[0])
    for rule, stage in zip(block[1:], before[1:], strict=True):
        checks += [(rule, identity_check(stage, rule)), (rule, identity_check(expected, rule))]
        expected = expected_terms(rule, expected, stage)
    with jax.enable_x64(True):
        noise, laws = probe_noise(points[0][0]), [check for _, check in checks]
        residuals = [
            [verdict.residual for verdict in evaluate_all(laws, (*point, noise, ALL_PROBES))] for point in points
        ]
    for (rule, _), residual in zip(checks, np.max(residuals, axis=0).tolist(), strict=True):
        if not residual <= RESIDUAL_TOLERANCE:
            others = " and ".join(f"'{other.site}'" for other in block if other != rule)
            raise ValueError(
                f"the mean of the log joint over {others} given site '{rule.site}' is not linear in statistics of "
                f"'{rule.site}' ({rule.family.name}), so it cannot be averaged over them jointly"
            )


def require_averages(rules: Sequence[Rule], bound: Bound) -> None:
    """Raises ValueError unless points leave out nothing of an expectation that depends on other sites.

    Points of some families have the means of some statistics only (`Family.averaged`). Between two values of all other
    sites the log joint must change by these alone, as a function of multiples of one value.
    """
    partly_averaged = [rule for rule in rules if rule.family.averaged is not None]
    if not partly_averaged:
        return
    with jax.enable_x64(True):
        (_, first), (plain, second) = generic_points(in_double_precision(bound))
        for rule in partly_averaged:
            reached, middle = rule.reached(terms(bound).terms), first[rule.site]

            def change(argument: tuple[Bound, Values, Values], rule: Rule = rule, reached: Any = reached) -> Array:
                plain, one, other = argument
                return sum_of_terms(reached, plain, one) - sum_of_terms(reached, plain, other)

            changes = [
                float(evaluate_all([change], (plain, *({**v, rule.site: c * middle} for v in (first, second))))[0])
                for c in MULTIPLES
            ]
            assert rule.family.averaged is not None
            statistics = [np.asarray(each) for each in rule.family.averaged(jnp.asarray(MULTIPLES))]
            columns = np.stack([np.ones(len(MULTIPLES)), *statistics], axis=1)
            left = changes - columns @ np.linalg.lstsq(columns, changes)[0]
            if not np.abs(left).max() <= AVERAGE_TOLERANCE * (1 + np.ptp(changes)):
                raise ValueError(
                    f"site '{rule.site}': the log joint has no mean over it in closed form, since more than a tilt of "
                    f"its {rule.family.name} distribution depends on other latent sites"
                )


def _expected_tables(rule: Rule, reached: Sequence[Term]) -> Term:
    """The mean of some terms over discrete sites that meet, from the probabilities of all numbers of their tables."""

    def mean(bound: Bound, values: Values) -> Array:
        assert rule.field is not None
        read = joint_tables if rule.field.chain is None else chain_tables
        tables = read(rule.field, reached, bound, values)
        pairs = zip(jax.tree.leaves(values[moment_key(rule.site)]), jax.tree.leaves(tables.numbers), strict=True)
        pairs_of_read = ((p[: len(numbers)], numbers) for p, numbers in pairs)  # tables of totals say nothing
        return sum((jnp.where(p == 0, 0.0, p * numbers).sum() for p, numbers in pairs_of_read), tables.constant)

    holds = frozenset().union(*(term.holds or {term.name} for term in reached))
    kinks = frozenset().union(*(term.kinks for term in reached))
    return Term(f"mean over {rule.site}", rule.blanket(reached), mean, None, holds=holds, kinks=kinks)


def _expected_term(rule: Rule, term: Term, stage: tuple[Term, ...] | None) -> Term:
    def mean(bound: Bound, values: Values) -> Array:
        if stage is None:
            moments = {name: values[moment_key(name)] for name in rule.sites}
        else:
            others = {name: values[name] for name in rule.blanket(stage) if name in values}
            given: Any = values["given"]
            moments = named_moments(rule, conditional(rule, stage, bound, others | given).distribution)
        if rule.block is not None:
            return jax.vmap(lambda points: term.density(bound, values | points))(moments).mean(0)
        return _term_mean(rule, terms(bound).priors[rule.site], term, moments[rule.site], bound, values)

    depends, batch_ndim, choices = term.depends - set(rule.sites), term.batch_ndim, None
    if stage is not None:
        depends |= rule.blanket(stage)
    if term.choices is not None and term.choices.site == rule.site:
        batch_ndim = term.choices.batch_ndim
    elif term.choices is not None and stage is None and not (rule.family.enumerates or rule.family.structured):
        at_all_choices = term._replace(
            density=term.choices.statistics, choices=None, name=f"{term.name} at all choices"
        )
        choices = term.choices._replace(statistics=_expected_term(rule, at_all_choices, None).density)
    return term._replace(density=mean, depends=depends, reader=None, batch_ndim=batch_ndim, choices=choices)


def _term_mean(rule: Rule, prior: Prior, term: Term, moments: Moments, bound: Bound, values: Values) -> Array:
    """The expectation of a term over a site, an array of its own shape."""

    def density_at(x: Array) -> Array:
        return term.density(bound, values | {rule.site: x})

    if term.choices is not None and term.choices.site == rule.site:
        return term.choices.mean(bound, values, moments)
    if rule.family.enumerates:
        return _mean_over_choices(density_at, moments, prior.choices, term, prior)
    if rule.family.expected is not None:
        if term.name == rule.site:
            prior_distribution = innermost_distribution(
                prior.distribution(bound, values | {rule.site: jnp.zeros(prior.shape, int)})
            )
            return rule.family.expected(prior_distribution, moments)
        marginals = moments.marginals()
        return _mean_over_choices(density_at, marginals, np.arange(marginals.shape[-1]), term, prior)
    return jax.vmap(density_at)(moments).mean(0)


def _mean_over_choices(density_at: SiteFunction, probs: Array, choices: Any, term: Term, prior: Prior) -> Array:
    """The expectation of a term over a discrete site, from all elements at every choice at once.

    Probabilities are taken to the elements of the term that the site reaches.
    """
    densities = evaluate_at_choices(density_at, choices, prior.shape)
    described = jax.ShapeDtypeStruct(densities.shape[1:], densities.dtype)
    to_elements = jax.linear_transpose(lambda part: sum_to_site(part, term, prior)[0], described)
    all_probs = jnp.broadcast_to(probs, (*prior.shape, len(choices)))
    [weights] = jax.vmap(to_elements, -1)(all_probs)
    return jnp.where(weights == 0, 0.0, weights * densities).sum(0)

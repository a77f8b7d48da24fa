"""The finding for every site: a rule that is verified, or the reason why there is none.

A rule is verified by an identity test (`bayeslab.verification.identity`) at points of the other sites on several
scales: that of their priors, that of the data, to which a few sweeps of the conditionals lead, and between; with the
data of the fit and with others, and with other choices of discrete sites. A continuous site must also reach no
operation whose branch it can change (`bayeslab.verification.branch_points`). A family that fails is refused, never
used.

A Student-t with 200 degrees of freedom in place of a Normal leaves 6e-4, a true Normal with a million rows 1e-11.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import DiscreteUniform

from bayeslab.elimination.around import halves
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import families_of
from bayeslab.elimination.terms import Prior, Term, terms, total
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.verification.branch_points import broken
from bayeslab.verification.identity import TOLERANCE, law, noise_for
from bayeslab.verification.likely_points import likely_points, widened
from bayeslab.verification.probe_points import Point, choices, points, usual
from bayeslab.verification.undefined import impossible, undefined

LOOSE = 1e-5
"""Tolerance of residuals where values may be extreme. What is no number there says nothing."""
SILENT = 1e-9
"""Share of the change below which children are lost in rounding, and refute nothing."""


class Found(NamedTuple):
    """What was found for a site: a rule with the residual of the identity test, or None and the reason.

    children: the terms that the site reaches, its own prior apart.
    share: the largest share of the children in what changes with the site where the rule was tested.
    """

    site: str
    children: tuple[str, ...]
    rule: Rule | None
    residual: float
    reason: str
    share: float = 1.0

    def refused(self, reason: str, residual: float = np.nan) -> Self:
        """The finding without its rule, and with the reason."""
        return self._replace(rule=None, reason=reason, residual=residual)


def rules_of(found: Iterable[Found]) -> tuple[Rule, ...]:
    """The rules of the sites that have one."""
    return tuple(one.rule for one in found if one.rule is not None)


def find(bound: Bound, site: str) -> Found:
    """The rule that eliminates one site, or the reason why there is none; see `find_conditionals`."""
    return find_all(bound, [site])[0]


def find_all(bound: Bound, sites: Sequence[str] | None = None) -> list[Found]:
    """For each site, the verified rule that eliminates it given all others, or the reason why there is none.

    What is compiled for one site serves all others whose densities read the same. `bayeslab.transforms.analysis` keeps
    the answer.
    """
    sites = bound.latent if sites is None else sites
    with jax.enable_x64(True):
        widened_bound = widened(bound)
        log_joint_terms = terms(widened_bound).terms
        findings = prove(widened_bound, log_joint_terms, sites)
        data_points = likely_points(widened_bound, rules_of(findings))
        findings = asked_again(widened_bound, log_joint_terms, findings, data_points)
        return [_named(_unbroken(finding, widened_bound, data_points), widened_bound) for finding in findings]


def prove(bound: Bound, of: tuple[Term, ...], names: Sequence[str]) -> list[Found]:
    """Findings under the sum of some terms, verified where values are as they are in priors.

    Sites may have been integrated out of these terms already.
    """
    priors = terms(bound).priors
    families = {name: families_of(priors[name]) for name in names}
    normal = tuple(name for name in names if any(family.joint for family in families[name]))
    generic_pair, chosen = points(bound), choices(bound)
    axis_checks = [_coupled(of, name) for name in normal]
    couplings = zip(*(evaluated(axis_checks, point) for point in (generic_pair[0], *chosen)), strict=True)
    coupled = {name: np.any(meets, axis=0) for name, meets in zip(normal, couplings, strict=True)}
    rules, children = [], {}
    for name in names:
        axes = tuple(int(i) for i in np.flatnonzero(coupled[name])) if name in normal else ()
        children[name] = tuple(term.name for term in of if name in term.depends and term.name != name)
        rules += [Rule(name, family, axes, children[name]) for family in families[name]]
    noise, residuals, shares = noise_for(bound), dict.fromkeys(rules, 0.0), dict.fromkeys(rules, 0.0)
    possible: set[Rule] = set()  # with the data of the fit

    def ask(asked: Sequence[Rule], point: Point, brief: bool) -> Iterator[tuple[Rule, float]]:
        verdicts = evaluated([law(of, rule) for rule in asked], (*point, noise, brief))
        for rule, verdict in zip(asked, verdicts, strict=True):
            shares[rule] = max(shares[rule], float(verdict.share))
            if verdict.possible and point is not generic_pair[0]:
                possible.add(rule)
            yield rule, float(verdict.residual)

    for point in generic_pair:
        for rule, residual in ask(rules, point, False):
            residuals[rule] = np.maximum(residuals[rule], residual)  # not a number where one is none
    passed = [rule for rule in rules if residuals[rule] <= TOLERANCE]
    for point in (*chosen, *usual(bound)):
        for rule, residual in ask(passed, point, True):
            if residual > LOOSE:
                residuals[rule] = max(residuals[rule], residual)
    tried = [(rule, float(residuals[rule]), shares[rule]) for rule in rules]
    findings = [_found(priors[n], children[n], [trial for trial in tried if trial[0].site == n]) for n in names]
    return [
        finding
        if finding.rule is None or finding.rule in possible
        else finding.refused(impossible(of, finding.rule, generic_pair[1]))
        for finding in findings
    ]


def asked_again(bound: Bound, of: tuple[Term, ...], found: Sequence[Found], places: Sequence[Point]) -> list[Found]:
    """The findings without the rules that do not hold at some more points."""
    rules, noise, findings_by_site = rules_of(found), noise_for(bound), {finding.site: finding for finding in found}
    for point in places:
        verdicts = evaluated([law(of, rule) for rule in rules], (*point, noise, True))
        for rule, verdict in zip(rules, verdicts, strict=True):
            finding, residual = findings_by_site[rule.site], float(verdict.residual)
            finding = finding._replace(share=max(finding.share, float(verdict.share)))
            findings_by_site[rule.site] = (
                finding.refused(_why(rule), residual) if residual > LOOSE and finding.rule is not None else finding
            )
    return [_heard(finding) for finding in findings_by_site.values()]


def _heard(one: Found) -> Found:
    """The finding, refused where no value that was tried changed the children, as where all of them overflow."""
    if one.rule is None or not 0 < one.share < SILENT:
        return one
    return one.refused(f"what {_listed(one.children)} says of it is lost in rounding wherever it was tried")


def _unbroken(one: Found, bound: Bound, places: Sequence[Point]) -> Found:
    """The finding, refused where the site changes the branch of an operation that is not analytic in it."""
    if bound.sites[one.site].is_discrete or not families_of(terms(bound).priors[one.site]):
        return one
    kink = broken(bound, one.site, one.rule, [*points(bound), *places])
    if kink is None:
        return one
    where = next(term.name for term in terms(bound).terms if kink.path in term.kinks and one.site in term.depends)
    return one.refused(f"`{kink.operation}` on '{one.site}' in '{where}'")


def _named(one: Found, bound: Bound) -> Found:
    """The finding, with the density that is not a number as the reason, if one is."""
    if one.rule is not None or not np.isnan(one.residual) or one.reason.startswith("`"):
        return one
    if bound.sites[one.site].is_discrete or not families_of(terms(bound).priors[one.site]):
        return one
    told = undefined(terms(bound).terms, [one.site], points(bound)[1])
    return one if told is None else one.refused(told)


def _found(prior: Prior, children: tuple[str, ...], tried: list[tuple[Rule, float, float]]) -> Found:
    """The finding with the first rule that passes the identity test, else why the last one does not."""
    for rule, residual, share in tried:
        if residual <= TOLERANCE:
            return Found(prior.name, children, rule, residual, "", share)
    if not tried:
        several = "has bounds that differ between elements or are data, so no fixed values to enumerate"
        discrete = several if prior.kind is DiscreteUniform else "has too many values to enumerate"
        why = discrete if prior.discrete else "has no family"
        return Found(prior.name, children, None, np.nan, f"a {prior.kind.__name__} {why}")
    rule, residual, _ = tried[-1]
    return Found(prior.name, children, None, residual, _why(rule))


def _why(rule: Rule) -> str:
    """Why a rule does not hold, in words."""
    children = _listed(rule.children)
    return f"its elements meet in {children}" if rule.family.enumerates else f"not {rule.family.name} given {children}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "its prior"


@lru_cache(maxsize=1024)
def _coupled(of: tuple[Term, ...], name: str) -> Callable[[Point], Array]:
    """A function of a point: for every axis of a site, whether elements along it meet in the log joint.

    The site is moved at half of the positions, those with a given bit in their number, and the gradient of the log
    joint, a quadratic function, is compared at the others: any two positions differ in some bit.
    """
    site_terms = [term for term in of if name in term.depends]

    def meetings(point: Point) -> Array:
        bound, values = point

        def density(x: Array) -> Array:
            return total(site_terms, bound, values | {name: x})

        value = values[name]
        axes, masks = halves(value.shape)
        step = 1.0 + jnp.sin(1.0 + jnp.arange(value.size)).reshape(value.shape) ** 2
        slope = jax.lax.map(jax.grad(density), jnp.concatenate([value[None], value + jnp.where(masks, step, 0.0)]))
        change = jnp.abs(slope[1:] - slope[0])
        own = tuple(range(1, value.ndim + 1))
        scale = change.max(own, keepdims=True) + jnp.abs(slope[0]).max()
        meets = (jnp.where(masks, 0.0, change) > 1e-10 * scale).any(own)
        return jnp.array([meets[np.array(axes) == axis].any() for axis in range(value.ndim)], dtype=bool)

    return meetings

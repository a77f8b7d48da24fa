"""The finding for every site: a rule that is verified, or the reason why there is none.

A rule is verified by an identity test (`bayeslab.verification.identity`) at points of the other sites on several
scales: that of their priors, that of the data, to which a few sweeps of the conditionals lead, and between; with the
data of the fit and with others, and with other choices of discrete sites. A continuous site must also reach no
operation whose branch it can change (`bayeslab.verification.branches.branch_points`). A family that fails is refused,
never used.

A Student-t with 200 degrees of freedom in place of a Normal leaves 6e-4, a true Normal with a million rows 1e-11.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import jax
import numpy as np
from numpyro.distributions import DiscreteUniform

from bayeslab.elimination.chain_families import normal_by_steps
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import families_of, wider_families_of
from bayeslab.elimination.terms import Prior, Term, terms
from bayeslab.programs.handlers.listed_values import COUNT_VECTORS
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.branches.branch_points import find_branch_change, program_may_jump
from bayeslab.verification.coupled_elements import coupled_axes, far_meetings
from bayeslab.verification.family_values import may_have
from bayeslab.verification.identity import ALL_PROBES, NUM_NEAR_PROBES, RESIDUAL_TOLERANCE, probe_noise
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point, choice_points, generic_points, prior_scale_points
from bayeslab.verification.scalars.alike_sites import verdicts_on
from bayeslab.verification.undefined import describe_impossible, describe_undefined, excludes_configurations

LOOSE_TOLERANCE = 1e-5
"""Tolerance of residuals where values may be extreme. What is no number there says nothing."""
MIN_STEPS_OF_NORMAL = 64
"""Steps of a Normal site from which on a chain is sooner eliminated than a matrix of all steps."""
MAX_NUMBERS_OF_STEP = 8
"""Numbers of one step that are joint in such a chain, at most."""
MAX_SCALAR_LABELS_TESTED = 6
"""Discrete sites of one number, at most, that are tested each by itself in a program without continuous sites: code for
each of a network of dozens takes longer to compile than all else."""
MIN_CHILD_SHARE = 1e-9
"""Share of the change below which children are lost in rounding, and refute nothing."""


class Finding(NamedTuple):
    """What was found for a site: a rule with the residual of the identity test, or None and the reason.

    children: the terms that the site reaches, its own prior apart.
    share: the largest share of the children in what changes with the site where the rule was tested.
    has_steps: whether the site changes the branch of an operation, so that its density may have steps or bends.
    has_jumps: whether it may have steps, which no gradient tells of.
    """

    site: str
    children: tuple[str, ...]
    rule: Rule | None
    residual: float
    reason: str
    share: float = 1.0
    has_steps: bool = False
    has_jumps: bool = False

    def refused(self, reason: str, residual: float = np.nan) -> Self:
        """The finding without its rule, and with the reason."""
        return self._replace(rule=None, reason=reason, residual=residual)


def rules_of(findings: Iterable[Finding]) -> tuple[Rule, ...]:
    """The rules of the sites that have one."""
    return tuple(one.rule for one in findings if one.rule is not None)


def find_conditional(bound: Bound, site: str) -> Finding:
    """The rule that eliminates one site, or the reason why there is none; see `find_conditionals`."""
    return find_conditionals(bound, [site])[0]


def find_conditionals(bound: Bound, sites: Sequence[str] | None = None) -> list[Finding]:
    """For each site, the verified rule that eliminates it given all others, or the reason why there is none.

    What is compiled for one site serves all others whose densities read the same. `bayeslab.transforms.analysis` keeps
    the answer.
    """
    sites = bound.latent if sites is None else sites
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = terms(widened_bound).terms
        if labels := _scalar_labels(widened_bound, sites):
            others = find_conditionals(bound, [name for name in sites if name not in labels])
            findings_by_site = {finding.site: finding for finding in others} | labels
            return [findings_by_site[name] for name in sites]
        findings = verify(widened_bound, log_joint_terms, sites)
        data_points = likely_points(widened_bound, rules_of(findings))
        findings = verify_again(widened_bound, log_joint_terms, findings, data_points)
        return [
            _explain_undefined(_refuse_branch_change(finding, widened_bound, data_points), widened_bound)
            for finding in findings
        ]


def _scalar_labels(bound: Bound, sites: Sequence[str]) -> dict[str, Finding]:
    """Findings for discrete sites of one number where there are many of them, and no continuous ones.

    No elements meet in one number: that its conditional is what the log joint says at each of its values is no claim.
    What is claimed of all of them together is tested (`bayeslab.verification.discrete_fields`).
    """
    priors = terms(bound).priors
    labels = [name for name in sites if priors[name].choices is not None and not priors[name].shape]
    if len(labels) <= MAX_SCALAR_LABELS_TESTED or not all(bound.sites[name].is_discrete for name in bound.latent):
        return {}
    findings = {}
    for name in labels:
        [family, *_] = families_of(priors[name])
        children = tuple(term.name for term in terms(bound).terms if name in term.depends and term.name != name)
        findings[name] = Finding(name, children, Rule(name, family, (), children), 0.0, "")
    return findings


def verify(bound: Bound, log_joint_terms: tuple[Term, ...], names: Sequence[str]) -> list[Finding]:
    """Findings under the sum of some terms, verified where values are as they are in priors.

    Sites may have been integrated out of these terms already.
    """
    priors = terms(bound).priors
    families = {name: families_of(priors[name]) for name in names}
    normal = tuple(name for name in names if any(family.joint for family in families[name]))
    generic_pair, chosen = generic_points(bound), choice_points(bound)
    arrays = [name for name in normal if priors[name].shape]  # one number has no elements that meet
    axis_checks = [coupled_axes(log_joint_terms, name) for name in arrays]
    couplings = zip(*(evaluate_all(axis_checks, point) for point in (generic_pair[0], *chosen)), strict=True)
    meetings = dict.fromkeys(normal, np.zeros((2, 0), bool))
    meetings |= {name: np.any(by_point, axis=0) for name, by_point in zip(arrays, couplings, strict=True)}
    coupled = {name: meets for name, (meets, _) in meetings.items()}
    by_steps = _sites_by_steps(log_joint_terms, coupled, generic_pair[1])
    rules, children = [], {}
    for name in names:
        axes = tuple(int(i) for i in np.flatnonzero(coupled[name])) if name in normal else ()
        children[name] = tuple(term.name for term in log_joint_terms if name in term.depends and term.name != name)
        of_site = [normal_by_steps(axes)] if name in by_steps else families[name]
        same = bool(axes) and name not in by_steps and not (meetings[name][1] & ~coupled[name]).any()
        rules += [Rule(name, family, axes, children[name], same_precision=same) for family in of_site]
    noise = probe_noise(bound)
    residuals, shares = dict[Rule, float](), dict[Rule, float]()
    possible = set[Rule]()  # somewhere, with the data of the fit

    def ask(asked: Sequence[Rule], point: Point, num_probes: int) -> Iterator[tuple[Rule, float]]:
        verdicts = verdicts_on(log_joint_terms, asked, (*point, noise, num_probes))
        for rule, verdict in zip(asked, verdicts, strict=True):
            shares[rule] = max(shares.get(rule, 0.0), float(verdict.share))
            if point is not generic_pair[0] and verdict.possible:
                possible.add(rule)
            yield rule, float(verdict.residual)

    def passing(asked: Sequence[Rule]) -> list[Rule]:
        for point in generic_pair if asked else ():
            for rule, residual in ask(asked, point, ALL_PROBES):
                residuals[rule] = np.maximum(residuals.get(rule, 0.0), residual)  # not a number where one is none
        return [rule for rule in asked if residuals[rule] <= RESIDUAL_TOLERANCE]

    passed = passing(rules)
    failed = [rule for rule in rules if rule not in passed and (rule.family.by_steps or rule.same_precision)]
    whole = [rule._replace(family=family, same_precision=False) for rule in failed for family in families[rule.site]]
    passed += passing(whole)
    rules = [rule for rule in rules if rule not in failed] + whole
    settled = {rule.site for rule in passed}
    wider = passing(
        [
            Rule(name, family, (), children[name])
            for name in names
            for family in (() if name in settled else wider_families_of(priors[name]))
            if may_have(family, bound, log_joint_terms, name)
        ]
    )
    rules, passed = [*rules, *wider], [*passed, *wider]
    for point in (*chosen, *prior_scale_points(bound)):
        for rule, residual in ask(passed, point, NUM_NEAR_PROBES):
            if residual > LOOSE_TOLERANCE:
                residuals[rule] = max(residuals[rule], residual)
    enumerated = [rule for rule in passed if rule.family.enumerates and rule.field is None]
    seen = [generic_pair[1], *chosen]
    residuals |= {rule: np.inf for rule in enumerated if excludes_configurations(log_joint_terms, rule, seen)}
    tried = [(rule, float(residuals[rule]), shares[rule]) for rule in rules]
    findings = [_first_verified(priors[n], children[n], [each for each in tried if each[0].site == n]) for n in names]
    return [
        finding
        if finding.rule is None or finding.rule in possible
        else finding.refused(describe_impossible(log_joint_terms, finding.rule, generic_pair[1]))
        for finding in findings
    ]


def verify_again(
    bound: Bound, log_joint_terms: tuple[Term, ...], findings: Sequence[Finding], data_points: Sequence[Point]
) -> list[Finding]:
    """The findings without the rules that do not hold at some more points."""
    rules, noise, findings_by_site = (
        rules_of(findings),
        probe_noise(bound),
        {finding.site: finding for finding in findings},
    )
    for point in data_points:
        verdicts = verdicts_on(log_joint_terms, rules, (*point, noise, NUM_NEAR_PROBES))
        for rule, verdict in zip(rules, verdicts, strict=True):
            finding, residual = findings_by_site[rule.site], float(verdict.residual)
            finding = finding._replace(share=max(finding.share, float(verdict.share)))
            findings_by_site[rule.site] = (
                finding.refused(reason_against(rule), residual)
                if residual > LOOSE_TOLERANCE and finding.rule is not None
                else finding
            )
    return [_refuse_lost_in_rounding(finding) for finding in findings_by_site.values()]


def _refuse_lost_in_rounding(finding: Finding) -> Finding:
    """The finding, refused where no value that was tried changed the children, as where all of them overflow."""
    if finding.rule is None or not 0 < finding.share < MIN_CHILD_SHARE:
        return finding
    return finding.refused(f"what {_listed(finding.children)} says of it is lost in rounding wherever it was tried")


def _refuse_branch_change(finding: Finding, bound: Bound, data_points: Sequence[Point]) -> Finding:
    """The finding, refused where the site changes the branch of an operation that is not analytic in it."""
    site, prior = bound.sites[finding.site], terms(bound).priors[finding.site]
    is_examined = bool(families_of(prior)) or (bound.guarded and not site.event_dim)  # guarded supports end in edges
    if site.is_discrete or not (is_examined or program_may_jump(bound, finding.site)):
        return finding
    kink = find_branch_change(bound, finding.site, finding.rule, [*generic_points(bound), *data_points])
    if kink is None or (kink.is_continuous and not is_examined):
        return finding
    where = next(term.name for term in terms(bound).terms if kink.path in term.kinks and finding.site in term.depends)
    has_steps = kink.known and where not in bound.moving  # unconstrained coordinates move with the end of a support
    refused = finding.refused(f"`{kink.operation}` on '{finding.site}' in '{where}'")
    return refused._replace(has_steps=has_steps, has_jumps=has_steps and not kink.is_continuous)


def _explain_undefined(finding: Finding, bound: Bound) -> Finding:
    """The finding, with the density that is not a number as the reason, if one is."""
    if finding.rule is not None or not np.isnan(finding.residual) or finding.reason.startswith("`"):
        return finding
    if bound.sites[finding.site].is_discrete or not families_of(terms(bound).priors[finding.site]):
        return finding
    told = describe_undefined(terms(bound).terms, [finding.site], generic_points(bound)[1])
    return finding if told is None else finding.refused(told)


def _first_verified(prior: Prior, children: tuple[str, ...], trials: list[tuple[Rule, float, float]]) -> Finding:
    """The finding with the first rule that passes the identity test, else why the last one does not."""
    for rule, residual, share in trials:
        if residual <= RESIDUAL_TOLERANCE:
            return Finding(prior.name, children, rule, residual, "", share)
    if not trials:
        why = _NOT_ENUMERATED.get(prior.kind, _TOO_MANY_VALUES) if prior.discrete else "has no family"
        return Finding(prior.name, children, None, np.nan, f"a {prior.kind.__name__} {why}")
    rule, residual, _ = trials[-1]
    return Finding(prior.name, children, None, residual, reason_against(rule))


_TOO_MANY_VALUES = "has too many values to enumerate; give it a closer prior, or put a Normal in its place"
_NOT_ENUMERATED = {
    DiscreteUniform: "has bounds that differ between elements or are data, so no fixed values to enumerate",
    **dict.fromkeys(
        COUNT_VECTORS, "has too many values to enumerate; a Categorical in a plate draws its trials one by one"
    ),
}
"""Why the values of discrete sites are not enumerated, and what to do, by distribution."""


def reason_against(rule: Rule) -> str:
    """Why a rule does not hold, in words."""
    children = _listed(rule.children)
    return f"its elements meet in {children}" if rule.family.enumerates else f"not {rule.family.name} given {children}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "its prior"


def _sites_by_steps(log_joint_terms: tuple[Term, ...], coupled: dict[str, np.ndarray], point: Point) -> list[str]:
    """Sites of many steps along the first axis, of which only neighbours seem to meet; the test of the rule decides."""
    chosen = []
    for name, axes in coupled.items():
        shape = np.shape(point[1][name])
        size = math.prod(shape[axis] for axis in np.flatnonzero(axes) if axis)
        if shape and axes[0] and shape[0] >= MIN_STEPS_OF_NORMAL and size <= MAX_NUMBERS_OF_STEP:
            chosen.append(name)
    far = evaluate_all([far_meetings(log_joint_terms, (name,)) for name in chosen], point) if chosen else []
    return [name for name, meets in zip(chosen, far, strict=True) if not meets]

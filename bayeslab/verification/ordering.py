"""The order in which several sites are eliminated, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import jax

from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.elimination.conditional import Block, Rule, without
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.families import JOINTLY_ENUMERATED
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.validation import listed_sites
from bayeslab.verification.discrete_fields import field_points, find_field_rule
from bayeslab.verification.family_values import has_family_by_values
from bayeslab.verification.findings import Finding, reason_against, rules_of, verify, verify_again
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point

MAX_DISCRETE_ONE_BY_ONE = 2
"""Discrete sites that are eliminated one after another, at most: each then asks all values of those before it, and code
for three takes longer to compile than tables of all values of six."""


def require_block_names(blocks: Sequence[tuple[str, ...]], bound: Bound) -> None:
    """Checks the blocks of sites that a user names.

    Raises ValueError for a name that is no latent site or stands twice.
    """
    for names in blocks:
        for name in names:
            if name not in bound.latent:
                raise ValueError(f"joint names '{name}', which is not a latent site; these are {list(bound.latent)}")
            if sum(name in block for block in blocks) > 1 or names.count(name) > 1:
                raise ValueError(f"joint names site '{name}' twice")


def blocks_in_program_order(joint: Sequence[Block], rules: Sequence[Rule]) -> tuple[Block, ...]:
    """Joint blocks and, as blocks of one, the other sites; each stands where the program draws its first site.

    Blocks of sites that have no rule of their own come first.
    """
    blocks: list[Block] = []
    for rule in rules:
        [block] = [block for block in joint if any(rule.site in member.sites for member in block)] or [(rule,)]
        if block not in blocks:
            blocks.append(block)
    return (*(block for block in joint if block not in blocks), *blocks)


def elimination_order(
    bound: Bound, names: Sequence[str], findings: Sequence[Finding], blocks: Sequence[Finding] = ()
) -> tuple[Rule, ...]:
    """Rules that eliminate some sites, all others given, each verified under the terms that those before it leave.

    findings: for every site, given all others. blocks: for sets of these sites that are jointly Normal.
    Continuous sites go first, jointly Normal ones at once before the others, the last drawn before those drawn before;
    where that leads nowhere, other orders are tried. A site without a conditional in closed form does not get one as
    others go, so that is where an order ends.
    Raises ValueError with the reasons where no order is found.
    """
    findings_by_site = {finding.site: finding for finding in (*findings, *blocks)}
    reasons = {name: findings_by_site[name].reason for name in names if findings_by_site[name].rule is None}
    priors = terms(bound).priors
    enumerable = tuple(name for name in bound.latent if name in names and priors[name].choices is not None)
    in_blocks = {name for block in rules_of(blocks) for name in block.sites}
    last_first = [name for name in bound.latent[::-1] if name in names and name not in in_blocks]
    continuous = [name for name in last_first if not bound.sites[name].is_discrete]
    discrete = [name for name in last_first if bound.sites[name].is_discrete]
    first = [*(block.site for block in blocks), *continuous]
    one_by_one, together = [*first, *discrete], field_unit(bound, enumerable)
    at_once = [*first, *(name for name in discrete if name not in enumerable), together.site]
    if not reasons.keys() <= set(enumerable):
        attempts = []
    elif reasons or len(enumerable) > MAX_DISCRETE_ONE_BY_ONE:
        attempts = [at_once]
    else:
        attempts = [one_by_one, at_once] if len(enumerable) > 1 else [one_by_one]
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        places = cache(partial(likely_points, widened_bound, rules_of(findings)))  # of all attempts
        for units in attempts:
            tried: dict[str, str] = {}
            units_found = findings_by_site if units is one_by_one else findings_by_site | {together.site: together}
            search = _OrderSearch(widened_bound, units_found, tried, 4 * len(names), places)
            rules = search.order(terms(widened_bound).terms, units, ())
            if rules is not None:
                return tuple(rules)
            if units is attempts[0]:
                reasons = tried
    raise ValueError("; ".join(f"{listed_sites(name.split(', '))}: {reason}" for name, reason in reasons.items()))


def field_unit(bound: Bound, names: tuple[str, ...]) -> Finding:
    """Discrete sites that are eliminated together, as one unit of a search; which elements meet is not known yet."""
    own = {name: terms(bound).priors[name].choices for name in names}
    choices = tuple(tuple(int(choice) for choice in each) for each in own.values() if each is not None)
    field = Field(names, tuple(terms(bound).priors[name].shape for name in names), choices, (), (), ())
    site = ", ".join(names)
    return Finding(site, (), Rule(site, JOINTLY_ENUMERATED, (), (), None, field), 0.0, "")


@dataclass
class _OrderSearch:
    """A depth-first search for an order of elimination.

    findings: the finding for every site, or set of jointly Normal ones, given all others.
    reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made.
    places: gives points on the scale of the data, where rules are verified again if they have changed.
    """

    bound: Bound
    findings: dict[str, Finding]
    reasons: dict[str, str]
    proofs: int
    places: Callable[[], list[Point]]

    def order(
        self, log_joint_terms: tuple[Term, ...], names: list[str], eliminated: tuple[str, ...]
    ) -> list[Rule] | None:
        """Rules that eliminate sites from terms that the sites before them have left, or None.

        names: of single sites, or of sets that are jointly Normal.
        """
        if not names:
            return []
        names = [site for name in names for site in self._units(log_joint_terms, name, eliminated)]
        if eliminated and self._refuted(log_joint_terms, names, eliminated):
            return None
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            finding, *others = self._findings(log_joint_terms, name, names)
            for candidate in (finding, *others):
                if candidate.rule is None:
                    self._keep_reason(candidate.site, candidate.reason, eliminated)
                    return None
            assert finding.rule is not None
            remaining = self.order(
                without(finding.rule, log_joint_terms), [other for other in names if other != name], (*eliminated, name)
            )
            if remaining is not None:
                return [finding.rule, *remaining]
        return None

    def _refuted(self, log_joint_terms: tuple[Term, ...], names: list[str], eliminated: tuple[str, ...]) -> bool:
        """Whether values alone show that a site has lost its family, which takes less than a proof that it has one."""
        changed = [
            name
            for name in names
            if not self.bound.sites[self._sites(name)[0]].is_discrete and not self._is_unchanged(log_joint_terms, name)
        ]
        for name in changed:
            if name in self.bound.sites and not has_family_by_values(self.bound, log_joint_terms, name):
                rule = self.findings[name].rule
                assert rule is not None
                children = [term.name for term in log_joint_terms if name in term.depends and term.name != name]
                self._keep_reason(name, reason_against(rule._replace(children=tuple(children))), eliminated)
                return True
        return False

    def _keep_reason(self, name: str, reason: str, eliminated: tuple[str, ...]) -> None:
        if not eliminated:
            self.reasons[name] = reason
            return
        before = " and ".join(f"'{site}'" for unit in eliminated for site in self._sites(unit))
        self.reasons[name] = f"{reason} once {before} {'are' if ' and ' in before else 'is'} eliminated"

    def _sites(self, name: str) -> tuple[str, ...]:
        rule = self.findings[name].rule
        return (name,) if rule is None else rule.sites

    def _is_unchanged(self, log_joint_terms: tuple[Term, ...], name: str) -> bool:
        """Whether the terms that sites reach are those that they reach in the program."""
        rule = self.findings[name].rule
        return rule is not None and rule.reached(log_joint_terms) == rule.reached(terms(self.bound).terms)

    def _units(self, log_joint_terms: tuple[Term, ...], name: str, eliminated: tuple[str, ...]) -> tuple[str, ...]:
        """A unit, or the sites of a set of jointly Normal ones that meet a chain of steps which alone is eliminated."""
        rules = [self.findings[unit].rule for unit in eliminated]
        by_steps = bool(rules) and all(rule is not None and isinstance(rule.block, StepStructure) for rule in rules)
        is_block = name not in self.bound.sites and not self._is_field(name)
        return self._sites(name) if by_steps and is_block and not self._is_unchanged(log_joint_terms, name) else (name,)

    def _is_field(self, name: str) -> bool:
        """Whether a unit is discrete elements that are eliminated together."""
        rule = self.findings[name].rule
        return rule is not None and rule.field is not None

    def _findings(self, log_joint_terms: tuple[Term, ...], name: str, names: list[str]) -> list[Finding]:
        """The finding for a site, and those for the other discrete sites, which are the first to be lost."""
        if (rule := self.findings[name].rule) is not None and rule.field is not None:
            points = field_points(self.bound, self.places())
            return [find_field_rule(self.bound, log_joint_terms, rule.sites, rule.family, points)]
        discrete = [other for other in names if other != name and not self._is_field(other)]
        discrete = [other for other in discrete if other in self.bound.sites and self.bound.sites[other].is_discrete]
        if all(self._is_unchanged(log_joint_terms, other) for other in (name, *discrete)):
            return [self.findings[name]]
        if name not in self.bound.sites:
            return [self.findings[name].refused("not jointly Normal")]
        findings = verify_again(
            self.bound, log_joint_terms, verify(self.bound, log_joint_terms, [name, *discrete]), self.places()
        )
        return [self._refuse_uncompared(finding) for finding in findings]

    def _refuse_uncompared(self, finding: Finding) -> Finding:
        """The finding, refused for a label of which one value alone is possible: nothing could be compared.

        Its prior may have been of a site that is eliminated.
        """
        if finding.share > 0 or not finding.children or not self.bound.sites[finding.site].is_discrete:
            return finding
        return finding.refused("no two values of it were possible, so nothing could be compared")

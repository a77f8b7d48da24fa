"""The order in which several sites are eliminated, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from bayeslab.elimination.conditional import Block, Rule, without
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound
from bayeslab.verification.findings import Finding, rules_of, verify, verify_again
from bayeslab.verification.likely_points import in_double_precision, likely_points
from bayeslab.verification.probe_points import Point


def joint_blocks(blocks: Sequence[tuple[str, ...]], bound: Bound, findings: Sequence[Finding]) -> list[Block]:
    """The orders of elimination of blocks that the user names. findings: for every latent site, given all others.

    Raises ValueError for a name that is no latent site or stands twice, and for a block that has no order.
    """
    for names in blocks:
        for name in names:
            if name not in bound.latent:
                raise ValueError(f"joint names '{name}', which is not a latent site; these are {list(bound.latent)}")
            if sum(name in block for block in blocks) > 1 or names.count(name) > 1:
                raise ValueError(f"joint names site '{name}' twice")
    return [_joint_order(names, bound, findings) for names in blocks]


def _joint_order(names: tuple[str, ...], bound: Bound, findings: Sequence[Finding]) -> Block:
    try:
        return elimination_order(bound, names, findings)
    except ValueError as reasons:
        raise ValueError(f"{' and '.join(map(repr, names))} cannot be taken jointly ({reasons})") from None


def blocks_in_program_order(joint: Sequence[Block], rules: Sequence[Rule]) -> tuple[Block, ...]:
    """Joint blocks and, as blocks of one, the other sites; each stands where the program draws its first site."""
    blocks: list[Block] = []
    for rule in rules:
        [block] = [block for block in joint if any(member.site == rule.site for member in block)] or [(rule,)]
        if block not in blocks:
            blocks.append(block)
    return tuple(blocks)


def elimination_order(bound: Bound, names: Sequence[str], findings: Sequence[Finding]) -> tuple[Rule, ...]:
    """Rules that eliminate some sites, all others given, each verified under the terms that those before it leave.

    findings: for every site, given all others.
    Continuous sites go first, the last drawn before the others; where that leads nowhere, other orders are tried. A
    site without a conditional in closed form does not get one as others go, so that is where an order ends.
    Raises ValueError with the reasons where no order is found.
    """
    findings_by_site = {finding.site: finding for finding in findings}
    reasons = {name: findings_by_site[name].reason for name in names if findings_by_site[name].rule is None}
    search = _OrderSearch(bound, findings_by_site, reasons, 4 * len(names))
    rules = None
    if not reasons:
        with jax.enable_x64(True):
            search.bound = in_double_precision(bound)
            search.places = likely_points(search.bound, rules_of(findings))
            last_first = [name for name in bound.latent[::-1] if name in names]
            continuous = [name for name in last_first if not bound.sites[name].is_discrete]
            discrete = [name for name in last_first if bound.sites[name].is_discrete]
            rules = search.order(terms(search.bound).terms, continuous + discrete, ())
    if rules is None:
        raise ValueError("; ".join(f"site '{name}': {reason}" for name, reason in reasons.items()))
    return tuple(rules)


@dataclass
class _OrderSearch:
    """A depth-first search for an order of elimination.

    findings: the finding for every site given all others.
    reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made.
    places: points on the scale of the data, where rules are verified again.
    """

    bound: Bound
    findings: dict[str, Finding]
    reasons: dict[str, str]
    proofs: int
    places: Sequence[Point] = ()

    def order(
        self, log_joint_terms: tuple[Term, ...], names: list[str], eliminated: tuple[str, ...]
    ) -> list[Rule] | None:
        """Rules that eliminate sites from terms that the sites before them have left, or None."""
        if not names:
            return []
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            finding, *others = self._findings(log_joint_terms, name, names, eliminated)
            for candidate in (finding, *others):
                if candidate.rule is None:
                    before = " and ".join(f"'{other}'" for other in eliminated)
                    verb = "are" if len(eliminated) > 1 else "is"
                    self.reasons[candidate.site] = f"{candidate.reason} once {before} {verb} eliminated"
                    return None
            assert finding.rule is not None
            remaining = self.order(
                without(finding.rule, log_joint_terms), [other for other in names if other != name], (*eliminated, name)
            )
            if remaining is not None:
                return [finding.rule, *remaining]
        return None

    def _findings(
        self, log_joint_terms: tuple[Term, ...], name: str, names: list[str], eliminated: tuple[str, ...]
    ) -> list[Finding]:
        """The finding for a site, and those for the other discrete sites, which are the first to be lost."""
        if not eliminated:
            return [self.findings[name]]
        discrete = [other for other in names if other != name and self.bound.sites[other].is_discrete]
        findings = verify_again(
            self.bound, log_joint_terms, verify(self.bound, log_joint_terms, [name, *discrete]), self.places
        )
        return [self._refuse_uncompared(finding) for finding in findings]

    def _refuse_uncompared(self, finding: Finding) -> Finding:
        """The finding, refused for a label of which one value alone is possible: nothing could be compared.

        Its prior may have been of a site that is eliminated.
        """
        if finding.share > 0 or not finding.children or not self.bound.sites[finding.site].is_discrete:
            return finding
        return finding.refused("no two values of it were possible, so nothing could be compared")

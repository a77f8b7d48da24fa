"""The order in which several sites are eliminated, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from bayeslab.elimination.conditional import Block, Rule, without
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound
from bayeslab.verification.findings import Found, asked_again, prove, rules_of
from bayeslab.verification.likely_points import likely_points, widened
from bayeslab.verification.probe_points import Point


def joint_blocks(blocks: Sequence[tuple[str, ...]], bound: Bound, found: Sequence[Found]) -> list[Block]:
    """The orders of elimination of blocks that the user names. findings: for every latent site, given all others.

    Raises ValueError for a name that is no latent site or stands twice, and for a block that has no order.
    """
    for names in blocks:
        for name in names:
            if name not in bound.latent:
                raise ValueError(f"joint names '{name}', which is not a latent site; these are {list(bound.latent)}")
            if sum(name in block for block in blocks) > 1 or names.count(name) > 1:
                raise ValueError(f"joint names site '{name}' twice")
    return [_joint(names, bound, found) for names in blocks]


def _joint(names: tuple[str, ...], bound: Bound, found: Sequence[Found]) -> Block:
    try:
        return order(bound, names, found)
    except ValueError as reasons:
        raise ValueError(f"{' and '.join(map(repr, names))} cannot be taken jointly ({reasons})") from None


def blocked(joint: Sequence[Block], rules: Sequence[Rule]) -> tuple[Block, ...]:
    """Joint blocks and, as blocks of one, the other sites; each stands where the program draws its first site."""
    blocks: list[Block] = []
    for rule in rules:
        [block] = [block for block in joint if any(member.site == rule.site for member in block)] or [(rule,)]
        if block not in blocks:
            blocks.append(block)
    return tuple(blocks)


def order(bound: Bound, names: Sequence[str], found: Sequence[Found]) -> tuple[Rule, ...]:
    """Rules that eliminate some sites, all others given, each verified under the terms that those before it leave.

    findings: for every site, given all others.
    Continuous sites go first, the last drawn before the others; where that leads nowhere, other orders are tried. A
    site without a conditional in closed form does not get one as others go, so that is where an order ends.
    Raises ValueError with the reasons where no order is found.
    """
    findings_by_site = {finding.site: finding for finding in found}
    reasons = {name: findings_by_site[name].reason for name in names if findings_by_site[name].rule is None}
    search = _Search(bound, findings_by_site, reasons, 4 * len(names))
    rules = None
    if not reasons:
        with jax.enable_x64(True):
            search.bound = widened(bound)
            search.places = likely_points(search.bound, rules_of(found))
            last_first = [name for name in bound.latent[::-1] if name in names]
            continuous = [name for name in last_first if not bound.sites[name].is_discrete]
            discrete = [name for name in last_first if bound.sites[name].is_discrete]
            rules = search.order(terms(search.bound).terms, continuous + discrete, ())
    if rules is None:
        raise ValueError("; ".join(f"site '{name}': {reason}" for name, reason in reasons.items()))
    return tuple(rules)


@dataclass
class _Search:
    """A depth-first search for an order of elimination.

    findings: the finding for every site given all others.
    reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made.
    places: points on the scale of the data, where rules are verified again.
    """

    bound: Bound
    findings: dict[str, Found]
    reasons: dict[str, str]
    proofs: int
    places: Sequence[Point] = ()

    def order(self, of: tuple[Term, ...], names: list[str], gone: tuple[str, ...]) -> list[Rule] | None:
        """Rules that eliminate sites from terms that the sites before them have left, or None."""
        if not names:
            return []
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            finding, *others = self._findings(of, name, names, gone)
            for candidate in (finding, *others):
                if candidate.rule is None:
                    before = " and ".join(f"'{other}'" for other in gone)
                    verb = "are" if len(gone) > 1 else "is"
                    self.reasons[candidate.site] = f"{candidate.reason} once {before} {verb} eliminated"
                    return None
            assert finding.rule is not None
            remaining = self.order(
                without(finding.rule, of), [other for other in names if other != name], (*gone, name)
            )
            if remaining is not None:
                return [finding.rule, *remaining]
        return None

    def _findings(self, of: tuple[Term, ...], name: str, names: list[str], gone: tuple[str, ...]) -> list[Found]:
        """The finding for a site, and those for the other discrete sites, which are the first to be lost."""
        if not gone:
            return [self.findings[name]]
        discrete = [other for other in names if other != name and self.bound.sites[other].is_discrete]
        findings = asked_again(self.bound, of, prove(self.bound, of, [name, *discrete]), self.places)
        return [self._refuse_uncompared(finding) for finding in findings]

    def _refuse_uncompared(self, one: Found) -> Found:
        """The finding, refused for a label of which one value alone is possible: nothing could be compared.

        Its prior may have been of a site that is eliminated.
        """
        if one.share > 0 or not one.children or not self.bound.sites[one.site].is_discrete:
            return one
        return one.refused("no two values of it were possible, so nothing could be compared")

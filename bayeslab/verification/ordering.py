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
    """Blocks that were asked for by name. found: of every latent site, given all others.

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
    """Blocks and the other sites, each a block, where the program draws its first site."""
    blocks: list[Block] = []
    for rule in rules:
        [block] = [block for block in joint if any(one.site == rule.site for one in block)] or [(rule,)]
        if block not in blocks:
            blocks.append(block)
    return tuple(blocks)


def order(bound: Bound, names: Sequence[str], found: Sequence[Found]) -> tuple[Rule, ...]:
    """Rules that eliminate some sites, all others given, each proven under the terms that those before it leave.

    found: what is found for every site given all others.
    Continuous sites go first, the last drawn before the others; where that leads nowhere, other orders are tried. A
    site without a conditional in closed form does not get one as others go, so that is where an order ends.
    Raises ValueError with the reasons where no order is found.
    """
    alone = {one.site: one for one in found}
    reasons = {name: alone[name].reason for name in names if alone[name].rule is None}
    search = _Search(bound, alone, reasons, 4 * len(names))
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
    """alone: what is found for every site given all others.

    reasons: why a site could not be eliminated when it was last tried. proofs: how many may still be made.
    places: points on the scale of the data, where rules are asked again.
    """

    bound: Bound
    alone: dict[str, Found]
    reasons: dict[str, str]
    proofs: int
    places: Sequence[Point] = ()

    def order(self, of: tuple[Term, ...], names: list[str], gone: tuple[str, ...]) -> list[Rule] | None:
        if not names:
            return []
        for name in names:
            if self.proofs == 0:
                return None
            self.proofs -= 1
            found, *others = self._found(of, name, names, gone)
            for one in (found, *others):
                if one.rule is None:
                    before = " and ".join(f"'{other}'" for other in gone)
                    verb = "are" if len(gone) > 1 else "is"
                    self.reasons[one.site] = f"{one.reason} once {before} {verb} eliminated"
                    return None
            assert found.rule is not None
            rest = self.order(without(found.rule, of), [other for other in names if other != name], (*gone, name))
            if rest is not None:
                return [found.rule, *rest]
        return None

    def _found(self, of: tuple[Term, ...], name: str, names: list[str], gone: tuple[str, ...]) -> list[Found]:
        """What is found for a site; and for the discrete ones, which are the first to be lost."""
        if not gone:
            return [self.alone[name]]
        discrete = [other for other in names if other != name and self.bound.sites[other].is_discrete]
        found = asked_again(self.bound, of, prove(self.bound, of, [name, *discrete]), self.places)
        return [self._compared(one) for one in found]

    def _compared(self, one: Found) -> Found:
        """A label of which one value alone is possible satisfies any law: its prior may have been of a site that is
        gone."""
        if one.share > 0 or not one.children or not self.bound.sites[one.site].is_discrete:
            return one
        return one.refused("no two values of it were possible, so nothing could be compared")

"""What is found about a Bound: conditionals, orders of elimination, statistics; each when it is first asked for."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from bayeslab.elimination.conditional import Block, Rule
from bayeslab.programs.program import Bound
from bayeslab.transforms.sufficient_statistics.compress import compressible
from bayeslab.transforms.sufficient_statistics.tables import Groups, is_collapsed
from bayeslab.verification.discrete_fields import FieldFinding, find_collapsed_field, find_discrete_fields
from bayeslab.verification.findings import Finding, find_conditionals, rules_of
from bayeslab.verification.normal_blocks.search import find_normal_blocks
from bayeslab.verification.ordering import elimination_order, require_block_names

Answer = TypeVar("Answer")
"""What a question about a Bound returns."""


class Analysis:
    """The analysis of one Bound, which `explain` prints, `plan` chooses from, and methods read.

    A Bound is never changed, so whatever was found for it is kept: a fit searches once, however many methods are tried.
    """

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._answers: dict[Any, Any] = {}

    @cached_property
    def plain(self) -> "Analysis":
        """The analysis of the program as it is written: without sites integrated out, with the rows of its data."""
        return self if self.bound.transform is None else Analysis(self.bound.plain)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """For every latent site, in program order, the rule that eliminates it given all others, or why there is none.

        Raises ValueError where the program cannot be taken apart.
        """
        return tuple(find_conditionals(self.bound))

    def findings_of(self, sites: Sequence[str]) -> list[Finding]:
        """The findings for some sites, without a search for the others unless that was made."""
        if "findings" in self.__dict__:
            known = {finding.site: finding for finding in self.findings}
            return [known[name] for name in sites]
        return self._once(("findings", *sites), lambda: find_conditionals(self.bound, sites))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the sites that have one, each given all other sites."""
        return rules_of(self.findings)

    @cached_property
    def groups(self) -> Groups:
        """Terms of the log joint that tables of sufficient statistics replace; none where sites are integrated out."""
        return () if is_collapsed(self.bound) else compressible(self.bound, self.findings)

    def order(self, sites: Sequence[str]) -> Block:
        """Rules that eliminate some sites, one after the other.

        Raises ValueError with the reasons where there is no order.
        """
        return self._once(
            ("order", *sites),
            lambda: elimination_order(self.bound, sites, self.findings_of(sites), self.normal_blocks_of(sites)),
        )

    def joint_blocks(self, blocks: Sequence[tuple[str, ...]]) -> list[Block]:
        """Orders of blocks of sites that the user names. Raises ValueError for a block that has none."""
        require_block_names(blocks, self.bound)
        return [self._joint_order(names) for names in blocks]

    def _joint_order(self, names: tuple[str, ...]) -> Block:
        try:
            return self.order(names)
        except ValueError as reasons:
            raise ValueError(f"{' and '.join(map(repr, names))} cannot be taken jointly ({reasons})") from None

    @property
    def normal_blocks(self) -> tuple[Finding, ...]:
        """The sets of several latent sites that are jointly Normal given all others, each with its joint rule."""
        return self.normal_blocks_of(self.bound.latent)

    def normal_blocks_of(self, sites: Sequence[str]) -> tuple[Finding, ...]:
        """The sets of some sites that are jointly Normal given all others."""
        findings = [one for one in self.findings_of(sites) if one.rule is not None and one.rule.family.is_normal]
        return self._once(
            ("blocks", *sorted(one.site for one in findings)), lambda: tuple(find_normal_blocks(self.bound, findings))
        )

    @cached_property
    def discrete_fields(self) -> tuple[FieldFinding, ...]:
        """The sets of discrete sites that meet, or whose elements do, each with its rules."""
        return tuple(find_discrete_fields(self.bound, self.findings))

    def collapsed_field(self, rule: Rule, names: tuple[str, ...]) -> FieldFinding:
        """What is found for discrete sites that meet with the Normal sites of a rule integrated out."""
        return self._once(
            ("collapsed", rule, *names), lambda: find_collapsed_field(self.bound, self.findings, rule, names)
        )

    def ask(self, question: Callable[[Bound], Answer]) -> Answer:
        """The answer of a function of the Bound, which is called once; so is a ValueError that it raises kept."""
        return self._once(question, lambda: question(self.bound))

    def _once(self, key: Any, search: Callable[[], Answer]) -> Answer:
        if key not in self._answers:
            try:
                self._answers[key] = search()
            except ValueError as reason:
                self._answers[key] = reason
        answer = self._answers[key]
        if isinstance(answer, ValueError):
            raise answer
        return answer

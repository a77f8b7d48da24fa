"""A rule says how a site, or several sites together, are eliminated; `bayeslab.elimination.conditional` does it."""

from collections.abc import Sequence
from typing import NamedTuple

from jax import Array

from bayeslab.distributions.block_normal import join_values, split_values
from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.distributions.precision_structure import PrecisionStructure
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.family import Family
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Values


class Rule(NamedTuple):
    """How a site is eliminated, or several sites at once that are jointly Normal, or discrete elements that meet.

    site: its name, or those of several in one text, for people to read.
    family: the row of the table.
    coupled: axes of the site over which a Normal is joint; the others hold independent elements.
    children: the terms that it reaches, its own prior apart.
    block: of several sites, the sparsity of their joint precision; their values are then one vector, or one array
        (step, number) where neighbouring steps alone meet.
    field: of discrete sites whose elements meet, which of them do; their values are one vector of indices of choices.
    same_precision: whether all independent elements of a Normal have one precision, as factors of complete rows do: one
        factorisation then serves all of them.
    """

    site: str
    family: Family
    coupled: tuple[int, ...]
    children: tuple[str, ...]
    block: PrecisionStructure | StepStructure | None = None
    field: Field | None = None
    same_precision: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites."""
        structure = self.block or self.field
        return (self.site,) if structure is None else structure.names

    def named(self, value: Array) -> Values:
        """The values of all sites, from a value of the conditional."""
        if self.field is not None:
            return self.field.named(value)
        if self.block is None:
            return {self.site: value}
        if isinstance(self.block, StepStructure):
            return dict(zip(self.sites, self.block.split(value), strict=True))
        return dict(zip(self.sites, split_values(self.block, value), strict=True))

    def joined(self, values: Values) -> Array | None:
        """A value of the conditional, from values of all sites; None where one is missing."""
        if not set(self.sites) <= values.keys():
            return None
        if self.field is not None:
            return self.field.joined(values)
        arrays = [values[name] for name in self.sites]
        if isinstance(self.block, StepStructure):
            return self.block.join(arrays)
        return arrays[0] if self.block is None else join_values(arrays)

    def reached(self, log_joint_terms: Sequence[Term]) -> list[Term]:
        """The terms that the sites reach."""
        return [term for term in log_joint_terms if not term.depends.isdisjoint(self.sites)]

    def blanket(self, log_joint_terms: Sequence[Term]) -> frozenset[str]:
        """The latent part of the Markov blanket of the sites: the other latent sites of the terms that they reach."""
        return frozenset().union(*(term.depends for term in self.reached(log_joint_terms))) - set(self.sites)


Block = tuple[Rule, ...]
"""Sites that are taken jointly, in the order in which they are eliminated; often one."""

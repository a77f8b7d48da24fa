"""Compressed samplers, which have tables of sufficient statistics, or fewer rows, in place of rows."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from bayeslab.elimination.conditional import Rule
from bayeslab.programs.program import Bound, compilation_signature
from bayeslab.sampling.protocols import Sampler, SamplerWrapper
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import elimination_rules, with_representatives
from bayeslab.transforms.sufficient_statistics.compress import is_worthwhile, reasons_against_compression
from bayeslab.transforms.sufficient_statistics.representative_rows import RepresentativeRows, representative_rows
from bayeslab.transforms.sufficient_statistics.scaled_precisions import (
    ScaledTerms,
    scaled_terms,
    with_precision_tables,
)
from bayeslab.transforms.sufficient_statistics.tables import Groups, groups_beside_rules, replace_rows

EVALUATIONS_PER_START = 5000
"""The number of evaluations of the log joint that EM or mean field makes from one start, roughly."""


class RowReplacement(NamedTuple):
    """What replaces the rows of a program.

    groups: of terms that tables of sufficient statistics replace; none where rows stay. rules: of every site given all
    others. representatives: fewer rows with the same moments, in place of tables. scaled: terms of Normal sites that
    are integrated out, whose precisions are kept; their rows stay.
    """

    groups: Groups = ()
    rules: tuple[Rule, ...] = ()
    representatives: RepresentativeRows | None = None
    scaled: tuple[ScaledTerms, ...] = ()

    @property
    def statistics(self) -> Groups | tuple[RepresentativeRows]:
        """What takes the place of rows."""
        return self.groups if self.representatives is None else (self.representatives,)

    def applied(self, bound: Bound) -> Bound:
        """The program with that in place of its rows."""
        if self.representatives is not None:
            return with_representatives(bound, self.representatives)
        if self.scaled:
            return with_precision_tables(bound, self.scaled)
        return replace_rows(self.groups, self.rules, bound)

    def structure(self, bound: Bound) -> Any:
        """The structure of what the sampler will be given."""
        return compilation_signature(jax.eval_shape(self.applied, bound) if self.statistics or self.scaled else bound)

    def around(self, sampler: Sampler) -> Sampler:
        """A sampler of the program without its rows, as one of the program with rows."""
        return CompressedSampler(sampler, self) if self.statistics or self.scaled else sampler


def row_replacement(bound: Bound, analysis: Analysis, evaluations: int, wanted: bool | None = None) -> RowReplacement:
    """What replaces the rows of a program.

    wanted: whether rows are replaced; by default where so many evaluations of the log joint are worth the search.

    bound: of the program of the analysis, with sites integrated out.
    Raises ValueError with the reasons where it is wanted and there is nothing.
    """
    if wanted is False or (wanted is None and not is_worthwhile(bound, evaluations)):
        return RowReplacement()
    plain, eliminated = analysis.plain, elimination_rules(bound)
    if (representatives := representative_rows(plain.bound, eliminated)) is not None:
        return RowReplacement(representatives=representatives)
    if wanted and not plain.groups:
        reasons = reasons_against_compression(plain.findings)
        raise ValueError(f"no statistics replace the rows of this program{reasons}; leave statistics out")
    return RowReplacement(groups_beside_rules(plain.groups, plain.bound, eliminated), plain.rules)


def row_or_precision_replacement(
    bound: Bound, analysis: Analysis, evaluations: int, wanted: bool | None = None
) -> RowReplacement:
    """What replaces the rows of a program, or, where rows stay, the precisions of Normal sites that are integrated out.

    The arguments are those of `row_replacement`.
    """
    summary = row_replacement(bound, analysis, evaluations, wanted)
    if summary.statistics or wanted is False:
        return summary
    return summary._replace(scaled=scaled_terms(analysis.plain.bound, elimination_rules(bound)))


def groups_for_multistart(analysis: Analysis, num_starts: int) -> Groups:
    """The groups of terms that tables replace, where optimisations from so many starts are worth the search."""
    return analysis.groups if is_worthwhile(analysis.bound, EVALUATIONS_PER_START * num_starts) else ()


@dataclass(frozen=True)
class CompressedSampler(SamplerWrapper):
    """A sampler of a program without its rows, as one of the program with rows."""

    summary: RowReplacement

    prepares = True

    @property
    def statistics(self) -> Groups | tuple[RepresentativeRows]:
        return self.summary.statistics

    def prepare(self, bound: Bound) -> Any:
        return self.inner.prepare(self.summary.applied(bound))

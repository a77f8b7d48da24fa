"""Samplers on sufficient statistics in place of rows."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax

from bayeslab.elimination.conditional import Rule
from bayeslab.programs.program import Bound, structure
from bayeslab.sampling.protocols import Sampler, Wrapper
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.compress import pays, why_not
from bayeslab.transforms.tables import Groups, summarised

EVALUATIONS = 5000
"""Of the log joint by EM or mean field from one start, roughly."""


class Summary(NamedTuple):
    """groups: of terms that tables replace; none where rows stay. rules: of every site given all others."""

    groups: Groups = ()
    rules: tuple[Rule, ...] = ()

    def structure(self, bound: Bound) -> Any:
        """Of what the sampler will be given."""
        return structure(jax.eval_shape(partial(summarised, *self), bound) if self.groups else bound)

    def around(self, sampler: Sampler) -> Sampler:
        """A sampler of the program with tables, as one of the program with rows."""
        return Summarising(sampler, self) if self.groups else sampler


def summary_of(bound: Bound, analysis: Analysis, evaluations: int, wanted: bool | None = None) -> Summary:
    """What replaces the rows. wanted: by default where so many evaluations of the log joint pay for finding it.

    bound: of the program of the analysis, with sites integrated out.
    Raises ValueError with the reasons where it is wanted and there is nothing.
    """
    if wanted is False or (wanted is None and not pays(bound, evaluations)):
        return Summary()
    plain = analysis.plain
    if wanted and not plain.groups:
        reasons = why_not(plain.findings)
        raise ValueError(f"no statistics replace the rows of this program{reasons}; leave statistics out")
    return Summary(plain.groups, plain.rules)


def groups_for_starts(analysis: Analysis, num_starts: int) -> Groups:
    """What replaces the rows where optimisations from so many starts pay for finding it."""
    return analysis.groups if pays(analysis.bound, EVALUATIONS * num_starts) else ()


@dataclass(frozen=True)
class Summarising(Wrapper):
    summary: Summary

    prepares = True

    @property
    def statistics(self) -> Groups:
        return self.summary.groups

    def prepare(self, bound: Bound) -> Any:
        return self.inner.prepare(summarised(*self.summary, bound))

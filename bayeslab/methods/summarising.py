"""Samplers on sufficient statistics in place of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax

from bayeslab.compress import Groups, compressible, pays, summarised, why_not
from bayeslab.draws import Sampler, conditionals_of, ended, prepared
from bayeslab.elimination import Rule
from bayeslab.program import Bound, structure
from bayeslab.proof import Found, find_all, rules_of

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


def summary_of(bound: Bound, evaluations: int, wanted: bool | None = None) -> Summary:
    """What replaces the rows. wanted: by default where so many evaluations of the log joint pay for finding it.

    Raises ValueError with the reasons where it is wanted and there is nothing.
    """
    if wanted is False or (wanted is None and not pays(bound, evaluations)):
        return Summary()
    found = find_all(bound.plain)
    groups = compressible(bound.plain, found)
    if wanted and not groups:
        raise ValueError(f"no statistics replace the rows of this program{why_not(found)}; leave statistics out")
    return Summary(groups, rules_of(found))


def groups_for_starts(bound: Bound, found: Sequence[Found], num_starts: int) -> Groups:
    """What replaces the rows where optimisations from so many starts pay for finding it."""
    return compressible(bound, found) if pays(bound, EVALUATIONS * num_starts) else ()


@dataclass(frozen=True)
class Summarising:
    inner: Sampler
    summary: Summary

    def conditionals(self, bound: Bound) -> Any:
        return conditionals_of(self.inner, bound)

    def prepare(self, bound: Bound) -> Any:
        return prepared(self.inner, summarised(*self.summary, bound))

    def ended(self, state: Any, data: Any, samples: dict[str, Any]) -> Any:
        return ended(self.inner, state, data, samples)

    @property
    def start(self) -> Callable[..., Any]:
        return self.inner.start

    @property
    def adapt(self) -> Callable[..., Any]:
        return self.inner.adapt

    @property
    def advance(self) -> Callable[..., Any]:
        return self.inner.advance

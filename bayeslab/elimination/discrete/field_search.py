"""Finds which discrete elements of a program meet."""

from collections.abc import Collection, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.running_totals import PartTotal
from bayeslab.elimination.discrete.chains.recognition import chain_layout, step_functions
from bayeslab.elimination.discrete.chains.repeated_functions import FunctionFinder
from bayeslab.elimination.discrete.fields import CONSTANT, MIXED, Chains, Field
from bayeslab.elimination.discrete.scopes import ScopeFinder, follow_elements
from bayeslab.elimination.discrete.sum_of_parts import cut
from bayeslab.elimination.discrete.totals import TotalFinder, is_wide
from bayeslab.elimination.terms import Prior, Term, sum_of_terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.flat_program import FlatProgram

MAX_FIELD_ELEMENTS = 20_000
"""Elements of a field, at most."""


def find_field(
    log_joint_terms: Sequence[Term], priors: dict[str, Prior], names: tuple[str, ...], bound: Bound, values: Values
) -> Field:
    """The field of some enumerable sites under the sum of some terms.

    values: of all latent sites; nothing but their shapes matters. The arguments of the program are looked at, since
    they may say which elements meet; data are not.
    Raises ValueError where there are too many elements.
    """
    shapes, choices, cards = [], [], []
    for name in names:
        own = priors[name].choices
        assert own is not None
        shapes.append(priors[name].shape)
        choices.append(tuple(int(each) for each in own))
        cards.append(len(own))
    blank = Field(names, tuple(shapes), tuple(choices), (), (), ())
    if blank.size > MAX_FIELD_ELEMENTS:
        raise ValueError(f"{blank.size} discrete elements that meet are more than {MAX_FIELD_ELEMENTS}")
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(names)]
    others = {name: value for name, value in values.items() if name not in names}

    def density(indices: Array, bound: Bound, others: Values) -> Array:
        return sum_of_terms(reached, bound, others | blank.named(indices))

    program, number, finder, _ = follow_elements(density, blank.size, bound, others)
    part_numbers = cut(program, number).parts
    field = _with_parts(blank, finder, part_numbers)
    layout = chain_layout(field)
    if layout is None:
        if field.mixed or any(is_wide(blank.cards, scope) for scope in field.scopes):
            by_totals = _with_parts(blank, finder, part_numbers, TotalFinder(finder, number, blank.cards))
            field.with_totals = by_totals if by_totals.totals is not None else None
        return field
    functions = FunctionFinder(program, finder.value).run({number: step_functions(field, layout)})
    numbers = [functions[part].numbers if part in functions else np.zeros(0, int) for part in part_numbers]
    return field.as_chains(Chains(layout, tuple(np.unique(each, return_inverse=True)[1] for each in numbers)))


def _with_parts(
    blank: Field, finder: ScopeFinder, part_numbers: Sequence[int], total_finder: TotalFinder | None = None
) -> Field:
    """A field with the scopes of all parts.

    part_numbers: of these among the values of the program. total_finder: for functions of many elements that depend on
    their totals.
    """
    program, sums, table = finder.program, finder.sums, finder.table
    scopes: dict[tuple[tuple[int, ...], bytes], int] = {}
    totals: dict[int, PartTotal] = {}
    mixed: set[tuple[int, ...]] = set()
    parts = []
    for part in part_numbers:
        part_sums = sums.get(part)
        if part_sums is None:
            shape = next(s for o in program.operations for n, s in zip(o.outputs, o.shapes, strict=True) if n == part)
            part_sums = np.zeros(shape, np.int32)
        distinct, inverse = np.unique(part_sums, return_inverse=True)
        index = np.empty(len(distinct), np.int32)
        for place, one in enumerate(distinct):
            members = _largest(table.sums[one])
            union = tuple(sorted(frozenset().union(*members)))
            if total_finder is not None and (total := total_finder.total_of(part, union)) is not None:
                index[place] = number = scopes.setdefault((union, total.key), len(scopes))
                totals[number] = total
            elif len(members) == 1:
                index[place] = scopes.setdefault((union, b""), len(scopes))
            else:
                index[place] = MIXED if members else CONSTANT
                mixed |= {tuple(sorted(scope)) for scope in members}
        parts.append(index[inverse].reshape(part_sums.shape))
    found = tuple(scope for scope, _ in scopes)
    field = Field(blank.names, blank.shapes, blank.choices, found, tuple(parts), tuple(sorted(mixed)))
    field.eps = max((float(jnp.finfo(each).eps) for each in _real_types(program, sums)), default=field.eps)
    return field.by_totals(totals) if totals else field


def _real_types(program: FlatProgram, reached: Collection[int]) -> set[Any]:
    """The types of all real numbers that elements reach."""
    pairs = (pair for each in program.operations for pair in zip(each.outputs, each.dtypes, strict=True))
    return {dtype for number, dtype in pairs if number in reached and jnp.issubdtype(dtype, jnp.floating)}


def _largest(scopes: frozenset[frozenset[int]]) -> list[frozenset[int]]:
    """The scopes that are in no other."""
    big = {element: scope for scope in scopes if len(scope) > 1 for element in scope}
    kept = [scope for scope in scopes if len(scope) > 1 or next(iter(scope)) not in big]
    if max(map(len, kept), default=0) <= 2:
        return kept
    return [scope for scope in kept if not any(scope < other for other in kept)]

"""Whether a site changes the branch of an operation that is not analytic in it, anywhere on any scale.

A guard against logarithms of zero does not hurt where it never acts, and a threshold does wherever it lies. So the
branch itself, and no density, is compared at thousands of values of the site: at every distance from the middle of its
support, of its prior and of the conditional that was found, and between the numbers of the data.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.analyticity import Kink
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.branches.branch_jumps import jumps_at_branch_changes
from bayeslab.verification.branches.branch_values import BranchArgument, moves_and_data, values_on_all_scales
from bayeslab.verification.points.probe_points import Point


def find_branch_change(bound: Bound, site: str, rule: Rule | None, points: Sequence[Point]) -> Kink | None:
    """An operation between a continuous site and its densities of which the site changes the branch, or None.

    One whose values jump comes before others. What the distribution of the site itself does with its value, such as to
    ask whether this is in its support, is left out: its family knows it. It is continuous, too, where the log joint was
    seen not to jump (`branch_jumps`).
    rule: the one that was found for the site, if any was. points: values of all sites.
    """
    log_joint = terms(bound)
    reached_kinks = (
        (term, log_joint.kinks[path]) for term in log_joint.terms if site in term.depends for path in term.kinks
    )
    kinks = sorted({k for term, k in reached_kinks if site in k.sites and not (k.of_library and term.name == site)})
    for kink in kinks:
        if not kink.known:
            return kink
    if not kinks:
        return None
    moves, data = moves_and_data(bound, site)
    bends: list[Kink] = []
    for _, values in points:
        [changed] = evaluate_all([_branch_changes(tuple(kinks), site, rule)], (bound, values, moves, data))
        bends += [kink for kink, has_changed in zip(kinks, changed, strict=True) if has_changed and kink not in bends]
    if not (steps := [kink for kink in bends if not kink.is_continuous]):
        return next(iter(bends), None)
    arguments = [(bound, values, moves, data) for _, values in points]
    return steps[0]._replace(is_continuous=not jumps_at_branch_changes(tuple(steps), site, rule, arguments))


def program_may_jump(bound: Bound, site: str) -> bool:
    """Whether the program itself, and no distribution in it, has an operation that a site reaches whose values may
    jump, as `where(time < change, before, after)`."""
    log_joint = terms(bound)
    kinks = [log_joint.kinks[path] for term in log_joint.terms if site in term.depends for path in term.kinks]
    return any(site in k.sites and k.known and not (k.of_library or k.is_continuous) for k in kinks)


@lru_cache(maxsize=64)
def _branch_changes(kinks: tuple[Kink, ...], site: str, rule: Rule | None) -> Callable[[BranchArgument], Array]:
    """A function of a point: for every operation, whether any values of the site lead to different branches."""

    def changes(argument: BranchArgument) -> Array:
        bound, values = argument[:2]
        probe_values = values_on_all_scales(argument, site, rule)

        def branches_at(x: Array) -> list[Array]:
            return terms(bound).branches(kinks, bound, values | {site: x})

        def step(index: Array, state: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
            first, changed = state
            current = branches_at(probe_values[index])
            first = [jnp.where(index == 0, new, old) for new, old in zip(current, first, strict=True)]
            new = jnp.stack([jnp.any(branch != other) for branch, other in zip(current, first, strict=True)])
            return first, changed | new

        blank = [jnp.zeros(kind.shape, kind.dtype) for kind in jax.eval_shape(branches_at, probe_values[0])]
        return jax.lax.fori_loop(0, len(probe_values), step, (blank, jnp.zeros(len(kinks), bool)))[1]

    return changes

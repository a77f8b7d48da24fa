"""Whether the log joint jumps where a site changes the branch of an operation, or only bends there.

The two branches of `where` may meet, as where a distribution computes a tail probability below its mean and the other
one above it, or where a line has another slope from a point on. Gradients tell of such a density, and not of one with
steps. So the place where the branch changes is found by bisection between two values of the site, and the densities on
both sides of it are compared.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.programs.tracing.analyticity import Kink
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.branches.branch_values import BranchArgument, values_on_all_scales

NUM_PAIRS = 256
"""Pairs of values between which changes of branch are looked for, for an operation on one number."""
PAIRS_PER_ELEMENT = 4
"""The same for an operation on several, for each of them."""
MAX_PAIRS = 4096
"""Pairs at most: of operations on more numbers nothing is known, for a single one of them may jump."""
NUM_HALVINGS = 80
"""Halvings of an interval, after which nothing but rounding is between its ends."""
JUMP_TOLERANCE = 1e-6
"""Relative change of the log density from one side of a change of branch to the other that is no jump."""
NO_CHANGE, SUPPORT_ENDS = -1.0, np.inf
"""What stands for the relative change where nothing was compared, and where one side is impossible."""


def jumps_at_branch_changes(
    kinks: tuple[Kink, ...], site: str, rule: Rule | None, arguments: Sequence[BranchArgument]
) -> bool:
    """Whether the log joint jumps where a site changes the branch of some operations; yes where nothing is known.

    rule: the one that was found for the site, if any was. arguments: at which the branches change somewhere.
    """
    bound, values = arguments[0][:2]
    branches = jax.eval_shape(lambda: terms(bound).branches(kinks, bound, values))
    num_pairs = max(NUM_PAIRS, *(PAIRS_PER_ELEMENT * branch.size for branch in branches))
    if num_pairs > MAX_PAIRS:
        return True
    seen = np.zeros(len(kinks), bool)
    for argument in arguments:
        [changes] = evaluate_all([_density_changes(kinks, site, rule, num_pairs)], argument)
        if (changes > JUMP_TOLERANCE).any():
            return True
        seen |= (changes >= 0).any(0)
    return not seen.all()


@lru_cache(maxsize=64)
def _density_changes(
    kinks: tuple[Kink, ...], site: str, rule: Rule | None, num_pairs: int
) -> Callable[[BranchArgument], Array]:
    """A function of a point: the relative changes (pair, operation) of the log joint where its branch changes.

    Between every pair of values one element of the operation is followed, of those whose branches differ.
    """

    def changes(argument: BranchArgument) -> Array:
        bound, values = argument[:2]
        probe_values = values_on_all_scales(argument, site, rule)
        own = [term for term in terms(bound).terms if site in term.depends]
        pairs = jax.random.randint(jax.random.key(0), (num_pairs, 2), 0, len(probe_values))

        def density_at(x: Array) -> Array:
            return sum_of_terms(own, bound, values | {site: x})

        def change(kink: Kink, pair: Array, key: Array) -> Array:
            def branch_at(x: Array) -> Array:
                return terms(bound).branches((kink,), bound, values | {site: x})[0].ravel()

            first, last = branch_at(probe_values[pair[0]]), branch_at(probe_values[pair[1]])
            element = jnp.argmax(jnp.where(first != last, jax.random.uniform(key, first.shape), -1.0))

            def halve(_: int, interval: tuple[Array, Array]) -> tuple[Array, Array]:
                low, high = interval
                middle = low + (high - low) / 2
                is_first = branch_at(middle)[element] == first[element]
                return jnp.where(is_first, middle, low), jnp.where(is_first, high, middle)

            ends = probe_values[pair[0]], probe_values[pair[1]]
            low, high = jax.lax.fori_loop(0, NUM_HALVINGS, halve, ends)
            before, after = density_at(low), density_at(high)
            size = jnp.abs(after - before) / jnp.maximum(1.0, jnp.abs(before))
            known = jnp.isfinite(before) & jnp.isfinite(after)
            ends_here = jnp.isfinite(before) != jnp.isfinite(after)
            size = jnp.where(known, size, jnp.where(ends_here, SUPPORT_ENDS, NO_CHANGE))
            return jnp.where(first[element] != last[element], size, NO_CHANGE)

        def all_changes(at: tuple[Array, Array]) -> Array:
            return jnp.stack([change(kink, *at) for kink in kinks])

        return jax.lax.map(all_changes, (pairs, jax.random.split(jax.random.key(1), num_pairs)))

    return changes

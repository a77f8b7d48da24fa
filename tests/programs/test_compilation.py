"""What reads the same is compiled once; what does not is told apart."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

import bayeslab as bl
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.findings import find_conditionals
from compilations import counted_compilations

NAMES = [f"row_{place}" for place in range(6)]
TABLE = {name: np.arange(4.0) + place for place, name in enumerate(NAMES)}


def of_row(name: str) -> Callable[[dict[str, Array]], Array]:
    return lambda table: (jnp.sin(table[name]) ** 2).sum()


def times(constant: np.ndarray) -> Callable[[dict[str, Array]], Array]:
    return lambda table: (constant * table["row_1"]).sum()


def test_like_functions_of_other_entries_are_compiled_once() -> None:
    functions = [of_row(name) for name in NAMES]
    with counted_compilations() as seen:
        found = evaluate_all(functions, TABLE)
    assert len(seen) == 1
    np.testing.assert_allclose(found, [(np.sin(row) ** 2).sum() for row in TABLE.values()], rtol=1e-6)
    other = {name: row + 1.0 for name, row in TABLE.items()}
    with counted_compilations() as seen:
        found = evaluate_all(functions, other)
    assert seen == []
    np.testing.assert_allclose(found, [(np.sin(row) ** 2).sum() for row in other.values()], rtol=1e-6)


def test_functions_that_differ_in_a_constant_or_a_shape_are_told_apart() -> None:
    constants = [np.ones(4), np.full(4, 2.0), np.arange(4.0), np.arange(1.0, 5.0)]
    functions = [times(constant) for constant in constants]
    np.testing.assert_allclose(evaluate_all(functions, TABLE), [c @ TABLE["row_1"] for c in constants], rtol=1e-6)
    short = {"row_1": np.ones(1)}
    np.testing.assert_allclose(evaluate_all(functions, short), [c.sum() for c in constants], rtol=1e-6)


def groups(num_groups: int) -> None:
    before: Any = 0.0
    for group in range(num_groups):
        mu = numpyro.sample(f"mu_{group}", dist.Normal(before, 1.0))
        tau = numpyro.sample(f"tau_{group}", dist.Gamma(3.0, 2.0))
        with numpyro.plate(f"row_{group}", 5):
            numpyro.sample(f"y_{group}", dist.Normal(mu, 1 / jnp.sqrt(tau)))
        before = mu


def test_more_sites_of_the_same_kinds_compile_no_more_proofs() -> None:
    def compiled(num_groups: int) -> int:
        data = {f"y_{group}": np.arange(5.0) for group in range(num_groups)}
        with precision_scope(), counted_compilations() as seen:
            found = find_conditionals(bl.bind(groups, {"num_groups": num_groups} | data))
        assert len(found) == 2 * num_groups
        assert all(one.rule is not None for one in found)
        return len(seen)

    compiled(3)  # the first, a middle and the last group, and what all programs share
    assert compiled(6) <= 4  # the points, what follows from them, and one proof for all groups but the last
    assert compiled(9) <= 4

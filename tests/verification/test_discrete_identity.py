"""The law of discrete sites sees elements that meet in one pair of choices only."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.elimination.around import pairs_of_choices
from bayeslab.programs.binding import bind
from bayeslab.verification.findings import find_conditional


def labels(rows: int, choices: int, first: int, second: int) -> None:
    """Two labels that may not take one pair of choices."""
    with numpyro.plate("row", rows):
        z = numpyro.sample("z", dist.Categorical(jnp.full(choices, 1 / choices)))
        numpyro.sample("y", dist.Normal(z.astype(float), 3.0))
    numpyro.factor("exclusion", jnp.where((z[0] == first) & (z[1] == second), -20.0, 0.0))


def path(steps: int, states: int, state: int) -> None:
    """A chain that may not be twice in a row in one state."""
    moves = np.full((states, states), 1 / states)
    z = numpyro.sample("z", bl.MarkovChain(moves[0], moves, steps))
    numpyro.sample("y", dist.Normal(z.astype(float), 3.0).to_event(1))
    numpyro.factor("exclusion", jnp.where((z[1:] == state) & (z[:-1] == state), -20.0, 0.0).sum())


@pytest.mark.parametrize(("choices", "first", "second"), [(6, 2, 2), (8, 3, 3), (8, 5, 2), (3, 1, 0)])
def test_labels_that_meet_in_one_pair_of_choices(choices: int, first: int, second: int) -> None:
    data = {"rows": 3, "choices": choices, "first": first, "second": second, "y": np.full(3, float(first))}
    found = find_conditional(bind(labels, data), "z")
    assert found.rule is None
    assert "'exclusion'" in found.reason


@pytest.mark.parametrize(("states", "steps", "state"), [(8, 3, 0), (6, 4, 1), (5, 7, 2)])
def test_paths_that_may_not_stay_in_one_state(states: int, steps: int, state: int) -> None:
    found = find_conditional(
        bind(path, {"steps": steps, "states": states, "state": state, "y": np.full(steps, 1.0)}), "z"
    )
    assert found.rule is None
    assert "'exclusion'" in found.reason


def test_any_two_elements_have_all_pairs_of_different_choices() -> None:
    values = np.asarray(pairs_of_choices((2, 5), 3)).reshape(-1, 10)
    for one, other in product(range(10), repeat=2):
        if one != other:
            pairs = set(zip(values[:, one].tolist(), values[:, other].tolist(), strict=True))
            assert pairs >= {(a, b) for a, b in product(range(3), repeat=2) if a != b}


def test_a_chain_of_sequences_of_different_length_is_accepted() -> None:
    def model(lengths: Any) -> None:
        moves = np.array([[0.8, 0.2], [0.3, 0.7]])
        with numpyro.plate("sequence", 2):
            z = numpyro.sample("z", bl.MarkovChain(np.array([0.5, 0.5]), moves, 4, lengths=lengths))
            there = jnp.arange(4) < lengths[:, None]
            numpyro.sample("y", dist.Normal(z.astype(float), 1.0).mask(there).to_event(1))

    y = np.arange(8.0).reshape(2, 4)
    found = find_conditional(bind(model, {"lengths": np.array([4, 2]), "y": y}), "z")
    assert found.rule is not None
    assert found.residual < 1e-10

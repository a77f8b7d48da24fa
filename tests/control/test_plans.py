"""Plans: the best of all policies, which are enumerated; of every posterior draw; and learning by acting."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

import bayeslab as bl
from bayeslab.datasets import river_swim
from bayeslab.models import mdp_model

Array = NDArray[Any]
DISCOUNT = 0.9
RNG = np.random.default_rng(0)
PROBS, REWARD = RNG.dirichlet(np.full(4, 0.5), (3, 4, 2)), RNG.normal(size=(3, 4))
"""Three processes of four states and two actions."""


def value_of(probs: Array, reward: Array, policy: Any) -> Array:
    moves = probs[np.arange(len(reward)), list(policy)]
    return np.linalg.solve(np.eye(len(reward)) - DISCOUNT * moves, reward)


def best_of_all(probs: Array, reward: Array) -> Array:
    """The largest value of every state over all policies; one policy has all of them."""
    policies = itertools.product(range(probs.shape[1]), repeat=len(reward))
    return np.max([value_of(probs, reward, policy) for policy in policies], axis=0)


def test_both_iterations_find_the_best_of_all_policies() -> None:
    by_value = bl.control.value_iteration(PROBS, REWARD, DISCOUNT)
    by_policy = bl.control.policy_iteration(PROBS, REWARD, DISCOUNT)
    for each, (probs, reward) in enumerate(zip(PROBS, REWARD, strict=True)):
        best = best_of_all(probs, reward)
        np.testing.assert_allclose(by_value.value[each], best, atol=1e-8)
        np.testing.assert_allclose(by_policy.value[each], best, rtol=1e-12)
        for plan in (by_value, by_policy):
            np.testing.assert_allclose(value_of(probs, reward, plan.policy[each]), best, rtol=1e-12)
        worst = value_of(probs, reward, 1 - by_policy.policy[each])
        assert (worst < best - 1e-3).any()
    assert by_policy.num_iterations < 6 < by_value.num_iterations


def test_value_iteration_is_as_close_as_it_says() -> None:
    """Also where steps are small because the discount is near one."""
    for tolerance in (1e-1, 1e-4):
        plan = bl.control.value_iteration(PROBS[0], REWARD[0], 0.99, tolerance)
        exact = bl.control.policy_iteration(PROBS[0], REWARD[0], 0.99)
        assert abs(plan.value - exact.value).max() < tolerance
    assert bl.control.value_iteration(PROBS[0], REWARD[0], 0.0).value == pytest.approx(REWARD[0])


def test_large_rewards_come_to_rest() -> None:
    """Where rounding is larger than the tolerance."""
    plan = bl.control.value_iteration(PROBS, 1e9 * REWARD, 0.99)
    np.testing.assert_allclose(plan.value, bl.control.policy_iteration(PROBS, 1e9 * REWARD, 0.99).value, rtol=1e-12)


def test_values_of_policies() -> None:
    policy = np.array([1, 0, 0, 1])
    expected = value_of(PROBS[1], REWARD[1], policy)
    np.testing.assert_allclose(bl.control.policy_value(PROBS[1], REWARD[1], DISCOUNT, policy), expected, rtol=1e-12)
    at_random = bl.control.policy_value(PROBS[1], REWARD[1], DISCOUNT, np.full((4, 2), 0.5))
    mixed = PROBS[1].mean(1)
    np.testing.assert_allclose(at_random, REWARD[1] + DISCOUNT * mixed @ at_random, rtol=1e-12)


@pytest.mark.slow
def test_the_posterior_of_a_process_and_its_plans() -> None:
    """Dirichlet rows and normal-gamma rewards in closed form; a plan for every draw; a decision between policies."""
    data = mdp_model.example()
    tree = bl.fit(0, mdp_model.model, data, bl.Exact(2000), progress=False)
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (data["state"], data["action"], data["next_state"]), 1)
    total = 0.5 + counts
    log_beta = special.gammaln(total).sum(-1) - special.gammaln(total.sum(-1))
    log_beta -= 3 * special.gammaln(0.5) - special.gammaln(1.5)
    evidence = log_beta.sum()
    for state in range(3):  # Student's t, one gain after the other
        n, mean, a, b = 0.1, 0.0, 1.0, 0.1
        for gain in data["gain"][data["state"] == state]:
            evidence += stats.t(2 * a, mean, np.sqrt(b * (n + 1) / (a * n))).logpdf(gain)
            b += n * (gain - mean) ** 2 / (2 * (n + 1))
            n, mean, a = n + 1, (n * mean + gain) / (n + 1), a + 0.5
    np.testing.assert_allclose(tree.attrs["log_evidence"], evidence, rtol=1e-10)
    draws = tree["posterior"]["transition"].values[0]
    mean = total / total.sum(-1, keepdims=True)
    error = np.sqrt(mean * (1 - mean) / (total.sum(-1, keepdims=True) + 1) / 2000)
    assert (abs(draws.mean(0) - mean) < 5 * error).all()

    plans = bl.control.posterior_plans(tree, DISCOUNT)
    assert plans["value"].dims == ("chain", "draw", "state")
    reward = tree["posterior"]["reward"].values[0]
    for draw in (0, 7):
        np.testing.assert_allclose(plans["value"].values[0, draw], best_of_all(draws[draw], reward[draw]), atol=1e-7)
    policies = {str(policy): np.array(policy) for policy in itertools.product(range(2), repeat=3)}

    def loss(policy: Any, draw: dict[str, Any]) -> Any:
        return -bl.control.policy_value(draw["transition"], draw["reward"], DISCOUNT, policy)[0]

    table = bl.decide(tree, loss, policies)
    assert float(plans["value"][..., 0].mean()) > -float(
        table["expected_loss"].min()
    )  # no policy is best for all draws


WORLD = river_swim()
RIVER = WORLD["transition"].values, WORLD["reward"].values, 0.95


def test_thompson_sampling_finds_what_certainty_equivalence_never_tries() -> None:
    settings = {"num_episodes": 120, "num_runs": 20}
    learnt = bl.control.thompson_sampling(0, *RIVER, **settings)
    stuck = bl.control.certainty_equivalence(0, *RIVER, **settings)
    assert (learnt["regret"] > -1e-6).all()
    assert (learnt["visits"].sum(("state", "action")) == 120 * 20).all()
    assert (learnt["regret"].values[:, -1] < 1e-6).mean() > 0.8
    assert (stuck["regret"].values[:, -1] > 1.0).mean() > 0.5
    assert 2 * learnt["cumulative_regret"].values[:, -1].mean() < stuck["cumulative_regret"].values[:, -1].mean()


def test_regret_is_that_of_the_plan_of_the_episode() -> None:
    """At first all actions seem alike, and the first one is taken; a draw has the plan of one of all policies."""
    probs, reward, discount = RIVER
    best = bl.control.policy_iteration(*RIVER).value[2]
    policies = np.array([*itertools.product(range(2), repeat=6)])
    regrets = best - bl.control.policy_value(np.broadcast_to(probs, (64, 6, 2, 6)), reward, discount, policies)[:, 2]
    first = bl.control.certainty_equivalence(0, *RIVER, 1, num_runs=2, start=2)["regret"]
    np.testing.assert_allclose(first, regrets[0], rtol=1e-9)
    drawn = bl.control.thompson_sampling(0, *RIVER, 3, num_runs=8, start=2)["regret"].values.ravel()
    assert (abs(drawn[:, None] - regrets).min(1) < 1e-9).all()
    assert len(set(drawn.round(6))) > 4


WRONG: dict[str, tuple[Any, str]] = {
    "one axis": (lambda: bl.control.value_iteration(np.ones((2, 2)), np.ones(2), 0.9), r"has shape \(2, 2\); expected"),
    "rows": (lambda: bl.control.policy_iteration(PROBS + 0.1, REWARD, 0.9), "probabilities of next states, which sum"),
    "reward": (lambda: bl.control.value_iteration(PROBS, REWARD[:, :3], 0.9), r"reward has shape \(3, 3\)"),
    "nan": (lambda: bl.control.value_iteration(PROBS, REWARD * np.nan, 0.9), "reward must be finite"),
    "discount": (lambda: bl.control.value_iteration(PROBS, REWARD, 1.0), "less than 1, but is 1.0"),
    "no end": (lambda: bl.control.value_iteration(PROBS[0], REWARD[0], 0.99999), "use policy_iteration, a larger tol"),
    "batch": (lambda: bl.control.value_iteration(PROBS, REWARD[:2], 0.9), r"batch shapes \(3,\) and \(2,\)"),
    "policy": (lambda: bl.control.policy_value(PROBS[0], REWARD[0], 0.9, np.zeros(3, int)), r"policy has shape \(3,\)"),
    "start": (lambda: bl.control.thompson_sampling(0, *RIVER, 5, start=6), "start must be a state from 0 to 5"),
    "episodes": (lambda: bl.control.thompson_sampling(0, *RIVER, 0), "num_episodes must be at least 1, but is 0"),
    "several": (lambda: bl.control.thompson_sampling(0, PROBS, REWARD, 0.9, 5), "episodes are in one process"),
    "prior": (lambda: bl.control.certainty_equivalence(0, *RIVER, 5, concentration=0.0), "must be positive"),
    "river": (lambda: river_swim(2), "at least three places"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_processes_are_named(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        call()

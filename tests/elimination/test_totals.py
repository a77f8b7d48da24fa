"""Many discrete elements that meet in a function of their total: all methods, against enumeration of all of them."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import bayeslab as bl
from bayeslab.graphical_models import most_probable_explanation, query

SIZE = 18
SEEN = np.random.default_rng(4).normal(0.5, 1.0, SIZE)
WEIGHTS = np.random.default_rng(5).integers(1, 6, SIZE)
ALL = np.array(list(product((0, 1), repeat=SIZE))).T
"""All configurations of the switches (switch, configuration)."""
LOG_JOINT = np.where(ALL == 1, np.log(0.3), np.log(0.7)).sum(0) + norm.logpdf(SEEN[:, None], ALL, 1.0).sum(0)
"""The log joint of all configurations without a rule."""


def switches(rule: Callable[[Any], Any], y: Any) -> None:
    """Independent switches that are seen with noise, and a factor of all of them."""
    with numpyro.plate("switch", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    numpyro.factor("rule", rule(z))


def where(condition: Any) -> Any:
    """A log density that excludes what does not meet a condition."""
    return jnp.where(condition, 0.0, -jnp.inf)


RULES: dict[str, Callable[[Any], Any]] = {
    "six": lambda z: where(z.sum(0) == 6),
    "a third": lambda z: where(jnp.abs(z.mean(0) - 1 / 3) < 1e-6),
    "even": lambda z: where(z.sum(0) % 2 == 0),
    "four or eleven": lambda z: where((z.sum(0) == 4) | (z.sum(0) == 11)),
    "weights below a limit": lambda z: where(WEIGHTS @ z <= 17),
    "halves of weights": lambda z: where((z.T * (WEIGHTS / 2)).sum(-1) == 8.5),
    "not all": lambda z: where((z == 0).any(0)),
    "one block whole": lambda z: where((z[:9] == 1).all(0) | (z[9:].min(0) == 1)),
    "one block as full as the other": lambda z: where(z[:9].sum(0) == z[9:].sum(0)),
    "alternating signs": lambda z: where((jnp.where(z == 1, 1, -1).T * (-1) ** np.arange(SIZE)).sum(-1) == 4),
    "a square": lambda z: -0.7 * (z.sum(0) - 4.5) ** 2,
    "a logarithm": lambda z: jnp.log1p(z.sum(0) ** 1.5),
}


def posterior_of(rule: Callable[[Any], Any]) -> tuple[float, np.ndarray]:
    """The log evidence of switches with a rule, and the probabilities of all configurations."""
    with jax.enable_x64(True):
        log_joint = LOG_JOINT + np.asarray(rule(ALL))
    log_evidence = float(logsumexp(log_joint))
    return log_evidence, np.exp(log_joint - log_evidence)


@pytest.mark.parametrize("name", RULES)
def test_switches_with_a_rule_have_the_exact_posterior(name: str) -> None:
    rule = RULES[name]
    log_evidence, probabilities = posterior_of(rule)
    program = partial(switches, rule)
    marginals = query(program, {"y": SEEN}, "z")
    assert marginals.attrs["log_evidence"] == pytest.approx(log_evidence, abs=1e-9)
    np.testing.assert_allclose(marginals.sel(z_value=1), ALL @ probabilities, atol=1e-10)
    explanation = most_probable_explanation(program, {"y": SEEN})
    assert explanation.attrs["log_probability"] == pytest.approx(np.log(probabilities.max()), abs=1e-9)
    np.testing.assert_array_equal(explanation["z"], ALL[:, probabilities.argmax()])


@pytest.mark.parametrize("name", ["six", "weights below a limit", "one block as full as the other"])
def test_draws_of_switches_keep_the_rule(name: str) -> None:
    rule = RULES[name]
    log_evidence, probabilities = posterior_of(rule)
    tree = bl.fit(0, partial(switches, rule), {"y": SEEN}, progress=False)
    drawn = np.asarray(tree.posterior["z"]).reshape(-1, SIZE)
    assert tree.attrs["log_evidence"] == pytest.approx(log_evidence, abs=1e-9)
    assert np.isfinite(np.asarray(rule(drawn.T))).all()
    np.testing.assert_allclose(drawn.mean(0), ALL @ probabilities, atol=4.5 * 0.5 / np.sqrt(len(drawn)))
    both = drawn[:, 0] * drawn[:, 10]
    np.testing.assert_allclose(both.mean(), (ALL[0] * ALL[10]) @ probabilities, atol=4.5 * 0.5 / np.sqrt(len(drawn)))


def effect_of_a_count(y: Any, total: Any) -> None:
    """Switches whose number has an effect of unknown size."""
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    with numpyro.plate("switch", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    numpyro.sample("total", dist.Normal(jnp.tanh(effect) * z.sum(), 0.5), obs=total)


def exact_mean_of_the_effect(total: float) -> float:
    effects = np.linspace(-5, 5, 4001)
    counts = ALL.sum(0)
    by_count = np.array([logsumexp(LOG_JOINT[counts == count]) for count in range(SIZE + 1)])
    rows = norm.logpdf(total, np.tanh(effects)[:, None] * np.arange(SIZE + 1), 0.5)
    log_density = norm.logpdf(effects) + logsumexp(by_count + rows, axis=1)
    weights = np.exp(log_density - log_density.max())
    return float(effects @ weights / weights.sum())


@pytest.mark.parametrize("method", [None, bl.NUTS(), bl.Gibbs()], ids=["default", "NUTS", "Gibbs"])
def test_the_effect_of_a_count_has_its_exact_mean(method: Any) -> None:
    tree = bl.fit(0, effect_of_a_count, {"y": SEEN, "total": 3.1}, method, progress=False)
    effect = tree.posterior["effect"]
    error = float(effect.std()) / np.sqrt(float(az.ess(effect)))
    assert float(effect.mean()) == pytest.approx(exact_mean_of_the_effect(3.1), abs=4 * error)


def groups_with_totals(y: Any, rows: int) -> None:
    """Each row has three letters of which as many are of the third kind as of the first, and 14 places."""
    with numpyro.plate("row", rows), numpyro.plate("place", 14):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    with numpyro.plate("row", rows):
        numpyro.factor("balance", where((z == 0).sum(0) == (z == 2).sum(0)))


def test_rows_with_two_totals_each_are_exact() -> None:
    y = np.random.default_rng(2).normal(1.0, 1.0, (14, 3))
    log_density = np.log([0.2, 0.5, 0.3]) + norm.logpdf(y[..., None], np.arange(3), 1.0)
    steps = {0: np.zeros(3)}
    for row in log_density:  # by the difference of the two counts
        after: dict[int, np.ndarray] = {}
        for difference, weight in steps.items():
            for choice in range(3):
                reached = difference + choice - 1
                after[reached] = np.logaddexp(after.get(reached, np.full(3, -np.inf)), weight + row[:, choice])
        steps = after
    tree = bl.fit(0, groups_with_totals, {"y": y, "rows": 3}, bl.Exact(num_samples=500), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(steps[0].sum(), abs=1e-9)
    drawn = np.asarray(tree.posterior["z"])
    np.testing.assert_array_equal((drawn == 0).sum(-2), (drawn == 2).sum(-2))


def test_sixty_of_two_hundred_is_exact() -> None:
    size, number = 200, 60
    odds = np.random.default_rng(0).normal(-1.0, 1.0, size)

    def program() -> None:
        with numpyro.plate("switch", size):
            z = numpyro.sample("z", dist.Bernoulli(logits=odds))
        numpyro.factor("sixty", where(z.sum() == number))

    log_one, log_zero = -np.logaddexp(0, -odds), -np.logaddexp(0, odds)
    counts = np.full(number + 1, -np.inf)
    counts[0] = 0.0
    for one, zero in zip(log_one, log_zero, strict=True):  # the Poisson-binomial distribution
        counts = np.logaddexp(counts + zero, np.r_[-np.inf, counts[:-1] + one])
    tree = bl.fit(0, program, {}, bl.Exact(num_samples=200), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(counts[number], abs=1e-9)
    assert (tree.posterior["z"].sum("switch") == number).all()


def products_of_neighbours(y: Any) -> None:
    """The sum is one of products of two elements, which is no total."""
    with numpyro.plate("switch", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.factor("pairs", where((z[:-1] * z[1:]).sum() * (z[:9] * z[9:]).sum() == 2))


def hidden_weights(y: Any) -> None:
    """What each element adds is unknown."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(len(y)), 1.0).to_event(1))
    with numpyro.plate("switch", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.factor("limit", where(weights @ z < 1.0))


def real_weights(y: Any) -> None:
    """Nearly all of the 2^18 totals are different."""
    with numpyro.plate("switch", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.factor("limit", where(SEEN @ z < 1.0))


@pytest.mark.parametrize("program", [products_of_neighbours, hidden_weights, real_weights])
def test_what_is_no_total_or_has_too_many_values_is_refused(program: Callable[[Any], None]) -> None:
    with pytest.raises(ValueError, match="cannot be enumerated"):
        bl.fit(0, program, {"y": SEEN}, progress=False)

"""Restricted Boltzmann machines: exact at small sizes, and what stands in for exactness beyond."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayeslab.distributions import RestrictedBoltzmann
from bayeslab.distributions.factor_graphs.restricted_boltzmann import configurations
from bayeslab.graphical_models import (
    Weights,
    annealed_log_partition,
    contrastive_divergence,
    contrastive_gradient,
    log_likelihood_gradient,
    sample_layers,
)
from bayeslab.models import rbm
from bayeslab.programs.program import precision_scope


def weights(hidden: int, visible: int, scale: float = 0.7) -> Weights:
    rng = np.random.default_rng(hidden)
    sizes = ((hidden, visible), visible, hidden)
    return Weights(*(scale * rng.normal(size=size) for size in sizes))  # type: ignore[arg-type]


def joint(parameters: Weights) -> np.ndarray:
    """p(v, h) of all configurations, (v, h), by enumeration of both layers."""
    w, alpha, beta = parameters
    v, h = configurations(w.shape[1]), configurations(w.shape[0])
    energy = v @ np.asarray(w).T @ h.T + (v @ alpha)[:, None] + h @ beta
    table = np.exp(energy)
    return table / table.sum()


@pytest.mark.parametrize(("hidden", "visible"), [(2, 4), (4, 2), (3, 3), (1, 1)])
def test_probabilities_by_enumeration_of_both_layers(hidden: int, visible: int) -> None:
    parameters = weights(hidden, visible)
    with precision_scope():
        machine = RestrictedBoltzmann(*parameters)
        found = np.asarray(machine.log_prob(jnp.asarray(configurations(visible))))
        energy = [
            np.exp(h @ parameters.w @ v + parameters.alpha @ v + parameters.beta @ h)
            for v, h in itertools.product(configurations(visible), configurations(hidden))
        ]
        np.testing.assert_allclose(machine.log_partition, np.log(sum(energy)), rtol=1e-12)
    np.testing.assert_allclose(np.exp(found), joint(parameters).sum(1), atol=1e-12)


def test_a_machine_of_16_and_4_units() -> None:
    """The smaller layer is summed over 16 configurations; the other way round there are 65,536."""
    parameters = weights(4, 16)
    with precision_scope():
        v = jnp.asarray(configurations(16))
        machine = RestrictedBoltzmann(*parameters)
        log_weights = np.asarray(jax.jit(machine.log_weight)(v))
        np.testing.assert_allclose(machine.log_partition, np.logaddexp.reduce(log_weights), rtol=1e-12)


def test_draws_have_the_probabilities() -> None:
    for hidden, visible in ((2, 3), (3, 2)):
        parameters = weights(hidden, visible)
        with precision_scope():
            drawn = np.asarray(RestrictedBoltzmann(*parameters).sample(jax.random.key(0), (4000,)))
        counts = np.bincount(drawn @ 2 ** np.arange(visible), minlength=2**visible)
        assert stats.chisquare(counts, 4000 * joint(parameters).sum(1)).pvalue > 1e-4


BIMODAL = Weights(np.full((1, 3), 2.0), np.full(3, -1.0), np.full(1, -3.0))  # type: ignore[arg-type]
"""A hidden unit that holds three visible ones together, all on or all off."""


def exact_draws(parameters: Weights, number: int) -> np.ndarray:
    with precision_scope():
        return np.asarray(RestrictedBoltzmann(*parameters).sample(jax.random.key(1), (number,)))


def test_block_gibbs_leaves_the_distribution_as_it_is() -> None:
    """From exact draws of v, pairs (v, h) after three rounds have their joint probabilities."""
    for parameters in (weights(2, 3, 0.8), BIMODAL):
        v, h = sample_layers(2, parameters, exact_draws(parameters, 8000), 3)
        probs = joint(parameters)
        codes = np.asarray(v) @ [1, 2, 4] * probs.shape[1] + np.asarray(h) @ 2 ** np.arange(h.shape[1])
        assert stats.chisquare(np.bincount(codes, minlength=probs.size), 8000 * probs.ravel()).pvalue > 1e-4


def test_a_round_that_does_not_draw_the_hidden_units_is_wrong() -> None:
    """Means of hidden units in place of draws, as in some programs, do not leave the distribution as it is."""
    value = jnp.asarray(exact_draws(BIMODAL, 8000))
    with precision_scope():
        machine = RestrictedBoltzmann(*BIMODAL)
        for key in jax.random.split(jax.random.key(3), 3):
            logits = machine.visible_logits(jax.nn.sigmoid(machine.hidden_logits(value)))
            value = jax.random.bernoulli(key, jax.nn.sigmoid(logits)).astype(int)
    counts = np.bincount(np.asarray(value) @ [1, 2, 4], minlength=8)
    assert stats.chisquare(counts, 8000 * joint(BIMODAL).sum(1)).pvalue < 1e-6


def test_the_exact_gradient_is_data_less_machine() -> None:
    parameters, v = weights(2, 4), rbm.example()["v"]
    found = log_likelihood_gradient(parameters, v)
    h_given_v = 1 / (1 + np.exp(-(configurations(4) @ parameters.w.T + parameters.beta)))
    probs = joint(parameters).sum(1)
    places = v @ 2 ** np.arange(4)
    data = h_given_v[places].T @ v / len(v)
    machine = (probs[:, None] * h_given_v).T @ configurations(4)
    np.testing.assert_allclose(found.w, data - machine, atol=1e-12)
    np.testing.assert_allclose(found.alpha, v.mean(0) - probs @ configurations(4), atol=1e-12)


def bias(num_rounds: int, parameters: Weights, v: np.ndarray) -> float:
    """How far the mean of contrastive gradients is from the exact one, over 2,000 of them; noise is about 0.004."""
    found, _ = contrastive_gradient(0, parameters, np.tile(v, (2000, 1)), num_rounds)
    return float(np.abs(found.w - log_likelihood_gradient(parameters, v).w).max())


def test_contrastive_divergence_is_biased_less_with_more_rounds() -> None:
    parameters, v = weights(2, 4, 1.5), rbm.example()["v"]
    one, two, twenty = (bias(num_rounds, parameters, v) for num_rounds in (1, 2, 20))
    assert 0.07 < one < 0.12
    assert 0.015 < two < 0.05
    assert twenty < 0.012


def test_persistent_chains_that_are_at_equilibrium_have_no_bias() -> None:
    parameters, v = weights(2, 4, 1.5), rbm.example()["v"]
    found, ends = contrastive_gradient(0, parameters, v, 1, exact_draws(parameters, 4000))
    exact = log_likelihood_gradient(parameters, v)
    assert ends.shape == (4000, 4)
    np.testing.assert_allclose(found.w, exact.w, atol=5 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("persistent", [False, True])
def test_learning_comes_near_maximum_likelihood(persistent: bool) -> None:
    """Bars and stripes in 2 x 2 fields: the entropy of six pictures, log 6, is the best that any machine has."""
    v = np.tile(rbm.bars_and_stripes(2), (20, 1))
    found = contrastive_divergence(0, v, 3, num_rounds=5, persistent=persistent, num_updates=2000)
    with precision_scope():
        score = float(RestrictedBoltzmann(*found.weights).log_prob(jnp.asarray(v)).mean())
        start = float(RestrictedBoltzmann(np.zeros((3, 4)), np.zeros(4), np.zeros(3)).log_prob(jnp.asarray(v)).mean())
    assert start == pytest.approx(-4 * np.log(2))
    assert -np.log(6) - 0.1 < score < -np.log(6)
    assert found.history.shape == (2000,)


def test_annealed_partition_function_of_16_and_4_units() -> None:
    parameters = weights(4, 16)
    with precision_scope():
        machine = RestrictedBoltzmann(*parameters)
        exact = float(machine.log_partition)
    found = annealed_log_partition(0, machine, num_temperatures=200, num_chains=200)
    assert 0.001 < found.standard_error < 0.1
    assert abs(found.log_partition - exact) < 4 * found.standard_error
    assert found.ess > 50


def test_one_temperature_is_importance_sampling_without_bias() -> None:
    """Z itself is unbiased, however few the temperatures; the wrong start Z_0 = 1 is off by all configurations."""
    parameters = weights(2, 4, 0.4)
    with precision_scope():
        machine = RestrictedBoltzmann(*parameters)
        exact = float(machine.log_partition)
    found = annealed_log_partition(1, machine, num_temperatures=1, num_chains=20_000)
    assert abs(found.log_partition - exact) < 4 * found.standard_error < 0.1
    assert abs(found.log_partition - machine.log_num_configurations - exact) > 1


def test_layers_beyond_enumeration() -> None:
    parameters = weights(20, 30, 0.1)
    with precision_scope():
        machine = RestrictedBoltzmann(*parameters)
        with pytest.raises(ValueError, match="too large for an exact partition function"):
            _ = machine.log_partition
    assert np.isfinite(annealed_log_partition(0, machine, 50, 50).log_partition)
    gradient, _ = contrastive_gradient(0, parameters, np.ones((3, 30), int))
    assert gradient.w.shape == (20, 30)


def test_what_is_refused() -> None:
    parameters = weights(2, 4)
    with pytest.raises(ValueError, match="of 4 units"):
        sample_layers(0, parameters, np.ones((3, 5)))
    with pytest.raises(ValueError, match="at the data themselves"):
        contrastive_gradient(0, parameters, np.ones((3, 4)), 0)
    with pytest.raises(ValueError, match="of 0 and 1"):
        contrastive_divergence(0, np.array([[0.5, 1.0]]), 2)
    with pytest.raises(ValueError, match="of 0 and 1"):
        contrastive_divergence(0, np.zeros((0, 4)), 2)
    with pytest.raises(ValueError, match="hidden, visible"):
        RestrictedBoltzmann(np.zeros((2, 3)), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="not a batch"):
        annealed_log_partition(0, RestrictedBoltzmann(np.zeros((5, 2, 3)), np.zeros(3), np.zeros(2)))

"""The method of a fit that names none, where discrete sites are summed over or drawn."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.nn import sigmoid
from numpyro.contrib.control_flow import scan
from scipy import stats

import bayeslab as bl
from bayeslab.elimination.discrete.mixture_components import component_sites, summation_cost
from bayeslab.methods.moves.noncentered import NoncenteredSampler
from bayeslab.models import gaussian_mixture, hmm
from bayeslab.planning import plan
from bayeslab.transforms.analysis import Analysis

RNG = np.random.default_rng(2)
CAUGHT = RNG.binomial(1, 0.4, (30, 5)) * RNG.binomial(1, 0.6, (30, 1))


def caught_animals(y: Any) -> None:
    """Capture and recapture, with animals that may not exist (Kéry and Schaub 2012, chapter 6)."""
    omega = numpyro.sample("omega", dist.Uniform())
    with numpyro.plate("occasion", y.shape[1], dim=-1):
        p = numpyro.sample("p", dist.Uniform())
    with numpyro.plate("animal", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(omega))
        with numpyro.plate("occasion", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(z * p), obs=y)


def shy_animals(y: Any) -> None:
    """The same, each animal with a detection probability of its own."""
    omega, scale = numpyro.sample("omega", dist.Uniform()), numpyro.sample("scale", dist.Uniform(0, 5))
    with numpyro.plate("animal", y.shape[0]):
        ease = numpyro.sample("ease", dist.Normal(0, scale))
        z = numpyro.sample("z", dist.Bernoulli(omega))
        numpyro.sample("y", dist.Binomial(y.shape[1], z * sigmoid(ease)), obs=y.sum(1))


def living_animals(y: Any) -> None:
    """Survival from marked animals that are seen or not (Cormack, Jolly and Seber; Kéry and Schaub 2012, chapter 7)."""
    survival, seen = numpyro.sample("survival", dist.Uniform()), numpyro.sample("seen", dist.Uniform())

    def step(alive: Any, y: Any) -> tuple[Any, None]:
        with numpyro.plate("animal", y.shape[0]):
            alive = numpyro.sample("alive", dist.Bernoulli(alive * survival))
            numpyro.sample("y", dist.Bernoulli(alive * seen), obs=y)
        return alive, None

    scan(step, jnp.ones(y.shape[0], int), jnp.asarray(y.T))


def rates_with_a_scale(y: Any) -> None:
    """A mixture whose components have an unknown common scale."""
    scale = numpyro.sample("scale", dist.HalfNormal())
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Normal(0, scale))
    with numpyro.plate("row", y.shape[0]):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Poisson(jnp.exp(rate[z])), obs=y.sum(1))


def analysis(program: Any, data: Any) -> Analysis:
    return Analysis(bl.bind(program, data))


@pytest.mark.parametrize(("program", "label"), [(caught_animals, "z"), (shy_animals, "z"), (living_animals, "alive")])
def test_what_says_that_something_is_present_is_summed_over(program: Any, label: str) -> None:
    chosen = plan(analysis(program, {"y": CAUGHT}))
    assert isinstance(chosen.method, bl.NUTS)
    assert chosen.why == f"'{label}' is discrete and summed over"


def test_effects_beside_it_are_moved_in_standard_coordinates() -> None:
    sampler = plan(analysis(shy_animals, {"y": CAUGHT})).sampler
    assert isinstance(sampler.inner, NoncenteredSampler)
    assert sampler.inner.sites == ("ease",)


@pytest.mark.parametrize(
    ("program", "data", "components"),
    [
        (rates_with_a_scale, {"y": CAUGHT}, {"rate"}),
        (gaussian_mixture.model, gaussian_mixture.example(), {"mu", "tau", "weights"}),
        (hmm.model, hmm.example(), {"initial", "moves", "emission"}),
    ],
)
def test_labels_that_select_like_components_are_drawn(program: Any, data: Any, components: set[str]) -> None:
    found = analysis(program, data)
    assert component_sites(found.bound) == components
    assert isinstance(plan(found).method, bl.Gibbs)


def test_components_have_no_scale_to_find() -> None:
    sampler = plan(analysis(rates_with_a_scale, {"y": CAUGHT}), bl.NUTS()).sampler
    assert not isinstance(sampler.inner, NoncenteredSampler)


def test_the_cost_of_a_sum_grows_with_rows_and_with_values() -> None:
    def counts(y: Any) -> None:
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.1))
        with numpyro.plate("site", y.shape[0]):
            n = numpyro.sample("n", dist.Poisson(rate))
            numpyro.sample("y", dist.Binomial(n, 0.5), obs=y.sum(1))

    small, large = (summation_cost(bl.bind(caught_animals, {"y": np.tile(CAUGHT, (n, 1))})) for n in (1, 10))
    assert 9 < large / small <= 10
    assert summation_cost(bl.bind(counts, {"y": CAUGHT})) > 30 * 200


@pytest.mark.parametrize(
    ("bend", "method"), [(jnp.clip, bl.NUTS), (lambda p, low, high: jnp.where(p > 0.5, high, low), bl.Gibbs)]
)
def test_slices_draw_where_a_density_jumps_but_not_where_it_bends(bend: Any, method: type) -> None:
    """Slices along one coordinate after another mix badly: 20 effective draws of 4,000 for an intercept and a slope."""

    def clipped(x: Any, y: Any) -> None:
        intercept, slope = numpyro.sample("intercept", dist.Normal(0, 20)), numpyro.sample("slope", dist.Normal(0, 5))
        numpyro.sample("y", dist.Bernoulli(bend(sigmoid(intercept + slope * x), 0.01, 0.99)), obs=y)

    found = analysis(clipped, {"x": np.linspace(5, 8, 20), "y": np.repeat([0, 1], 10)})
    assert isinstance(plan(found).method, method)


def one_component(y: Any) -> None:
    with numpyro.plate("component", 1):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(1)))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def test_a_label_of_one_value_hides_nothing() -> None:
    """A mixture of one component is that component: Exact, with its evidence."""
    y = np.array([0.3, -1.2, 2.0])
    tree = bl.fit(0, one_component, {"y": y}, progress=False)
    assert tree.attrs["method"] == "Exact"
    evidence = stats.multivariate_normal(np.zeros(3), 4.0 + np.eye(3)).logpdf(y)
    np.testing.assert_allclose(tree.attrs["log_evidence"], evidence, rtol=1e-10)


def spike_and_slab(x: Any, y: Any, both: bool = False) -> None:
    """A coefficient that is nearly zero or not (George and McCulloch 1993), and perhaps a noise that knows which."""
    is_in = numpyro.sample("is_in", dist.Bernoulli(0.5))
    b = numpyro.sample("b", dist.Normal(0.0, jnp.where(is_in == 1, 2.0, 0.001)))
    noise = numpyro.sample("noise", dist.HalfNormal(jnp.where(is_in == 1, 1.0, 2.0) if both else 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(b * x, noise), obs=y)


def test_a_label_of_a_spike_and_a_slab_is_drawn_without_the_coefficient() -> None:
    """NUTS over the sum stays in the slab, 1.0 in every chain. The share is that of quadrature over the noise."""
    x, slope = np.array([-1.0, 0, 1, 2, 3, -2]), 0.6
    y = np.array([-0.9, 0.7, -0.2, 1.2, 1.1, -0.6]) + (slope - 0.37) * x
    noise = (np.arange(800) + 0.5) / 160
    masses = []
    for sd in (0.001, 2.0):
        covariance = noise[:, None, None] ** 2 * np.eye(6) + sd**2 * np.outer(x, x)
        log_p = [stats.multivariate_normal(np.zeros(6), each).logpdf(y) for each in covariance]
        masses.append((np.exp(log_p) * stats.halfnorm.pdf(noise)).sum())
    right = masses[1] / sum(masses)
    tree = bl.fit(0, spike_and_slab, {"x": x, "y": y}, progress=False)
    draws = tree.posterior["is_in"]
    assert tree.attrs["method"] == "Gibbs"
    assert abs(float(draws.mean()) - right) < 4 * float(draws.mean("draw").std(ddof=1)) / 2
    both = plan(Analysis(bl.bind(spike_and_slab, {"x": x, "y": y, "both": True})))
    assert type(both.method) is bl.NUTS  # what else the label selects would hold it

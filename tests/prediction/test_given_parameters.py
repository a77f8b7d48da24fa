"""Known parameters, given in the data or by `handlers.condition`, in draws of data and of the priors of other sites."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import condition
from scipy import stats

import bayeslab as bl
from bayeslab import kernels
from bayeslab.distributions import MarkovChain
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.monte_carlo import SMC, AnnealedImportance, ImportanceSampling, ParallelTempering, RejectionSampling

X = np.linspace(-1.0, 1.0, 20)
GROUP = np.repeat(np.arange(4), 5)
DATA = {"x": X, "group": GROUP, "y": 0.5 * X + 0.1 * np.random.default_rng(0).normal(size=20)}


def regression(x: Any, group: Any) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(5.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", 4):
        offset = numpyro.sample("offset", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(slope * x + offset[group], scale))


GIVEN = {"scale": jnp.array(0.1), "offset": jnp.zeros(4)}


def assert_normal(noise: np.ndarray, scale: float) -> None:
    assert abs(noise.std() - scale) < 5 * scale / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 5 * scale / np.sqrt(noise.size)


@pytest.mark.parametrize("as_data", [True, False], ids=["in the data", "by condition"])
def test_replications_keep_them(as_data: bool) -> None:
    """Drawn from their priors, offsets and the scale would spread replications by 5, not by 0.1."""
    model = regression if as_data else condition(regression, GIVEN)
    data = DATA | GIVEN if as_data else DATA
    tree = bl.predict(1, model, data, bl.fit(0, model, data, bl.Exact(500), progress=False))
    assert set(tree["posterior_predictive"].data_vars) == {"y"}
    assert set(tree["log_likelihood"].data_vars) == {"y"}
    assert_normal(tree["posterior_predictive"]["y"].values[0] - tree["posterior"]["slope"].values[0][:, None] * X, 0.1)


def test_simulations_keep_them() -> None:
    tree = bl.simulate(0, regression, DATA | GIVEN, 500)
    assert set(tree["prior_predictive"].data_vars) == {"y"}
    assert_normal(tree["prior_predictive"]["y"].values[0] - tree["prior"]["slope"].values[0][:, None] * X, 0.1)


def columns(num_rows: int) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", num_rows):
        first = numpyro.sample("first", dist.Normal(0.0, 1.0))
        numpyro.sample("second", dist.Normal(slope * first, 0.1))


def test_columns_of_one_table_are_replicated_together() -> None:
    """A column is no parameter of another: the second follows the new values of the first."""
    data = {"num_rows": 20, "first": X, "second": 2 * X}
    tree = bl.predict(1, columns, data, bl.fit(0, columns, data, bl.Exact(500), progress=False))
    first, second = (tree["posterior_predictive"][name].values[0] for name in ("first", "second"))
    assert_normal(second - tree["posterior"]["slope"].values[0][:, None] * first, 0.1)
    assert_normal(first, 1.0)


def known_means(num_steps: int) -> None:
    with numpyro.plate("state", 2):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.ones(2)))
        means = numpyro.sample("means", dist.Normal(0.0, 100.0))
    z = numpyro.sample("z", MarkovChain(jnp.ones(2) / 2, moves, num_steps))
    with numpyro.plate("step", num_steps):
        numpyro.sample("y", dist.Normal(means[z], 0.1))


def test_forecasts_keep_them() -> None:
    """Means that are drawn from their prior would be a hundred times as far from zero."""
    data = {"num_steps": 8, "means": np.array([-1.0, 1.0]), "y": np.array([1.0, 1, -1, 1, 1, 1, -1, -1])}
    tree = bl.fit(0, known_means, data, bl.Gibbs(20, 100, num_chains=1), progress=False)
    steps = bl.states.forecast(1, known_means, data, tree, {"num_steps": 12})["predictions"]
    assert_normal(steps["y"].values - (2.0 * steps["z"].values - 1), 0.1)


def process(x: Any) -> None:
    length, noise, amplitude = (numpyro.sample(n, dist.LogNormal(0.0, 1.0)) for n in ("length", "noise", "amplitude"))
    f = numpyro.sample("f", GaussianProcess(amplitude * kernels.squared_exponential(length), x))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, noise))


def test_processes_at_new_inputs_keep_them() -> None:
    """The deviations of new measurements, against dense algebra."""
    x, new = np.linspace(0.0, 4.0, 8), np.array([0.3, 2.2, 5.0])
    data = {"x": x, "y": np.sin(2 * x), "length": 0.7, "noise": 0.1, "amplitude": 1.5}
    found = bl.process_at(process, data, bl.fit(0, process, data, bl.Exact(10), progress=False), {"x": new})
    prior, beside = (1.5 * np.exp(-0.5 * (np.subtract.outer(one, x) / 0.7) ** 2) for one in (x, new))
    variance = 1.5 - (beside * np.linalg.solve(prior + 0.01 * np.eye(8), beside.T).T).sum(1)
    np.testing.assert_allclose(found["f_sd"], np.sqrt(variance), rtol=1e-6)
    np.testing.assert_allclose(found["y_sd"], np.sqrt(variance + 0.01), rtol=1e-6)


def known_spread(y: Any = None) -> None:
    spread = numpyro.sample("spread", dist.HalfNormal(10.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, spread))
    numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def feedback(y: Any) -> None:
    """A latent value of a step depends on what was observed before it."""

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(last, 1.0))
        y = numpyro.sample("y", dist.Normal(z, 1.0), obs=value)
        return y, None

    scan(step, 0.0, y)


SERIES = np.array([1.5, 2.0, 1.0])
METHODS = [
    ImportanceSampling(num_samples=20_000),
    SMC(num_samples=500),
    *(
        pytest.param(method, marks=pytest.mark.slow)
        for method in (
            AnnealedImportance(num_samples=2000),
            ParallelTempering(num_samples=2000),
            RejectionSampling(num_samples=2000),
        )
    ),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_the_prior_of_other_sites_is_given_them(method: Any) -> None:
    """Evidence in closed form, of which the densities of all that is observed are part."""
    spread, first = stats.halfnorm(scale=10).logpdf(1.0), stats.norm(0, np.sqrt(2))
    steps = first.logpdf(np.diff(SERIES, prepend=0.0)).sum()
    for program, data, truth in (
        (known_spread, {"spread": 1.0, "y": 2.0}, spread + first.logpdf(2.0)),
        (feedback, {"y": SERIES}, steps),
    ):
        attrs = bl.fit(0, program, data, method, progress=False).attrs
        assert abs(attrs["log_evidence"] - truth) < 5 * max(attrs["log_evidence_se"], 0.01) < 0.5

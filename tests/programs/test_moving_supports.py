"""Sites whose coordinates depend on other sites: values and densities of draws belong together, whatever the kernel."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats import ess
from numpyro.infer import HMC, BarkerMH
from scipy import stats
from scipy.stats import binom

import bayeslab as bl
from bayeslab import kernels
from bayeslab.models import gp_regression_unknown_kernel
from bayeslab.programs import unconstrained
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones

X = np.linspace(0.0, 3.0, 6)
LABELS = np.array([0, 0, 1, 1, 0, 1])


def classifier(x: Any) -> None:
    """A process with an amplitude that is conjugate given its values, which are not conjugate themselves."""
    amplitude = numpyro.sample("amplitude", dist.InverseGamma(5.0, 8.0))
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    f = numpyro.sample("f", bl.GaussianProcess(amplitude * kernels.matern52(1.0), x))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=f))
        numpyro.sample("u", dist.Normal(shift, 1.0))


def bounded() -> None:
    """An upper bound that is a site: NumPyro's kernels look for moving lower bounds and intervals only."""
    top = numpyro.sample("top", dist.Normal(0.0, 2.0))
    x = numpyro.sample("x", dist.TruncatedNormal(0.0, 1.0, high=top))
    numpyro.sample("y", dist.StudentT(4.0, x, 0.5))


def hyperparameters(x: Any) -> None:
    gp_regression_unknown_kernel.model(x)


PROGRAMS: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "classifier": (classifier, {"x": X, "y": LABELS, "u": np.zeros(6)}),
    "bounded": (bounded, {"y": 0.3}),
    "hyperparameters": (hyperparameters, {"x": X, "y": np.sin(X)}),
}
METHODS = {
    "NUTS": bl.NUTS(num_warmup=100, num_samples=20, num_chains=1),
    "HMC": bl.MCMC(HMC, num_warmup=100, num_samples=20, num_chains=1),
    "BarkerMH": bl.MCMC(BarkerMH, num_warmup=100, num_samples=20, num_chains=1),
}


@pytest.mark.parametrize("program", quick_ones(PROGRAMS, "bounded"))
@pytest.mark.parametrize("method", ["NUTS", *(pytest.param(n, marks=pytest.mark.slow) for n in ("HMC", "BarkerMH"))])
def test_a_draw_has_the_density_that_was_recorded_for_it(program: str, method: str) -> None:
    model, data = PROGRAMS[program]
    tree = bl.fit(0, model, data, METHODS[method], progress=False)
    with precision_scope():
        bound = bl.bind(model, data)
        assert bound.moving
        draws = {name: jnp.asarray(tree["posterior"][name].values[0]) for name in bound.latent}
        again = jax.lax.map(
            lambda one: unconstrained.log_posterior(bound, unconstrained.unconstrain(bound, one)), draws
        )
    np.testing.assert_allclose(tree["sample_stats"]["lp"].values[0], again, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_a_conjugate_site_that_moves_coordinates_joins_their_block() -> None:
    """The amplitude goes to NUTS with the process; the shift keeps its conditional."""
    model, data = PROGRAMS["classifier"]
    with precision_scope():
        sampler = bl.Gibbs().plan(Analysis(bl.bind(model, data)))
    assert [rule.site for block in sampler.blocks for rule in block] == ["shift"]
    assert sorted(sampler.rest) == ["amplitude", "f"]
    method = bl.Gibbs(num_warmup=300, num_samples=1000, num_chains=4, thinning=2)
    assert bl.joint_distribution_test(0, model, data, method, level=1e-4).passes


def two_rates(groups: int) -> None:
    """Successes of groups of two kinds, at rates of which the second is below the first."""
    high = numpyro.sample("high", dist.Uniform(0.0, 1.0))
    low = numpyro.sample("low", dist.Uniform(0.0, high))
    with numpyro.plate("group", groups):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Binomial(6, jnp.where(kind == 1, high, low)))


@pytest.mark.slow
def test_an_interval_that_ends_at_a_site_is_moved_beside_hidden_labels() -> None:
    """Against a grid over both rates, the labels summed over."""
    y = np.array([6, 1, 0, 5, 2])
    tree = bl.fit(0, two_rates, {"groups": 5, "y": y}, bl.Gibbs(num_samples=1500), progress=False)
    assert tree.attrs["method"] == "Gibbs"
    grid = (np.arange(400) + 0.5) / 400
    high, low = np.meshgrid(grid, grid, indexing="ij")
    likelihood = np.prod([0.5 * binom.pmf(k, 6, high) + 0.5 * binom.pmf(k, 6, low) for k in y], axis=0)
    weights = np.where(low < high, likelihood / high, 0.0)
    for name, values in {"high": high, "low": low}.items():
        draws = tree["posterior"][name].values
        right = np.average(values, weights=weights)
        assert abs(draws.mean() - right) < 5 * draws.std() / np.sqrt(float(ess(draws)))


def test_hidden_labels_cannot_move_coordinates() -> None:
    def mixed(x: Any) -> None:
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        kernel = jnp.where(z == 1, 2.0, 0.5) * kernels.matern52(1.0)
        f = numpyro.sample("f", bl.GaussianProcess(kernel, x))
        with numpyro.plate("row", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=f))

    with pytest.raises(ValueError, match="coordinates of \\['f'\\] depend on site 'z', which is discrete"):
        bl.fit(0, mixed, {"x": X, "y": LABELS}, bl.Gibbs(), progress=False)


@pytest.mark.slow
def test_values_of_a_process_are_those_of_the_collapsed_program() -> None:
    lecture, data = gp_regression_unknown_kernel, gp_regression_unknown_kernel.example()
    method = bl.NUTS(num_warmup=500, num_samples=2000, target_accept_prob=0.95)
    whitened = bl.fit(3, lecture.model, data, method, progress=False)
    collapsed = bl.fit(3, lecture.model, data, bl.NUTS(collapse=("f",)), progress=False)
    table = bl.compare_posteriors({"collapsed": collapsed, "whitened": whitened}, var_names=["f"])
    row = table.sel(posterior="whitened")
    assert row["mean_error_max"] < 5 * row["mean_error_max_mcse"]
    assert 0.8 < row["sd_ratio_min"] <= row["sd_ratio_max"] < 1.25


@pytest.mark.slow
def test_other_sites_of_mixed_membership_follow_their_bounds() -> None:
    """Origins are counted; the sites that Dirichlet parameters depend on are drawn by NUTS, between sweeps."""

    def mixed(document: Any) -> None:
        top = numpyro.sample("top", dist.Normal(0.0, 1.0))
        log_alpha = numpyro.sample("log_alpha", dist.TruncatedNormal(0.0, 1.0, high=top))
        with numpyro.plate("topic", 2):
            topics = numpyro.sample("topics", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("document", 3):
            shares = numpyro.sample("shares", dist.Dirichlet(jnp.full(2, jnp.exp(log_alpha))))
        with numpyro.plate("token", len(document)):
            z = numpyro.sample("z", dist.Categorical(shares[document]))
            numpyro.sample("word", dist.Categorical(topics[z]))

    data = {"document": np.array([0, 0, 0, 1, 1, 1, 1, 2, 2]), "word": np.array([0, 0, 1, 2, 2, 2, 1, 0, 2])}
    method = bl.mixed_membership.Gibbs(num_samples=500)
    posterior = bl.fit(0, mixed, data, method, progress=False)["posterior"]
    assert (posterior["log_alpha"] < posterior["top"]).all()


def nested() -> None:
    """Smoothing as in exponential smoothing: a share of a share."""
    level = numpyro.sample("level", dist.Beta(1.0, 1.0))
    trend = numpyro.sample("trend", dist.Uniform(0.0, level))
    start = numpyro.sample("start", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.StudentT(4.0, start + level * trend, 0.5))


def test_the_end_of_a_support_that_moves_is_no_step() -> None:
    """Coordinates of `trend` move with `level`, so that one block of NUTS has both, and slices have neither."""
    with precision_scope():
        analysis = Analysis(bl.bind(nested, {"y": 0.3}))
        assert "fit uses NUTS" in str(bl.explain(nested, {"y": 0.3}))
        with pytest.raises(ValueError, match="no site has a conditional in closed form"):
            bl.Gibbs().plan(analysis)


def largest(y: Any, prior: Any) -> None:
    top = numpyro.sample("top", prior)
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Uniform(0.0, top), obs=y)


def test_a_bound_that_data_share_is_drawn_by_slices_whatever_its_prior() -> None:
    """Pareto(1, 1.5) and three uniform values: Pareto(3.4, 4.5). A gradient ends at the edge, which MAP reaches."""
    data = {"y": np.array([1.2, 3.4, 2.2]), "prior": dist.Pareto(1.0, 1.5)}
    assert "steps in 'top', drawn by slices" in str(bl.explain(largest, data))
    drawn = bl.fit(0, largest, data, progress=False)["posterior"]["top"].values
    assert stats.kstest(drawn[:, ::20].ravel(), stats.pareto(4.5, scale=3.4).cdf).pvalue > 1e-3
    point = bl.fit(0, largest, data, bl.MAP(), progress=False)
    assert float(point["posterior"]["top"].item()) == pytest.approx(3.4, abs=1e-3)
    assert "where data become impossible" in str(bl.diagnose(point))

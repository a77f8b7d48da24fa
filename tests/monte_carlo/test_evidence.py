"""Evidence and posteriors of the Monte Carlo methods against closed forms and grids, within their own errors."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray
from jax import Array
from numpyro.handlers import mask
from scipy.stats import norm, poisson
from xarray import DataTree

import bayeslab as bl
from bayeslab.models import gaussian_mixture, normal_gamma, normal_known_variance
from bayeslab.monte_carlo import (
    SIR,
    SMC,
    AnnealedImportance,
    ImportanceSampling,
    Independence,
    MetropolisHastings,
    ParallelTempering,
    RandomWalk,
    RejectionSampling,
)
from bayeslab.monte_carlo.sequential import SMCSampler
from bayeslab.monte_carlo.tempering import Population
from bayeslab.sampling.protocols import Method
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones
from two_modes import DATA, grid_answers, product

METHODS: dict[str, Method] = {
    "importance": ImportanceSampling(num_samples=20_000),
    "SIR": SIR(num_proposals=40_000),
    "rejection": RejectionSampling(num_samples=500),
    "SMC": SMC(),
    "annealed": AnnealedImportance(num_samples=2000),
    "tempering": ParallelTempering(num_temperatures=6, num_samples=2000),
}
LONG = ("SIR", "annealed", "tempering")
"""Methods that take seconds more to compile; `test_calibration.py` has these every time."""
every_method = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in METHODS]
)


@cache
def fitted(name: str) -> DataTree:
    return bl.fit(1, product, DATA, METHODS[name], progress=False)


@every_method
def test_two_modes_are_found_with_their_shares_and_the_evidence(name: str) -> None:
    truth, tree = grid_answers(), fitted(name)
    error = tree.attrs["log_evidence_se"]
    assert abs(tree.attrs["log_evidence"] - truth["log_evidence"]) < 5 * error
    assert error < 0.25
    right = (tree["posterior"]["a"] > 0).astype(float)
    assert abs(float(right.mean()) - truth["share"]) < 5 * float(right.azstats.mcse())
    assert float(right.azstats.mcse()) < 0.08
    assert abs(float(tree["posterior"]["a"].mean()) - truth["mean"]) < 5 * float(tree["posterior"]["a"].azstats.mcse())


@pytest.mark.parametrize(
    "name", ["importance", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SIR", "annealed"))]
)
def test_weights_stand_beside_the_draws_that_were_resampled_from_them(name: str) -> None:
    weighted = fitted(name)["weighted_posterior"]
    weights = np.exp(weighted["log_weight"].values)
    assert weights.sum() == pytest.approx(1)
    truth, a = grid_answers(), weighted["a"].values
    mean = float((weights * a).sum())
    assert abs(mean - truth["mean"]) < 5 * float(np.sqrt((weights**2 * (a - mean) ** 2).sum()))
    assert set(np.unique(fitted(name)["posterior"]["a"])) <= set(np.unique(a))
    assert bl.diagnose(fitted(name)) == "" or "R-hat" in bl.diagnose(fitted(name))


def test_card_shows_weights_and_evidence() -> None:
    trees = {"SMC": fitted("SMC"), "importance": fitted("importance"), "rejection": fitted("rejection")}
    verdicts = {name: " ".join(lines) for name, lines in bl.comparison_card(trees).verdicts.items()}
    assert "log evidence" in verdicts["SMC"]
    assert "of the weights that its draws were resampled by" in verdicts["importance"]
    for name in ("importance", "rejection"):
        assert "log evidence" in verdicts[name]
        assert "not that of the reference" not in verdicts[name]
    wrong = fitted("rejection").copy()
    wrong.attrs = wrong.attrs | {"log_evidence": -3.0}
    assert "which is not that of the reference" in str(bl.comparison_card({"SMC": fitted("SMC"), "wrong": wrong}))


def test_draws_of_any_result_are_a_proposal() -> None:
    """They are smoothed into a density, which has both modes, so that few draws of it are wasted."""
    truth = grid_answers()
    attrs = bl.fit(2, product, DATA, ImportanceSampling(fitted("rejection"), 4000), progress=False).attrs
    assert abs(attrs["log_evidence"] - truth["log_evidence"]) < 5 * attrs["log_evidence_se"] < 0.15
    assert attrs["importance_ess"] > 1500
    assert attrs["k_hat"] < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("method", [bl.Gibbs(), bl.Laplace(), bl.SVI(), bl.MeanField()])
def test_results_of_any_method_are_proposals(method: Method) -> None:
    """Draws of a chain become a density, so a chain gets an evidence; a guide is fitted first."""
    lecture = normal_gamma
    exact = bl.fit(0, lecture.model, lecture.example(), progress=False)
    chain = isinstance(method, bl.Gibbs)
    proposal = bl.fit(1, lecture.model, lecture.example(), method, progress=False) if chain else method
    tree = bl.fit(2, lecture.model, lecture.example(), ImportanceSampling(proposal), progress=False)
    distance = tree.attrs["log_evidence"] - exact.attrs["log_evidence"]
    assert abs(distance) < 5 * tree.attrs["log_evidence_se"] < 0.1
    assert tree.attrs["importance_ess"] > 3000
    assert ("converged" in tree.attrs) != chain


class KeepsWeights(SMCSampler):
    """Resamples by the weights and leaves them as they are, so that they count twice."""

    def _resampled(self, key: Array, weighted: Population) -> Population:
        resampled = super()._resampled(key, weighted)
        same = jnp.all(resampled.positions[:, None] == weighted.positions[None], axis=-1)
        return resampled._replace(log_weight=weighted.log_weight[jnp.argmax(same, axis=1)])


@pytest.mark.parametrize(
    ("kind", "passes"), [pytest.param(SMCSampler, True, marks=pytest.mark.slow), (KeepsWeights, False)]
)
def test_resampling_without_weights_reset_fails(kind: type[SMCSampler], passes: bool) -> None:
    lecture = normal_known_variance
    exact = float(lecture.evidence(**{k: v for k, v in lecture.example().items() if k != "num_rows"}))

    class Method(SMC):
        def plan(self, analysis: Analysis) -> SMCSampler:
            return kind(self.num_samples, self.ess_share, self.num_moves)

    method = Method(num_samples=200, num_chains=20, ess_share=0.8, num_moves=1)
    attrs = bl.fit(3, lecture.model, lecture.example(), method, progress=False).attrs
    assert (abs(attrs["log_evidence"] - exact) < 4 * attrs["log_evidence_se"]) == passes


@pytest.mark.slow
@every_method
def test_errors_of_the_evidence_are_as_large_as_they_say(name: str) -> None:
    """Deviations from the truth over their standard errors have variance about one, and mean about zero."""
    truth = grid_answers()["log_evidence"]
    small: dict[str, Method] = {
        "importance": ImportanceSampling(num_samples=5000),
        "SIR": SIR(num_proposals=5000, num_samples=100),
        "rejection": RejectionSampling(num_samples=100),
        "SMC": SMC(num_samples=500, num_chains=1),
        "annealed": AnnealedImportance(num_samples=500),
        "tempering": ParallelTempering(num_temperatures=6, num_samples=500, num_chains=12),
    }
    trees = [bl.fit(seed, product, DATA, small[name], progress=False).attrs for seed in range(60)]
    scores = np.array([(attrs["log_evidence"] - truth) / attrs["log_evidence_se"] for attrs in trees])
    assert abs(scores.mean()) < 0.7
    assert 0.6 < scores.std() < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["importance", "SMC", "independence"])
def test_monte_carlo_errors_of_resampled_draws_are_as_large_as_they_say(name: str) -> None:
    """Draws that were taken several times count once, for ArviZ sees them as a chain that stays where it is."""
    lecture = normal_known_variance
    small: dict[str, Method] = {
        "importance": ImportanceSampling(num_samples=20_000),
        "SMC": SMC(num_samples=1000, num_chains=1),
        "independence": MetropolisHastings(Independence(), num_samples=20_000, num_chains=1),
    }
    exact = bl.fit(0, lecture.model, lecture.example(), bl.Exact(200_000), progress=False)
    truth = float(exact["posterior"]["mu"].mean())
    draws = [bl.fit(seed, lecture.model, lecture.example(), small[name], progress=False) for seed in range(60)]
    scores = [
        float((tree["posterior"]["mu"].mean() - truth) / tree["posterior"]["mu"].azstats.mcse()) for tree in draws
    ]
    assert abs(np.mean(scores)) < 0.7
    assert 0.6 < np.std(scores) < 1.5


def mixture_of_two(y: Any) -> None:
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(weight))
        numpyro.sample("y", dist.Normal(3.0 * z, 1.0), obs=y)


def test_discrete_sites_are_summed_over_and_drawn_back() -> None:
    y = np.array([-0.4, 2.8, 3.3, 0.9, 2.1])
    weights = np.linspace(0, 1, 20_001)[1:-1]
    density = np.prod([(1 - weights) * np.exp(-(v**2) / 2) + weights * np.exp(-((v - 3) ** 2) / 2) for v in y], axis=0)
    density *= (2 * np.pi) ** (-len(y) / 2) * 6 * weights * (1 - weights)
    tree = bl.fit(0, mixture_of_two, {"y": y}, ImportanceSampling(num_samples=4000), progress=False)
    truth = np.log(density.sum() * (weights[1] - weights[0]))
    assert abs(tree.attrs["log_evidence"] - truth) < 5 * tree.attrs["log_evidence_se"] < 0.1
    assert tree["posterior"]["z"].dims == ("chain", "draw", "row")
    assert tree["weighted_posterior"]["z"].shape == (1, 4000, 5)
    mean = tree["posterior"]["weight"]
    assert abs(float(mean.mean()) - (density * weights).sum() / density.sum()) < 5 * float(mean.azstats.mcse())


def masked_prior(y: Any) -> None:
    with mask(mask=False):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def flat_prior(y: Any) -> None:
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def spread(y: Any) -> None:
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


FLAT = {"y": np.array([1.0, 2.0])}
REFUSALS = [
    (flat_prior, FLAT, SMC(), "SMC needs draws from the prior, but site 'mu' has an improper one"),
    (flat_prior, FLAT, ImportanceSampling(), "ImportanceSampling needs draws from the prior, but site 'mu'"),
    (masked_prior, {"y": 1.0}, SMC(), "that of site 'mu' is masked"),
    (product, DATA, ImportanceSampling(bl.NUTS()), "of NUTS give it the result of fit"),
    (product, DATA, RejectionSampling(bl.Laplace()), "the ratio to Laplace is known at its own draws alone"),
    (product, DATA, RejectionSampling(log_bound=-9.0), "nats above the log_bound that was given"),
    (product, DATA, RejectionSampling(log_bound=5.0, max_proposals=10), "used up its 10 proposals"),
    (spread, {"y": 0.0}, RejectionSampling(num_samples=50), "so none was found"),
]


@pytest.mark.parametrize(("model", "data", "method", "words"), REFUSALS)
def test_refusals_say_why(model: Any, data: Any, method: Method, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.fit(0, model, data, method, progress=False)


def window(y: Any) -> None:
    """The likelihood is 500 wherever it is not zero."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Uniform(z - 0.001, z + 0.001), obs=y)


def test_a_bound_that_ratios_reach_is_not_refused_for_its_rounding() -> None:
    method = RejectionSampling(log_bound=float(np.log(500.0)), num_samples=100)
    tree = bl.fit(0, window, {"y": np.array(0.3)}, method, progress=False)
    assert abs(tree.attrs["log_evidence"] - norm.logpdf(0.3)) < 5 * tree.attrs["log_evidence_se"] < 0.6
    with pytest.raises(ValueError, match="nats above the log_bound that was given"):
        bl.fit(0, window, {"y": np.array(0.3)}, replace(method, log_bound=method.log_bound - 1e-4), progress=False)


def within(y: Any) -> None:
    """The likelihood is 0.5 wherever it is not zero."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Uniform(z - 1.0, z + 1.0), obs=y)


def counted(y: Any) -> None:
    k = numpyro.sample("k", dist.Poisson(3.0))
    numpyro.sample("y", dist.Normal(k, 1.0), obs=y)


EQUAL_WEIGHTS = {
    within: (0.4, np.log(0.5 * (norm.cdf(1.4) - norm.cdf(-0.6)))),
    counted: (5.2, np.log(np.sum(poisson.pmf(np.arange(40), 3) * norm.pdf(5.2, np.arange(40))))),
}
"""An observation for every program, and the log evidence."""


@pytest.mark.parametrize("model", quick_ones(EQUAL_WEIGHTS, counted))
def test_weights_whose_largest_are_equal_have_no_tail(model: Any) -> None:
    y, truth = EQUAL_WEIGHTS[model]
    attrs = bl.fit(0, model, {"y": np.array(y)}, ImportanceSampling(num_samples=4000), progress=False).attrs
    assert attrs["k_hat"] == -np.inf
    assert abs(attrs["log_evidence"] - truth) < 5 * attrs["log_evidence_se"] < 0.2


@pytest.mark.parametrize("method", [SMC(100, 2), AnnealedImportance(100)], ids=["SMC", "annealed"])
def test_particles_that_do_not_arrive_have_no_evidence(method: Any) -> None:
    tree = bl.fit(0, product, DATA, replace(method, num_temperatures=2), progress=False)
    assert np.isnan(tree.attrs["log_evidence"])
    assert "no draws of the posterior; take more temperatures" in bl.diagnose(tree)


def test_likely_data_that_no_particle_met_are_not_called_impossible() -> None:
    with pytest.raises(ValueError, match="impossible under this model or nearly everywhere in it"):
        bl.fit(0, window, {"y": np.array(3.0)}, SMC(num_samples=50, num_chains=1), progress=False)


def test_wrong_settings_are_refused() -> None:
    for make, words in (
        (lambda: ImportanceSampling("prior"), "must be a method with a density"),
        (lambda: MetropolisHastings(bl.Laplace()), "must be RandomWalk"),
        (lambda: MetropolisHastings(Independence(), collapse=("w",)), "collapse is for a RandomWalk"),
        (lambda: RandomWalk(scale=-1.0), "must be a positive number, but is -1.0"),
        (lambda: SMC(ess_share=1.5), "ess_share of SMC must be between 0 and 1"),
        (lambda: ParallelTempering(num_temperatures=1), "must be 2 or more"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            make()
    with pytest.raises(ValueError, match="SMC draws a whole population at once"):
        bl.fit(1, product, DATA, METHODS["SMC"], previous=fitted("SMC"), progress=False)


@pytest.mark.slow
def test_a_mixture_of_normals_has_the_evidence_of_all_methods() -> None:
    """Labels summed over, the means in two orders: five dimensions with two modes."""
    data = gaussian_mixture.example()
    trees = [
        bl.fit(0, gaussian_mixture.model, data, method, progress=False)
        for method in (SMC(2000), AnnealedImportance(2000))
    ]
    values = [(tree.attrs["log_evidence"], tree.attrs["log_evidence_se"]) for tree in trees]
    assert abs(values[0][0] - values[1][0]) < 5 * np.hypot(values[0][1], values[1][1])
    assert max(error for _, error in values) < 0.5


def two_scales(y: Any) -> None:
    """The prior of `mu` depends on `tau`."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def test_a_prior_that_depends_on_what_is_integrated_out_is_refused() -> None:
    data = {"y": np.array([1.0, 0.5])}
    with pytest.raises(ValueError, match="that of site 'mu' depends on 'tau', which is integrated out"):
        bl.fit(0, two_scales, data, SMC(collapse=("tau",)), progress=False)
    with pytest.raises(ValueError, match="that of site 'mu' depends on 'tau', which is integrated out"):
        bl.fit(0, bl.collapse(two_scales, "tau"), data, ImportanceSampling(), progress=False)


def regression(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        seen = numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x)
        numpyro.sample("y", dist.Normal(w * seen, 0.5), obs=y)


@pytest.mark.slow
def test_missing_values_single_precision_and_files(tmp_path: Any) -> None:
    """Sites that are missing in part are drawn by all; results go through netCDF with their weights."""
    data = {"x": np.array([0.3, np.nan, -1.2, 0.8]), "y": np.array([0.5, 1.0, -1.5, 0.9])}
    exact = bl.fit(0, regression, data, bl.NUTS(), progress=False)["posterior"]
    for method in (ImportanceSampling(), SMC(), MetropolisHastings(thinning=5), AnnealedImportance()):
        for dtype in (jnp.float64, jnp.float32):
            tree = bl.fit(1, regression, data, method, progress=False, dtype=dtype)
            error = float(np.hypot(tree["posterior"]["w"].azstats.mcse(), exact["w"].azstats.mcse()))
            assert abs(float(tree["posterior"]["w"].mean() - exact["w"].mean())) < 5 * error
            assert (tree["posterior"]["x"].isel(row=0) == np.asarray(0.3, dtype)).all()
        tree.to_netcdf(tmp_path / "tree.nc")
        with xarray.open_datatree(tmp_path / "tree.nc") as again:
            assert again.attrs["settings"] == tree.attrs["settings"]
            assert set(again.children) == set(tree.children)
        if "weighted_posterior" in tree.children:
            assert (tree["weighted_posterior"]["x"].isel(row=0) == np.asarray(0.3, np.float32)).all()


def half_impossible(y: Any) -> None:
    end = numpyro.sample("end", dist.Gamma(2.0, 0.1))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Uniform(0.0, end), obs=y)


@pytest.mark.slow
def test_a_likelihood_that_is_zero_over_most_of_the_prior() -> None:
    """Particles whose data are impossible are left behind; the evidence is that of a sum over a grid."""
    y = np.array([30.0, 22.0, 35.0])
    ends = np.linspace(35, 500, 400_001)
    truth = np.log(np.sum(0.01 * ends * np.exp(-0.1 * ends) / ends**3) * (ends[1] - ends[0]))
    attrs = bl.fit(0, half_impossible, {"y": y}, SMC(num_samples=500), progress=False).attrs
    assert attrs["converged"] == 1
    assert abs(attrs["log_evidence"] - truth) < 5 * attrs["log_evidence_se"] < 0.5

"""MeanField: its bound against the evidence and against its own draws, scikit-learn's optimum, what it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arviz_stats import ess
from sklearn.mixture import BayesianGaussianMixture

import bayeslab as bl
from bayeslab.models import gaussian_mixture, linear_regression, normal_gamma
from bayeslab.programs.program import precision_scope
from quick_cases import quick_ones
from zoo import CASES

SAMPLE = ["chain", "draw"]


def quick(model: Any, data: Any, joint: tuple[tuple[str, ...], ...] = (), **settings: Any) -> Any:
    return bl.fit(1, model, data, bl.MeanField(joint=joint, **({"num_starts": 2} | settings)), progress=False)


JOINT = {
    "normal_gamma": (normal_gamma, ("tau", "mu")),
    "linear_regression": (linear_regression, ("tau", "w")),
}


@pytest.mark.parametrize("name", ["normal_gamma", pytest.param("linear_regression", marks=pytest.mark.slow)])
def test_the_bound_is_below_the_evidence_and_equal_to_it_where_the_factors_are_the_posterior(name: str) -> None:
    lecture, block = JOINT[name]
    data = lecture.example()
    evidence = bl.fit(0, lecture.model, data, bl.Exact(10), progress=False).attrs["log_evidence"]
    apart, together = quick(lecture.model, data), quick(lecture.model, data, (block,))
    assert apart.attrs["elbo"] < evidence - 1e-3
    np.testing.assert_allclose(together.attrs["elbo"], evidence, rtol=1e-9)
    assert together.attrs["k_hat"] < 0.1


PROGRAMS = ["mixture", "learned_chain", "switch", "truncated_mean"]


@pytest.mark.parametrize("name", quick_ones(PROGRAMS, "switch"))
def test_the_bound_is_what_its_draws_say(name: str) -> None:
    """Law: the ELBO, computed without drawing, is the mean of log p - log q over draws of q. It never falls."""
    tree = quick(CASES[name].program, CASES[name].data, num_samples=4000)
    stats = tree["sample_stats"]
    ratio = (stats["lp"] - stats["log_q"]).values.ravel()
    assert abs(ratio.mean() - tree.attrs["elbo"]) <= 5 * ratio.std() / np.sqrt(ratio.size) + 1e-9
    climb = tree["history"]["elbo"].values[0]
    assert np.nanmin(np.diff(climb, axis=0)) > -1e-10 * np.nanmax(np.abs(climb))
    assert tree.attrs["converged"] == 1


@pytest.mark.slow
def test_it_finds_the_optimum_of_scikit_learn() -> None:
    """With the same priors: a factor for labels, one for weights, one for means together with precisions."""
    data = dict(gaussian_mixture.data()) | {"alpha": 2.5, "beta": 0.5}
    theirs = BayesianGaussianMixture(
        n_components=2,
        n_init=3,
        tol=1e-9,
        max_iter=5000,
        random_state=0,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=1.0,
        mean_prior=[data["mu0"]],
        mean_precision_prior=0.1,
        degrees_of_freedom_prior=2 * data["alpha"],
        covariance_prior=np.array([[2 * data["beta"]]]),
    ).fit(np.asarray(data["y"])[:, None])
    ours = quick(gaussian_mixture.model, data, (("tau", "mu"),), num_starts=3)
    posterior = ours["posterior"]
    order, back = np.argsort(theirs.weights_), np.argsort(posterior["weights"].mean(SAMPLE).values)
    concentration = theirs.weight_concentration_
    expected = {"weights": concentration / concentration.sum(), "mu": theirs.means_, "tau": theirs.precisions_}
    for name, value in expected.items():
        draws = posterior[name].values[0][:, back]
        error = draws.std(0) / np.sqrt(len(draws))
        assert np.all(np.abs(draws.mean(0) - value.ravel()[order]) < 5 * error), name
    assert float(ess(posterior["mu"].values[..., 0])) > 800


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "not conjugate": (
        lambda: quick(CASES["student_200"].program, CASES["student_200"].data),
        r"needs conditionals in closed form \(site 'mu': not Normal given 'y'\); use SVI",
    ),
    "a label in a block": (
        lambda: quick(CASES["mixture"].program, CASES["mixture"].data, (("mu", "z"),)),
        "joint names site 'z', which is discrete",
    ),
    "an unknown site": (
        lambda: quick(CASES["mixture"].program, CASES["mixture"].data, (("mu", "nu"),)),
        "joint names 'nu'",
    ),
    "no tolerance": (lambda: bl.MeanField(tolerance=0.0), "tolerance of MeanField must be positive"),
    "names alone": (lambda: bl.MeanField(joint=("tau", "mu")), "joint must be blocks of names"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words), precision_scope():
        call()

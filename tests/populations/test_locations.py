"""Places of sampling as a prior of ancestry: the density, what is refused, and how much places are found to tell."""

from typing import Any

import arviz as az
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

import bayeslab as bl
from bayeslab.models import structure_admixture, structure_correlated
from bayeslab.models.structure_admixture import ancestry_concentration

PLACES = np.arange(36) % 6


def sampled(informative: bool) -> dict[str, Any]:
    """Thirty-six individuals of six places at forty loci whose copies tell two populations apart.

    Where places tell, those of odd number are nearly all of one population, the others of the other.
    """
    rng = np.random.default_rng(3)
    frequencies = np.where(rng.random((2, 40)) < 0.5, 0.05, 0.95)
    of_places = np.where((np.arange(6)[:, None] % 2) == np.arange(2), 4.0, 0.1)
    ancestry = np.array([rng.dirichlet(of_places[place] if informative else (0.5, 0.5)) for place in PLACES])
    y = rng.random((36, 40, 2)) < (ancestry @ frequencies)[:, :, None]
    sizes = {"num_individuals": 36, "num_alleles": np.full(40, 2), "num_populations": 2}
    return {**sizes, "alpha": None, "location": PLACES, "y": y.astype(int)}


def test_the_prior_is_that_of_hubisz() -> None:
    """log p of alpha, r and the alphas of places, by SciPy; individuals have that of their place."""
    alpha, r, of_places = np.array([0.7, 2.0]), 3.0, np.array([[0.3, 1.5], [0.9, 2.4]])
    values = {"alpha": alpha, "location_precision": r, "location_alpha": of_places}
    arguments = (3, 2, None, np.array([1, 0, 1]), 20.0)
    found = float(log_density(ancestry_concentration, arguments, {}, values)[0])
    uniform = -2 * np.log(10) - np.log(20)
    assert found == pytest.approx(uniform + stats.gamma(alpha * r, scale=1 / r).logpdf(of_places).sum(), rel=1e-5)
    for misprint in (1.0, r):  # of variance alpha r, or mean alpha r^2
        assert abs(found - uniform - stats.gamma(alpha * r, scale=misprint).logpdf(of_places).sum()) > 1
    concentration = handlers.substitute(ancestry_concentration, values)(*arguments)
    np.testing.assert_allclose(concentration, of_places[[1, 0, 1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"location": np.array([0, 1])}, r"location has shape \(2,\)"),
        ({"location": np.array([0, -1, 1])}, "the number of the place of every individual, from 0"),
        ({"location": np.array([0.0, 0.5, 1.0])}, "values of float32"),
        ({"location": np.array([0, 1, 1]), "alpha": np.ones((3, 2))}, "alpha is given for every individual"),
    ],
)
def test_what_is_no_place_is_refused(wrong: dict[str, Any], words: str) -> None:
    for lecture in (structure_admixture, structure_correlated):
        with pytest.raises(ValueError, match=words):
            bl.bind(lecture.model, lecture.example() | wrong)


@pytest.mark.slow
def test_how_much_places_tell_is_learned() -> None:
    """r is below 1 where places tell, and near its largest, 20, where they do not."""
    method = bl.mixed_membership.Gibbs(num_warmup=100, num_samples=150, num_chains=1, thinning=2)
    precision = {}
    for informative in (True, False):
        tree = bl.fit(0, structure_admixture.model, sampled(informative), method, progress=False)
        precision[informative] = tree["posterior"]["location_precision"].values.ravel()
        if informative:
            dims = {**structure_admixture.LOCATION_SITE_DIMS, "alpha": "population"}
            aligned = bl.align(tree, dims)["posterior"]
            of_places = aligned["location_alpha"].mean(("chain", "draw")).values
            means = np.array(
                [aligned["ancestry"].mean(("chain", "draw")).values[s == PLACES].mean(0) for s in range(6)]
            )
            assert np.array_equal(of_places.argmax(1), means.argmax(1))
            assert set(means.argmax(1)[::2]) != set(means.argmax(1)[1::2])
    assert np.quantile(precision[True], 0.95) < 1
    assert np.quantile(precision[False], 0.05) > 2


@pytest.mark.slow
def test_counted_origins_and_nuts_agree_on_the_precision() -> None:
    """Twelve individuals with frequencies that are known, so that no populations change places."""
    data = sampled(informative=True)
    shown = {"num_individuals": 12, "location": PLACES[:12], "y": data["y"][:12, :10], "num_alleles": np.full(10, 2)}
    one = np.where(data["y"][1::2, :10].mean((0, 2)) > 0.5, 0.95, 0.05)
    frequencies = np.stack([np.stack([1 - share, share], -1) for share in (1 - one, one)])
    data |= shown | {"frequencies": frequencies, "alpha": 1.0}
    methods = (
        bl.mixed_membership.Gibbs(num_warmup=300, num_samples=700, num_chains=2, thinning=2),
        bl.NUTS(num_warmup=400, num_samples=600, num_chains=2),
    )
    means, errors = [], []
    for method in methods:
        tree = bl.fit(1, structure_admixture.model, data, method, progress=False)
        draws = np.log(tree["posterior"]["location_precision"])
        means.append(float(draws.mean()))
        errors.append(float(az.mcse(draws, method="mean")))
    assert abs(means[0] - means[1]) < 5 * np.hypot(*errors), (means, errors)

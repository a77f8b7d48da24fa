"""What methods say of hostile programs: a refusal, the first line of `diagnose`, or nothing where all is well.

The right verdict of each is known: whether there is a maximum, a curvature, a gradient, an integral.
"""

from inspect import signature
from typing import Any

import numpy as np
import pytest

import bayeslab as bl
import hostile_programs as of

LONG = pytest.mark.slow
DATA = {"x": of.X, "y": of.Y, "sign": of.SIGN, "group": of.GROUP}
OTHER = {of.regression: of.SUM, of.counts: of.SUM, of.ridge: of.SUM, of.with_intercept: of.DUMMIES}
MAP, LAPLACE, SVI = bl.MAP(), bl.Laplace(num_samples=400), bl.SVI()
CHAINS = {"num_warmup": 200, "num_samples": 200, "num_chains": 2}
NUTS, GIBBS = bl.NUTS(**CHAINS), bl.Gibbs(**CHAINS)
WELL = ""
IMPROPER = "the posterior is improper: neither a prior nor the data say anything about {};"
CLIMBS = "the posterior is improper: the log density climbs along a line of {} and never falls"
FLAT = "Not converged: the log joint does not fall along {}, however far one goes"
NO_LAPLACE = "no Laplace approximation: the log joint does not fall along {}, however far one goes"
KINK = "the log joint has a kink at its maximum"
JUMP = "the log joint jumps where its gradient says that it is flat"
EDGE = "the ascent ended where data become impossible"
APART = "Chains disagree"

VERDICTS: list[tuple[Any, Any, str, bool]] = [
    (of.unseen, NUTS, IMPROPER.format("w"), True),
    (of.only_their_sum, GIBBS, IMPROPER.format("a - b"), False),
    (of.only_their_product, MAP, FLAT.format("a - b"), False),
    (of.only_their_product, NUTS, APART, False),
    (of.empty_component, MAP, WELL, False),
    (of.one_mean, LAPLACE, WELL, True),
    (of.regression, GIBBS, IMPROPER.format("w[0] + w[1] - w[2]"), False),
    (of.regression, NUTS, IMPROPER.format("w[0] + w[1] - w[2]"), False),
    (of.with_intercept, MAP, IMPROPER.format("b - w[0] - w[1] - w[2] + ..."), True),
    (of.counts, SVI, IMPROPER.format("w[0] + w[1] - w[2]"), True),
    (of.ridge, LAPLACE, WELL, False),
    (of.groups, MAP, "Not converged: the log joint still rises as tau nears the end of its support", True),
    (of.groups, LAPLACE, "no Laplace approximation: the log joint still rises as tau", False),
    (of.separable, MAP, FLAT.format("w[0]"), True),
    (of.separable, LAPLACE, NO_LAPLACE.format("w[0]"), False),
    (of.separable, SVI, CLIMBS.format("'w'"), False),
    (of.separable, NUTS, CLIMBS.format("'w'"), True),
    (of.almost_separable, NUTS, CLIMBS.format("'w'"), False),
    (of.separable_probit, NUTS, CLIMBS.format("'w'"), False),
    (of.hinge_of_one_class, NUTS, CLIMBS.format("'b'"), False),
    (of.classes_without_a_reference, NUTS, IMPROPER.format("w[0] + w[1] + w[2]"), False),
    (of.no_counts, NUTS, CLIMBS.format("'log_rate'"), False),
    (of.almost_separable, MAP, FLAT.format("w[0]"), False),
    (of.separable_probit, MAP, FLAT.format("w[0]"), False),
    (of.separable_with_prior, MAP, WELL, False),
    (of.separable_with_prior, LAPLACE, WELL, False),
    (of.no_counts, MAP, FLAT.format("-log_rate"), False),
    (of.all_successes, LAPLACE, NO_LAPLACE.format("logit"), False),
    (of.all_censored, MAP, FLAT.format("mu"), False),
    (of.saturated, MAP, FLAT.format("w"), False),
    (of.saturated, NUTS, CLIMBS.format("'w'"), False),
    (of.steep, MAP, "Not converged: the log joint is higher far away along w", False),
    (of.one_observation, MAP, "Not converged: the log joint is higher far away along -sigma", True),
    (of.arcsine, MAP, "Not converged: the log joint grows without bound along -p", True),
    (of.arcsine, LAPLACE, WELL, False),
    (of.at_its_end, MAP, WELL, False),
    (of.hinge, MAP, WELL, False),
    (of.hinge, LAPLACE, KINK, True),
    (of.hinge, SVI, "Approximation: k-hat is", False),
    (of.lasso, MAP, WELL, False),
    (of.lasso, LAPLACE, KINK, False),
    (of.median, MAP, WELL, False),
    (of.median, LAPLACE, KINK, False),
    (of.quantile, MAP, WELL, False),
    (of.quantile, LAPLACE, KINK, False),
    (of.rectified, MAP, WELL, False),
    (of.rectified, SVI, WELL, False),
    (of.huber, LAPLACE, WELL, False),
    (of.largest, MAP, f"Not converged: {EDGE}", True),
    (of.largest, LAPLACE, EDGE, False),
    (of.shifted, MAP, f"Not converged: {EDGE}", False),
    (of.shifted, LAPLACE, EDGE, False),
    (of.threshold, MAP, f"Not converged: {JUMP}", True),
    (of.threshold, LAPLACE, JUMP, False),
    (of.threshold, SVI, f"Not converged: {JUMP}", False),
    (of.threshold, NUTS, APART, False),
    (of.rounded, MAP, f"Not converged: {JUMP}", False),
    (of.changepoint, LAPLACE, JUMP, False),
    (of.changepoint, SVI, f"Not converged: {JUMP}", False),
    (of.winner, MAP, f"Not converged: {JUMP}", False),
    (of.two_modes, MAP, WELL, False),
    (of.two_modes, NUTS, APART, False),
    (of.certain, bl.Exact(), WELL, True),
    (of.certain, GIBBS, WELL, False),
    (of.other_units, bl.Gibbs(num_chains=2), "Prior: tau is near", True),
    (of.flat_mean, bl.MeanField(), WELL, False),
]


def data_of(program: Any) -> dict[str, Any]:
    data = {name: DATA[name] for name in signature(program).parameters}
    return data | ({"x": OTHER[program]} if program in OTHER else {})


@pytest.mark.parametrize(
    ("program", "method", "right"),
    [
        pytest.param(*row, marks=[] if fast else LONG, id=f"{row[0].__name__}-{type(row[1]).__name__}")
        for *row, fast in VERDICTS
    ],
)
def test_every_method_says_what_is_so(program: Any, method: Any, right: str) -> None:
    try:
        said = bl.diagnose(bl.fit(0, program, data_of(program), method, progress=False))
    except ValueError as refused:
        said = str(refused)
    assert right in said if right else said == ""


def test_a_maximum_at_a_kink_is_found() -> None:
    """That of a quantile is at an observation; that of a lasso at zero."""
    tree = bl.fit(0, of.quantile, data_of(of.quantile), MAP, progress=False)
    assert np.abs(of.Y - tree["posterior/q"].item()).min() < 1e-6
    assert tree.attrs["converged"] == 1
    tree = bl.fit(0, of.lasso, data_of(of.lasso), bl.MAP(num_starts=2), progress=False)
    assert np.abs(tree["posterior/w"]).max() < 1e-5
    assert tree.attrs["converged"] == 1


def test_columns_are_named_as_the_data_name_them() -> None:
    import xarray as xr

    def model(x: Any, y: Any) -> None:
        with of.numpyro.plate("column", 3):
            w = of.flat("w")
        of.observed(of.dist.Normal(x @ w, 1.0), y)

    x = xr.DataArray(of.SUM, dims=("row", "column"), coords={"column": ["age", "size", "both"]})
    with pytest.raises(ValueError, match=r"about w\[age\] \+ w\[size\] - w\[both\]; give 'w' a proper prior"):
        bl.fit(0, model, {"x": x, "y": of.Y}, NUTS)


def test_scales_of_columns_are_no_flat_directions() -> None:
    """Columns in units of 1e-9 and 1e9, and two that differ by one part in ten thousand."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3)) * [1e-9, 1.0, 1e9]
    x[:, 2] = 1e9 * (x[:, 1] + 1e-4 * rng.normal(size=40))
    data = {"x": x, "y": of.Y}
    assert bl.fit(0, of.regression, data, bl.Gibbs(num_chains=1, num_samples=50), progress=False)


def test_predicting_from_a_factor_is_refused() -> None:
    data = data_of(of.hinge)
    tree = bl.fit(0, of.hinge, data, MAP, progress=False)
    with pytest.raises(ValueError, match="predict has nothing to draw: no site of the program is observed; what"):
        bl.predict(0, of.hinge, data, tree)

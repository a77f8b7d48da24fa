"""Improper priors of a noise of which the data say nothing once coefficients are integrated out, and neighbours."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import bayeslab as bl
from bayeslab.models import least_squares, linear_regression, ridge
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.improper_scales import refuse_improper_scale

X = np.array([[1.0, -1.2], [1.0, 0.3], [1.0, 1.1], [1.0, 0.2]])
Y = np.array([0.4, 1.9, 1.1, -0.3])


def flat_deviation(num_rows: int, power: float) -> None:
    """Rows around a flat mean, with a prior of their standard deviation proportional to a power of it."""
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.factor("power", power * jnp.log(sigma))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, sigma))


def known_errors(scale: float) -> None:
    """Effects with a prior proportional to the inverse of their deviation, seen with errors that are known."""
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.factor("power", -scale * jnp.log(sigma))
    with numpyro.plate("group", 4):
        theta = numpyro.sample("theta", dist.Normal(0.0, sigma))
        numpyro.sample("y", dist.Normal(theta, 1.0))


def rows(number: int, power: float) -> tuple[Any, dict[str, Any]]:
    return flat_deviation, {"num_rows": number, "power": power, "y": Y[:number]}


IMPROPER = {
    "as many rows as coefficients": ((least_squares.model, {"x": X[:2], "y": Y[:2]}), "zero"),
    "one row, slopes with a prior": ((ridge.model, {"x": X[:1, 1:], "penalty": 0.5, "y": Y[:1]}), "zero"),
    "two rows, flat deviation": (rows(2, 0.0), "infinity"),
    "three rows, growing prior": (rows(3, 1.0), "infinity"),
    "inverse of the deviation of effects": ((known_errors, {"scale": 1.0, "y": Y}), "zero"),
}
"""In the logarithm of the deviation densities are constant at the ends that are named, by counting powers."""
PROPER = {
    "one row more": (least_squares.model, {"x": X[:3], "y": Y[:3]}),
    "two rows, slopes with a prior": (ridge.model, {"x": X[:2, 1:], "penalty": 0.5, "y": Y[:2]}),
    "three rows, flat deviation": rows(3, 0.0),
    "two rows, inverse of the deviation": rows(2, -1.0),
    "small numbers": (least_squares.model, {"x": X, "y": 1e-9 * Y}),
    "flat deviation of effects": (known_errors, {"scale": 0.0, "y": Y}),
}


@pytest.mark.parametrize("name", IMPROPER)
def test_what_has_no_integral_is_refused(name: str) -> None:
    (program, data), end = IMPROPER[name]
    with precision_scope(), pytest.raises(ValueError, match=f"improper: .* is constant towards {end}"):
        refuse_improper_scale(Analysis(bl.bind(program, data)))


@pytest.mark.parametrize("name", PROPER)
def test_what_has_one_is_not(name: str) -> None:
    program, data = PROPER[name]
    with precision_scope():
        refuse_improper_scale(Analysis(bl.bind(program, data)))


def test_conditionals_are_not_searched_for_where_priors_are_proper() -> None:
    with precision_scope():
        analysis = Analysis(bl.bind(linear_regression.model, linear_regression.example()))
        refuse_improper_scale(analysis)
    assert "findings" not in vars(analysis)


def test_fit_refuses_it() -> None:
    program, data = IMPROPER["one row, slopes with a prior"][0]
    with pytest.raises(ValueError, match="constant towards zero, as where there are no more rows than coefficients"):
        bl.fit(0, program, data, bl.NUTS(), progress=False)

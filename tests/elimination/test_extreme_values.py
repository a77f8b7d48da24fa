"""Conditionals at values beside the ends of supports."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.verification.findings import find_conditional


def probability() -> None:
    p = numpyro.sample("x", dist.Beta(0.1, 0.9))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Bernoulli(p))


def rate() -> None:
    x = numpyro.sample("x", dist.Gamma(0.1, 2.0))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Poisson(x))


def variance() -> None:
    x = numpyro.sample("x", dist.InverseGamma(0.1, 2.0))
    with numpyro.plate("row", 1):
        numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(x)))


@pytest.mark.parametrize(
    ("model", "y", "expected", "old"),
    [
        (probability, [0, 0, 0], (0.1, 3.9), [1e-30, 1e-12, 0.5, 1 - 1e-12]),
        (probability, [1, 1, 1], (3.1, 0.9), [1e-30, 1e-12, 0.5, 1 - 2e-16]),
        (rate, [0, 0, 0], (0.1, 5.0), [1e-60, 1e-16, 1.0]),
        (rate, [9, 4, 2], (15.1, 5.0), [1e-16, 3.0]),
        (variance, [0.0], (0.6, 2.0), [1.0, 1e16, 1e60]),
    ],
)
def test_a_conditional_is_that_of_any_old_value(model: Any, y: list[int], expected: Any, old: list[float]) -> None:
    """Draws with mass at an end of the support come so near to it that beside 1 / x nothing else has digits."""
    with precision_scope():
        bound = bind(model, {"y": np.array(y)})
        rule = find_conditional(bound, "x").rule
        for value in old:
            q = conditional(rule, terms(bound).terms, bound, {}, initial=jnp.array(value)).distribution
            names = ("concentration1", "concentration0") if model is probability else ("concentration", "rate")
            np.testing.assert_allclose([getattr(q, name) for name in names], expected, rtol=1e-6, err_msg=str(value))

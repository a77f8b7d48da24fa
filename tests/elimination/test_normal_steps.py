"""Normal sites of many steps in scans: eliminated as chains where neighbours alone meet, else all at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.verification.findings import find_conditional
from bayeslab.verification.points.probe_points import generic_points

RNG = np.random.default_rng(0)
NUM_STEPS = 64
LEVELS = np.cumsum(RNG.normal(size=NUM_STEPS)) + 40.0


def level(y: Any) -> None:
    """A local level; where it begins is known."""

    def step(last: Any, value: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(last, 0.6))
        numpyro.sample("y", dist.Normal(x, 0.8), obs=value)
        return x, None

    scan(step, 40.0, y)


def rotation(y: Any) -> None:
    """States of two numbers, of which one is observed; the site is an event."""
    angle = jnp.array([[0.9, -0.3], [0.3, 0.9]])

    def step(last: Any, value: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(angle @ last, jnp.array([0.5, 0.7])).to_event(1))
        numpyro.sample("y", dist.Normal(x[0] + 40.0, 0.8), obs=value)
        return x, None

    scan(step, jnp.zeros(2), y)


def panel(y: Any) -> None:
    """Series side by side, not independent in what is observed."""

    def step(last: Any, value: Any) -> Any:
        with numpyro.plate("series", 2):
            x = numpyro.sample("x", dist.Normal(0.9 * last, 0.6))
        numpyro.sample("y", dist.Normal(x.sum() + 40.0, 0.8), obs=value)
        return x, None

    scan(step, jnp.zeros(2), y)


def independent_panel(y: Any) -> None:
    """More series than a step may have joint numbers, which do not meet."""

    def step(last: Any, value: Any) -> Any:
        with numpyro.plate("series", 12):
            x = numpyro.sample("x", dist.Normal(0.9 * last, 0.6))
            numpyro.sample("y", dist.Normal(x + 40.0, 0.8), obs=value * jnp.ones(12))
        return x, None

    scan(step, jnp.zeros(12), y)


def second_order(y: Any) -> None:
    """A level that follows the two before it."""

    def step(carry: Any, value: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(1.5 * carry[0] - 0.6 * carry[1], 0.6))
        numpyro.sample("y", dist.Normal(x + 40.0, 0.8), obs=value)
        return (x, carry[0]), None

    scan(step, (0.0, 0.0), y)


def ends_meet(y: Any) -> None:
    """A chain whose ends meet."""

    def step(last: Any, value: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(last, 0.6))
        numpyro.sample("y", dist.Normal(x, 0.8), obs=value)
        return x, x

    _, levels = scan(step, 40.0, y)
    numpyro.factor("ends", -((levels[0] - levels[-1]) ** 2))


def bent(y: Any) -> None:
    """No Normal: the spread depends on the level."""

    def step(last: Any, value: Any) -> Any:
        x = numpyro.sample("x", dist.Normal(last, 0.6))
        numpyro.sample("y", dist.Normal(x, 0.8 + 0.001 * x**2), obs=value)
        return x, None

    scan(step, 40.0, y)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (level, "Normal, step by step"),
        (rotation, "Normal, step by step"),
        pytest.param(panel, "Normal, step by step", marks=pytest.mark.slow),
        pytest.param(independent_panel, "Normal, step by step", marks=pytest.mark.slow),
        (second_order, "Normal"),
        (ends_meet, "Normal"),
        (bent, None),
    ],
)
def test_evidence_and_moments_are_those_of_the_joint_normal(model: Any, family: str | None) -> None:
    """The oracle is the log joint itself: its Hessian, a matrix of all steps."""
    with precision_scope():
        bound = bind(model, {"y": LEVELS})
        finding = find_conditional(bound, "x")
        assert (None if finding.rule is None else finding.rule.family.name) == family
        if finding.rule is None:
            return
        shape = bound.sites["x"].shape
        _, values = generic_points(bound)[1]
        q, log_evidence = jax.jit(lambda v: conditional(finding.rule, terms(bound).terms, bound, v))(values)

        def log_joint(x: Any) -> Any:
            return log_density(bound.program, (), {}, {"x": x.reshape(shape)})[0]

        zero = jnp.zeros(int(np.prod(shape)))
        constant, slope, hessian = jax.jit(lambda x: (log_joint(x), jax.grad(log_joint)(x), jax.hessian(log_joint)(x)))(
            zero
        )
        precision = -np.asarray(hessian)
        mean = np.linalg.solve(precision, slope)
        log_determinant = np.linalg.slogdet(precision)[1]
        expected = constant + slope @ mean / 2 + (len(mean) * np.log(2 * np.pi) - log_determinant) / 2
        assert float(log_evidence.sum()) == pytest.approx(float(expected), abs=1e-7)
        np.testing.assert_allclose(np.asarray(q.mean).ravel(), mean, atol=1e-8)
        draws = np.asarray(q.sample(jax.random.PRNGKey(0), (4000,))).reshape(4000, -1)
        covariance = np.linalg.inv(precision)
        scale = np.sqrt(np.diag(covariance))
        assert np.abs((draws.mean(0) - mean) / scale).max() < 5 / 4000**0.5
        assert np.abs(np.cov(draws.T) - covariance).max() < 6 * scale.max() ** 2 * (2 / 4000) ** 0.5

"""A Bound whose rows are replaced by statistics: of the whole data, and of every row at each label."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.elimination.sweep import feasible_point
from bayeslab.methods.wrappers.compressed import CompressedSampler
from bayeslab.models import gaussian_mixture, linear_regression, multivariate_gaussian_mixture
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.sufficient_statistics.row_statistics import LabelledTerm

RNG = np.random.default_rng(0)
ROWS = 240
SCALAR = {"num_rows": ROWS, "num_components": 3, "y": RNG.normal(size=ROWS) + 3.0 * RNG.integers(0, 3, ROWS)}
PLANE = {"num_rows": ROWS, "num_components": 3, "mu0": np.zeros(2), "scale": np.eye(2), "n0": 5.0}
PLANE |= {"y": RNG.normal(size=(ROWS, 2)) + 3.0 * RNG.integers(0, 3, (ROWS, 1))}
FAR = SCALAR | {"y": np.where(np.arange(ROWS) % 7, 1e3 + SCALAR["y"], np.nan), "mu0": 1e3}


@jax.jit
def log_joints(one: Bound, other: Bound) -> tuple[Any, Any]:
    """At three points."""

    def at(key: Any) -> tuple[Any, Any]:
        values = feasible_point(key, one)
        return one.log_joint(values), other.log_joint(values)

    return jax.lax.map(at, jax.random.split(jax.random.PRNGKey(0), 3))


MIXTURES = {
    "two features": (multivariate_gaussian_mixture.model, PLANE, 6),
    "missing rows, far from zero": (gaussian_mixture.model, FAR, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("two features", marks=pytest.mark.slow), "missing rows, far from zero"])
def test_rows_at_every_label_are_a_few_numbers(name: str) -> None:
    """The same log joint, with labels summed over, hence at every choice of them."""
    model, data, size = MIXTURES[name]
    with precision_scope():
        bound = bl.bind(model, data)
        short = bl.compress(bound)
        [group] = short.transform.statistics.groups  # type: ignore[union-attr]
        assert isinstance(group, LabelledTerm)
        assert len(group.columns) == size  # type: ignore[arg-type]
        np.testing.assert_allclose(*log_joints(marginal(bound, ("z",)), marginal(short, ("z",))), rtol=1e-10)


def unlike(n: int) -> None:
    """A label picks a mean, and a spread that belongs to the label itself."""
    with numpyro.plate("component", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], jnp.array([1.0, 2.0])[z]))


def neighbours(n: int) -> None:
    """A label picks two means at once."""
    with numpyro.plate("component", 3):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(mu[z] - 0.5 * jnp.roll(mu, 1)[z], 1.0))


def heavy(n: int) -> None:
    with numpyro.plate("component", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.StudentT(200.0, mu[z], 1.0))


@pytest.mark.parametrize("model", [unlike, neighbours, heavy], ids=lambda model: model.__name__)
def test_what_is_not_the_same_at_every_label_is_left_as_it_is(model: Any) -> None:
    with precision_scope():
        bound = bl.bind(model, {"n": ROWS, "y": SCALAR["y"]})
        with pytest.raises(ValueError, match="no statistics replace the rows"):
            bl.compress(bound)


def test_no_row_is_left_in_a_gradient() -> None:
    """Its code is the same for any number of rows."""
    rows = 12_347
    x = RNG.normal(size=(rows, 3))
    with precision_scope():
        bound = bl.bind(linear_regression.model, {"x": x, "y": x[:, 0] + RNG.normal(size=rows)})
        short = bl.compress(bound)
        position = unconstrained.random_position(jax.random.key(0), short)
        code = [
            jax.jit(lambda at, of: jax.grad(lambda p: unconstrained.log_posterior(of, p))(at)).lower(position, of)
            for of in (bound, short)
        ]
        assert [str(rows) in one.compile().as_text() for one in code] == [True, False]


def test_bad_designs_lose_nothing() -> None:
    """A column twice, columns of very different scales, fewer rows than columns would need."""
    x = RNG.normal(size=(400, 4)) * np.array([1e5, 1.0, 1e-4, 1.0])
    x[:, 3] = x[:, 1]
    with precision_scope():
        bound = bl.bind(linear_regression.model, {"x": x, "y": x[:, 1] + RNG.normal(size=400)})
        short = bl.compress(bound)
        np.testing.assert_allclose(*log_joints(bound, short), rtol=1e-10)


def test_nuts_takes_statistics_where_that_pays() -> None:
    """Many rows and many draws do, few do not; the posterior is the same."""
    with precision_scope():
        bound = bl.bind(gaussian_mixture.model, SCALAR)
        long, short = bl.NUTS(num_samples=100_000).plan(Analysis(bound)), bl.NUTS(num_samples=10).plan(Analysis(bound))
    assert isinstance(long.inner, CompressedSampler)  # type: ignore[attr-defined]
    assert not isinstance(short.inner, CompressedSampler)  # type: ignore[attr-defined]

"""Programs in which JAX knows no derivative of something, and densities that random points do not find."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import bayeslab as bl
from bayeslab.methods.moves.initial_positions import likely_position
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.derivatives import has_derivatives

Y = np.array([1.4, 1.9, 2.2, 1.1])


def square_root(a: Any) -> Any:
    """By Newton's method, until it changes no more."""

    def is_far(state: Any) -> Any:
        return jnp.abs(state[0] - state[1]) > 1e-10

    def improve(state: Any) -> Any:
        return 0.5 * (state[0] + a / state[0]), state[0]

    return jax.lax.while_loop(is_far, improve, (1.0 + a, 0.0))[0]


def iterated(y: Any) -> None:
    a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(square_root(a), 0.5), obs=y)


def truncated_tails(y: Any) -> None:
    """A Student t cut off at 0: JAX has no derivative of its distribution function in the degrees of freedom."""
    degrees, scale = numpyro.sample("degrees", dist.Gamma(2.0, 0.1)), numpyro.sample("scale", dist.HalfNormal(2.0))
    numpyro.sample("y", dist.LeftTruncatedDistribution(dist.StudentT(degrees, 0.0, scale), low=0.0), obs=y)


def test_slices_need_no_derivative() -> None:
    tree = bl.fit(0, iterated, {"y": Y}, bl.monte_carlo.Slice(num_warmup=200), progress=False)

    def density(root: float) -> float:  # of the root, whose square is LogNormal
        return float(norm.pdf(2 * np.log(root)) / root * norm.pdf(Y, root, 0.5).prod())

    mass, first, second = (quad(lambda r, n=n: r**n * density(r), 0.0, 6.0)[0] for n in range(3))
    root = np.sqrt(tree.posterior["a"].values)
    sd = np.sqrt(second / mass - (first / mass) ** 2)
    assert abs(root.mean() - first / mass) < 5 * sd / np.sqrt(2000)


@pytest.mark.parametrize("method", [None, bl.MAP(), bl.Gibbs()], ids=["default", "MAP", "Gibbs"])
def test_missing_derivatives_are_told_with_the_site(method: Any) -> None:
    with pytest.raises(ValueError, match=r"no derivative in 'degrees'.*Betainc.*Slice") as refusal:
        bl.fit(0, truncated_tails, {"y": Y}, method, progress=False)
    assert "'scale'" not in str(refusal.value)


def test_other_mistakes_keep_their_words() -> None:
    """A program without derivatives may be refused for something else."""
    with precision_scope():
        assert not has_derivatives(bind(iterated, {"y": Y}))
    with pytest.raises(ValueError, match="'b' is no site"):
        bl.fit(0, iterated, {"y": Y}, bl.monte_carlo.Slice(collapse=("b",)), progress=False)


def directions(y: Any) -> None:
    numpyro.sample(
        "y", dist.ProjectedNormal(numpyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))), obs=y
    )


def test_directions_are_observed_and_latent_ones_are_refused() -> None:
    angles = np.array([0.3, 0.7, 0.9, 0.2, 0.5])
    with precision_scope():
        bound = bind(directions, {"y": np.stack([np.cos(angles), np.sin(angles)], -1)})
        mean = jnp.array([1.0, 0.5])
        expected = dist.ProjectedNormal(mean).log_prob(bound.inputs["y"]).sum() + dist.Normal(0, 2).log_prob(mean).sum()
        assert np.isclose(bound.log_joint({"mean": mean}), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"latent site 'direction' is a direction.*ProjectedNormalReparam"):
        bind(lambda: numpyro.sample("direction", dist.ProjectedNormal(jnp.ones(2))), {})


def test_chains_start_where_the_density_is_not_zero() -> None:
    """Far from zero, where the first random points are, as thresholds of ordered categories that are in order."""

    def log_density(position: Any) -> Any:
        value = position["a"]
        return jnp.where((value > 4.0) & (value < 5.0), -((value - 4.5) ** 2), -jnp.inf)

    starts = jax.jit(jax.vmap(lambda key: likely_position(key, {"a": ()}, log_density)["a"]))
    values = starts(jax.random.split(jax.random.PRNGKey(0), 20))
    assert ((values > 4.0) & (values < 5.0)).all()

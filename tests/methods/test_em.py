"""EM: its fixed points, its starts, and what it refuses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import bayeslab as bl
from bayeslab.models import gaussian_mixture, normal_gamma
from bayeslab.programs import unconstrained
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.collapse import marginal

RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 6, 80)
X = RNG.normal(size=(80, 2))
STATES = np.cumsum(RNG.random(60) < 0.15) % 2


def effects(x: Any, group: Any) -> None:
    """Regression with effects of groups."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("group", 6):
        a = numpyro.sample("a", dist.Normal(0.0, 1.5))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ w + a[group], 1 / jnp.sqrt(tau)))


def chain(steps: int) -> None:
    """A hidden chain whose noise has no conditional in closed form."""
    with numpyro.plate("state", 2):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.full(2, 2.0)))
        mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    z = numpyro.sample("z", bl.MarkovChain(np.array([0.5, 0.5]), moves, steps))
    with numpyro.plate("step", steps):
        numpyro.sample("y", dist.Normal(mu[z], noise))


def labelled_effects(n: int) -> None:
    """An effect and a label for every row: one is averaged over given the other."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        effect = numpyro.sample("effect", dist.Normal(mu[z], 1.0))
        numpyro.sample("y", dist.Normal(effect, 0.5))


EFFECTS = {"x": X, "group": GROUP, "y": X @ np.array([1.0, 2.0]) + RNG.normal(size=6)[GROUP] + RNG.normal(size=80)}
CHAIN = {"steps": 60, "y": 2.0 * STATES - 1 + 0.5 * RNG.normal(size=60)}
ROWS = {"n": 30, "y": RNG.normal(size=30) + np.where(np.arange(30) < 10, 2.0, -2.0)}
FEW = bl.EM(num_starts=4)
CASES: dict[str, tuple[Callable[..., None], dict[str, Any], bl.EM, tuple[str, ...]]] = {
    "labels": (gaussian_mixture.model, gaussian_mixture.example(), FEW, ("z",)),
    "a chain, and a site without a mode": (chain, CHAIN, bl.EM(num_starts=2), ("z",)),
    "two joint Normals": (effects, EFFECTS, bl.EM(num_starts=2, collapse=("a", "w")), ("a", "w")),
    "effects given labels": (labelled_effects, ROWS, bl.EM(num_starts=2, collapse=("effect",)), ("effect", "z")),
}


SLOW = {"a chain, and a site without a mode", "two joint Normals", "effects given labels"}


@pytest.mark.parametrize("case", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_it_ends_where_the_gradient_is_zero_and_never_falls(case: str) -> None:
    """The gradient of the log joint with sites integrated out, as `collapse` has it."""
    model, data, method, gone = CASES[case]
    tree = bl.fit(1, model, data, method, progress=False)
    assert tree.attrs["converged"] == 1
    climb = tree["history"]["log_joint"].values[0]
    assert np.nanmin(np.diff(climb, axis=0)) >= 0
    with precision_scope():
        left = marginal(bl.bind(model, data), gone)
        values = {name: jnp.asarray(tree["posterior"][name].values[0, 0]) for name in left.latent}
        flat, back = ravel_pytree(unconstrained.unconstrain(left, values))

        def density(position: Any) -> Any:
            here = unconstrained.constrain(left, back(position))
            return left.log_joint({name: here[name] for name in left.latent})

        value, gradient = jax.jit(jax.value_and_grad(density))(flat)
    assert np.abs(gradient).max() < 1e-5 * max(1.0, abs(float(value)))
    np.testing.assert_allclose(tree["sample_stats"]["lp"].values, float(value), rtol=1e-10)
    np.testing.assert_allclose(np.nanmax(climb), float(value), rtol=1e-10)


@pytest.mark.slow
def test_it_finds_what_map_finds_on_the_collapsed_program() -> None:
    """Both from several starts, and the labels that are most probable there."""
    data = gaussian_mixture.example()
    one = bl.fit(2, gaussian_mixture.model, data, FEW, progress=False)
    other = bl.fit(3, gaussian_mixture.model, data, bl.MAP(num_starts=5), progress=False)
    np.testing.assert_allclose(one["sample_stats"]["lp"], other["sample_stats"]["lp"], rtol=1e-10)
    np.testing.assert_allclose(*(np.sort(t["posterior"]["mu"].values) for t in (one, other)), rtol=1e-5)
    np.testing.assert_array_equal(
        one["posterior"]["z"].values[0, 0] == one["posterior"]["z"].values[0, 0, 0], data["y"] < 0
    )


def test_all_starts_are_reported_and_the_best_is_kept() -> None:
    """Four separated pairs and two components: which pairs share a component depends on the start."""
    data = gaussian_mixture.example() | {"y": np.array([-7.0, -6.9, -2.0, -2.1, 2.0, 2.1, 7.0, 7.1])}
    tree = bl.fit(4, gaussian_mixture.model, data, FEW, progress=False)
    ends = tree["history"]["log_joint"].max("step").values[0]
    assert ends.shape == (4,)
    assert np.ptp(ends) > 0.1
    assert tree.attrs["best_start"] == ends.argmax()
    np.testing.assert_allclose(tree["sample_stats"]["lp"].values, ends.max())


@pytest.mark.slow
def test_it_goes_on_where_it_stopped() -> None:
    data, short, long = gaussian_mixture.example(), bl.EM(num_steps=3, num_starts=4), FEW
    first = bl.fit(5, gaussian_mixture.model, data, short, progress=False)
    assert first.attrs["converged"] == 0
    second = first
    for _ in range(30):
        second = bl.fit(5, gaussian_mixture.model, data, short, previous=second, progress=False)
    whole = bl.fit(5, gaussian_mixture.model, data, long, progress=False)
    np.testing.assert_allclose(second["posterior"]["mu"], whole["posterior"]["mu"], rtol=1e-6)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing to average over": (
        lambda: bl.fit(0, normal_gamma.model, normal_gamma.example(), bl.EM(), progress=False),
        r"has none; name continuous ones, EM\(collapse=\.\.\.\), of \['tau', 'mu'\]",
    ),
    "everything averaged over": (
        lambda: bl.fit(0, normal_gamma.model, normal_gamma.example(), bl.EM(collapse=("tau", "mu")), progress=False),
        "no site left",
    ),
    "no starts": (lambda: bl.EM(num_starts=0), "num_starts of EM must be a positive integer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        call()


def trapped(y: np.ndarray) -> None:
    """The root that `where` does not choose has no derivative, and neither has the whole."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    scale = jnp.where(scale > 0, scale, jnp.sqrt(-scale))
    with numpyro.plate("row", len(y)):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(4.0 * kind, scale), obs=y)


def test_a_derivative_that_is_no_number_is_no_maximum() -> None:
    y = np.array([-0.5, 0.2, 0.4, 3.8, 4.1, 5.0])
    tree = bl.fit(0, trapped, {"y": y}, bl.EM(num_starts=1), progress=False)
    assert tree.attrs["converged"] == 0
    assert "derivative" in tree.attrs["why_not_converged"]

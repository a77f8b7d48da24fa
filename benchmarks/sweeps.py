"""Sweeps of Gibbs over a Gaussian mixture, three ways; `mixture.py` starts it, once for each way."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.infer import CustomGibbs, DiscreteGibbs

from contenders import driven
from worker import Answer, serve

COMPONENTS = 3
SWEEPS = 200


def mixture(num_rows: int) -> None:
    """Draw weight (component,), mu (component,), tau (component,), z (row,) and y (row,)."""
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(COMPONENTS)))
    with numpyro.plate("component", COMPONENTS):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(weight))
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))


def bayeslab_runner(y: np.ndarray) -> Callable[[int], Answer]:
    """One chain of the runner, which keeps all draws, those of the labels included; only mu is passed on."""
    import bayeslab as bl

    method = bl.Gibbs(num_warmup=0, num_samples=SWEEPS, num_chains=1)
    draw = driven(mixture, {"num_rows": len(y), "y": y}, method)

    def run(seed: int) -> Answer:
        seconds, draws = draw(seed)
        return seconds, {"mu": draws["mu"]}

    return run


def bayeslab_sweeps(y: np.ndarray) -> Callable[[int], Answer]:
    """The sampler without the runner: no draw but mu is kept, and the log density is not computed."""
    import bayeslab as bl
    from bayeslab.transforms.analysis import Analysis

    numpyro.enable_x64()
    bound = bl.bind(mixture, {"num_rows": len(y), "y": y})
    sampler = bl.Gibbs().plan(Analysis(bound))

    def step(state: Any, data: Any) -> tuple[Any, Array]:
        state, draws = sampler.advance(state, data)
        return state, draws.samples["mu"]

    return _timed(sampler.start, step, sampler.prepare(bound))


def by_hand(y: np.ndarray) -> Callable[[int], Answer]:
    """What one would write for this model alone."""
    numpyro.enable_x64()

    def start(key: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        return (
            key,
            jnp.full(COMPONENTS, 1 / COMPONENTS),
            jnp.quantile(y, jnp.array([0.2, 0.5, 0.8])),
            jnp.ones(COMPONENTS),
        )

    def step(state: tuple[Array, ...], y: Array) -> tuple[tuple[Array, ...], Array]:
        key, weight, mu, tau = state
        key, key_labels, key_rest = jax.random.split(key, 3)
        centred = y - mu[:, None]
        mass = jnp.exp(jnp.log(weight * jnp.sqrt(tau))[:, None] - tau[:, None] / 2 * centred**2)
        first, second, total = mass[0], mass[0] + mass[1], mass[0] + mass[1] + mass[2]
        level = jax.random.uniform(key_labels, y.shape, y.dtype) * total
        z = (level > first).astype(jnp.int32) + (level > second)
        weight, mu, tau = parameters(key_rest, z, mu, y)
        return (key, weight, mu, tau), mu

    return _timed(start, step, jnp.asarray(y))


def parameters(key: Array, z: Array, mu: Array, y: Array) -> tuple[Array, Array, Array]:
    """Draws of weight, tau given mu, and mu given tau, from their conditionals given the labels."""
    key_weight, key_tau, key_mu = jax.random.split(key, 3)
    member = (z == jnp.arange(COMPONENTS)[:, None]).astype(y.dtype)
    count, total, square = member.sum(1), member @ y, member @ y**2
    weight = jax.random.dirichlet(key_weight, 1.0 + count)
    rate = 1.0 + (square - 2 * mu * total + count * mu**2) / 2
    tau = jax.random.gamma(key_tau, 2.0 + count / 2) / rate
    precision = 0.01 + count * tau
    mu = tau * total / precision + jax.random.normal(key_mu, mu.shape) / jnp.sqrt(precision)
    return weight, mu, tau


def discrete_gibbs(y: np.ndarray) -> Callable[[int], Answer]:
    """NumPyro's labels one after the other, and the parameters by hand; a single sweep."""
    numpyro.enable_x64()

    def program(y: Array) -> None:
        with numpyro.handlers.condition(data={"y": y}):
            mixture(len(y))

    def update(rng_key: Array, gibbs_sites: dict[str, Array], hmc_sites: dict[str, Array]) -> dict[str, Array]:
        drawn = parameters(rng_key, hmc_sites["z"], gibbs_sites["mu"], y)
        return dict(zip(("weight", "mu", "tau"), drawn, strict=True))

    blocks = [(DiscreteGibbs(program), ["z"]), (CustomGibbs(update), ["weight", "mu", "tau"])]
    kernel = numpyro.infer.Gibbs(blocks)

    def step(state: Any, y: Array) -> tuple[Any, Array]:
        state = kernel.sample(state, (y,), {})
        return state, state.z["mu"]

    return _timed(lambda key, y: kernel.init(key, 0, None, (y,), {}), step, jnp.asarray(y), sweeps=1)


def _timed(start: Callable, step: Callable, data: Any, sweeps: int = SWEEPS) -> Callable[[int], Answer]:
    """All sweeps in one compiled loop; the start is not on the clock."""

    @jax.jit
    def loop(state: Any, data: Any) -> Array:
        return jax.lax.scan(lambda state, _: step(state, data), state, None, sweeps)[1]

    def run(seed: int) -> Answer:
        state = start(jax.random.PRNGKey(seed), data)
        began = time.process_time()
        mu = jax.block_until_ready(loop(state, data))
        return time.process_time() - began, {"mu": mu[None]}

    return run


CONTENDERS = {
    "bayeslab, runner": bayeslab_runner,
    "bayeslab, sweeps alone": bayeslab_sweeps,
    "by hand": by_hand,
    "NumPyro DiscreteGibbs": discrete_gibbs,
}

if __name__ == "__main__":
    serve(lambda name, _, arrays: CONTENDERS[name](arrays["y"]))

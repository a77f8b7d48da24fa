"""Draws of guides are computed once, and are those that NumPyro would make."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.methods.guides import DrawnOnce


def guide() -> None:
    scale = numpyro.param("scale", 2.0)
    level = numpyro.sample("level", dist.Normal(0, scale))
    with numpyro.plate("row", 3):
        numpyro.sample("effect", dist.LogNormal(level, 1))
    numpyro.sample("pair", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), sample_shape=(4,))
    numpyro.sample("given", dist.Normal(level, 1), obs=0.5)
    numpyro.sample("count", dist.Poisson(3.0))


def run(program: Callable[[], None], key: Any = 0, **data: Any) -> dict[str, dict[str, Any]]:
    with trace() as sites:
        substitute(seed(program, key), data=data)()
    return sites


def density_and_slope(program: Callable[[], None]) -> tuple[Array, Array]:
    """The log density of draws of a guide, and its derivative by the scale, for four keys at once."""

    def density(scale: float, key: Array) -> Array:
        sites = run(program, key, scale=scale)
        return sum(
            site["fn"].log_prob(site["value"], site["intermediates"]).sum()
            if site["intermediates"]
            else site["fn"].log_prob(site["value"]).sum()
            for name, site in sites.items()
            if name in ("level", "effect", "pair")
        )

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    return jax.jit(jax.vmap(jax.value_and_grad(density), (None, 0)))(1.5, keys)


def test_draws_are_those_of_numpyro() -> None:
    once, plain = run(DrawnOnce(guide)), run(guide)
    assert once.keys() == plain.keys()
    for name, site in plain.items():
        np.testing.assert_array_equal(once[name]["value"], site["value"], err_msg=name)
    np.testing.assert_array_equal(once["effect"]["intermediates"][0][0], plain["effect"]["intermediates"][0][0])


def test_gradients_pass_through_draws() -> None:
    for once, plain in zip(density_and_slope(DrawnOnce(guide)), density_and_slope(guide), strict=True):
        np.testing.assert_allclose(once, plain, rtol=1e-12)
    assert np.abs(density_and_slope(guide)[1]).min() > 0


def test_no_draw_is_computed_in_what_reads_it() -> None:
    code = str(jax.make_jaxpr(lambda: [site["value"] for site in run(DrawnOnce(guide)).values()])())
    assert code.count("optimization_barrier") == 4  # one for each site that is drawn

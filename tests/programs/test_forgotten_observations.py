"""An argument that has the name of a latent site and is used nowhere was meant to be observed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayeslab.programs.binding import bind

ONES = np.ones(3)


def forgotten(x: Any, y: Any, count: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0))
        numpyro.sample("count", dist.Poisson(jnp.exp(slope)), obs=count)


def prior_mean(mu: Any, y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(mu, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def distance(y: Any) -> None:
    drawn = numpyro.sample("y", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.factor("distance", -((drawn - y) ** 2).sum())


def test_a_response_that_is_not_handed_on_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'y' is an argument .* write numpyro.sample\('y', ..., obs=y\)"):
        bind(forgotten, {"x": ONES, "y": ONES, "count": ONES})


@pytest.mark.parametrize(("program", "data"), [(prior_mean, {"mu": ONES, "y": ONES}), (distance, {"y": ONES})])
def test_what_a_program_uses_may_have_the_name_of_a_latent_site(program: Any, data: dict[str, Any]) -> None:
    assert ("mu" if program is prior_mean else "y") in bind(program, data).latent

"""NumPyro programs as tutorials write them, each with data: what is looked at, repeated, imputed and scanned."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam


class Idiom(NamedTuple):
    """A program. arguments: its arguments. sites: values of observed sites that data give by name."""

    program: Callable[..., Any]
    arguments: dict[str, Any]
    sites: dict[str, Any] = {}


RANDOM = np.random.default_rng(0)
Y = RANDOM.normal(2.0, 1.0, 12)
X = RANDOM.normal(size=12)
GROUP = np.arange(12) % 3
GAPS = np.where(np.arange(12) < 3, np.nan, X)


def repetitions(y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("obs", dist.Normal(mu, 1.5), obs=y)


def rows_of_events(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.MultivariateNormal(mu, jnp.eye(3)), obs=y)


def one_number_for_all(y: Any) -> None:
    level = numpyro.sample("level", dist.Normal(0.0, 1.0), sample_shape=(5,))
    numpyro.sample("smooth", dist.Normal(jnp.diff(level), 0.1), obs=0.0)
    numpyro.sample("y", dist.Normal(level.sum(), 1.0), obs=y)


def single_precision_counts(n: Any, s: Any) -> None:
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    numpyro.sample("s", dist.Binomial(n, p), obs=s)


def names_in_a_loop(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    for i, row in enumerate(y):
        numpyro.sample(f"y_{i}", dist.Normal(mu, 1.0), obs=row)


def plain_objects(config: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, config.scale).expand([config.size]))
    numpyro.sample("y", dist.Normal(config.link(b.sum() * config.x), 1.0), obs=y)


def sizes_by_python(group: Any, y: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0.0, 2.0).expand([len(set(group))]))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([len(np.unique(group))]))
    numpyro.sample("y", dist.Normal(a[group] + b[group], 1.0), obs=y)


def branch_by_python(x: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    if x.sum() < 1e6:
        numpyro.sample("extra", dist.Normal(b, 1.0), obs=0.5)
    numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)


def imputed(x: Any, y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 0.5))
    b = numpyro.sample("b", dist.Normal(0.0, 0.5))
    missing = np.nonzero(np.isnan(x))[0]
    latent = numpyro.sample("latent", dist.Normal(0.0, 1.0).expand([len(missing)]).mask(False))
    whole = jnp.asarray(x).at[missing].set(latent)
    numpyro.sample("x", dist.Normal(mu, 1.0), obs=whole)
    numpyro.sample("y", dist.Normal(b * whole, 1.0), obs=y)


def masked_gaps(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with handlers.mask(mask=~jnp.isnan(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=jnp.nan_to_num(y))


def autoregression(y: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))

    def step(carry: Any, value: Any) -> tuple[Any, None]:
        number, last = carry
        new = numpyro.sample("y", dist.Normal(a * last, 1.0 + 0.1 * number), obs=value)
        return (number + 1, new), None

    scan(step, (jnp.array(0, jnp.int32), y[0]), y[1:])


def conditioned_scan(y: Any) -> None:
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))

    def step(last: Array, _: Any) -> tuple[Array, None]:
        new = numpyro.sample("y", dist.Normal(a * last, 1.0))
        return new, None

    with handlers.condition(data={"y": jnp.asarray(y[1:])}):
        scan(step, y[0], jnp.arange(len(y) - 1))


def state_space(y: Any) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))

    def step(last: Array, value: Any) -> tuple[Array, Array]:
        level = numpyro.sample("level", dist.Normal(last, scale))
        numpyro.sample("y", dist.Normal(level, 1.0), obs=value)
        return level, level

    scan(step, 0.0, y)


def mixture_of_effects(y: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("group", 3):
        label = numpyro.sample("label", dist.Categorical(weights), infer={"enumerate": "parallel"})
        with handlers.reparam(config={"effect": LocScaleReparam(0.0)}):
            effect = numpyro.sample("effect", dist.Normal(jnp.array([-2.0, 2.0])[label], scale))
        numpyro.sample("y", dist.StudentT(4.0, effect, 0.5), obs=y)


def random_features(key: Any, y: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(b @ jax.random.normal(key, (3,)), 1.0), obs=y)


CONFIG = SimpleNamespace(scale=2.0, size=3, link=jnp.tanh, x=X)
COUNTS = jnp.array([3, 5, 6, 7], jnp.int32)

IDIOMS = [
    Idiom(repetitions, {"y": Y}),
    Idiom(repetitions, {}, {"obs": Y}),
    Idiom(rows_of_events, {"y": Y.reshape(4, 3)}),
    Idiom(one_number_for_all, {"y": Y}),
    Idiom(single_precision_counts, {"n": jnp.full(4, 10, jnp.int32), "s": COUNTS}),
    Idiom(names_in_a_loop, {"y": Y}),
    Idiom(plain_objects, {"config": CONFIG, "y": Y}),
    Idiom(sizes_by_python, {"group": GROUP, "y": Y}),
    Idiom(branch_by_python, {"x": X, "y": Y}),
    Idiom(imputed, {"x": GAPS, "y": Y}),
    Idiom(masked_gaps, {"y": GAPS}),
    Idiom(autoregression, {"y": Y}),
    Idiom(conditioned_scan, {"y": Y}),
    Idiom(state_space, {"y": Y}),
    Idiom(mixture_of_effects, {"y": Y[:3]}),
    Idiom(random_features, {"key": jax.random.key(3), "y": Y}),
]

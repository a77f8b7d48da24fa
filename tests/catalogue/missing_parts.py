"""Programs with sites of which some elements are missing and others depend on, each with complete data and gaps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import mask


class Part(NamedTuple):
    """A program. arguments: its arguments. sites: complete values of its observed sites. missing: site -> its gaps."""

    program: Callable[..., Any]
    arguments: dict[str, Any]
    sites: dict[str, Any]
    missing: dict[str, np.ndarray]


R = np.random.default_rng(5)
N = 8
GAPS = np.arange(N) % 3 == 1
X, Y, COUNT = R.normal(size=N), R.normal(size=N), R.poisson(3.0, N)
LABEL, BIT = R.integers(0, 3, N), R.integers(0, 2, N)
VECTOR = R.normal(size=(N, 3))
VECTOR_GAPS = np.zeros((N, 3), bool)
VECTOR_GAPS[[0, 2, 2, 5], [1, 0, 2, 1]] = True
COVARIANCE = np.array([[1.0, 0.6, 0.2], [0.6, 1.5, 0.4], [0.2, 0.4, 0.8]])


def mixture(x: Any) -> None:
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("class", 3):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", len(x)):
        label = numpyro.sample("label", dist.Categorical(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0), obs=x)


def naive_bayes(n: int) -> None:
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", n):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0))
        numpyro.sample("count", dist.Poisson(rate[label]))


def covariate(n: int) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Normal(m, 1.0))
        numpyro.sample("b", dist.Normal(0.8 * a, 0.5))


def network(n: int) -> None:
    p = numpyro.sample("p", dist.Beta(1.0, 1.0).expand([5]).to_event(1))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Bernoulli(p[0]))
        b = numpyro.sample("b", dist.Bernoulli(jnp.where(a == 1, p[1], p[2])))
        numpyro.sample("c", dist.Bernoulli(jnp.where(b == 1, p[3], p[4])))


def vector(n: int) -> None:
    """A vector of which parts are missing, with a child."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("row", n):
        v = numpyro.sample("v", dist.MultivariateNormal(mean, COVARIANCE))
        numpyro.sample("y", dist.Normal(v.sum(-1), 1.0))


def features(n: int) -> None:
    """Independent parts of events, of which some are missing."""
    s = numpyro.sample("s", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", n):
        v = numpyro.sample("v", dist.Normal(0.0, 1 / jnp.sqrt(s)).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(v @ jnp.arange(3.0), 1.0))


def exposure(n: int) -> None:
    """A positive covariate, the rate of a count."""
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Gamma(2.0, 1.5))
        numpyro.sample("count", dist.Poisson(a))


def logistic(n: int) -> None:
    """A heavy-tailed covariate and one in an interval, under a logit."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.StudentT(5.0, w, 1.0))
        b = numpyro.sample("b", dist.Uniform(-3.0, 3.0))
        numpyro.sample("bit", dist.Bernoulli(logits=w * a + b))


def cells(n: int) -> None:
    """A site in two plates."""
    with numpyro.plate("row", n, dim=-2):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        with numpyro.plate("column", 3, dim=-1):
            v = numpyro.sample("v", dist.Normal(effect, 1.0))
            numpyro.sample("w", dist.Normal(v, 0.5))


def written(a: Any, b: Any) -> None:
    """Values by obs=, without a plate."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    a = numpyro.sample("a", dist.Normal(m, 1.0), obs=a)
    numpyro.sample("b", dist.Normal(0.8 * a, 0.5), obs=b)


def masked(n: int, valid: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n), mask(mask=valid):
        a = numpyro.sample("a", dist.Normal(m, 1.0))
        numpyro.sample("b", dist.Normal(0.8 * a, 0.5))


def counts_of(n: int) -> None:
    """A binomial number of known total, and one that depends on it."""
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("row", n):
        k = numpyro.sample("k", dist.Binomial(4, p))
        numpyro.sample("y", dist.Normal(1.0 * k, 1.0))


ROW = {"n": N}
PARTS = (
    Part(mixture, {"x": X}, {"label": LABEL}, {"label": GAPS}),
    Part(naive_bayes, ROW, {"label": BIT, "x": X, "count": COUNT}, {"label": GAPS, "x": np.roll(GAPS, 1)}),
    Part(covariate, ROW, {"a": X, "b": Y}, {"a": GAPS, "b": np.roll(GAPS, 1)}),
    Part(network, ROW, {"a": BIT, "b": 1 - BIT, "c": BIT}, {"a": GAPS, "b": np.roll(GAPS, 1), "c": GAPS}),
    Part(vector, ROW, {"v": VECTOR, "y": Y}, {"v": VECTOR_GAPS}),
    Part(vector, ROW, {"v": VECTOR, "y": Y}, {"v": np.repeat(GAPS[:, None], 3, 1)}),
    Part(features, ROW, {"v": VECTOR, "y": Y}, {"v": VECTOR_GAPS}),
    Part(exposure, ROW, {"a": np.exp(X), "count": COUNT}, {"a": GAPS}),
    Part(logistic, ROW, {"a": X, "b": np.tanh(Y), "bit": BIT}, {"a": GAPS, "b": np.roll(GAPS, 1)}),
    Part(cells, ROW, {"v": VECTOR, "w": VECTOR + 0.3}, {"v": VECTOR_GAPS}),
    Part(written, {}, {"a": X, "b": Y}, {"a": GAPS}),
    Part(masked, ROW | {"valid": np.arange(N) > 1}, {"a": X, "b": Y}, {"a": GAPS}),
    Part(counts_of, ROW, {"k": BIT + 1, "y": Y}, {"k": GAPS}),
)


def with_gaps(part: Part) -> dict[str, Any]:
    """The data of a program, NaN where they are missing."""
    gaps = {n: np.where(part.missing[n], np.nan, v) if n in part.missing else v for n, v in part.sites.items()}
    return part.arguments | gaps

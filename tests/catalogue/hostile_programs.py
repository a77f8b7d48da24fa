"""Programs whose posterior has no maximum, no curvature, no gradient or no integral, and near neighbours that have.

Each stands for a kind: flat, linear, kinked, unbounded, one-sided, jumping, saturated, collinear.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayeslab.distributions import hinge_factor

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = X @ [1.0, -0.5] + 0.3 * rng.normal(size=40)
SIGN = np.where(X @ [1.5, -1.0] + 0.5 * rng.normal(size=40) > 0, 1, -1)
GROUP = np.arange(40) % 4
SUM = np.column_stack([X, X.sum(1)])
DUMMIES = np.eye(4)[GROUP]


def flat(name: str, size: int | None = None, support: Any = constraints.real) -> Any:
    if size is not None:
        support = constraints.independent(support, 1)
    return numpyro.sample(name, dist.ImproperUniform(support, (), () if size is None else (size,)))


def normal(name: str, size: int, scale: float = 3.0) -> Any:
    return numpyro.sample(name, dist.Normal(0.0, scale).expand([size]).to_event(1))


def observed(fn: Any, y: Any) -> None:
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", fn, obs=y)


# no prior, and data that say nothing


def unseen(y):
    flat("w")
    observed(dist.Normal(flat("mu"), 1.0), y)


def only_their_sum(y):
    observed(dist.Normal(flat("a") + flat("b"), 1.0), y)


def only_their_product(y):
    a, b = flat("a", support=constraints.positive), flat("b", support=constraints.positive)
    observed(dist.Normal(a * b, 1.0), abs(y))


def empty_component(y):
    mu = flat("mu", 3)
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def one_mean(y):
    observed(dist.Normal(flat("mu"), 1.0), y)


# collinear designs


def regression(x, y):
    w, variance = flat("w", x.shape[1]), numpyro.sample("variance", dist.InverseGamma(2.0, 1.0))
    observed(dist.Normal(x @ w, jnp.sqrt(variance)), y)


def with_intercept(x, y):
    observed(dist.Bernoulli(logits=flat("b") + x @ flat("w", x.shape[1])), (y > 0).astype(int))


def counts(x, y):
    observed(dist.Poisson(jnp.exp(x @ flat("w", x.shape[1]))), np.floor(abs(3 * y)))


def ridge(x, y):
    observed(dist.Normal(x @ normal("w", x.shape[1], 10.0), 1.0), y)


def groups(group, y):
    mu, tau = flat("mu"), numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("group", 4):
        effect = numpyro.sample("effect", dist.Normal(0.0, tau))
    observed(dist.Normal(mu + effect[group], 1.0), y)


# likelihoods that go on for ever


def separable(x):
    observed(dist.Bernoulli(logits=x @ flat("w", 2)), (x[:, 0] > 0).astype(int))


def almost_separable(x):
    x = np.concatenate([x, [[0.0, 1.0], [0.0, 1.0]]])
    observed(dist.Bernoulli(logits=x @ flat("w", 2)), np.append(x[:-2, 0] > 0, [0, 1]).astype(int))


def separable_probit(x):
    p = jax.scipy.stats.norm.cdf(x @ flat("w", 2))
    observed(dist.Bernoulli(jnp.clip(p, 1e-300, 1 - 1e-16)), (x[:, 0] > 0).astype(int))


def hinge_of_one_class(x):
    hinge_factor("hinge", flat("b") + x @ normal("w", 2), 1.0)


def classes_without_a_reference(x):
    observed(dist.Categorical(logits=x[:, :1] * flat("w", 3)), np.arange(len(x)) % 3)


def separable_with_prior(x):
    observed(dist.Bernoulli(logits=x @ normal("w", 2)), (x[:, 0] > 0).astype(int))


def no_counts(x):
    observed(dist.Poisson(jnp.exp(flat("log_rate"))), np.zeros(len(x)))


def all_successes(x):
    observed(dist.Bernoulli(logits=flat("logit")), np.ones(len(x), int))


def all_censored(x):
    mu = flat("mu")
    numpyro.factor("beyond", jax.scipy.stats.norm.logsf(x[:, 0] - mu).sum())


def saturated(x):
    observed(dist.Normal(jnp.tanh(3 * flat("w")), 0.01), 1.0 + 0 * x[:, 0])


def steep(x):
    numpyro.factor("slope", 3.0 * flat("w"))


# densities without a bound


def one_observation(y):
    mu, sigma = flat("mu"), flat("sigma", support=constraints.positive)
    observed(dist.Normal(mu, sigma), y[:1])


def arcsine(y):
    numpyro.sample("p", dist.Beta(0.5, 0.5))
    observed(dist.Normal(0.0, 1.0), y)


def at_its_end(y):
    observed(dist.Bernoulli(numpyro.sample("p", dist.Beta(1.0, 1.0))), np.zeros(len(y), int))


# kinks


def hinge(x, sign):
    w = normal("w", 2)
    numpyro.factor("loss", -jnp.maximum(0.0, 1 - sign * (x @ w)).sum())


def lasso(x, sign):
    w = numpyro.sample("w", dist.Laplace(0.0, 0.03).expand([2]).to_event(1))
    observed(dist.Normal(x @ w, 1.0), 1.0 * sign)


def median(y):
    observed(dist.Laplace(flat("m"), 1.0), y[:39])


def quantile(y):
    error = y[:39] - numpyro.sample("q", dist.Normal(0.0, 10.0))
    numpyro.factor("loss", -jnp.where(error > 0, 0.8 * error, -0.2 * error).sum())


def rectified(x, y):
    observed(dist.Normal(jax.nn.relu(x @ normal("w", 2)), 1.0), y)


def huber(y):
    error = y - flat("m")
    numpyro.factor("loss", -jnp.where(abs(error) < 1, error**2 / 2, abs(error) - 0.5).sum())


# densities that end


def largest(y):
    observed(dist.Uniform(0.0, flat("end", support=constraints.positive)), abs(y) / 10)


def shifted(y):
    start = numpyro.sample("start", dist.Normal(0.0, 10.0))
    late = y + 4 - start
    numpyro.factor("waiting", jnp.where(late >= 0, -late, -jnp.inf).sum())


# jumps


def threshold(x, sign):
    observed(dist.Bernoulli(jnp.where(x @ normal("w", 2) > 0, 0.9, 0.1)), (sign + 1) // 2)


def rounded(y):
    observed(dist.Normal(jnp.round(numpyro.sample("w", dist.Normal(2.3, 1.0))), 1.0), y)


def changepoint(y):
    when = numpyro.sample("when", dist.Normal(20.0, 10.0))
    observed(dist.Normal(jnp.where(jnp.arange(40) < when, 0.0, 2.0), 1.0), np.where(np.arange(40) < 28, y, 2 + y))


def winner(x, sign):
    w = numpyro.sample("w", dist.Normal(jnp.array([1.0, -2.0]), 1.0).to_event(1))
    observed(dist.Bernoulli(jnp.where(jnp.argmax(x * w, 1) == 0, 0.8, 0.3)), (sign + 1) // 2)


# apart, certain, on another scale, in a factor


def two_modes(y):
    w = numpyro.sample("w", dist.Normal(0.0, 20.0))
    observed(dist.Normal(abs(w), 0.5), 8 + y)


def certain(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    observed(dist.Normal(100.0 * z, 1.0), y)


def other_units(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    observed(dist.Normal(mu, tau**-0.5), 1e4 + y)


def flat_mean(y):
    mu, tau = flat("mu"), numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    observed(dist.Normal(mu, tau**-0.5), y)

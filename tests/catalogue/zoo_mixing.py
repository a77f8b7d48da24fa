"""Programs of the zoo with variables given which something else is Normal."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import bayeslab as bl
from bayeslab.distributions import BernoulliProbit, PolyaGamma
from zoo_programs import X

sample, plate = numpyro.sample, numpyro.plate


def laplace_scale() -> None:
    with plate("feature", 2):
        variance = sample("variance", dist.Exponential(2.0))
        w = sample("w", dist.Normal(0.0, jnp.sqrt(variance)))
    with plate("row", 5):
        sample("y", dist.Normal(X @ w, 0.7))


def logits() -> None:
    with plate("feature", 2):
        w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(logits=X @ w))


def probits() -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate("row", 5):
        sample("y", BernoulliProbit(X @ w))


logits_augmented = bl.augment(logits)
probits_augmented = bl.augment(probits)


def root_of_polya_gamma() -> None:
    """A misprint: the variable is no precision of a Normal, whose density has its log."""
    omega = sample("omega", PolyaGamma(1.0, 0.5))
    with plate("row", 5):
        sample("y", dist.Normal(0.0, 1 / jnp.sqrt(omega)))


def scale_for_variance() -> None:
    """A misprint: a variance in the place of a standard deviation."""
    with plate("feature", 2):
        variance = sample("variance", dist.Exponential(2.0))
        w = sample("w", dist.Normal(0.0, variance))
    with plate("row", 5):
        sample("y", dist.Normal(X @ w, 0.7))

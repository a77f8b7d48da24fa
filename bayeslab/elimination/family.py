"""What a family of conditionals knows, and how one is made from two scalar statistics."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.distributions.markov.log_likelihoods import LogLikelihood
from bayeslab.elimination.around import around_draws

Eta = Any
"""Coefficients of the statistics of a family, its natural parameters: a tree of arrays."""
SiteFunction = Callable[[Array], Array]
"""From a value of a site to an array."""


class Local(NamedTuple):
    """The terms of the log joint that one site reaches, as functions of its value (*batch, *event).

    density: the prior and all children, scalar.
    likelihood: the children alone, summed to the elements of the site that they belong to, of the shape of the site.
    known: log likelihoods of all values of a discrete site (*batch, *event, K), from children that are not in
    `likelihood`; where they are a product of two matrices, these are all children.
    """

    density: SiteFunction
    likelihood: SiteFunction
    known: LogLikelihood | None = None


Read = Callable[[Local, Array, Distribution], Eta]
"""From the terms of a site, a value to look around and its prior to coefficients."""


def _no_coefficients(*given: Any) -> Any:
    """Stands in for `read` and `build` where a family is joint or enumerates; raises NotImplementedError."""
    raise NotImplementedError("this family has no coefficients to read")


def _given_value(q: Any, otherwise: Array) -> Array:
    return otherwise


def _draw(key: Array, q: Any, old: Array) -> Array:
    return q.sample(key)


class Family(NamedTuple):
    """One kind of conditional: how it is found, and all that algorithms ask of it.

    read: (the terms of the site, a value to look around, the prior) -> coefficients.
    build: (coefficients, the prior) -> the conditional.
    priors: distributions whose sites have this family as their conditional, those apart that name it themselves.
    statistics: value -> what the coefficients multiply, in the same tree and shapes; None where they are too many.
    mode: conditional -> its mode. points: conditional -> a few values whose mean statistics are the expected ones, see
    `bayeslab.elimination.cubature`. EM and MeanField need these; a discrete family has instead
    averaged: a positive number -> the statistics whose expectations the points have, where these are not all; whatever
    else is in the log density must not depend on other sites.
    expected: (prior, conditional) -> the mean of the log density of the prior; its conditionals have `marginals()`.
    evidence: (coefficients, the prior) -> the log of the integral of the prior times its children, where the family has
    a way of its own.
    linear: from the prior to what its log density is linear in, numbers of any tree, and back.

    What follows has defaults that suit any family.
    typical: (conditional, a value) -> a value near its middle, or that one where the middle is not known or undefined.
    middle: (key, conditional, old value) -> the middle of the conditional, or a draw where it is not known.
    from_uniform: (conditional, uniform numbers in the shape of the site) -> a draw, where that costs no compilation.
    around: (conditional, a value, steps, the prior of a chain of labels) -> values at which rules are tested, see
    `bayeslab.elimination.around`.
    joint: elements may be joint over axes on which they meet, as those of a Normal; statistics are products of pairs.
    enumerates: every element is looked at with each of its values, independently of the others.
    tables: the log density is a sum of tables, each over a few discrete elements.
    wider: distributions whose sites may have this family where their own does not hold.
    by_steps: a Normal along the first axis, of which neighbouring steps meet.
    process: a Gaussian process or a linear Gaussian chain, whose values are jointly Normal.
    """

    name: str
    read: Read = _no_coefficients
    build: Callable[[Eta, Distribution], Distribution] = _no_coefficients
    priors: tuple[type[Distribution], ...] = ()
    statistics: Callable[[Array], Eta] | None = None
    mode: Callable[[Any], Array] | None = None
    points: Callable[[Any], Array] | None = None
    averaged: Callable[[Array], tuple[Array, ...]] | None = None
    expected: Callable[[Any, Any], Array] | None = None
    linear: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    evidence: Callable[[Eta, Any], Array] | None = None
    typical: Callable[[Any, Array], Array] = _given_value
    middle: Callable[[Array, Any, Array], Array] = _draw
    from_uniform: Callable[[Any, Array], Array] | None = None
    around: Callable[[Any, Array, Any, Any], Array] = around_draws
    joint: bool = False
    enumerates: bool = False
    tables: bool = False
    wider: tuple[type[Distribution], ...] = ()
    by_steps: bool = False
    process: bool = False

    @property
    def is_normal(self) -> bool:
        """Whether its members are Normal."""
        return self.joint or self.by_steps

    @property
    def structured(self) -> bool:
        """Whether sites are discrete and their elements depend on each other, as the steps of a chain of labels."""
        return self.expected is not None

    @property
    def has_expectations(self) -> bool:
        """Whether terms of a log joint can be averaged over a site."""
        return self.enumerates or self.structured or self.tables or self.points is not None


def two_statistics_family(
    name: str,
    statistics: Callable[[Array], tuple[Array, Array]],
    build: Callable[[Eta, Distribution], Distribution],
    *,
    reach: tuple[float, float] = (jnp.inf, -jnp.inf),
    **more: Any,
) -> Family:
    """A family with two scalar statistics: their coefficients are read from gradients at two points.

    reach: unconstrained coordinates that the lower of both points is not above, and the higher not below. A conditional
    with a mass at the end of its support draws values there, beside which only one of its coefficients is seen: of
    a / x - b at x = 1e-20 all digits of b are lost.
    more: other fields of `Family`.
    """

    def read(local: Local, at: Array, prior: Distribution) -> tuple[Array, Array]:
        transform = biject_to(prior.support)
        largest = 0.25 * jnp.log(jnp.finfo(at.dtype).max)  # exponentials, and the squares of these, are numbers
        middle = jnp.clip(transform.inv(at), -largest, largest)
        x, y = (transform(jnp.minimum(middle - 0.4, reach[0])), transform(jnp.maximum(middle + 0.5, reach[1])))
        gx, gy = gradients_at(local.density, x, y)
        ones = jnp.ones_like(x)
        (ax, bx), (ay, by) = (jax.jvp(statistics, (at,), (ones,))[1] for at in (x, y))
        determinant = ax * by - bx * ay
        return (gx * by - gy * bx) / determinant, (ax * gy - ay * gx) / determinant

    return Family(name, read, build, statistics=statistics, **more)


def gradients_at(density: SiteFunction, x: Array, y: Array) -> Array:
    """Gradients of a density at two points, (2, *site), from one piece of compiled code."""
    return jax.lax.map(jax.grad(density), jnp.stack([x, y]))

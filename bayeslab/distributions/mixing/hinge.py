"""The hinge, a loss whose exponential is a mixture of Normals.

N. G. Polson and S. L. Scott (2011), Data augmentation for support vector machines, Bayesian Analysis 6, 1-24.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints


class MinusOneOrOne(constraints.ParameterFreeConstraint):
    """What labels of two classes are where their sign says on which side they lie."""

    is_discrete = True

    def __call__(self, x: Array) -> Array:
        return jnp.abs(x) == 1

    def feasible_like(self, prototype: Array) -> Array:
        return jnp.ones_like(prototype)


class HingeLoss(dist.Unit):
    """A factor exp(-cost max(0, 1 - margin)), with a margin (*batch), a positive cost and perhaps labels, -1 or 1.

    It is no distribution of anything: its value is empty, and `bayeslab.distributions.hinge_factor` adds it to a
    program.
    """

    arg_constraints = {"cost": constraints.positive, "label": MinusOneOrOne()}
    pytree_data_fields = ("margin", "cost", "label")

    def __init__(self, margin: Any, cost: Any = 1.0, label: Any = 1.0, *, validate_args: bool | None = None):
        self.margin, self.cost, self.label = jnp.asarray(margin), jnp.asarray(cost), jnp.asarray(label)
        super().__init__(-self.cost * jnp.maximum(0.0, 1.0 - self.margin), validate_args=validate_args)

    def mixture_log_factor(self, mixing: Array) -> Array:
        """The log of a factor, quadratic in the margin, whose mean over mixing ~ Gamma(1/2, 1/2) is that of the loss.

        With z = cost (1 - margin) / 2 it is exp(-z - z^2 / (2 mixing)), and the mean of exp(-z^2 / (2 mixing)) is
        exp(-|z|).
        """
        z = self.cost * (1.0 - self.margin) / 2
        return -z - z**2 / (2 * mixing)


def hinge_factor(name: str, margin: Array, cost: Array | float = 1.0, label: Array | float = 1.0) -> None:
    """Add -cost max(0, 1 - margin) to the log density, for every row of a plate, as `numpyro.factor` would.

    margin: y (intercept + w' x) for a class y of -1 or 1. `bayeslab.augment` knows what it is of.
    label: the classes, which are then checked: in a margin, a row of class 0 says nothing, whatever w is.
    A cost that is not positive, and a label other than -1 and 1, raise ValueError where the program meets its data.
    """
    loss = HingeLoss(margin, cost, label)
    numpyro.sample(name, loss, obs=loss.sample(None), infer={"is_auxiliary": True})

"""Elements of a site within plates that they are no part of: NumPyro counts the Jacobian of their transforms in these.

Missing elements of a site are drawn together, where the program is inside of the plates of the whole site. NumPyro adds
the Jacobian of a transformed site as a factor there, and plates count whatever is inside of them once for each of their
elements, or refuse another number of elements; so do masks. Here the Jacobian is one number, and `once` takes it out.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, ExpandedDistribution, MaskedDistribution, biject_to, constraints
from numpyro.distributions.transforms import Transform


class ElementSupport(constraints.Constraint):
    """A support whose transform has the sum over all elements as its Jacobian."""

    def __init__(self, base_constraint: constraints.Constraint):
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim)

    def __call__(self, x: Any) -> Any:
        return self.base_constraint(x)

    def __repr__(self) -> str:
        return repr(self.base_constraint)

    def feasible_like(self, prototype: Any) -> Any:
        return self.base_constraint.feasible_like(prototype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementSupport) and bool(self.base_constraint == other.base_constraint)

    def tree_flatten(self) -> Any:
        return (self.base_constraint,), (("base_constraint",), {})


class ElementTransform(Transform):
    """A transform whose Jacobian is one number, of all elements together."""

    def __init__(self, base: Transform):
        self.base = base

    @property
    def domain(self) -> Any:
        return self.base.domain

    @property
    def codomain(self) -> Any:
        return self.base.codomain

    def __call__(self, x: Any) -> Any:
        return self.base(x)

    def _inverse(self, y: Any) -> Any:
        return self.base._inverse(y)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        return jnp.sum(self.base.log_abs_det_jacobian(x, y, intermediates))

    def forward_shape(self, shape: Any) -> Any:
        return self.base.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base.inverse_shape(shape)

    def tree_flatten(self) -> Any:
        return (self.base,), (("base",), {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementTransform) and bool(self.base == other.base)


@biject_to.register(ElementSupport)
def _transform_of_elements(support: ElementSupport) -> ElementTransform:
    return ElementTransform(biject_to(support.base_constraint))


class ElementsBesidePlates(ExpandedDistribution):
    """The distribution of elements that are drawn inside of plates or masks which they are no part of."""

    def __init__(self, base_dist: Distribution):
        super().__init__(base_dist, base_dist.batch_shape)

    @property
    def support(self) -> Any:
        support = self.base_dist.support
        inner = support.base_constraint if isinstance(support, constraints.independent) else support
        return support if inner is constraints.real or support.is_discrete else ElementSupport(support)


def once(fn: Distribution) -> Distribution:
    """The distribution of a factor without what plates have expanded it to, and without the masks of their rows."""
    while isinstance(fn, ExpandedDistribution | MaskedDistribution):
        fn = fn.base_dist
    return fn

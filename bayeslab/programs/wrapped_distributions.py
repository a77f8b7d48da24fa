"""What is inside of distributions and constraints that wrap others."""

from typing import Any

from numpyro.distributions import Distribution, ExpandedDistribution, Independent, MaskedDistribution


def innermost_distribution(distribution: Distribution) -> Distribution:
    """The distribution inside Independent, Expanded and Masked ones."""
    while isinstance(distribution, Independent | ExpandedDistribution | MaskedDistribution):
        distribution = distribution.base_dist
    return distribution


def describe_constraint(support: Any) -> str:
    """The name of a constraint in words: _PositiveDefinite is "positive definite"."""
    name = type(elementwise_constraint(support)).__name__.strip("_")
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip().replace("_", " ")


def elementwise_constraint(support: Any) -> Any:
    """The constraint on every element of an event, inside the constraint on the event."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support

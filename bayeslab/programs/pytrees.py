"""Distributions as pytrees whose leaves have an order that outlives a process, in files and in compiled code.

Namespaces are pytrees as well, of their attributes.
"""

from argparse import Namespace as ArgparseNamespace
from types import SimpleNamespace
from typing import Any

import jax
from numpyro.distributions import Distribution


@jax.tree_util.register_pytree_with_keys_class
class Ordered:
    """A distribution as a JAX pytree whose leaves are sorted by name.

    NumPyro lists the fields of a distribution in an order that changes from process to process. A state that one has
    saved would be read wrongly by another, and what one has compiled would not be found in a cache.
    """

    def __init__(self, distribution: Any):
        self.distribution = distribution

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        kind = type(self.distribution)
        values, fixed = self.distribution.tree_flatten()
        named = dict(zip(kind.gather_pytree_data_fields(), values, strict=True))
        return tuple((jax.tree_util.GetAttrKey(name), wrap_distributions(named[name])) for name in sorted(named)), (
            kind,
            fixed,
        )

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, ...], leaves: tuple[Any, ...]) -> "Ordered":
        kind, aux_fields = fixed
        names = kind.gather_pytree_data_fields()
        named = dict(zip(sorted(names), leaves, strict=True))
        return cls(kind.tree_unflatten(aux_fields, tuple(unwrap_distributions(named[name]) for name in names)))


@jax.tree_util.register_pytree_with_keys_class
class Namespace:
    """A namespace as a JAX pytree of its attributes, sorted by name."""

    def __init__(self, namespace: Any):
        self.namespace = namespace

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        named = vars(self.namespace)
        children = tuple((jax.tree_util.GetAttrKey(name), wrap_distributions(named[name])) for name in sorted(named))
        return children, (type(self.namespace), tuple(sorted(named)))

    @classmethod
    def tree_unflatten(cls, kind_and_names: tuple[Any, ...], leaves: tuple[Any, ...]) -> "Namespace":
        kind, names = kind_and_names
        return cls(kind(**dict(zip(names, map(unwrap_distributions, leaves), strict=True))))


_WRAPPERS = {Distribution: Ordered, SimpleNamespace: Namespace, ArgparseNamespace: Namespace}


def wrap_distributions(tree: Any) -> Any:
    """The tree with every distribution in it wrapped in an `Ordered`, and every namespace in a `Namespace`."""

    def wrap(leaf: Any) -> Any:
        return next((wrapper(leaf) for kind, wrapper in _WRAPPERS.items() if isinstance(leaf, kind)), leaf)

    return jax.tree.map(wrap, tree, is_leaf=lambda leaf: isinstance(leaf, tuple(_WRAPPERS)))


def unwrap_distributions(tree: Any) -> Any:
    """The tree with every `Ordered` and `Namespace` replaced by what it holds."""

    def unwrap(leaf: Any) -> Any:
        held = leaf.namespace if isinstance(leaf, Namespace) else leaf
        return leaf.distribution if isinstance(leaf, Ordered) else held

    return jax.tree.map(unwrap, tree, is_leaf=lambda leaf: isinstance(leaf, Ordered | Namespace))

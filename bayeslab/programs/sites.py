"""Sites as `numpyro.sample` takes them, brought into the one form that everything else reads."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.contrib.control_flow.cond import cond_wrapper
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.distributions import Distribution, Unit
from numpyro.handlers import uncondition
from numpyro.primitives import Messenger

Shape = tuple[int, ...]


class SiteHandler(Messenger):
    """A handler that gives every site a distribution of its whole shape, also in bodies of scans.

    What `sample_shape=` asks for, and what an observed value repeats without a plate, become batch axes of the
    distribution. Integers have the width of JAX's own ones, so that those that were made in single precision meet
    others in double precision. Marks for NumPyro's enumeration are taken off, since discrete sites are found here.

    shapes: observed site -> the shape of its value, where obs= does not give it.
    """

    def __init__(self, fn: Callable[..., Any], shapes: Mapping[str, Shape]):
        self.shapes = shapes
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            _wrap_bodies(msg, self._within)
        if msg["type"] != "sample" or isinstance(msg["fn"], Unit):
            return
        sample_shape = msg["kwargs"].get("sample_shape", ())
        fn = with_wide_integers(msg["fn"])
        if sample_shape:
            msg["kwargs"] = msg["kwargs"] | {"sample_shape": ()}
            fn = fn if msg["is_observed"] else fn.expand(sample_shape + fn.batch_shape)
        shape = jnp.shape(msg["value"]) if msg["is_observed"] else self.shapes.get(msg["name"])
        if shape is not None:
            fn = fn.expand(repeated_batch_shape(fn.batch_shape, fn.event_shape, shape))
            if msg["is_observed"] and shape == () != fn.batch_shape and fn.event_dim == 0:
                msg["value"] = jnp.broadcast_to(msg["value"], fn.batch_shape)
        msg["fn"] = fn
        if "enumerate" in msg["infer"]:
            msg["infer"] = {name: value for name, value in msg["infer"].items() if name != "enumerate"}

    def _within(self, body: Callable[..., Any], scanned: bool) -> Callable[..., Any]:
        """The body of a scan or of a branch, with this handler."""
        shapes = {name: shape[1:] if scanned else shape for name, shape in self.shapes.items()}
        return SiteHandler(body, shapes)


class Unconditioned(uncondition):
    """A handler that draws observed sites as if they were not, also in bodies of scans.

    kept: sites that stay as they are.
    freed_conditions: whether a scan was freed of values that `condition` would have given its sites.
    """

    def __init__(self, fn: Callable[..., Any], kept: tuple[str, ...] = ()):
        self.kept = kept
        self.freed_conditions = False
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            _wrap_bodies(msg, lambda body, _: Unconditioned(body, self.kept))
            stack = msg["kwargs"]["substitute_stack"]
            msg["kwargs"]["substitute_stack"] = [pair for pair in stack if pair[0] != "condition"]
            self.freed_conditions |= any(kind == "condition" for kind, _ in stack)
        elif msg.get("name") not in self.kept:
            super().process_message(msg)
            if "obs" in msg.get("infer", {}):  # a value of a step would outlive its scan
                msg["infer"] = {name: value for name, value in msg["infer"].items() if name != "obs"}


def repeated_batch_shape(batch: Shape, event: Shape, value: Shape) -> Shape:
    """The batch shape of a site with the axes that its value adds: independent repetitions, as `log_prob` broadcasts.

    It is the batch shape as it is where the value does not contain it, as a column (n, 1) does not contain a row (n,).
    """
    value_batch = value[: len(value) - len(event)]
    try:
        contains = value == value_batch + event and np.broadcast_shapes(batch, value_batch) == value_batch
    except ValueError:
        return batch
    return value_batch if contains else batch


def with_wide_integers(fn: Distribution) -> Distribution:
    """A distribution whose integer parameters have the width of JAX's own integers."""
    if all(_widened(leaf) is leaf for leaf in jax.tree.leaves(fn)):
        return fn
    return jax.tree.map(_widened, fn)


def _wrap_bodies(msg: dict[str, Any], wrap: Callable[[Callable[..., Any], bool], Callable[..., Any]]) -> None:
    """Put a handler around the functions that a scan or a conditional of NumPyro runs, where others do not reach."""
    if msg["fn"] is scan_wrapper:
        body, start, *others = msg["args"]
        msg["args"] = (_ScanBody(wrap(body, True)), _wide_numbers(start), *others)
    elif msg["fn"] is cond_wrapper:
        predicate, *branches, operand = msg["args"]
        msg["args"] = (predicate, *(wrap(branch, False) for branch in branches), operand)


class _ScanBody:
    """The body of a scan, whose carry keeps the types that it starts with."""

    def __init__(self, body: Callable[..., Any]):
        self.body = body

    def __call__(self, carry: Any, element: Any) -> tuple[Any, Any]:
        carry, output = self.body(carry, element)
        return _wide_numbers(carry), output


def _wide_numbers(tree: Any) -> Any:
    """A tree whose signed integers and real numbers have the width of JAX's own ones."""
    return jax.tree.map(partial(_widened, kinds=(jnp.signedinteger, jnp.floating)), tree)


def _widened(leaf: Any, kinds: tuple[Any, ...] = (jnp.integer,)) -> Any:
    """An array with numbers of some kinds in the width of JAX's own ones; anything else as it is."""
    for kind, own in zip(kinds, (int, float), strict=False):
        wide = jax.dtypes.canonicalize_dtype(own)
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, kind) and leaf.dtype.itemsize < wide.itemsize:
            return jnp.asarray(leaf, wide)
    return leaf

"""Sites as `numpyro.sample` takes them, brought into the one form that everything else reads."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from jax.tree_util import all_leaves
from numpyro.contrib.control_flow.cond import cond_wrapper
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.distributions import (
    Delta,
    Distribution,
    ExpandedDistribution,
    ImproperUniform,
    Independent,
    Unit,
    constraints,
)
from numpyro.handlers import block, seed, substitute, uncondition
from numpyro.infer.initialization import init_to_uniform
from numpyro.primitives import Messenger

from bayeslab.programs.handlers.zero_rates import with_zero_rates
from bayeslab.programs.missing.names import UNOBSERVED
from bayeslab.programs.missing.split_distributions import proper_where_masked, without_mask
from bayeslab.programs.tracing.loops.reversed_scans import is_scan, run_backwards

Shape = tuple[int, ...]

SAMPLE_DIMS = ("chain", "draw")
"""The dimensions of the draws in a result."""

LEARNED_FROM = "learned_from"
"""The entry of `infer` with the value that a `numpyro.param` starts from."""


class SiteHandler(Messenger):
    """A handler that gives every site a distribution of its whole shape, also in bodies of scans.

    What `sample_shape=` asks for, and what an observed value repeats without a plate, become batch axes of the
    distribution. Integers have the width of JAX's own ones, so that those that were made in single precision meet
    others in double precision. Marks for NumPyro's enumeration are taken off, since discrete sites are found here.
    Sites of a scan that runs backwards have the order of its elements. An unobserved Delta is what the program
    computes, as `numpyro.deterministic` says it. What `numpyro.param` learns becomes a site with a flat density, which
    starts where the program says; a tree of arrays becomes one vector.

    shapes: observed site -> the shape of its value, where obs= does not give it.
    unused: numpyro.params that keep the values from which they start, for nothing depends on them.
    unmasked: latent sites whose masks are taken off.
    refused: sites that have no place here, with the reason.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        shapes: Mapping[str, Shape],
        unused: Collection[str] = (),
        unmasked: Collection[str] = (),
    ):
        self.shapes, self.unused, self.unmasked = shapes, unused, unmasked
        self.refused: dict[str, str] = {}
        self._trees: dict[str, Callable[[Any], Any]] = {}
        super().__init__(fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._arguments = args, kwargs
        return super().__call__(*args, **kwargs)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            wrap_bodies(msg, self._within)
            if msg["fn"] is scan_wrapper and msg["args"][4]:
                msg["fn"] = run_backwards
        _rename(msg)
        if msg["type"] == "param" and msg["value"] is None:
            if msg["args"] == (None,):  # numpyro.module asks whether there is a value, before it makes one
                msg["args"] = (self._start_of(msg["name"]),)
            if msg["name"] in self.unused:
                msg["stop"] = True
                return
            self._trees[msg["name"]] = _make_learned(msg)
            return
        if msg["type"] == "param" and msg.get("_control_flow_done"):
            self.refused[msg["name"]] = "is a numpyro.param in a scan; call it before, so that all steps share it"
        if msg["type"] == "plate" and msg["args"][0] != int(msg["args"][0]):  # NumPyro rounds it up
            raise ValueError(f"plate '{msg['name']}' has {msg['args'][0]} elements, which is not a whole number")
        if msg["type"] != "sample" or isinstance(msg["fn"], Unit):
            return
        unknown = not msg["is_observed"] and msg["name"] not in self.shapes
        if unknown and (certain := _certain_value(msg["fn"])) is not None:
            msg |= {"type": "deterministic", "value": certain}
            return
        if msg["value"] is not None and not msg["is_observed"] and not msg.get("_control_flow_done"):
            self.refused[msg["name"]] = (
                "has a value from handlers.substitute, which inference would replace; use handlers.condition, which "
                "observes it, or handlers.do"
            )
        sample_shape = msg["kwargs"].get("sample_shape", ())
        fn = with_zero_rates(with_wide_integers(msg["fn"]))
        if sample_shape:
            msg["kwargs"] = msg["kwargs"] | {"sample_shape": ()}
            fn = fn if msg["is_observed"] else fn.expand(sample_shape + fn.batch_shape)
        shape = jnp.shape(msg["value"]) if msg["is_observed"] else self.shapes.get(msg["name"])
        if shape is not None:
            fn = fn.expand(repeated_batch_shape(fn.batch_shape, fn.event_shape, shape, msg["cond_indep_stack"]))
            if msg["is_observed"] and shape == () != fn.batch_shape and fn.event_dim == 0:
                msg["value"] = jnp.broadcast_to(msg["value"], fn.batch_shape)
        hidden_elsewhere = msg["name"].endswith(UNOBSERVED) and not msg["is_observed"]
        if msg["name"] in self.unmasked:
            fn = without_mask(fn)
        msg["fn"] = proper_where_masked(fn) if hidden_elsewhere else fn
        if "enumerate" in msg["infer"]:
            msg["infer"] = {name: value for name, value in msg["infer"].items() if name != "enumerate"}

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self._trees:
            msg["value"] = self._trees[msg["name"]](msg["value"])

    def _start_of(self, name: str) -> Any:
        """The value from which a program starts a parameter, from a run of its own."""
        args, kwargs = self._arguments
        try:
            with block(), seed(rng_seed=_own_key()), substitute(substitute_fn=init_to_uniform), _StartFinder(name):
                self.fn(*args, **kwargs)
        except _StartFound as raised:
            return raised.start
        raise ValueError(f"numpyro.param '{name}' has no value to start from")

    def _within(self, body: Callable[..., Any], scanned: bool) -> Callable[..., Any]:
        """The body of a scan or of a branch, with this handler."""
        shapes = {name: shape[1:] if scanned else shape for name, shape in self.shapes.items()}
        return _BodyHandler(body, shapes, unmasked=self.unmasked)


def name_in_results(name: str) -> str:
    """The name of a site or a plate in a result.

    It has a dot where scopes and modules put a slash, and an underscore where it is that of one of its dimensions.
    """
    return f"{name}_" if name in SAMPLE_DIMS else name.replace("/", ".")


def _rename(msg: dict[str, Any]) -> None:
    """Give a site and its plates their names in results."""
    if msg.get("name"):
        msg["name"] = name_in_results(msg["name"])
    if frames := msg.get("cond_indep_stack"):
        msg["cond_indep_stack"] = [frame._replace(name=name_in_results(frame.name)) for frame in frames]


class _BodyHandler(SiteHandler):
    """The handler of sites in the body of a scan or in a branch, which has no parameters of its own."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "param":
            super().process_message(msg)


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
            wrap_bodies(msg, lambda body, _: Unconditioned(body, self.kept))
            stack = msg["kwargs"]["substitute_stack"]
            msg["kwargs"]["substitute_stack"] = [pair for pair in stack if pair[0] != "condition"]
            self.freed_conditions |= any(kind == "condition" for kind, _ in stack)
        elif msg.get("name") not in self.kept:
            super().process_message(msg)
            if "obs" in msg.get("infer", {}):  # a value of a step would outlive its scan
                msg["infer"] = {name: value for name, value in msg["infer"].items() if name != "obs"}


def _make_learned(msg: dict[str, Any]) -> Callable[[Any], Any]:
    """Make a site of a `numpyro.param`, and return the function from its values to what the program gets."""
    with seed(rng_seed=_own_key()):
        start = msg["fn"](*msg["args"], **msg["kwargs"])
    constraint = msg["kwargs"].get("constraint", constraints.real)
    flat, unravel = (jnp.asarray(start, float), lambda value: value) if all_leaves([start]) else ravel_pytree(start)
    fn = ImproperUniform(constraint, (), event_shape=jnp.shape(flat))
    msg |= {"type": "sample", "fn": fn, "args": (), "kwargs": {"rng_key": None, "sample_shape": ()}}
    msg |= {"is_observed": False, "intermediates": [], "cond_indep_stack": [], "infer": {LEARNED_FROM: flat}}
    return unravel


class _StartFound(Exception):
    """The value from which a parameter starts is known."""

    def __init__(self, start: Any):
        self.start = start
        super().__init__()


class _StartFinder(Messenger):
    """A handler that ends the run where a parameter is given a value to start from."""

    def __init__(self, name: str):
        self.name = name
        super().__init__(None)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "param" and msg["name"] == self.name and msg["args"] != (None,):
            raise _StartFound(msg["fn"](*msg["args"], **msg["kwargs"]))


def _own_key() -> Any:
    """A key of the run, or one for all runs that have none."""
    return jax.random.PRNGKey(0) if (key := numpyro.prng_key()) is None else key


def repeated_batch_shape(batch: Shape, event: Shape, value: Shape, plates: Sequence[Any] = ()) -> Shape:
    """The batch shape of a site with the axes that its value adds: independent repetitions, as `log_prob` broadcasts.

    It is the batch shape as it is where the value does not contain it, as a column (n, 1) does not contain a row (n,),
    and as n rows are not those of a plate with one. plates: those that the site is in.
    """
    value_batch = value[: len(value) - len(event)]
    try:
        contains = value == value_batch + event and np.broadcast_shapes(batch, value_batch) == value_batch
    except ValueError:
        return batch
    alone = all(value_batch[plate.dim] == 1 for plate in plates if plate.size == 1 and -plate.dim <= len(value_batch))
    return value_batch if contains and alone else batch


def _certain_value(fn: Distribution) -> Any:
    """The one value that a Delta without a density of its own has; None for all other distributions."""
    leaf = fn
    while isinstance(leaf, ExpandedDistribution | Independent):
        leaf = leaf.base_dist
    if not isinstance(leaf, Delta) or isinstance(leaf.log_density, jax.core.Tracer) or np.any(leaf.log_density):
        return None
    return jnp.broadcast_to(leaf.v, fn.shape())


def with_wide_integers(fn: Distribution) -> Distribution:
    """A distribution whose integer parameters have the width of JAX's own integers."""
    if all(_widened(leaf) is leaf for leaf in jax.tree.leaves(fn)):
        return fn
    return jax.tree.map(_widened, fn)


def wrap_bodies(msg: dict[str, Any], wrap: Callable[[Callable[..., Any], bool], Callable[..., Any]]) -> None:
    """Put a handler around the functions that a scan or a conditional of NumPyro runs, where others do not reach."""
    if is_scan(msg):
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

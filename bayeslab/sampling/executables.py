"""Executables of a sampler: compiled once for all Bounds of one structure, several draws a call."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.processor import on_accelerator
from bayeslab.programs.program import Bound, abstract_bound
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.sampling.placement import Layout, Placement
from bayeslab.sampling.protocols import Draws, Sampler, State

MAX_DRAWS_PER_CALL = 1000
"""Largest number of draws of a chain that one call makes. Between calls there is progress, Ctrl-C and a checkpoint."""
MAX_INDEPENDENT_DRAWS_PER_CALL = 50_000
"""Largest number of independent draws that one call makes."""
MAX_BYTES_PER_CALL = 4 * 2**20
"""Largest size in bytes of the draws that one call makes."""
MAX_BYTES_PER_BATCH = 2**18
"""Largest size in bytes of the independent draws that are made at once, so that they fit into a processor's cache."""
RUN_ONCE_A_FIT = {"prepare", "start", "start_at"}
"""Functions that run once a fit. On little data they take less time than their compilation."""
MAX_NUMBERS_UNOPTIMISED = 4_000
"""Largest number of elements of a Bound for which these are compiled without optimisation."""


@dataclass
class SamplerExecutables:
    """Executables of a sampler for one chain, or for all chains at once.

    lowered: name -> the function that traces and lowers it. options: name -> options of the compiler.
    first: draws of the first call, which is there to be timed. buffer: largest number of draws of a call.
    seconds: time that compilation took and no run has been told.
    bound_layout, data_layout: of the Bound, and of what chains share.
    code: the executables that are compiled, by name.
    """

    lowered: dict[str, Callable[[], Any]]
    options: dict[str, dict[str, Any]]
    first: int
    buffer: int
    seconds: float
    bound_layout: Layout
    data_layout: Layout
    code: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def make_ready(self, *more: str) -> None:
        """Compile the executables that every run needs, and those named, in parallel.

        Tracing stays in this thread: NumPyro's handlers are global.
        """
        began = time.perf_counter()
        wanted = {"prepare", "adapt", "advance", *more} & self.lowered.keys() - self.code.keys()
        lowered = {name: self.lowered[name]() for name in sorted(wanted)}
        if lowered:
            with ThreadPoolExecutor(len(lowered)) as pool:
                executables = pool.map(lambda item: item[1].compile(self.options[item[0]]), lowered.items())
                self.code |= dict(zip(lowered, executables, strict=True))
        self.seconds += time.perf_counter() - began

    def prepare(self, bound: Bound) -> Any:
        """What all chains share, on its devices: what `Sampler.prepare` returns."""
        placed = self.bound_layout.put(bound)
        return self.code["prepare"](placed) if "prepare" in self.lowered else placed

    def whole(self, data: Any, bound: Bound) -> Any:
        """What all chains share, on one device."""
        return self.data_layout.whole(data) if "prepare" in self.lowered else bound

    @property
    def start(self) -> Callable[[Array | np.ndarray, Any], State]:
        return self.code["start"]

    @property
    def start_at(self) -> Callable[[Array | np.ndarray, Any, Any], State]:
        return self.code["start_at"]

    @property
    def advance(self) -> Callable[..., tuple[State, Draws]]:
        return self.code["advance"]

    @property
    def adapt(self) -> Callable[..., tuple[State, Draws]]:
        return self.code.get("adapt", self.code["advance"])

    def take_seconds(self) -> float:
        """The seconds that compilation took since the last call, told to the run that paid for it."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


@lru_cache(maxsize=24)  # of a thousand memory maps each, of the 65,530 that Linux gives a process
def compile_sampler(
    sampler: Sampler, shapes: tuple, width: int | None, placement: Placement, context: tuple = ()
) -> SamplerExecutables:
    """The executables of a sampler on Bounds of one structure.

    width: chains that run as one, None for one chain. placement: of data and chains on devices.
    context: what else code is compiled for: what functions of the sampler read from outside, as a guide does, and the
    default device.
    """
    began = time.perf_counter()
    bound = abstract_bound(shapes)
    lowered: dict[str, Callable[[], Any]] = {}
    data = jax.eval_shape(sampler.prepare, bound)
    bound_layout = placement.layout(bound)
    layout = placement.layout(data, sampler.data_partition) if sampler.prepares else bound_layout
    lower = placement.lower
    if sampler.prepares:
        prepare = lambda bound: layout.pad(sampler.prepare(bound_layout.cut(bound)))  # noqa: E731
        lowered["prepare"] = partial(lower, prepare, bound_layout.stored, out_layout=layout)
    key = jax.ShapeDtypeStruct(((width,) if width else ()) + (2,), np.uint32)
    chains = _Chains(width, placement)

    @traced_once
    def start(key: Array, data: Any) -> State:
        return strongly_typed(chains.run(sampler.start)(key, layout.cut(data)))

    def start_at(key: Array, data: Any, values: Any) -> State:
        return strongly_typed(chains.run(sampler.start_at)(key, layout.cut(data), values))

    advance = traced_once(chains.run(sampler.advance))
    with placement.scope:
        state = jax.eval_shape(start, key, data)
        state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
        draw = jax.eval_shape(advance, state, data)[1]
    lowered["start"] = partial(lower, chains.split(start, (True, False), 0), key, layout.stored)
    if sampler.start_sites:
        sites = {name: bound.sites[name] for name in sampler.start_sites}
        values = {name: jax.ShapeDtypeStruct(site.shape, site.dtype) for name, site in sites.items()}
        split_start = chains.split(start_at, (True, False, False), 0)
        lowered["start_at"] = partial(lower, split_start, key, layout.stored, values)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(draw))
    most = MAX_INDEPENDENT_DRAWS_PER_CALL if sampler.independent else MAX_DRAWS_PER_CALL
    buffer = int(np.clip(MAX_BYTES_PER_CALL // max(size, 1), 1, most))
    steps_of = {}
    if sampler.independent:
        buffer, steps_of["advance"] = _batch_loop(sampler, width, buffer, size)
    else:
        verbs = {"advance": advance} | (
            {} if sampler.warmup_draws else {"adapt": traced_once(chains.run(sampler.adapt))}
        )
        steps_of = {verb: _draw_loop(step, buffer) for verb, step in verbs.items()}
    count = jax.ShapeDtypeStruct((), np.int32)
    for verb, steps in steps_of.items():
        split_steps = chains.split(_with_cut_data(layout, steps), (False, False, True, False), (0, 1))
        lowered[verb] = partial(lower, split_steps, count, count, state, layout.stored)
    options = {name: _compiler_options(sampler, name, bound) for name in lowered}
    first, seconds = buffer if sampler.independent else 1, time.perf_counter() - began
    return SamplerExecutables(lowered, options, first, buffer, seconds, bound_layout, layout)


def traced_once(function: Callable) -> Callable:
    """The function, whose operations are remembered for arguments of one structure, as its shapes are asked first."""
    return jax.jit(function, inline=True)


class _Chains(NamedTuple):
    """Chains that run as one, each device those of its own. width: how many, None for one chain."""

    width: int | None
    placement: Placement

    @property
    def apart(self) -> bool:
        """Whether devices have chains of their own."""
        devices = self.placement.chain_devices
        return self.width is not None and devices > 1 and self.width % devices == 0

    def run(self, step: Callable) -> Callable:
        """A step of one chain, or of all chains of a device, which share the data: on a processor one after the other,
        so that none waits in every step for the longest, and on an accelerator at once."""
        if self.width is None:
            return step
        if self.apart and not on_accelerator():
            return lambda own, *shared: jax.lax.map(lambda chain: step(chain, *shared), own)
        return lambda own, *shared: jax.vmap(lambda chain: step(chain, *shared))(own)

    def split(self, function: Callable, split: tuple[bool, ...], out_axes: Any) -> Callable:
        """A function with chains split over devices, see `Placement.over_chains`."""
        return self.placement.over_chains(function, split, out_axes) if self.apart else function


def _with_cut_data(layout: Layout, steps: Callable) -> Callable:
    """A function for `count` draws, of data with padding."""
    return lambda count, thinning, state, data: steps(count, thinning, state, layout.cut(data))


def _compiler_options(sampler: Sampler, name: str, bound: Bound) -> dict[str, Any]:
    """The options of the compiler for one executable."""
    if on_accelerator():
        return {}
    size = sum(leaf.size for leaf in jax.tree.leaves(bound))
    default = UNOPTIMISED_OPTIONS if name in RUN_ONCE_A_FIT and size <= MAX_NUMBERS_UNOPTIMISED else {}
    return default | dict(sampler.compiler_options)


def _draw_loop(step: Callable, buffer: int) -> Callable:
    """A function for `count` draws, one in `thinning` steps, in a buffer. The numbers are data, so it compiles once."""

    def steps(count: Array, thinning: Array, state: State, data: Any) -> tuple[State, Draws]:
        draw = jax.eval_shape(step, state, data)[1]
        kept = jax.tree.map(lambda leaf: jnp.zeros((buffer, *leaf.shape), leaf.dtype), draw)

        def body(i: Array, carry: tuple[State, Draws]) -> tuple[State, Draws]:
            state, draw = step(carry[0], data)
            return strongly_typed(state), jax.tree.map(lambda to, leaf: to.at[i // thinning].set(leaf), carry[1], draw)

        return jax.lax.fori_loop(0, count * thinning, body, (state, kept))

    return steps


def _batch_loop(sampler: Any, width: int | None, buffer: int, size: int) -> tuple[int, Callable]:
    """The size of the buffer, and a function for `count` independent draws, which come in batches.

    A batch is the same whenever it is drawn, so that draws go on where they stopped, in the middle of one as well.
    """
    batch = int(np.clip(MAX_BYTES_PER_BATCH // max(size, 1), 1, buffer))
    buffer = buffer // batch * batch

    def steps(count: Array, thinning: Array, state: State, data: Any) -> tuple[State, Draws]:
        @traced_once
        def drawn(index: Array) -> Draws:
            draw_batch = partial(sampler.batch, size=batch)
            return (jax.vmap(draw_batch, (0, None, None), 1) if width else draw_batch)(state, data, index)

        shapes = jax.eval_shape(drawn, jnp.zeros((), int))
        kept = jax.tree.map(lambda leaf: jnp.zeros((buffer + batch, *leaf.shape[1:]), leaf.dtype), shapes)
        first, offset = jnp.divmod(state.made.ravel()[0], batch)

        def body(i: Array, kept: Draws) -> Draws:
            put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=i * batch, axis=0)
            return jax.tree.map(put, kept, drawn(first + i))

        kept = jax.lax.fori_loop(0, (offset + count + batch - 1) // batch, body, kept)
        kept = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, buffer, 0), kept)
        return strongly_typed(state._replace(made=state.made + count)), kept

    return buffer, steps


def strongly_typed(tree: Any) -> Any:
    """A pytree without weak types, so that a state has the same type before and after a step."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)

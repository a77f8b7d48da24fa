"""Drives a sampler: compiled once, a chain a thread, in chunks, so that Python stays in charge.

`numpyro.infer.MCMC.run` compiles anew at every call. Here one chain is compiled as a function of its data, and
between two chunks there is room for progress, Ctrl-C and a checkpoint. Threads use the cores, because compiled code
runs without Python's lock; accelerators run all chains at once instead.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.draws import Draws, Method, Sampler, State, draws_while_adapting, prepared
from bayeslab.program import Bound, blueprint, precision, structure

CHUNK = 1000
"""Draws between two looks at the world, at most."""
CHUNK_INDEPENDENT = 50_000
"""The same of draws that do not wait for each other."""
CHUNK_BYTES = 4 * 2**20
CHUNK_SECONDS = 0.25
BATCH_BYTES = 2**18


class Run(NamedTuple):
    """What a sampler has done.

    draws: leaves (chain, draw, *site), NumPy arrays.
    history: leaves (chain, step), of the steps before the first draw.
    state: of every chain after its last draw, leaves (chain, ...).
    """

    draws: Draws
    history: dict[str, np.ndarray]
    state: State
    compile_seconds: float
    sampling_seconds: float
    interrupted: bool


def drive(
    key: Array,
    method: Method,
    sampler: Sampler,
    bound: Bound,
    *,
    previous: State | None = None,
    report: Callable[[int, int, dict[str, float]], None] | None = None,
    vectorised: bool | None = None,
) -> Run:
    """Draws of all chains. Interrupted from the keyboard, it returns what every chain has finished.

    previous: the state (chain, ...) of an earlier run, to go on from.
    report: is told the steps done, the steps to do and what is known, a few times a second.
    vectorised: run all chains as one; by default on accelerators only.
    Raises KeyboardInterrupt when it is interrupted before the first draw.
    """
    together = jax.default_backend() != "cpu" if vectorised is None else vectorised
    width = method.num_chains if together else None
    code = compiled(sampler, structure(bound), width)
    keys = np.asarray(jax.random.split(key, method.num_chains))
    started, tracks = time.perf_counter(), []
    data = code.prepare(bound)
    for chain in range(1 if together else method.num_chains):
        before = None if previous is None else jax.tree.map(lambda leaf: leaf if together else leaf[chain], previous)  # noqa: B023
        tracks.append(_Track(code, method, sampler, data, keys if together else keys[chain], before))
    interrupted = _race(tracks, report)
    draws, history, state = _gather(tracks, together)
    if draws is None:
        raise KeyboardInterrupt("interrupted before the first draw")
    return Run(draws, history, state, code.take_seconds(), time.perf_counter() - started, interrupted)


def whole_chain(key: Array, method: Method, sampler: Sampler, bound: Bound) -> Draws:
    """One chain in one piece, to be mapped over data sets: the same draws as `drive` makes."""
    data = prepared(sampler, bound)

    def kept(state: State, steps: Array) -> tuple[State, Draws]:
        draw = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(advance, state)[1])
        return jax.lax.fori_loop(0, steps, lambda _, last: advance(last[0]), (state, draw))

    def advance(state: State) -> tuple[State, Draws]:
        state, draw = sampler.advance(state, data)
        return _strong(state), draw

    state, warmup = _strong(sampler.start(key, data)), method.num_warmup
    if not draws_while_adapting(sampler):
        state = jax.lax.fori_loop(0, warmup, lambda _, state: _strong(sampler.adapt(state, data)[0]), state)
        warmup = 0
    steps: Any = np.full(method.num_samples, method.thinning, np.int32)  # one loop for all: it is compiled once
    steps[0] += warmup
    return jax.lax.scan(kept, state, steps)[1]


@dataclass
class Compiled:
    """Executables of one chain, or of all chains at once. `buffer` draws at most come from one call, `first` from the
    first, which is there to be timed."""

    prepare: Callable[[Bound], Any]
    start: Callable[[Array | np.ndarray, Any], State]
    adapt: Callable[..., tuple[State, Draws]]
    advance: Callable[..., tuple[State, Draws]]
    first: int
    buffer: int
    seconds: float

    def take_seconds(self) -> float:
        """Seconds that compilation took, told to the run that paid for it."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


@lru_cache(maxsize=24)  # of a thousand memory maps each, of the 65,530 that Linux gives a process
def compiled(sampler: Sampler, shapes: tuple, width: int | None) -> Compiled:
    """Compile a sampler for Bounds of one structure. Tracing stays in this thread: NumPyro's handlers are global."""
    began = time.perf_counter()
    bound = blueprint(shapes)
    lowered = {"prepare": jax.jit(partial(prepared, sampler)).lower(bound)} if hasattr(sampler, "prepare") else {}
    data = jax.eval_shape(partial(prepared, sampler), bound)
    key = jax.ShapeDtypeStruct(((width,) if width else ()) + (2,), np.uint32)

    def start(key: Array, data: Any) -> State:
        return _strong(_wide(sampler.start, width)(key, data))

    lowered["start"] = jax.jit(start).lower(key, data)
    state = jax.eval_shape(start, key, data)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    one_draw = jax.eval_shape(_wide(sampler.advance, width), state, data)[1]
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one_draw))
    independent = hasattr(sampler, "batch")
    buffer = int(np.clip(CHUNK_BYTES // max(size, 1), 1, CHUNK_INDEPENDENT if independent else CHUNK))
    count = jax.ShapeDtypeStruct((), np.int32)
    if independent:
        buffer, steps = _in_batches(sampler, width, buffer, size)
        lowered["advance"] = jax.jit(steps).lower(count, count, state, data)
    else:
        for verb in ("advance",) if draws_while_adapting(sampler) else ("advance", "adapt"):
            steps = _steps(getattr(sampler, verb), width, buffer)
            lowered[verb] = jax.jit(steps).lower(count, count, state, data)
    options = dict(getattr(sampler, "compiler_options", ())) if jax.default_backend() == "cpu" else {}
    with ThreadPoolExecutor(len(lowered)) as pool:
        code = dict(zip(lowered, pool.map(lambda item: item.compile(options), lowered.values()), strict=True))
    code.setdefault("adapt", code["advance"])
    code.setdefault("prepare", lambda bound: bound)
    return Compiled(**code, first=buffer if independent else 1, buffer=buffer, seconds=time.perf_counter() - began)


def _steps(step: Callable, width: int | None, buffer: int) -> Callable:
    """The next `count` draws, one in `thinning`, in a buffer: the numbers are data, so it compiles once."""
    step = _wide(step, width)

    def steps(count: Array, thinning: Array, state: State, data: Any) -> tuple[State, Draws]:
        draw = jax.eval_shape(step, state, data)[1]
        kept = jax.tree.map(lambda leaf: jnp.zeros((buffer, *leaf.shape), leaf.dtype), draw)

        def body(i: Array, carry: tuple[State, Draws]) -> tuple[State, Draws]:
            state, draw = step(carry[0], data)
            return _strong(state), jax.tree.map(lambda to, leaf: to.at[i // thinning].set(leaf), carry[1], draw)

        return jax.lax.fori_loop(0, count * thinning, body, (state, kept))

    return steps


def _in_batches(sampler: Any, width: int | None, buffer: int, size: int) -> tuple[int, Callable]:
    """The same for independent draws: as many at once as fit into the cache of a processor.

    A batch is the same whenever it is drawn, so that draws go on where they stopped, in the middle of one as well.
    """
    batch = int(np.clip(BATCH_BYTES // max(size, 1), 1, buffer))
    buffer = buffer // batch * batch

    def steps(count: Array, thinning: Array, state: State, data: Any) -> tuple[State, Draws]:
        def drawn(index: Array) -> Draws:
            many = partial(sampler.batch, size=batch)
            return (jax.vmap(many, (0, None, None), 1) if width else many)(state, data, index)

        shapes = jax.eval_shape(drawn, jnp.zeros((), int))
        kept = jax.tree.map(lambda leaf: jnp.zeros((buffer + batch, *leaf.shape[1:]), leaf.dtype), shapes)
        first, offset = jnp.divmod(state.made.ravel()[0], batch)

        def body(i: Array, kept: Draws) -> Draws:
            put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=i * batch, axis=0)
            return jax.tree.map(put, kept, drawn(first + i))

        kept = jax.lax.fori_loop(0, (offset + count + batch - 1) // batch, body, kept)
        kept = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, buffer, 0), kept)
        return _strong(state._replace(made=state.made + count)), kept

    return buffer, steps


def _wide(step: Callable, width: int | None) -> Callable:
    return jax.vmap(step, in_axes=(0, None)) if width else step


def _strong(tree: Any) -> Any:
    """Without weak types, so that a state has the same type before and after a step."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


@dataclass
class _Track:
    """One chain, or all chains at once. A thread takes turns between its tracks, a chunk each.

    seconds: of the last chunk, for one step; 0 where there was none of this kind.
    checkpoints: (draws done, state) at the end of every chunk that a rewind may need.
    """

    code: Compiled
    method: Method
    sampler: Sampler
    data: Any
    key: np.ndarray
    previous: State | None
    done: int = 0
    seconds: float = 0.0
    history: list[Draws] = field(default_factory=list)
    parts: list[Draws] = field(default_factory=list)
    checkpoints: list[tuple[int, State]] = field(default_factory=list)
    news: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.method.num_warmup + self.method.num_samples

    @property
    def draws_done(self) -> int:
        return self.checkpoints[-1][0] if self.checkpoints else 0

    def run(self, stop: Event, floor: Callable[[], int]) -> Iterator[None]:
        """Steps, then draws, until there are enough or `stop` is set. floor: the draws that every chain has."""
        warms_up = draws_while_adapting(self.sampler)
        state = self.code.start(self.key, self.data) if self.previous is None else self.previous
        if not (warms_up and self.previous is not None):
            state = yield from self._adapt(state, stop)
        if stop.is_set() and warms_up and self.previous is None and self.done < self.method.num_warmup:
            return
        self.done = self.method.num_warmup
        self.seconds = self.seconds if warms_up else 0.0
        self.checkpoints.append((0, state))
        for count in self._counts(self.method.num_samples, stop if warms_up else Event()):
            state, draws = self._call(self.code.advance, count, self.method.thinning, state)
            self.parts.append(draws)
            self.done += count
            self.checkpoints.append((self.draws_done + count, state))
            lowest = floor()
            while len(self.checkpoints) > 1 and self.checkpoints[1][0] <= lowest:
                self.checkpoints.pop(0)
            self._listen(draws)
            yield

    def _adapt(self, state: State, stop: Event) -> Generator[None, None, State]:
        for count in self._counts(self.method.num_warmup, stop):
            state, draws = self._call(self.code.adapt, count, 1, state)
            self.done += count
            self._listen(draws)
            if draws.history:
                self.history.append(draws)
                if np.all(draws.history.get("converged", np.zeros(1))[-1]):
                    break
            yield
        return state

    def cut(self, draws: int) -> State:
        """Rewind to `draws` draws: a state is a function of the one before, so the last steps are made again."""
        count, state = [mark for mark in self.checkpoints if mark[0] <= draws][-1]
        while count < draws:
            step = min(draws - count, self.code.buffer)
            state, _ = self._call(self.code.advance, step, self.method.thinning, state)
            count += step
        return state

    def _call(self, code: Callable, count: int, thinning: int, state: State) -> tuple[State, Draws]:
        began = time.perf_counter()
        state, kept = code(np.int32(count), np.int32(thinning), state, self.data)
        copied = 2 * count < self.code.buffer  # else little memory is held in vain
        draws = jax.tree.map(lambda leaf: np.array(leaf[:count]) if copied else leaf[:count], jax.device_get(kept))
        self.seconds = (time.perf_counter() - began) / count
        return state, draws

    def _counts(self, number: int, stop: Event) -> Iterator[int]:
        """Chunks that make `number` steps, no more, each of about CHUNK_SECONDS."""
        left = number
        while left > 0 and not stop.is_set():
            count = self.code.first
            if self.seconds:
                count = int(np.clip(CHUNK_SECONDS / self.seconds, 1, self.code.buffer))
            yield min(count, left)
            left -= min(count, left)

    def _listen(self, draws: Draws) -> None:
        for name, value in (draws.stats | draws.history).items():
            if name == "diverging" and self.parts:
                self.news["divergences"] = self.news.get("divergences", 0) + int(value.sum())
            if name in ("elbo", "log_joint") and (finite := value[np.isfinite(value)]).size:
                self.news[name] = float(np.mean(finite[-20:]))


def _race(tracks: list[_Track], report: Callable | None) -> bool:
    """Run all tracks; whether the keyboard interrupted them."""
    stop, interrupted = Event(), False
    wide = bool(jax.config.jax_enable_x64)

    def floor() -> int:
        return min(track.draws_done for track in tracks)

    def run(mine: list[_Track]) -> None:
        with precision(np.float64 if wide else np.float32):  # the scope belongs to the thread
            turns = [track.run(stop, floor) for track in mine]
            while turns:
                turns = [turn for turn in turns if next(turn, turns) is not turns]

    cores = (os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()) or 1
    threads = 1 if getattr(tracks[0].sampler, "spreads", False) else min(len(tracks), cores)
    with ThreadPoolExecutor(threads) as pool:
        running: list[Future] = [pool.submit(run, tracks[first::threads]) for first in range(threads)]
        try:
            pending = set(running)
            while pending:
                finished, pending = wait(pending, None if report is None else 0.1, FIRST_EXCEPTION)
                if report is not None:
                    report(sum(t.done for t in tracks), sum(t.total for t in tracks), _news(tracks))
                if any(future.exception() for future in finished):
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            interrupted = True
            wait(running)
        for future in running:
            future.result()
    return interrupted


def _news(tracks: list[_Track]) -> dict[str, float]:
    names = {name: None for track in tracks for name in list(track.news)}
    combine = {"divergences": sum}
    return {name: combine.get(name, max)([t.news.get(name, 0) for t in tracks]) for name in names}


def _gather(tracks: list[_Track], together: bool) -> tuple[Draws | None, dict[str, np.ndarray], State]:
    """Draws, history and states of all chains, each cut to what all of them have."""
    draws_done = min(track.draws_done for track in tracks)
    if draws_done == 0:
        return None, {}, None
    states = [track.cut(draws_done) for track in tracks]
    parts = [_joined(track.parts, draws_done) for track in tracks]
    steps = [_joined(track.history, None) for track in tracks]
    if together:
        swap = lambda leaf: np.swapaxes(leaf, 0, 1)  # noqa: E731
        history = jax.tree.map(swap, steps[0].history) if steps[0] else {}
        return jax.tree.map(swap, parts[0]), history, jax.tree.map(np.asarray, states[0])
    draws = jax.tree.map(lambda *leaves: np.stack(leaves) if len(leaves) > 1 else leaves[0][None], *parts)
    state = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    return draws, _padded([_until_converged(step.history) if step else {} for step in steps]), state


def _joined(parts: list[Draws], length: int | None) -> Draws | None:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:length], *parts) if parts else None


def _until_converged(history: Mapping[str, Array | np.ndarray]) -> dict[str, np.ndarray]:
    """The steps up to the first that says it has converged."""
    converged = np.asarray(history.get("converged", np.zeros(0)))
    after = np.flatnonzero(converged.all(axis=tuple(range(1, converged.ndim))))
    steps = slice(after[0] + 1 if after.size else None)
    return {name: np.asarray(leaf)[steps] for name, leaf in history.items()}


def _padded(histories: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Histories (chain, step, ...) of chains that took different numbers of steps, filled up with NaN."""
    length = max((len(leaf) for history in histories for leaf in history.values()), default=0)

    def fill(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf.astype(float), np.full((length - len(leaf), *leaf.shape[1:]), np.nan)])

    return {name: np.stack([fill(history[name]) for history in histories]) for name in histories[0]}

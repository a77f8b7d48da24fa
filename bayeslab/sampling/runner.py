"""Runs a sampler: compiled once, a chain a thread, in chunks, so that Python stays in charge.

`numpyro.infer.MCMC.run` compiles anew at every call. Here one chain is compiled as a function of its data, and
between two chunks there is room for progress, Ctrl-C and a checkpoint. Threads use the cores, because compiled code
runs without Python's lock; accelerators run all chains at once instead.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from threadpoolctl import threadpool_limits

from bayeslab.distributions.processor import on_accelerator
from bayeslab.programs.program import Bound, compilation_signature, precision_scope
from bayeslab.programs.tracing.captured_values import captured_by_functions
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.sampling.executables import SamplerExecutables, compile_sampler, strongly_typed
from bayeslab.sampling.placement import ONE_DEVICE, Placement
from bayeslab.sampling.processes import ONE_PROCESS, Processes
from bayeslab.sampling.protocols import Draws, Method, Sampler, State
from bayeslab.sampling.trial_chains import best_of_trials, start_of_chain

TARGET_SECONDS_PER_CHUNK = 0.25
"""Seconds that a chunk of steps should take."""


class Run(NamedTuple):
    """The draws of a sampler, its last state and its times.

    draws: leaves (chain, draw, *site), NumPy arrays.
    history: leaves (chain, step), of the steps before the first draw.
    state: the state of every chain after its last draw, leaves (chain, ...).
    data: what the sampler was given in place of the Bound.
    """

    draws: Draws
    history: dict[str, np.ndarray]
    state: State
    compile_seconds: float
    sampling_seconds: float
    interrupted: bool
    data: Any


class ChainStarts(NamedTuple):
    """What chains begin with.

    key: of all chains. A chain has the key of its number, however many chains there are.
    previous: the state (chain, ...) of an earlier run, to go on from. values: initial values of sites.
    first_chain: number of the first chain.
    """

    key: Array
    previous: State | None = None
    values: Mapping[str, np.ndarray] | None = None
    first_chain: int = 0


def drive(
    starts: ChainStarts,
    method: Method,
    sampler: Sampler,
    bound: Bound,
    placement: Placement = ONE_DEVICE,
    report: Callable[[int, int, dict[str, float]], None] | None = None,
) -> Run:
    """The Run of all chains. Interrupted from the keyboard, it returns the draws that every chain has finished.

    placement: of data and chains on devices. With several of them, chains that do not run as one follow each other.
    report: a function that is told the steps done, the steps to do and what is known, a few times a second.
    Raises KeyboardInterrupt when it is interrupted before the first draw.
    """
    key, previous, values, first_chain = starts
    together = on_accelerator() if placement.vectorised is None else placement.vectorised
    together |= placement.chain_devices > 1 and method.num_chains > 1
    width = method.num_chains if together else None
    context = captured_by_functions(method), jax.config.jax_default_device, on_accelerator()
    code = compile_sampler(sampler, compilation_signature(bound), width, placement, context)
    keys = np.asarray(_split(key, first_chain + method.num_chains))[first_chain:]
    code.make_ready(*(["start" if values is None else "start_at"] if previous is None else []))
    began, tracks = time.perf_counter(), []
    data = code.prepare(bound)
    for chain in range(1 if together else method.num_chains):
        state = None if previous is None else jax.tree.map(lambda leaf: leaf if together else leaf[chain], previous)  # noqa: B023
        track_key = keys if together else keys[chain]
        tracks.append(_ChainTrack(code, method, sampler, data, track_key, values, state, placement.processes))
    interrupted = _run_tracks(tracks, report, placement)
    draws, history, state = _gather_chains(tracks, together)
    if draws is None:
        raise KeyboardInterrupt("interrupted before the first draw")
    seconds = time.perf_counter() - began
    return Run(draws, history, state, code.take_seconds(), seconds, interrupted, code.whole(data, bound))


@partial(jax.jit, static_argnums=1, compiler_options=UNOPTIMISED_OPTIONS)
def _split(key: Array, number: int) -> Array:
    """So many keys: compiled without optimisation, which would take longer than all that it saves."""
    return jax.random.split(key, number)


def whole_chain(key: Array, method: Method, sampler: Sampler, bound: Bound) -> Draws:
    """The draws of one chain, as `drive` makes them, in one piece that can be mapped over data sets."""
    data = sampler.prepare(bound)

    def kept(state: State, steps: Array) -> tuple[State, Draws]:
        draw = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(advance, state)[1])
        return jax.lax.fori_loop(0, steps, lambda _, last: advance(last[0]), (state, draw))

    def advance(state: State) -> tuple[State, Draws]:
        state, draw = sampler.advance(state, data)
        return strongly_typed(state), draw

    state, warmup = strongly_typed(start_of_chain(sampler, key, data)), method.num_warmup
    if not sampler.warmup_draws:
        state = jax.lax.fori_loop(0, warmup, lambda _, state: strongly_typed(sampler.adapt(state, data)[0]), state)
        warmup = 0
    steps: Any = np.full(method.num_samples, method.thinning, np.int32)  # one loop for all: it is compiled once
    steps[0] += warmup
    return jax.lax.scan(kept, state, steps)[1]


@dataclass
class _ChainTrack:
    """One chain, or all chains at once. A thread takes turns between its tracks, a chunk each.

    values: initial values of sites. previous: the state of an earlier run. processes: those that take part.
    seconds: how long a step of the last chunk took; 0 where there was no chunk of this kind.
    checkpoints: (draws done, state) at the end of every chunk that a rewind may need.
    """

    code: SamplerExecutables
    method: Method
    sampler: Sampler
    data: Any
    key: np.ndarray
    values: Mapping[str, np.ndarray] | None
    previous: State | None
    processes: Processes = ONE_PROCESS
    done: int = 0
    seconds: float = 0.0
    history: list[Draws] = field(default_factory=list)
    parts: list[Draws] = field(default_factory=list)
    checkpoints: list[tuple[int, State]] = field(default_factory=list)
    progress_values: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.method.num_warmup + self.method.num_samples

    @property
    def draws_done(self) -> int:
        return self.checkpoints[-1][0] if self.checkpoints else 0

    def run(self, stop: Event, floor: Callable[[], int]) -> Iterator[None]:
        """Make steps, then draws, until all are made or `stop` is set. floor: gives the draws that all chains have."""
        warms_up = self.sampler.warmup_draws
        state = self._initial_state() if self.previous is None else self.previous
        if not (warms_up and self.previous is not None):
            state = yield from self._adapt(state, stop)
        if stop.is_set() and warms_up and self.previous is None and self.done < self.method.num_warmup:
            return
        self.done = self.method.num_warmup
        self.seconds = self.seconds if warms_up else 0.0
        self.checkpoints.append((0, state))
        for count in self._chunk_sizes(self.method.num_samples, stop if warms_up else Event()):
            state, draws = self._call(self.code.advance, count, self.method.thinning, state)
            self.parts.append(draws)
            self.done += count
            self.checkpoints.append((self.draws_done + count, state))
            draws_of_all = floor()
            while len(self.checkpoints) > 1 and self.checkpoints[1][0] <= draws_of_all:
                self.checkpoints.pop(0)
            self._record_progress(draws)
            yield

    def _initial_state(self) -> State:
        if self.values is not None:
            return self.code.start_at(self.key, self.data, self.values)
        if (trials := self.sampler.trials) is None:
            return self.code.start(self.key, self.data)

        def steps(state: State, count: int) -> tuple[State, Draws]:
            for size in self._parts(count):
                state, draws = self._call(self.code.advance, size, 1, state)
            return state, draws

        return best_of_trials(trials, lambda key: self.code.start(key, self.data), steps, self.key)

    def _adapt(self, state: State, stop: Event) -> Generator[None, None, State]:
        """Make the steps before the first draw, a chunk a turn; returns the state after them."""
        for count in self._chunk_sizes(self.method.num_warmup, stop):
            state, draws = self._call(self.code.adapt, count, 1, state)
            self.done += count
            self._record_progress(draws)
            if draws.history:
                self.history.append(draws)
                if np.all(draws.history.get("converged", np.zeros(1))[-1]):
                    break
            yield
        return state

    def rewound(self, draws: int) -> State:
        """The state after `draws` draws: from the last checkpoint before it, the steps are made again."""
        count, state = [checkpoint for checkpoint in self.checkpoints if checkpoint[0] <= draws][-1]
        for size in self._parts(draws - count):
            state, _ = self._call(self.code.advance, size, self.method.thinning, state)
        return state

    def _parts(self, count: int) -> list[int]:
        """A number of draws as those of several calls."""
        whole, rest = divmod(count, self.code.buffer)
        return [self.code.buffer] * whole + [rest] * (rest > 0)

    def _call(self, code: Callable, count: int, thinning: int, state: State) -> tuple[State, Draws]:
        """Run an executable for `count` draws: the state after them, and the draws in memory of the host."""
        began = time.perf_counter()
        state, kept = code(np.int32(count), np.int32(thinning), state, self.data)
        copied = 2 * count < self.code.buffer  # else little memory is held in vain
        draws = jax.tree.map(lambda leaf: np.array(leaf[:count]) if copied else leaf[:count], jax.device_get(kept))
        self.seconds = (time.perf_counter() - began) / count
        return state, draws

    def _chunk_sizes(self, number: int, stop: Event) -> Iterator[int]:
        """The sizes of chunks that make `number` steps together, each in about TARGET_SECONDS_PER_CHUNK."""
        left = number
        while left > 0 and not self._is_stopped(stop):
            count = self.code.first
            if self.seconds:
                count = int(np.clip(TARGET_SECONDS_PER_CHUNK / self.seconds, 1, self.code.buffer))
            count = self.processes.from_first(min(count, left))
            yield count
            left -= count

    def _is_stopped(self, stop: Event) -> bool:
        """Whether to stop here, which all processes do at once."""
        if self.processes.any(stop.is_set()):
            stop.set()
        return stop.is_set()

    def _record_progress(self, draws: Draws) -> None:
        """Keep what a progress bar shows of these draws."""
        for name, value in (draws.stats | draws.history).items():
            if name == "diverging" and self.parts:
                self.progress_values["divergences"] = self.progress_values.get("divergences", 0) + int(value.sum())
            if name in ("elbo", "log_joint") and (finite := value[np.isfinite(value)]).size:
                self.progress_values[name] = float(np.mean(finite[-20:]))


def _run_tracks(tracks: list[_ChainTrack], report: Callable | None, placement: Placement) -> bool:
    """Run all tracks to their end. Returns whether the keyboard interrupted them."""
    stop, interrupted = Event(), False
    double = bool(jax.config.jax_enable_x64)

    def floor() -> int:
        return min(track.draws_done for track in tracks)

    def run(thread_tracks: list[_ChainTrack]) -> None:
        with precision_scope(np.float64 if double else np.float32):  # the scope belongs to the thread
            turns = [track.run(stop, floor) for track in thread_tracks]
            while turns:
                turns = [turn for turn in turns if next(turn, turns) is not turns]

    cores = (os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()) or 1
    threads = min(len(tracks), cores) if placement.mesh is None else 1
    # threads of BLAS wait for each other where the cores have other work: tenfold the time of one chain
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        running: list[Future] = [pool.submit(run, tracks[first::threads]) for first in range(threads)]
        try:
            pending = set(running)
            while pending:
                finished, pending = wait(pending, None if report is None else 0.1, FIRST_EXCEPTION)
                if report is not None:
                    report(sum(t.done for t in tracks), sum(t.total for t in tracks), _combined_progress(tracks))
                if any(future.exception() for future in finished):
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
            interrupted = True
            wait(running)
        for future in running:
            future.result()
    return placement.processes.any(interrupted)


def _combined_progress(tracks: list[_ChainTrack]) -> dict[str, float]:
    """What a progress bar shows of all tracks: sums of divergences, largest values of others."""
    names = {name: None for track in tracks for name in list(track.progress_values)}
    combine = {"divergences": sum}
    return {name: combine.get(name, max)([t.progress_values.get(name, 0) for t in tracks]) for name in names}


def _gather_chains(tracks: list[_ChainTrack], together: bool) -> tuple[Draws | None, dict[str, np.ndarray], State]:
    """The draws, the history and the states of all chains, each cut to the draws that all of them have."""
    draws_done = min(track.draws_done for track in tracks)
    if draws_done == 0:
        return None, {}, None
    states = [track.rewound(draws_done) for track in tracks]
    parts = [_concatenated(track.parts, draws_done) for track in tracks]
    steps = [_concatenated(track.history, None) for track in tracks]
    if together:
        swap = lambda leaf: np.swapaxes(leaf, 0, 1)  # noqa: E731
        history = jax.tree.map(swap, steps[0].history) if steps[0] else {}
        return jax.tree.map(swap, parts[0]), history, jax.tree.map(np.asarray, states[0])
    draws = jax.tree.map(lambda *leaves: np.stack(leaves) if len(leaves) > 1 else leaves[0][None], *parts)
    state = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    return draws, _padded([_until_converged(step.history) if step else {} for step in steps]), state


def _concatenated(parts: list[Draws], length: int | None) -> Draws | None:
    """The draws of several chunks as one, cut to `length`; None where there are none."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:length], *parts) if parts else None


def _until_converged(history: Mapping[str, Array | np.ndarray]) -> dict[str, np.ndarray]:
    """The history up to the first step that says it has converged."""
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

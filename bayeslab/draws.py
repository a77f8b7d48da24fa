"""What passes between methods and the rest: a method plans, a sampler draws."""

from typing import Any, NamedTuple, Protocol

from jax import Array

from bayeslab.program import Bound

State = Any


class Draws(NamedTuple):
    """One draw has leaves (*site); the runner stacks draws and chains: (chain, draw, *site).

    stats: scalars by the names that ArviZ knows. `lp` is the log joint density of the draw; approximations add
    `log_q`, their own log density in the same space. `excess` is looked at and not kept: by how many nats an exact draw
    violates the identity of log joint, posterior and evidence, rounding apart; so is `carried`, a log likelihood.
    history: of one step of an optimiser, for example its `elbo`: scalars, or one for every start.
    """

    samples: dict[str, Array]
    stats: dict[str, Array] = {}
    history: dict[str, Array] = {}


class Sampler(Protocol):
    """One chain, as pure functions of a Bound.

    A sampler may also have `prepare(bound)`: what all chains share, computed once a fit. The other functions are then
    given its result in place of the Bound. `compiler_options`: for a CPU. `spreads`: a chain runs on many devices, so
    chains follow each other. `moments(state, bound)`: means and standard deviations (chain, *site) of sites that draws
    do not have. `conditionals(bound)`: the rules that draws rest on, which `bayeslab.watch` asks again at them.
    `started(key, bound, values)`: a state at values of probabilities, of the sites `needed`.
    `ended(state, bound, samples)`: in Python, None where an optimiser cannot tell; else the state of a maximum beside
    where it ended, None if it ended there, and why there is no maximum, nothing if there is. samples: of the draws that
    were made.
    `watched(bound, draws)`: raises where draws are not of the posterior, for samplers that rest on no conditional.
    Hashable, equal for equal plans, and holding nothing but what compiled code depends on: no data, no number
    of draws. States hold arrays only; random keys are raw.
    """

    def __hash__(self) -> int: ...

    def start(self, key: Array, bound: Any) -> State:
        """A state of finite density."""
        ...

    def adapt(self, state: State, bound: Any) -> tuple[State, Draws]:
        """One step before the first draw: of warm-up or of an optimiser.

        `history["converged"]`, where there is one, ends these steps early; from then on they change nothing.
        A sampler whose warm-up is drawing says `adapt = advance`, and is compiled once.
        """
        ...

    def advance(self, state: State, bound: Any) -> tuple[State, Draws]:
        """One draw."""
        ...


class Method(Protocol):
    """One way to draw from a posterior. Implementations are frozen dataclasses of settings.

    num_warmup: the largest number of steps before the first draw; for optimisers their iterations.
    """

    @property
    def num_warmup(self) -> int: ...

    @property
    def num_samples(self) -> int: ...

    @property
    def num_chains(self) -> int: ...

    @property
    def thinning(self) -> int: ...

    def plan(self, bound: Bound) -> Sampler:
        """Decide, on concrete values and in Python, how to draw. Raises ValueError where the method does not apply."""
        ...


def prepared(sampler: Sampler, bound: Bound) -> Any:
    """What the functions of a sampler are given for a Bound."""
    return sampler.prepare(bound) if hasattr(sampler, "prepare") else bound


def conditionals_of(sampler: Sampler, bound: Bound) -> tuple[Any, ...]:
    """The rules that the draws of a sampler rest on, each with the terms under which it holds."""
    return sampler.conditionals(bound) if hasattr(sampler, "conditionals") else ()


def ended(sampler: Sampler, state: State, data: Any, samples: dict[str, Any]) -> tuple[State | None, str] | None:
    """What a sampler says of the state that it ended in, None if it says nothing."""
    return sampler.ended(state, data, samples) if hasattr(sampler, "ended") else None


def draws_while_adapting(sampler: Sampler) -> bool:
    """Whether warm-up is drawing, as in a Markov chain, and not an optimisation that draws may follow."""

    def plain(function: Any) -> Any:
        return getattr(function, "__func__", function)

    return plain(sampler.adapt) is plain(sampler.advance)

"""What passes between methods and the rest: a method plans, a sampler draws."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jax import Array
from jax.sharding import Mesh

from bayeslab.programs.program import Bound, Program, Values
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.sufficient_statistics.representative_rows import RepresentativeRows
from bayeslab.transforms.sufficient_statistics.tables import Groups

State = Any


class Draws(NamedTuple):
    """One draw has leaves (*site); the runner stacks draws and chains: (chain, draw, *site).

    stats: scalars by the names that ArviZ knows. `lp` is the log joint density of the draw; approximations add
    `log_q`, their own log density in the same space. Two are checked and not kept: `excess`, by how many nats an exact
    draw violates the identity of log joint, posterior and evidence, rounding apart, and `carried`, a log likelihood.
    history: values of one step of an optimiser, for example its `elbo`: scalars, or one for every start.
    """

    samples: dict[str, Array]
    stats: dict[str, Array] = {}
    history: dict[str, Array] = {}


class TrialChains(NamedTuple):
    """Short chains that the start of a chain is chosen from: how many, and their steps."""

    number: int
    steps: int


class Sampler:
    """One chain, as pure functions of a Bound. All members have defaults but `start`, `advance` and, for optimisers,
    `adapt`.

    Hashable, equal for equal plans, and holding nothing but what compiled code depends on: no data, no number
    of draws. States hold arrays only; random keys are raw.
    """

    @property
    def warmup_draws(self) -> bool:
        """Whether a step of warm-up is a draw, as in a Markov chain, and not a step of an optimiser that draws follow.

        `adapt` is then `advance`, and is compiled once.
        """
        return False

    @property
    def independent(self) -> bool:
        """Whether draws are independent: they are made by `batch`, and the state counts them in its field `made`."""
        return False

    @property
    def continues(self) -> bool:
        """Whether more draws can follow those of a result: a population of particles is whole, and is drawn anew."""
        return True

    @property
    def prepares(self) -> bool:
        """Whether `prepare` computes something."""
        return False

    @property
    def num_starts(self) -> int:
        """The number of starts of an optimiser that run together."""
        return 1

    @property
    def trials(self) -> TrialChains | None:
        """Short chains from `start`, at the end of the best of which a chain begins; None where it begins there."""
        return None

    @property
    def mesh(self) -> Mesh | None:
        """The mesh over which the sampler itself spreads what `prepare` returns; None where it does not."""
        return None

    @property
    def data_partition(self) -> Any:
        """How what `prepare` returns is split over the devices of a mesh: a prefix of that pytree with partitions. None
        where its arrays are split along axes that are as long as a plate."""
        return None

    @property
    def statistics(self) -> Groups | tuple[RepresentativeRows]:
        """Terms of the log joint that tables of sufficient statistics replace, or rows that represent all others."""
        return ()

    @property
    def compiler_options(self) -> tuple[tuple[str, Any], ...]:
        """Options of XLA on a CPU, as pairs (name, value)."""
        return ()

    @property
    def start_sites(self) -> tuple[str, ...]:
        """The sites whose values `start_at` takes; empty where a sampler finds its own start."""
        return ()

    def prepare(self, bound: Bound) -> Any:
        """What all chains share, computed once a fit; the other functions are given it in place of the Bound."""
        return bound

    def start(self, key: Array, data: Any) -> State:
        """The first state of a chain, at a point of finite density."""
        raise NotImplementedError

    def start_at(self, key: Array, data: Any, values: Values) -> State:
        """The first state of a chain, at values of `start_sites`."""
        raise NotImplementedError

    def adapt(self, state: State, data: Any) -> tuple[State, Draws]:
        """The state after one step of warm-up or of an optimiser, which come before the first draw.

        `history["converged"]`, where there is one, ends these steps early; from then on they change nothing.
        """
        return self.advance(state, data)

    def advance(self, state: State, data: Any) -> tuple[State, Draws]:
        """The state after one draw, and the draw."""
        raise NotImplementedError

    def batch(self, state: State, data: Any, index: Array, size: int) -> Draws:
        """Batch number `index` of `size` independent draws: leaves (draw, *site)."""
        raise NotImplementedError

    def moments(self, state: State, bound: Bound) -> dict[str, tuple[Any, Any]]:
        """Means and standard deviations (chain, *site) of sites that draws leave out. state: that of all chains."""
        return {}

    def run_summary(self, state: State, data: Any) -> dict[str, float]:
        """Numbers about the whole run for the attributes of its result, such as an estimate of the log evidence.

        state: that of all chains, after the last draw.
        """
        return {}

    def weighted_draws(self, state: State, data: Any) -> dict[str, Any]:
        """Draws (chain, draw, *site) with unequal weights that the draws of the posterior were resampled from, and
        their `log_weight` (chain, draw), which sum to one on every chain; empty where there are none."""
        return {}

    def conditionals(self, bound: Bound) -> tuple[Any, ...]:
        """The rules that draws rest on, each with the terms under which it holds.

        `bayeslab.transforms.draw_checks` asks them again at draws.
        """
        return ()

    def convergence_verdict(self, state: State, data: Any, samples: dict[str, Any]) -> tuple[State | None, str] | None:
        """Whether the state that an optimiser ended in is a maximum, found in Python; None where it cannot tell.

        Otherwise (state, reason). state: that of a maximum beside the end, None if the end is the maximum. reason: why
        there is no maximum, an empty text if there is one. samples: the samples of the draws that were made.
        """
        return None

    def check_draws(self, bound: Bound, draws: Draws) -> None:
        """Raise where draws are not of the posterior, for samplers that rest on no conditional."""

    def form_of_conditionals(self, bound: Bound, samples: dict[str, Any]) -> tuple[Bound, dict[str, Any]]:
        """The form of the program that `conditionals` are of, and draws (chain, draw, *site) as it has them."""
        return bound, samples


@dataclass(frozen=True)
class SamplerWrapper(Sampler):
    """A sampler around another one, `inner`, to which it leaves every member that it does not define."""

    inner: Sampler

    @property
    def warmup_draws(self) -> bool:
        return self.inner.warmup_draws

    @property
    def continues(self) -> bool:
        return self.inner.continues

    @property
    def prepares(self) -> bool:
        return self.inner.prepares

    @property
    def statistics(self) -> Groups | tuple[RepresentativeRows]:
        return self.inner.statistics

    @property
    def num_starts(self) -> int:
        return self.inner.num_starts

    @property
    def trials(self) -> TrialChains | None:
        return self.inner.trials

    @property
    def mesh(self) -> Mesh | None:
        return self.inner.mesh

    @property
    def data_partition(self) -> Any:
        return self.inner.data_partition

    @property
    def compiler_options(self) -> tuple[tuple[str, Any], ...]:
        return self.inner.compiler_options

    def prepare(self, bound: Bound) -> Any:
        return self.inner.prepare(bound)

    def start(self, key: Array, data: Any) -> State:
        return self.inner.start(key, data)

    def adapt(self, state: State, data: Any) -> tuple[State, Draws]:
        return self.inner.adapt(state, data)

    def advance(self, state: State, data: Any) -> tuple[State, Draws]:
        return self.inner.advance(state, data)

    def moments(self, state: State, bound: Bound) -> dict[str, tuple[Any, Any]]:
        return self.inner.moments(state, bound)

    def run_summary(self, state: State, data: Any) -> dict[str, float]:
        return self.inner.run_summary(state, data)

    def weighted_draws(self, state: State, data: Any) -> dict[str, Any]:
        return self.inner.weighted_draws(state, data)

    def conditionals(self, bound: Bound) -> tuple[Any, ...]:
        return self.inner.conditionals(bound)

    def convergence_verdict(self, state: State, data: Any, samples: dict[str, Any]) -> tuple[State | None, str] | None:
        return self.inner.convergence_verdict(state, data, samples)

    def check_draws(self, bound: Bound, draws: Draws) -> None:
        self.inner.check_draws(bound, draws)

    def form_of_conditionals(self, bound: Bound, samples: dict[str, Any]) -> tuple[Bound, dict[str, Any]]:
        return self.inner.form_of_conditionals(bound, samples)


@runtime_checkable
class Method(Protocol):
    """One way to draw from a posterior. Implementations are frozen dataclasses of settings that inherit from it, for
    all members have defaults but four numbers and `plan`.

    num_warmup: the largest number of steps before the first draw; for optimisers their iterations.
    learns: whether it takes programs with a numpyro.param, which has no prior to draw from.
    finds_maximum: whether it looks for a maximum, and says itself that there is none.
    """

    learns: ClassVar[bool] = False
    finds_maximum: ClassVar[bool] = False

    if TYPE_CHECKING:  # a dataclass would take a property for the default of its field

        @property
        def num_warmup(self) -> int: ...

        @property
        def num_samples(self) -> int: ...

        @property
        def num_chains(self) -> int: ...

        @property
        def thinning(self) -> int: ...

    @property
    def num_starts(self) -> int:
        """The number of starts of an optimiser."""
        return 1

    @property
    def moves_coordinates(self) -> bool:
        """Whether it moves unconstrained coordinates, so that missing elements of a site are a site of its own."""
        return False

    @property
    def collapse(self) -> tuple[str, ...]:
        """The continuous sites that are integrated out."""
        return ()

    def program_of(self, model: Program) -> Program:
        """The program that `fit` binds to the data: that of the user."""
        return model

    def plan(self, analysis: Analysis) -> Sampler:
        """Decide, on concrete values and in Python, how to draw. Raises ValueError where the method does not apply."""
        ...


def require_method(method: object) -> None:
    """Raises TypeError for what is no method, and for the class of one."""
    if isinstance(method, type) or not isinstance(method, Method):
        raise TypeError(f"method must be a method such as NUTS() or SVI(), not {method!r}")

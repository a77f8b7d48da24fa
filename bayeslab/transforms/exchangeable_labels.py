"""Whether labels may be exchanged: whether a program says the same when two are renamed, with what belongs to them.

The posterior of such a program has a mode for every order of the components (label switching; Stephens 2000, Dealing
with label switching in mixture models). It has not where the components have priors of their own, or zeros in other
places, as the rows of a table of misclassification.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import prod
from typing import Any

import jax
import numpy as np
from jax import Array

from bayeslab.elimination.discrete.mixture_components import component_sites_of_data
from bayeslab.elimination.terms import Prior, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import choice_points, generic_points

RELATIVE_ERROR = 1e-9
"""How much a density may change when labels are exchanged, relative to its size, in double precision."""
MAX_EXCHANGES = 256
"""Ways to exchange two labels, at most: of more, one may leave the program as it is."""
MAX_POINTS_OF_CHOICES = 8
"""Points with other choices of labels, at most, beside two generic ones."""
MAX_NATS_OF_AN_EXCHANGE = 20.0
"""How much an exchange of labels may change the log joint, so that a chain may accept it now and then."""

HostValues = dict[str, np.ndarray]
"""Values of the latent sites, on the host."""
Move = Callable[[Any], Any]
"""The value of a site, from that before two labels were exchanged; hashable, and equal for equal moves."""


def _unmoved(value: Any) -> Any:
    return value


def _negative(value: Any) -> Any:
    return -value


def _complement(value: Any) -> Any:
    return 1 - value


_REFLECTIONS: dict[str, Move] = {
    "real": _negative,
    "unit interval": _complement,
    "interval": _complement,
    "open interval": _complement,
}


@dataclass(frozen=True)
class Renamed:
    """Exchanges two labels among the values of a discrete site."""

    pair: tuple[int, int]

    def __call__(self, value: np.ndarray) -> np.ndarray:
        first, second = self.pair
        return np.where(value == first, second, np.where(value == second, first, value)).astype(value.dtype)


@dataclass(frozen=True)
class Reordered:
    """Exchanges two elements along each of some axes of an array."""

    axes: tuple[int, ...]
    pair: tuple[int, int]

    def __call__(self, value: Any) -> Any:
        for axis in self.axes:
            order = np.arange(value.shape[axis])
            order[list(self.pair)] = self.pair[::-1]
            value = value[(slice(None),) * axis + (order,)]
        return value


@dataclass(frozen=True)
class Exchange:
    """What happens to the sites where two labels are exchanged; doing it twice changes nothing, and no volume changes.

    moves: of sites by themselves, by name; pairs of sites in `swaps` take each other's values afterwards.
    """

    moves: tuple[tuple[str, Move], ...]
    swaps: tuple[tuple[str, str], ...]

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        moved = dict(values)
        for name, move in self.moves:
            moved[name] = move(values[name])
        for first, second in self.swaps:
            moved[first], moved[second] = moved[second], moved[first]
        return moved

    def without(self, names: Collection[str]) -> "Exchange":
        """What happens to other sites than these."""
        swaps = tuple(pair for pair in self.swaps if not set(pair) & set(names))
        return Exchange(tuple((name, move) for name, move in self.moves if name not in names), swaps)


def may_exchange_labels(bound: Bound) -> bool:
    """Whether two labels can be exchanged without a change of the log joint, as far as can be told.

    With the labels of one discrete site or of several, elements of continuous sites change places along axes of as
    many elements as there are labels, sites with priors of one kind are exchanged with each other, and what the
    probability of one of two labels depends on is reflected: p becomes 1 - p, a logit its negative. All these ways are
    tried together, at values that have nothing to do with the data, and at others. A way that changes the densities of
    the program at one of them is refuted. Where labels are not 0, 1, ... or ways are too many, they may be exchanged;
    so may they where rows of data take what is computed from single elements, as `stack([a, a + b])[z]`, because a
    change of coordinates can exchange it.
    """
    if not component_sites_of_data(bound):
        return True
    priors = terms(bound).priors
    counts = {prior.num_labels for prior in priors.values() if prior.discrete}
    if None in counts or any(_num_ways(priors, count) > MAX_EXCHANGES for count in counts if count is not None):
        return True
    with jax.enable_x64(True):
        points = _host_points(bound)
        known = [count for count in counts if count is not None]
        return any(_is_kept(exchanges, points) for count in known for exchanges in _by_pair(priors, count))


def nearly_exchangeable_labels(bound: Bound) -> tuple[Exchange, ...]:
    """For every pair of labels the exchange that changes the log joint least, but changes it.

    It leaves the densities of the data as they are, in another order perhaps, and changes those of priors: as that of
    the first step of a hidden Markov model that starts in a known state. The posterior has a mode for every order of
    such components, but not all are equally likely. Empty where no discrete site selects among components of data, and
    where two labels can be exchanged without a change: chains that exchange labels would mix up those two.
    """
    if not component_sites_of_data(bound) or bound.moving:
        return ()
    traced = terms(bound)
    counts = {prior.num_labels for prior in traced.priors.values() if prior.discrete}
    known = {count for count in counts if count is not None}
    if known != counts or any(_num_ways(traced.priors, count) > MAX_EXCHANGES for count in known):
        return ()
    found = []
    with jax.enable_x64(True):
        points = _host_points(bound)
        for exchanges in (exchanges for count in known for exchanges in _by_pair(traced.priors, count)):
            changes = _changes(exchanges, points, [term.name in traced.priors for term in traced.terms])
            least = int(np.argmin(changes))
            if changes[least] == 0:
                return ()
            if changes[least] <= MAX_NATS_OF_AN_EXCHANGE:
                found.append(exchanges[least])
    return tuple(found)


def _host_points(bound: Bound) -> list[tuple[Bound, HostValues]]:
    """Points at which exchanges are tried: some that have nothing to do with the data, and some with other labels."""
    wide = in_double_precision(bound)
    points = [*generic_points(wide), *choice_points(wide)[:MAX_POINTS_OF_CHOICES]]
    return [(point, {name: np.asarray(value) for name, value in values.items()}) for point, values in points]


def _by_pair(priors: dict[str, Prior], count: int) -> Iterator[list[Exchange]]:
    """For every pair of so many labels all ways to exchange them."""
    for pair in combinations(range(count), 2):
        yield list(_exchanges(priors, count, pair))


def _is_kept(exchanges: list[Exchange], points: list[tuple[Bound, HostValues]]) -> bool:
    """Whether one of some exchanges leaves the densities at all points as they are, in another order perhaps."""
    left = np.ones(len(exchanges), bool)
    for bound, values in points:
        left &= _same_rows(np.concatenate(_densities(bound, _stacked(exchanges, values)), axis=1))
        if not left.any():
            return False
    return True


def _changes(exchanges: list[Exchange], points: list[tuple[Bound, HostValues]], is_prior: list[bool]) -> np.ndarray:
    """How much each exchange changes the log joint, at the point where that is most; infinite where it changes the
    densities of the data.

    is_prior: whether each term of the log joint is the prior of a latent site.
    """
    largest = np.zeros(len(exchanges))
    for bound, values in points:
        densities = _densities(bound, _stacked(exchanges, values))
        of_data = [rows for rows, prior in zip(densities, is_prior, strict=True) if not prior]
        total = np.concatenate(densities, axis=1).sum(1)
        with np.errstate(invalid="ignore"):
            change = np.nan_to_num(abs(total[1:] - total[0]), nan=np.inf)
        change = np.where(change <= RELATIVE_ERROR * (1 + abs(total[0])), 0.0, change)
        largest = np.maximum(largest, np.where(_same_rows(np.concatenate(of_data, axis=1)), change, np.inf))
    return largest


def _same_rows(rows: np.ndarray) -> np.ndarray:
    """Whether each row after the first has the same numbers as that, in another order perhaps."""
    kept, *others = np.sort(rows, axis=1)
    return np.array([np.allclose(other, kept, rtol=RELATIVE_ERROR, atol=RELATIVE_ERROR) for other in others], bool)


def _stacked(exchanges: list[Exchange], values: HostValues) -> HostValues:
    """Values (1 + exchange, *site): as they are, and after each exchange."""
    moved = [values, *(exchange(values) for exchange in exchanges)]
    return {name: np.stack([each[name] for each in moved]) for name in values}


def _densities(bound: Bound, values: HostValues) -> list[np.ndarray]:
    """The densities (exchange, element) of every term, at values (exchange, *site)."""
    return jax.device_get(_traced_densities(bound, values))


@partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)
def _traced_densities(bound: Bound, values: Values) -> list[Array]:
    return jax.vmap(lambda values: [term.density(bound, values).ravel() for term in terms(bound).terms])(values)


def _num_ways(priors: dict[str, Prior], num_labels: int) -> int:
    """How many ways there are to exchange two of some number of labels."""
    own = prod(len(_own_moves(prior, priors, num_labels, (0, 1))) for prior in priors.values())
    return own * prod(1 + len(names) * (len(names) - 1) // 2 for names in _alike(priors))


def _exchanges(priors: dict[str, Prior], num_labels: int, pair: tuple[int, int]) -> Iterator[Exchange]:
    """All ways to exchange a pair of labels in at least one of the discrete sites that have this number of them."""
    moves = [_own_moves(prior, priors, num_labels, pair) for prior in priors.values()]
    swaps: list[list[tuple[str, ...]]] = [[(), *combinations(names, 2)] for names in _alike(priors)]
    labels = [place for place, prior in enumerate(priors.values()) if prior.discrete]
    for chosen in product(*moves):
        if all(chosen[place] is _unmoved for place in labels):
            continue
        own = tuple((name, move) for name, move in zip(priors, chosen, strict=True) if move is not _unmoved)
        for swapped in product(*swaps):
            yield Exchange(own, tuple((names[0], names[1]) for names in swapped if names))


def _alike(priors: dict[str, Prior]) -> list[list[str]]:
    """Continuous sites whose priors are of one kind and shape, two at least."""
    groups: dict[tuple, list[str]] = {}
    for name, prior in priors.items():
        if not prior.discrete:
            groups.setdefault((prior.kind, prior.shape), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _own_moves(prior: Prior, priors: dict[str, Prior], num_labels: int, pair: tuple[int, int]) -> list[Move]:
    """What the exchange of a pair of labels may do to a site by itself; first, nothing."""
    if prior.discrete:
        return [_unmoved, Renamed(pair)] if prior.num_labels == num_labels else [_unmoved]
    axes = [axis for axis, size in enumerate(prior.shape) if size == num_labels]
    chosen = [some for count in range(1, len(axes) + 1) for some in combinations(axes, count)]
    moves: list[Move] = [_unmoved, *(Reordered(some, pair) for some in chosen)]
    if num_labels == 2 and any(other.discrete and prior.name in other.depends for other in priors.values()):
        moves += [_REFLECTIONS[prior.support]] if prior.support in _REFLECTIONS else []
    return moves

"""Whether labels may be exchanged: whether a program says the same when two are renamed, with what belongs to them.

The posterior of such a program has a mode for every order of the components (label switching; Stephens 2000, Dealing
with label switching in mixture models). It has not where the components have priors of their own, or zeros in other
places, as the rows of a table of misclassification.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from math import prod

import jax
import jax.numpy as jnp
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

HostValues = dict[str, np.ndarray]
"""Values of the latent sites, on the host."""
Move = Callable[[np.ndarray], np.ndarray]
"""The value of a site, from that before two labels were exchanged."""
Exchange = Callable[[HostValues], HostValues]
"""Values of all latent sites, from those before two labels were exchanged."""


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
        wide = in_double_precision(bound)
        points = [*generic_points(wide), *choice_points(wide)[:MAX_POINTS_OF_CHOICES]]
        host_points = [(point, {name: np.asarray(value) for name, value in values.items()}) for point, values in points]
        return any(
            _is_kept(list(_exchanges(priors, count, pair)), host_points)
            for count in counts
            if count is not None
            for pair in combinations(range(count), 2)
        )


def _is_kept(exchanges: list[Exchange], points: list[tuple[Bound, HostValues]]) -> bool:
    """Whether one of some exchanges leaves the densities at all points as they are, in another order perhaps."""
    left = np.ones(len(exchanges), bool)
    for bound, values in points:
        moved = [values, *(exchange(values) for exchange in exchanges)]
        stacked = {name: np.stack([each[name] for each in moved]) for name in values}
        kept, *others = np.sort(_densities(bound, stacked), axis=1)
        left &= [np.allclose(other, kept, rtol=RELATIVE_ERROR, atol=RELATIVE_ERROR) for other in others]
        if not left.any():
            return False
    return True


@partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)
def _densities(bound: Bound, values: Values) -> Array:
    """The densities (exchange, element) of all sites, at values (exchange, *site)."""

    def at(values: Values) -> Array:
        return jnp.concatenate([term.density(bound, values).ravel() for term in terms(bound).terms])

    return jax.vmap(at)(values)


def _num_ways(priors: dict[str, Prior], num_labels: int) -> int:
    """How many ways there are to exchange two of some number of labels."""
    own = prod(len(_own_moves(prior, priors, num_labels, (0, 1))) for prior in priors.values())
    return own * prod(1 + len(names) * (len(names) - 1) // 2 for names in _alike(priors))


def _exchanges(priors: dict[str, Prior], num_labels: int, pair: tuple[int, int]) -> Iterator[Exchange]:
    """All ways to exchange a pair of labels in at least one of the discrete sites that have this number of them."""
    moves = [_own_moves(prior, priors, num_labels, pair) for prior in priors.values()]
    swaps = [[(), *combinations(names, 2)] for names in _alike(priors)]
    labels = [place for place, prior in enumerate(priors.values()) if prior.discrete]
    for chosen in product(*moves):
        if all(chosen[place] is _unmoved for place in labels):
            continue
        own = dict(zip(priors, chosen, strict=True))
        for swapped in product(*swaps):
            yield partial(_exchanged, own, [names for names in swapped if names])


def _exchanged(own: dict[str, Move], swapped: list[tuple[str, ...]], values: HostValues) -> HostValues:
    """Values after each site was moved by itself, and then some pairs of sites have taken each other's."""
    moved = {name: own[name](value) for name, value in values.items()}
    for first, second in swapped:
        moved[first], moved[second] = moved[second], moved[first]
    return moved


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
        return [_unmoved, partial(_renamed, pair)] if prior.num_labels == num_labels else [_unmoved]
    axes = [axis for axis, size in enumerate(prior.shape) if size == num_labels]
    chosen = [some for count in range(1, len(axes) + 1) for some in combinations(axes, count)]
    moves: list[Move] = [_unmoved, *(partial(_reordered, some, pair) for some in chosen)]
    if num_labels == 2 and any(other.discrete and prior.name in other.depends for other in priors.values()):
        moves += [_REFLECTIONS[prior.support]] if prior.support in _REFLECTIONS else []
    return moves


def _unmoved(value: np.ndarray) -> np.ndarray:
    return value


def _renamed(pair: tuple[int, int], value: np.ndarray) -> np.ndarray:
    """Labels, after two were exchanged."""
    first, second = pair
    return np.where(value == first, second, np.where(value == second, first, value)).astype(value.dtype)


def _reordered(axes: tuple[int, ...], pair: tuple[int, int], value: np.ndarray) -> np.ndarray:
    """An array, after two elements along each of some axes were exchanged."""
    for axis in axes:
        order = np.arange(value.shape[axis])
        order[list(pair)] = pair[::-1]
        value = np.take(value, order, axis=axis)
    return value


def _complement(value: np.ndarray) -> np.ndarray:
    return 1 - value


_REFLECTIONS: dict[str, Move] = {
    "real": np.negative,
    "unit interval": _complement,
    "interval": _complement,
    "open interval": _complement,
}

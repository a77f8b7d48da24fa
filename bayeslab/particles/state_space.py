"""The parts of a state-space model: which sites are states, which start them, which are parameters of every step.

All is read off traces of the program on shapes, so nothing is computed.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.handlers import block
from numpyro.ops.provenance import eval_provenance

from bayeslab.particles.scans import (
    Guide,
    OpenScan,
    StepInputs,
    StepKeys,
    drawn_values,
    log_densities,
    open_scan,
    propose,
    weigh,
)
from bayeslab.programs.program import Bound, Values, abstract_bound, compilation_signature
from bayeslab.programs.validation import listed_sites

BOUND, CARRY = "/bound", "/carry"
"""Names of sources that no site has."""


class StateSpace(NamedTuple):
    """The latent sites of a state-space model.

    states: drawn in every step of the scan, (step, *site). initial: drawn before the scan, and met by its start alone.
    initial_observed: sites before the scan, observed or factors, whose density depends on `initial`.
    parameters: the other latent sites before the scan, which every step may read.
    memory: after how many steps nothing random that was carried is left but through the states drawn since; None where
    something of all steps before is carried on for good.
    """

    states: tuple[str, ...]
    initial: tuple[str, ...]
    initial_observed: tuple[str, ...]
    parameters: tuple[str, ...]
    memory: int | None

    @property
    def path(self) -> tuple[str, ...]:
        """The sites that particles have values of."""
        return (*self.initial, *self.states)


def state_space(bound: Bound) -> StateSpace:
    """The parts of a program with a scan.

    Raises ValueError where the program has no scan, or one that particles cannot follow, with the reason.
    """
    if bound.transform is not None:
        raise ValueError("particles follow a program as it is written; give the program without sites integrated out")
    return _state_space(compilation_signature(bound))


def require_known_parameters(space: StateSpace) -> None:
    """Raises ValueError for parameters of the steps that the data give no value."""
    if space.parameters:
        noun = "is a parameter" if len(space.parameters) == 1 else "are parameters"
        raise ValueError(
            f"{listed_sites(space.parameters)} {noun} of the steps; give values in the data, or draw them with "
            "ParticleGibbs() or ParticleMarginalMetropolisHastings()"
        )


def require_memory(space: StateSpace) -> None:
    """Raises ValueError where something of all steps before is carried on, so that no particle can be told by a few
    steps that follow it."""
    if space.memory is None:
        raise ValueError(
            "the scan carries something of all states so far, such as a sum, so how well a path goes on from another "
            "particle depends on all steps to the end; carry only the last states, each as an array of its own"
        )


def require_guide(bound: Bound, guide: Guide) -> None:
    """Raises ValueError where a guide does not draw the latent sites of a step, in their shapes."""

    def draw(bound: Bound, guide: Guide | None) -> Values:
        scan, inputs = _first_step(bound, {})
        return propose(StepKeys.of(jax.random.PRNGKey(0)), bound, scan, scan.start, inputs, guide)

    right, given = (
        {name: value.shape for name, value in jax.eval_shape(lambda bound: draw(bound, each), bound).items()}  # noqa: B023
        for each in (None, guide)
    )
    if right != given:
        raise ValueError(f"guide draws sites of the shapes {given}, but those of one step of the scan are {right}")


@lru_cache(maxsize=64)
def _state_space(shapes: tuple) -> StateSpace:
    with jax.enable_x64(shapes[0]), block():
        bound = abstract_bound(shapes)
        before, states = _latent_sites(bound)
        carried, scores = _step_sources(bound, before, states)
        started, densities = _start_sources(bound, before)
    step_needs = frozenset[str]().union(*carried, *scores)
    start_needs = frozenset[str]().union(*started)
    initial = tuple(name for name in before if name in start_needs and name not in step_needs)
    parameters = tuple(name for name in before if name not in initial)
    reached = {name: mixed for name, sources in densities.items() if (mixed := sources & {*initial})}
    for name in parameters:
        if name in reached:
            raise ValueError(
                f"the density of site '{name}' depends on {listed_sites(sorted(reached[name]))}, which the scan starts "
                "from; particles need latent sites before the scan that do not"
            )
    initial_observed = tuple(name for name in reached if name not in before)
    random = [bool(sources & {*initial}) for sources in started]
    return StateSpace(states, initial, initial_observed, parameters, _memory(random, carried, {*states}))


def _latent_sites(bound: Bound) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The latent sites before the scan and those in it. Raises ValueError where particles cannot follow the scan."""
    before, states = jax.eval_shape(_first_values, bound)
    if not states:
        raise ValueError("the scan of the program draws no latent site, so there is no state for particles to follow")
    if later := [name for name in bound.latent if name not in (*before, *states)]:
        raise ValueError(f"{listed_sites(later)} comes after the scan; draw what does not depend on it before the scan")
    return tuple(before), tuple(states)


def _first_values(bound: Bound) -> tuple[Values, Values]:
    """Values of the latent sites before the scan, and of those in its first step."""
    scan, inputs = _first_step(bound, {})
    if scan.backwards:
        raise ValueError("the scan of the program runs backwards in time; write it from the first step to the last")
    states = propose(StepKeys.of(jax.random.PRNGKey(0)), bound, scan, scan.start, inputs, None)
    seen = {*scan.sites, *weigh(bound, scan, scan.start, inputs, states).sites}
    if later := [n for n, site in bound.sites.items() if site.role in ("observed", "factor") and n not in seen]:
        raise ValueError(f"{listed_sites(later)} comes after the scan; observe it in the body of the scan, or before")
    return drawn_values(scan.sites), states


def _first_step(bound: Bound, values: Values) -> tuple[OpenScan, StepInputs]:
    """The program up to its scan, and what its first step is given. values: of latent sites before the scan."""
    scan = open_scan(jax.random.PRNGKey(0), bound, values)
    return scan, jax.tree.map(lambda leaf: leaf[0], scan.steps)


def _step_sources(
    bound: Bound, before: tuple[str, ...], states: tuple[str, ...]
) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """The sources of every array that a step carries on, and of its log densities: sites, and numbered arrays that it
    was given."""

    def shapes(bound: Bound) -> tuple[Any, Values, Values]:
        scan, inputs = _first_step(bound, {})
        carry = jax.tree.map(jnp.asarray, scan.start)
        return (
            carry,
            drawn_values(scan.sites),
            propose(StepKeys.of(jax.random.PRNGKey(0)), bound, scan, carry, inputs, None),
        )

    carry, outer, inner = jax.eval_shape(shapes, bound)
    leaves, tree = jax.tree.flatten(carry)

    def step(**sources: Any) -> tuple[list[Any], list[Any]]:
        bound = sources[BOUND]
        scan, inputs = _first_step(bound, {name: sources[name] for name in before})
        carry = jax.tree.unflatten(tree, [sources[f"{CARRY}{number}"] for number in range(len(leaves))])
        weighed = weigh(bound, scan, carry, inputs, {name: sources[name] for name in states})
        return jax.tree.leaves(weighed.carry), [weighed.log_prior, weighed.log_likelihood]

    numbered = {f"{CARRY}{number}": leaf for number, leaf in enumerate(leaves)}
    return eval_provenance(step, **{BOUND: bound}, **numbered, **outer, **inner)


def _start_sources(bound: Bound, before: tuple[str, ...]) -> tuple[list[frozenset[str]], dict[str, frozenset[str]]]:
    """The sources of every array that the scan starts with, and of the log density of every site before it."""
    outer = jax.eval_shape(lambda bound: _first_values(bound)[0], bound)

    def start(**sources: Any) -> tuple[list[Any], Values]:
        values = {name: sources[name] for name in before}
        scan = open_scan(jax.random.PRNGKey(0), sources[BOUND], values)
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(scan.start)], log_densities(scan)

    return eval_provenance(start, **{BOUND: bound}, **outer)


def _memory(random: list[bool], carried: list[frozenset[str]], states: set[str]) -> int | None:
    """See `StateSpace.memory`. random: which arrays the scan starts with are random. carried: see `_step_sources`."""
    places = range(len(carried))
    sources = [{place for place in places if f"{CARRY}{place}" in carried[place_after]} for place_after in places]
    random = list(random)
    for _ in places:
        random = [
            random[place] or bool(carried[place] & states) or any(random[other] for other in sources[place])
            for place in places
        ]
    alive = {place for place in places if random[place]}
    for steps in range(1, len(carried) + 2):
        alive = {place for place in places if random[place] and sources[place] & alive}
        if not alive:
            return steps
    return None

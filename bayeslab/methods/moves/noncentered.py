"""NUTS in coordinates in which priors with unknown scales are partly standard: the program stays as it is.

Of a Normal effect x with prior mean m and scale s, few data leave the funnel of x and s, many a narrow ridge of x - m.
In z = (x - m) / s^(1 - c) + c m both are gone where c is the share of the data in the precision of x, so that is taken
for every element: 0 is the standard, non-centered coordinate, 1 that of the program (Papaspiliopoulos, Roberts and
Skoeld 2003; Gorinova, Moore and Hoffman 2020).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import reparam
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import potential_energy

from bayeslab.elimination.terms import terms
from bayeslab.methods.moves.coordinates import SCALED_PRIORS, SUFFIX, PartlyStandard, coordinate
from bayeslab.methods.moves.initial_positions import ascend
from bayeslab.programs.program import Bound, Values, evaluate
from bayeslab.programs.unconstrained import constrain_sites, log_posterior, unconstrained_shapes
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.sampling.protocols import Draws, Sampler, State

NATS_OF_LOWER_END = 2.0
"""Nats below its largest likelihood at which a scale has its lower end: two standard deviations."""
MIN_RATIO = 1e-8
"""Smallest ratio of the precision of the data to that of the prior, in place of zero."""
WEAK_SUPPORT, STRONG_SUPPORT = 3.0, 10.0
"""Nats by which the data prefer the scale of the start to one of zero. Up to the first, coordinates are standard; from
the second on they are those of the share of the data."""
NUM_ASCENTS = 3
"""Ascents, the same for all chains, whose ends choose the coordinates."""
MIN_GAIN_NATS = 0.05
"""Nats that the ascent must gain to go on to where coordinates are chosen: standard ones have a maximum to go to.
Chains start on the way: where effects multiply each other, the maximum has scales far above those of the posterior."""
MAX_STEPS = 500
"""Steps of that ascent, at most."""


def noncentered_sites(bound: Bound) -> tuple[str, ...]:
    """The latent sites whose prior has a scale that depends on other latent sites. Those in scans are left out, whose
    bodies NumPyro's handlers of coordinates do not reach, and those that are given in part: they are drawn without the
    plates that new coordinates would be repeated in, and what is given tells of their scale."""
    if bound.moving:
        return ()
    priors = {name: terms(bound.plain).priors[name] for name in bound.latent}
    return tuple(
        name
        for name, prior in priors.items()
        if prior.kind in SCALED_PRIORS
        and prior.scale_depends
        and prior.depends <= priors.keys()
        and not bound.sites[name].scanned
        and name not in bound.imputed
    )


class NoncenteredState(NamedTuple):
    """The state of a chain. kernel: that of NUTS. centering: of every site, an array of its shape between 0 and 1."""

    kernel: State
    centering: dict[str, Array]


class AscentEnd(NamedTuple):
    """Where an ascent ends. standard: in standard coordinates. centered: in those of the program. curvatures: of the
    log joint there, in the elements of every site, moved together."""

    standard: Values
    centered: Values
    curvatures: dict[str, Array]


class Suggested(NamedTuple):
    """What the data alone suggest of the elements of a site, in units of the scale of its prior."""

    values: Array
    variances: Array


class KernelBuilder(Protocol):
    """What builds a kernel for a model, and reads its states."""

    def __call__(self, model: Callable[..., Any]) -> MCMCKernel: ...

    def stats(self, state: Any) -> dict[str, Array]: ...


@dataclass(frozen=True)
class NoncenteredSampler(Sampler):
    """A NumPyro kernel in partly non-centered coordinates of some sites.

    build: makes NUTS for a model. sites: those with a prior of unknown scale.
    """

    build: KernelBuilder
    sites: tuple[str, ...]
    structure: Any
    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> NoncenteredState:
        """From a likely position in standard coordinates; the top above it tells how much the data say of elements."""
        key, position_key = jax.random.split(key)
        shapes = dict(unconstrained_shapes(bound))
        standard = {name: jnp.zeros(shapes[name]) for name in self.sites}

        def log_density(moved: Values) -> Array:
            return -potential_energy(_noncentered_program, (bound, standard), {}, moved)

        moved_shapes = {name + SUFFIX if name in self.sites else name: shape for name, shape in shapes.items()}

        def start_and_shares(key: Array) -> tuple[Values, dict[str, Array]]:
            likely, top = ascend(key, moved_shapes, log_density, MIN_GAIN_NATS, MAX_STEPS)
            centered = self._centered_position(bound, top, standard)
            end = AscentEnd(top, centered, self._curvatures(bound, centered))
            return self._centered_position(bound, likely, standard), self._shares_of_data(bound, end, log_density)

        # all chains have one coordinate, the most standard that some ascents ask for; a chain starts on its own way up
        keys = jnp.stack([position_key, *jax.random.split(jax.random.PRNGKey(0), NUM_ASCENTS)])
        starts, shares = jax.lax.map(start_and_shares, keys)
        centered = jax.tree.map(lambda leaf: leaf[0], starts)
        centering = jax.tree.map(lambda leaf: leaf[1:].min(0), shares)
        position = self._moved_position(bound, centered, centering)
        return NoncenteredState(self._kernel().init(key, self.num_warmup, position, (bound, centering), {}), centering)

    def advance(self, state: NoncenteredState, bound: Bound) -> tuple[NoncenteredState, Draws]:
        arguments = (bound, state.centering)
        kernel = self._kernel()
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, None, arguments, {})
        inner = kernel.sample(state.kernel, arguments, {})
        values = kernel.postprocess_fn(arguments, {})(getattr(inner, kernel.sample_field))
        samples = {name: value for name, value in values.items() if name.removesuffix(SUFFIX) not in self.sites}
        samples |= {name: values[name] for name in self.sites}
        return state._replace(kernel=inner), Draws(samples, self.build.stats(inner))

    def _kernel(self) -> MCMCKernel:
        return self.build(_noncentered_program)

    def _centered_position(self, bound: Bound, position: Values, centering: Mapping[str, Array]) -> Values:
        """The unconstrained position of the program at one in other coordinates."""
        values = {
            name: position[name + SUFFIX] if name in self.sites else position[name]
            for name in dict(unconstrained_shapes(bound))
        }
        for name in self.sites:  # in program order, as a prior may depend on sites before it
            values[name] = coordinate(self._prior(bound, values, name), centering[name]).to_value(values[name])
        return values

    def _moved_position(self, bound: Bound, centered: Values, centering: Mapping[str, Array]) -> Values:
        """The position in other coordinates at an unconstrained one of the program."""
        moved = {name: value for name, value in centered.items() if name not in self.sites}
        for name in self.sites:
            own = coordinate(self._prior(bound, centered, name), centering[name])
            moved[name + SUFFIX] = own.from_value(centered[name])
        return moved

    def _curvatures(self, bound: Bound, centered: Values) -> dict[str, Array]:
        """For every site the curvature of the log joint in its elements, moved together."""
        own = {name: centered[name] for name in self.sites}
        slopes = jax.linearize(jax.grad(lambda values: log_posterior(bound, centered | values)), own)[1]

        def of_site(place: Array) -> dict[str, Array]:
            moves = {n: jnp.where(place == i, jnp.ones(own[n].shape), 0.0) for i, n in enumerate(self.sites)}
            return slopes(moves)

        rows = jax.lax.map(of_site, jnp.arange(len(self.sites)))  # one after the other: the program is traced once
        return {name: rows[name][place] for place, name in enumerate(self.sites)}

    def _shares_of_data(self, bound: Bound, end: AscentEnd, log_density: Callable[[Values], Array]) -> dict[str, Array]:
        """For every element of every site, the share of all but its prior in its precision, at the lower end of its
        scale.

        Of independent elements the scale has a likelihood in closed form: what the data alone suggest is Normal with
        the variances of prior and data. Where the mean depends on other sites, it is that of the top, or a shift of
        all is integrated out, as at the top a precise element may have drawn the mean to itself; the larger scale
        counts. Of others the share is taken at the position, and none of it where a scale of
        zero is as likely, by Laplace's approximation.
        log_density: of positions in standard coordinates.
        """
        standard, ratios, suggested = end.standard, {}, {}
        for name in self.sites:
            prior = coordinate(self._prior(bound, end.centered, name), jnp.zeros(end.centered[name].shape))
            ratio = jnp.maximum(prior.information_ratio(-end.curvatures[name]), MIN_RATIO)
            ratios[name] = ratio = jnp.where(jnp.isfinite(ratio), ratio, MIN_RATIO)
            if prior.independent:
                suggested[name] = Suggested(standard[name + SUFFIX] * (1 + 1 / ratio), 1 / ratio)
        priors = terms(bound.plain).priors
        scales = _lowest_scales(suggested, {n for n in suggested if not priors[n].depends <= priors[n].scale_depends})
        shares = {}
        for name, ratio in ratios.items():
            if name in suggested:
                ratio = ratio * scales[name] ** 2
                shares[name] = ratio / (1 + ratio)
                continue
            at_zero = standard | {name + SUFFIX: jnp.zeros(ratio.shape)}
            support = log_density(standard) - log_density(at_zero) - 0.5 * jnp.log1p(ratio).sum()
            weight = jnp.clip((support - WEAK_SUPPORT) / (STRONG_SUPPORT - WEAK_SUPPORT), 0.0, 1.0)
            share = weight * ratio / (1 + ratio)
            shares[name] = jnp.where(jnp.isfinite(share), share, 0.0)
        return shares

    def _prior(self, bound: Bound, position: Values, name: str) -> Any:
        """The prior of a site at an unconstrained position, not yet repeated in plates."""
        prior = terms(bound.plain).priors[name]
        known = constrain_sites(bound, {other: position[other] for other in prior.depends})
        return innermost_distribution(prior.distribution(bound.plain, known))


def _lowest_scales(suggested: Mapping[str, Suggested], free: Collection[str]) -> dict[str, Array]:
    """For every site the smallest likely scale; the larger one of a known and a free mean where that is `free`.

    Sites of one shape are computed together: a loop in a program may have dozens of them.
    """
    alike: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for name, (values, _) in suggested.items():
        alike.setdefault((values.shape, name in free), []).append(name)
    scales: dict[str, Array] = {}
    for (_, is_free), names in alike.items():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(suggested[name] for name in names))
        lowest = jax.vmap(partial(_lowest_likely_scale, has_free_mean=False))(*stacked)
        if is_free:
            lowest = jnp.maximum(lowest, jax.vmap(partial(_lowest_likely_scale, has_free_mean=True))(*stacked))
        scales |= dict(zip(names, lowest, strict=True))
    return scales


def _lowest_likely_scale(values: Array, variances: Array, has_free_mean: bool) -> Array:
    """The smallest scale t whose log likelihood is within some nats of the largest, for values ~ Normal(m, t^2 +
    variances), where m is 0 or, if it is free, integrated out; in units of the scale of the position."""
    scales = jnp.exp(jnp.linspace(-7.0, 3.0, 60))

    def log_likelihood(scale: Array) -> Array:
        precisions = 1 / (scale**2 + variances)
        known = 0.5 * (jnp.log(precisions) - precisions * values**2).sum()
        total = precisions.sum()
        return known + has_free_mean * 0.5 * ((precisions * values).sum() ** 2 / total - jnp.log(total))

    heights = jax.vmap(log_likelihood)(scales)
    return scales[jnp.argmax(heights >= heights.max() - NATS_OF_LOWER_END)]


def _noncentered_program(bound: Bound, centering: Mapping[str, Array]) -> Any:
    """The program with some sites in other coordinates."""
    config = {name: PartlyStandard(share) for name, share in centering.items()}
    return reparam(partial(evaluate, bound), config=config)()

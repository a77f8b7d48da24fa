"""NUTS in coordinates in which priors with unknown scales are partly standard: the program stays as it is.

Of a Normal effect x with prior mean m and scale s, few data leave the funnel of x and s, many a narrow ridge of x - m.
In z = (x - m) / s^(1 - c) + c m both are gone where c is the share of the data in the precision of x, so that is taken
for every element: 0 is the standard, non-centered coordinate, 1 that of the program (Papaspiliopoulos, Roberts and
Skoeld 2003; Gorinova, Moore and Hoffman 2020).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import reparam
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import potential_energy

from bayeslab.elimination.terms import terms
from bayeslab.methods.moves.initial_positions import likely_position
from bayeslab.programs.program import Bound, Values, evaluate, innermost_distribution
from bayeslab.programs.unconstrained import constrain, log_posterior, unconstrained_shapes
from bayeslab.sampling.protocols import Draws, Sampler, State

LOCATION_SCALE_PRIORS = (dist.Normal, dist.StudentT, dist.Cauchy, dist.Laplace, dist.Logistic)
"""Priors with a mean and a scale, the last of their parameters."""
SUFFIX = "_decentered"
"""What NumPyro adds to the name of a site that it moves in other coordinates."""
WEAK_SUPPORT, STRONG_SUPPORT = 3.0, 10.0
"""Nats by which the data prefer the scale of the start to one of zero. Up to the first, coordinates are standard; from
the second on they are those of the share of the data."""
MIN_GAIN_NATS = 0.05
"""Nats that the ascent to the start must gain to go on: in standard coordinates there is a maximum to go to."""
MAX_STEPS = 500
"""Steps of that ascent, at most."""


def noncentered_sites(bound: Bound) -> tuple[str, ...]:
    """The latent sites whose prior has a scale that depends on other latent sites."""
    if bound.moving:
        return ()
    priors = {name: terms(bound.plain).priors[name] for name in bound.latent}
    return tuple(
        name
        for name, prior in priors.items()
        if prior.kind in LOCATION_SCALE_PRIORS and prior.scale_depends and prior.depends <= priors.keys()
    )


class NoncenteredState(NamedTuple):
    """The state of a chain. kernel: that of NUTS. centering: of every site, an array of its shape between 0 and 1."""

    kernel: State
    centering: dict[str, Array]


class KernelBuilder(Protocol):
    """What builds a kernel for a model, and reads its states."""

    def __call__(self, model: Callable[..., Any]) -> MCMCKernel: ...

    def stats(self, state: Any) -> dict[str, Array]: ...


@dataclass(frozen=True)
class NoncenteredSampler(Sampler):
    """A NumPyro kernel in partly non-centered coordinates of some sites.

    kernel: builds NUTS for a model. sites: those with a prior of unknown scale.
    """

    kernel: KernelBuilder
    sites: tuple[str, ...]
    structure: Any
    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> NoncenteredState:
        """From a likely position in standard coordinates, which also tells how much the data say of every element."""
        key, position_key = jax.random.split(key)
        shapes = dict(unconstrained_shapes(bound))
        standard = {name: jnp.zeros(shapes[name]) for name in self.sites}

        def log_density(moved: Values) -> Array:
            return -potential_energy(_noncentered_program, (bound, standard), {}, moved)

        moved_shapes = {name + SUFFIX if name in self.sites else name: shape for name, shape in shapes.items()}
        position = likely_position(position_key, moved_shapes, log_density, MIN_GAIN_NATS, MAX_STEPS)
        centered = self._centered_position(bound, position, standard)
        centering = {name: self._share_of_data(bound, centered, position, name, log_density) for name in self.sites}
        position = self._moved_position(bound, centered, centering)
        return NoncenteredState(self._kernel().init(key, self.num_warmup, position, (bound, centering), {}), centering)

    def advance(self, state: NoncenteredState, bound: Bound) -> tuple[NoncenteredState, Draws]:
        arguments = (bound, state.centering)
        kernel = self._kernel()
        kernel.init(jax.random.PRNGKey(0), self.num_warmup, None, arguments, {})
        inner = kernel.sample(state.kernel, arguments, {})
        values = kernel.postprocess_fn(arguments, {})(getattr(inner, kernel.sample_field))
        samples = {name: value for name, value in values.items() if not name.endswith(SUFFIX)}
        return state._replace(kernel=inner), Draws(samples, self.kernel.stats(inner))

    def _kernel(self) -> MCMCKernel:
        return self.kernel(_noncentered_program)

    def _centered_position(self, bound: Bound, position: Values, centering: Mapping[str, Array]) -> Values:
        """The unconstrained position of the program at one in other coordinates."""
        values = {
            name: position[name + SUFFIX] if name in self.sites else position[name]
            for name in dict(unconstrained_shapes(bound))
        }
        for name in self.sites:  # in program order, as a prior may depend on sites before it
            fn, share = self._prior(bound, values, name), centering[name]
            values[name] = fn.loc + fn.scale ** (1 - share) * (values[name] - share * fn.loc)
        return values

    def _moved_position(self, bound: Bound, centered: Values, centering: Mapping[str, Array]) -> Values:
        """The position in other coordinates at an unconstrained one of the program."""
        moved = {name: value for name, value in centered.items() if name not in self.sites}
        for name in self.sites:
            fn, share = self._prior(bound, centered, name), centering[name]
            moved[name + SUFFIX] = (centered[name] - fn.loc) / fn.scale ** (1 - share) + share * fn.loc
        return moved

    def _share_of_data(
        self, bound: Bound, centered: Values, standard: Values, name: str, log_density: Callable[[Values], Array]
    ) -> Array:
        """For every element, the share of all but its prior in its precision given the others.

        It is zero where a scale of zero is as likely, by Laplace's approximation of the marginal likelihood, as that of
        the position: a funnel has to be left. In between it is a part of the share.
        standard: the position in standard coordinates. log_density: of such positions.
        """
        own, scale = centered[name], self._prior(bound, centered, name).scale
        slope = jax.grad(lambda value: log_posterior(bound, centered | {name: value}))
        curvature = jax.jvp(slope, (own,), (jnp.ones(own.shape),))[1]
        ratio = jnp.maximum(-curvature * scale**2 - 1, 0.0)  # of the precision of the data to that of the prior
        at_zero = standard | {name + SUFFIX: jnp.zeros(own.shape)}
        support = log_density(standard) - log_density(at_zero) - 0.5 * jnp.log1p(ratio).sum()
        weight = jnp.clip((support - WEAK_SUPPORT) / (STRONG_SUPPORT - WEAK_SUPPORT), 0.0, 1.0)
        share = weight * ratio / (1 + ratio)
        return jnp.where(jnp.isfinite(share), share, 0.0)

    def _prior(self, bound: Bound, position: Values, name: str) -> Any:
        """The prior of a site at an unconstrained position, with a mean and a scale, not yet repeated in plates."""
        plain = bound.plain
        values = constrain(bound, position)
        known = {other: values[other] for other in plain.latent if other in values}
        return innermost_distribution(terms(plain).priors[name].distribution(plain, known))


def _noncentered_program(bound: Bound, centering: Mapping[str, Array]) -> Any:
    """The program with some sites in other coordinates."""
    config = {name: LocScaleReparam(share) for name, share in centering.items()}
    return reparam(partial(evaluate, bound), config=config)()

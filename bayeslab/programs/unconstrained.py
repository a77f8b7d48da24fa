"""The posterior as a density of unconstrained real sites, which optimisers and variational families work on.

Supports are looked up at every point, so that they may depend on data and on other sites.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import ImproperUniform, biject_to, constraints
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from bayeslab.programs.handlers.sites import LEARNED_FROM
from bayeslab.programs.program import (
    Bound,
    Values,
    abstract_bound,
    compilation_signature,
    evaluate,
    init_inside_support,
)


def log_posterior(bound: Bound, position: Values, run: Callable[[Bound], Any] = evaluate) -> Array:
    """log p(position, observed) as a density of the unconstrained position, Jacobians included.

    run: what runs the program, with handlers of its own perhaps.
    """
    return -potential_energy(run, (bound,), {}, position)


def constrain(bound: Bound, position: Values) -> Values:
    """The values of the latent and deterministic sites at an unconstrained position."""
    return constrain_fn(evaluate, (bound,), {}, position, return_deterministic=True)


def constrain_sites(bound: Bound, position: Values) -> Values:
    """The values of some latent sites at their unconstrained positions, without a run of the program.

    Supports must depend on no site and no data (`Bound.moving` names those that do).
    """
    transforms = _fixed_transforms(compilation_signature(bound), bound.latent)
    return {name: transforms[name](value) for name, value in position.items()}


def unconstrain_sites(bound: Bound, values: Values) -> Values:
    """The unconstrained positions of some latent sites that have these values, without a run of the program.

    Supports must depend on no site and no data, as those of `constrain_sites`.
    """
    transforms = _fixed_transforms(compilation_signature(bound), bound.latent)
    return {name: transforms[name].inv(value) for name, value in values.items()}


def log_jacobian(bound: Bound, position: Values) -> Array:
    """The logarithm of the volume that values of sites cover per volume of their unconstrained positions.

    Supports must depend on no site and no data, as those of `constrain_sites`.
    """
    transforms = _fixed_transforms(compilation_signature(bound), bound.latent)
    jacobians = [
        transforms[name].log_abs_det_jacobian(value, transforms[name](value)).sum() for name, value in position.items()
    ]
    return jnp.stack(jacobians).sum()


def unconstrain(bound: Bound, values: Values) -> Values:
    """The unconstrained position of latent sites that have these values."""
    return unconstrain_fn(evaluate, (bound,), {}, values)


def flat_position(bound: Bound, values: Values) -> Array:
    """`unconstrain` as one vector of flat coordinates."""
    return ravel_pytree(unconstrain(bound, values))[0]


def unravel(bound: Bound) -> Callable[[Array], Values]:
    """The function from flat coordinates, with sites in the order of their names, to an unconstrained position."""
    return ravel_pytree({name: jnp.zeros(shape) for name, shape in unconstrained_shapes(bound)})[1]


def flat_log_posterior(bound: Bound, flat: Array) -> Array:
    """`log_posterior` at flat coordinates."""
    return log_posterior(bound, unravel(bound)(flat))


def flat_log_joint(bound: Bound, flat: Array) -> Array:
    """log p(latent, observed) at flat coordinates in the space that the sites are written in: without Jacobians."""
    values = constrain_flat(bound, flat)
    return bound.log_joint({name: values[name] for name in bound.latent})


def constrain_flat(bound: Bound, flat: Array) -> Values:
    """`constrain` at flat coordinates."""
    return constrain(bound, unravel(bound)(flat))


def number_or_zero_mass(log_density: Array) -> Array:
    """A log density, minus infinity where it is not a number."""
    return jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)


def unconstrained_program(bound: Bound, run: Callable[[Bound], Any] = evaluate, batch_ndim: int = 0) -> None:
    """A NumPyro program over unconstrained sites of the same names, with `log_posterior_of_drawn` as a factor.

    What the program learns stays a `numpyro.param`, unconstrained too. run: what runs the program. batch_ndim: as that
    of `sites_only_program`.
    """
    position = _sample_positions(drawn_shapes(bound), batch_ndim)
    position |= learned_parameters(bound)
    with block():
        density = log_posterior_of_drawn(bound, position, run)
    numpyro.factor("log_posterior", density)


def learned_parameters(bound: Bound) -> Values:
    """What the program learns, unconstrained, each as a `numpyro.param`."""
    starts = learned_starts(jax.random.PRNGKey(0), bound)
    return {name: numpyro.param(name, start.position) for name, start in starts.items()}


def log_posterior_of_drawn(bound: Bound, position: Values, run: Callable[[Bound], Any] = evaluate) -> Array:
    """`log_posterior` as a density of the sites that are drawn alone: without Jacobians of those that are learned."""
    density = log_posterior(bound, position, run)
    for name, (_, transform) in learned_starts(jax.random.PRNGKey(0), bound).items():
        density -= transform.log_abs_det_jacobian(position[name], transform(position[name])).sum()
    return density


def drawn_shapes(bound: Bound) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The name and the shape of every unconstrained site that is drawn, not learned."""
    return tuple((name, shape) for name, shape in unconstrained_shapes(bound) if name not in bound.learned)


def sites_only_program(of: tuple[tuple[str, tuple[int, ...]], ...], batch_ndim: int = 0) -> Values:
    """A NumPyro program with unconstrained sites of these names and shapes, and nothing else.

    Guides are set up on it, so they never see data. batch_ndim: axes of the sites that are no axes of their events.
    """
    return _sample_positions(of, batch_ndim)


def unconstrained_shapes(bound: Bound) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The name and the shape of every unconstrained site."""
    return _unconstrained_shapes(compilation_signature(bound), bound.latent)


def random_position(key: Array, bound: Bound, radius: Array | float = 1.0) -> Values:
    """A random unconstrained position, uniform within `radius` of 0 in every coordinate; what a program learns starts
    where it says."""
    named = unconstrained_shapes(bound)
    keys = jax.random.split(key, len(named))
    uniform = {
        n: jax.random.uniform(k, s, minval=-radius, maxval=radius) for k, (n, s) in zip(keys, named, strict=True)
    }
    return uniform | {name: start.position for name, start in learned_starts(key, bound).items()}


class LearnedStart(NamedTuple):
    """Where a site that is learned starts. position: unconstrained. transform: from there to the site."""

    position: Array
    transform: Any


def learned_starts(key: Array, bound: Bound) -> dict[str, LearnedStart]:
    """Where the sites that are a `numpyro.param` start, by name."""
    if not bound.learned:
        return {}
    model = substitute(seed(bound.plain.program, key), substitute_fn=init_inside_support)
    with block():
        sites = trace(model).get_trace()
    transforms = {name: biject_to(sites[name]["fn"].support) for name in bound.learned}
    starts = {name: transform.inv(sites[name]["infer"][LEARNED_FROM]) for name, transform in transforms.items()}
    real = jnp.result_type(float)  # modules of flax start in single precision, as other sites do not
    return {name: LearnedStart(start.astype(real), transforms[name]) for name, start in starts.items()}


def _sample_positions(of: tuple[tuple[str, tuple[int, ...]], ...], batch_ndim: int = 0) -> Values:
    flat = {n: ImproperUniform(constraints.real, s[:batch_ndim], event_shape=s[batch_ndim:]) for n, s in of}
    return {name: numpyro.sample(name, fn) for name, fn in flat.items()}


@lru_cache(maxsize=64)
def _fixed_transforms(key: tuple, latent: tuple[str, ...]) -> dict[str, Any]:
    """For every latent site the transform from its unconstrained position to its value."""
    transforms = {}

    def run(bound: Bound) -> None:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        sites = trace(model).get_trace()
        transforms.update({name: biject_to(sites[name]["fn"].support) for name in latent})

    bound = abstract_bound(key)
    assert not bound.moving, "supports with arrays in them are known at a run of the program alone"
    with jax.enable_x64(key[0]), block():
        jax.eval_shape(run, bound)
    return transforms


@lru_cache(maxsize=64)
def _unconstrained_shapes(key: tuple, latent: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    def run(bound: Bound) -> Values:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        sites = trace(model).get_trace()
        return {name: jnp.asarray(biject_to(sites[name]["fn"].support).inv(sites[name]["value"])) for name in latent}

    with block():  # from the handlers of a program that asks while it runs itself
        values = jax.eval_shape(run, abstract_bound(key))
    return tuple((name, tuple(value.shape)) for name, value in values.items())


def with_positive_sign(direction: np.ndarray) -> np.ndarray:
    """A direction or its opposite, so that the first coordinate that is not small is positive."""
    return direction * np.sign(direction[np.argmax(abs(direction) > 0.1 * abs(direction).max())])


def describe_direction(
    direction: np.ndarray,
    shapes: Sequence[tuple[str, tuple[int, ...]]],
    labels: Mapping[str, Sequence[Sequence[Any]]] | None = None,
) -> str:
    """A direction in words, by the coordinates that are at least a tenth of the largest, at most four of them.

    labels: of every axis of a site, where they are not numbers.
    """
    coordinates = [
        (name, [(labels or {}).get(name, [range(size) for size in shape])[i][at] for i, at in enumerate(index)])
        for name, shape in sorted(shapes)
        for index in np.ndindex(shape)
    ]
    written = [f"{name}[{', '.join(map(str, index))}]" if index else name for name, index in coordinates]
    direction = direction / abs(direction).max()
    largest = [index for index in np.argsort(-abs(direction).round(6), kind="stable") if abs(direction[index]) >= 0.1]
    shown = sorted(largest[:4])
    text = ""
    for index in shown:
        sign = (" - " if direction[index] < 0 else " + ") if text else ("-" if direction[index] < 0 else "")
        factor = "" if abs(direction[index]) > 0.999 else f"{abs(direction[index]):.2g} "
        text += f"{sign}{factor}{written[index]}"
    return text + (" + ..." if len(largest) > 4 else "")

"""Programs of mixed membership, found by their structure and proven on their data.

    components_k  ~ Dirichlet                         population k: frequencies at every locus
    weights_i     ~ Dirichlet                         individual i: shares of populations
    z_ilc         ~ Categorical(weights_i)            origin of a copy
    y_ilc         ~ Categorical(components_{z_ilc, l})

or, with one locus and numbers of copies that differ, tokens of documents,

    z_t           ~ Categorical(weights_{i(t)})       origin of a token of individual i(t)
    y_t           ~ Categorical(components_{z_t})

whatever the sites are called and however the parameters of the first two depend on other sites. The densities of
origins and of what is observed are compared with these for every element and every origin, so that a program that
differs is refused.
"""

from functools import lru_cache, partial
from math import ceil, sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from bayeslab.elimination.sweep import somewhere
from bayeslab.elimination.terms import terms
from bayeslab.mixed_membership.devices import AXIS, devices_of
from bayeslab.mixed_membership.genotypes.allele_counts import MISSING, Shape
from bayeslab.mixed_membership.tokens.topic_counts import Tokens
from bayeslab.programs.program import Bound, Values, blueprint, structure

FAMILIES = ("Dirichlet", "PaddedDirichlet")
EACH = 100_000
"""Origins up to which a program is proven with each population everywhere."""
TOLERANCE = 1e-4
"""Of a log density, relative to 1 and its size; in single precision."""


class Membership(NamedTuple):
    """The sites of a program of mixed membership.

    weights: (individual, population). components: (population, locus, allele). origins and observed:
    (individual, locus, copy); or, of tokens, components (population, allele), origins and observed (token,).
    others: latent sites that the priors of the first two may depend on. known: whether the components are data.
    """

    weights: str
    components: str
    origins: str
    observed: str
    others: tuple[str, ...]
    shape: Shape | Tokens
    known: bool = False

    @property
    def probabilities(self) -> tuple[str, str]:
        return self.weights, self.components

    def values(self, named: Values) -> tuple[Array, Array]:
        """Weights and components (population, locus, allele), in single precision."""
        size = self.shape
        components = named[self.components].reshape(size.populations, size.loci, size.alleles)
        return named[self.weights].astype(jnp.float32), components.astype(jnp.float32)

    def named(self, weights: Array, components: Array) -> Values:
        """Values of the sites. components: (population, locus, allele)."""
        return {self.weights: weights, self.components: components.reshape(self.shape.table)}


def membership(bound: Bound) -> Membership:
    """The sites of a program of mixed membership; raises ValueError with the reason where a program is none."""
    found = _structure(structure(bound))
    if isinstance(found, str):
        raise ValueError(found)
    gap = _largest_gap(bound, found)
    if not gap < TOLERANCE:
        raise ValueError(
            f"sites '{found.origins}' and '{found.observed}' are not origins and what they show: their log densities "
            f"differ from these by {gap:.2g}"
        )
    return found


@lru_cache(maxsize=64)
def _structure(shapes: tuple) -> Membership | str:
    """What the sites are, by their types and shapes, or why they are not."""
    bound = blueprint(shapes)
    found, sites = terms(bound), bound.sites
    discrete = [name for name in bound.latent if sites[name].is_discrete]
    if bound.transform is not None or len(discrete) != 1:
        return f"it has {len(discrete)} discrete latent sites, where one of origins is expected"
    [origins] = discrete
    children = [term for term in found.terms if origins in term.depends and term.name != origins]
    if len(children) != 1 or sites[children[0].name].role != "observed":
        return f"site '{origins}' is not the parent of one observed site alone"
    [child] = children
    parents = sorted(child.depends - {origins}) or _known_components(bound, child.name)
    if len(found.priors[origins].depends) != 1 or len(parents) != 1:
        return f"sites '{origins}' and '{child.name}' do not have the probabilities of one site each"
    [weights], [components] = found.priors[origins].depends, parents
    for name in (weights, components):
        if sites[name].family not in FAMILIES or sites[name].event_dim != 1 or len(sites[name].shape) < 2:
            return f"site '{name}' is not Dirichlet"
    shape = _shape(sites[origins].shape, sites[weights].shape, sites[components].shape)
    if shape is None or sites[child.name].shape != sites[origins].shape:
        return (
            f"sites '{origins}', '{weights}' and '{components}' have shapes {sites[origins].shape}, "
            f"{sites[weights].shape} and {sites[components].shape}; expected (individual, locus, copy), "
            "(individual, population) and (population, locus, allele), or (token,), (individual, population) and "
            "(population, allele)"
        )
    choices = found.priors[origins].choices
    if choices is None or choices.tolist() != [*range(shape.populations)]:
        return f"site '{origins}' does not have one of {shape.populations} populations"
    mine = {weights, components, origins, child.name}
    others = tuple(name for name in bound.latent if name not in mine)
    more = [name for name, site in sites.items() if name not in {*mine, *others} and site.role != "observed"]
    more += [term.name for term in found.terms if term.name not in mine and term.depends & {weights, components}]
    if more:
        return f"it has other sites, {sorted(more)}, that are no priors of '{weights}' or '{components}'"
    return Membership(weights, components, origins, child.name, others, shape, components not in bound.latent)


def _shape(origins: tuple[int, ...], weights: tuple[int, ...], components: tuple[int, ...]) -> Shape | Tokens | None:
    """Of genotypes or tokens, None where it is neither."""
    if len(weights) != 2:
        return None
    individuals, populations = weights
    if len(origins) == 3 and components[:2] == (populations, origins[1]) and individuals == origins[0]:
        return Shape(*origins, components[2], populations) if components[2] <= MISSING else None
    if len(origins) == 1 and len(components) == 2 and components[0] == populations:
        return Tokens(individuals, *origins, components[1], populations)
    return None


def _known_components(bound: Bound, child: str) -> list[str]:
    """Observed sites that may be components of the child; the proof says whether they are."""
    observed = [site for name, site in bound.sites.items() if site.role == "observed" and name != child]
    return [site.name for site in observed if site.family in FAMILIES and len(site.shape) > 1]


def _largest_gap(bound: Bound, found: Membership) -> float:
    """Of log densities from those that the counts are of, with origins mixed, and with each of them everywhere where
    there are few."""
    compared = jax.jit(partial(_gap, found=found))
    each = range(found.shape.populations) if np.prod(bound.sites[found.origins].shape) <= EACH else ()
    origins = [(0, 1), *((k, 0) for k in each)]
    keys = jax.random.split(jax.random.PRNGKey(0))
    return max(float(compared(keys[mixed], np.int32(k), np.int32(mixed), bound)) for k, mixed in origins)


def _gap(key: Array, first: Array, mixed: Array, bound: Bound, found: Membership) -> Array:
    """At random weights and components."""
    values = {name: value for name, value in somewhere(key, bound).items() if name != found.origins}
    size, number = bound.sites[found.origins].shape, jnp.uint32(0)
    for axis in range(len(size)):
        number = number * 73 + jax.lax.broadcasted_iota(jnp.uint32, size, axis)
    hashed = number * jnp.uint32(2654435761) >> jnp.uint32(16)
    origin = (first.astype(jnp.uint32) + mixed.astype(jnp.uint32) * hashed) % found.shape.populations
    at = values | {found.origins: origin.astype(bound.sites[found.origins].dtype)}
    named = {term.name: term for term in terms(bound).terms}
    prior, shown = (named[name].density(bound, at) for name in (found.origins, found.observed))
    if prior.shape != origin.shape or shown.shape != origin.shape:
        return jnp.array(jnp.inf)
    weights, components = (jnp.log((values | bound.observed)[name]) for name in (found.weights, found.components))
    expected = _of_tokens if isinstance(found.shape, Tokens) else _of_genotypes
    weight, component = expected(found, bound, weights, components, origin)
    if found.observed in bound.present:
        component = jnp.where(bound.present[found.observed], component, 0.0)
    return jnp.maximum(_difference(prior, weight), _difference(shown, component))


def _of_genotypes(
    found: Membership, bound: Bound, weights: Array, components: Array, origin: Array
) -> tuple[Array, Array]:
    """Log probabilities of origins and of what they show."""
    weight, component = jnp.zeros(origin.shape), jnp.zeros(origin.shape)
    for k in range(found.shape.populations):  # a lookup would need places of all elements in memory
        weight = jnp.where(origin == k, weights[:, k, None, None], weight)
        for j in range(found.shape.alleles):
            here = (origin == k) & (bound.observed[found.observed] == j)
            component = jnp.where(here, components[k, :, j, None], component)
    return weight, component


def _of_tokens(
    found: Membership, bound: Bound, weights: Array, components: Array, origin: Array
) -> tuple[Array, Array]:
    """Log probabilities of origins and of what they show."""
    return weights[individuals_of(found, bound), origin], components[origin, bound.observed[found.observed]]


def individuals_of(found: Membership, bound: Bound) -> Array:
    """The individual that every token is of, read from the probabilities that its origin has."""
    individuals, populations = found.shape.individuals, found.shape.populations
    base = ceil(sqrt(individuals))
    [prior] = [term for term in terms(bound).terms if term.name == found.origins]
    origins = jnp.zeros(bound.sites[found.origins].shape, bound.sites[found.origins].dtype)

    def digit(numbers: Array) -> Array:
        first = (numbers + 1) / (base + 1)
        rest = jnp.broadcast_to((1 - first) / max(populations - 1, 1), (populations - 1, individuals))
        weights = jnp.concatenate([first[None], rest]).T.astype(bound.sites[found.weights].dtype)
        log_first = prior.density(bound, {found.weights: weights, found.origins: origins})
        return jnp.round(jnp.exp(log_first) * (base + 1) - 1).astype(jnp.int32)

    number = digit(jnp.arange(individuals) // base) * base + digit(jnp.arange(individuals) % base)
    return jnp.clip(number, 0, individuals - 1)


def _difference(found: Array, expected: Array) -> Array:
    gap = jnp.where(found == expected, 0.0, jnp.abs(found - expected) / (1 + jnp.abs(expected)))
    return jnp.where(jnp.isnan(gap), jnp.inf, gap).max()


def over_devices(found: Membership, bound: Bound, mesh: Mesh) -> Membership:
    """The same with individuals on the devices of a mesh; raises ValueError for a mesh without their axis."""
    if AXIS not in mesh.axis_names:
        raise ValueError(f"mesh has axes {list(mesh.axis_names)}; expected one named '{AXIS}'")
    shape = found.shape._replace(devices=devices_of(mesh))
    if isinstance(shape, Tokens):
        device = np.asarray(jax.jit(partial(individuals_of, found))(bound)) // shape.part.individuals
        shape = shape._replace(held=int(np.bincount(device).max()))
    return found._replace(shape=shape)

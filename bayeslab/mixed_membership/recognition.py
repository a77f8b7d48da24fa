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

from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import terms
from bayeslab.mixed_membership.devices import INDIVIDUAL_AXIS, devices_from_mesh
from bayeslab.mixed_membership.genotypes.allele_counts import MISSING_ALLELE, GenotypeShape
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape
from bayeslab.programs.program import Bound, Values, abstract_bound, compilation_signature

DIRICHLET_FAMILIES = ("Dirichlet", "PaddedDirichlet")
MAX_ORIGINS_FOR_EVERY_POPULATION = 100_000
"""Number of origins up to which the densities are also compared with every origin set to each population in turn."""
LOG_DENSITY_TOLERANCE = 1e-4
"""Largest difference of log densities that counts as equal, over 1 plus their size; in single precision."""


class Membership(NamedTuple):
    """The roles that sites have in a program of mixed membership, and the shape of its data.

    weights: name of the site (individual, population).
    components: name of the site (population, locus, allele), or (population, allele) with tokens.
    origins, observed: names of the sites (individual, locus, copy), or (token,) with tokens.
    others: latent sites that the priors of weights and components may depend on.
    known: whether the components are data.
    """

    weights: str
    components: str
    origins: str
    observed: str
    others: tuple[str, ...]
    shape: GenotypeShape | TokenShape
    known: bool = False

    @property
    def probabilities(self) -> tuple[str, str]:
        """Names of the two Dirichlet sites."""
        return self.weights, self.components

    def values(self, named: Values) -> tuple[Array, Array]:
        """Weights and components (population, locus, allele), in single precision."""
        size = self.shape
        components = named[self.components].reshape(size.populations, size.loci, size.alleles)
        return named[self.weights].astype(jnp.float32), components.astype(jnp.float32)

    def named(self, weights: Array, components: Array) -> Values:
        """Values of the sites. components: (population, locus, allele)."""
        return {self.weights: weights, self.components: components.reshape(self.shape.table)}


def find_membership(bound: Bound) -> Membership:
    """The sites of a program of mixed membership; raises ValueError with the reason where a program is none."""
    roles = _membership_by_structure(compilation_signature(bound))
    if isinstance(roles, str):
        raise ValueError(roles)
    gap = _largest_gap(bound, roles)
    if not gap < LOG_DENSITY_TOLERANCE:
        raise ValueError(
            f"sites '{roles.origins}' and '{roles.observed}' are not origins and what they show: their log densities "
            f"differ from these by {gap:.2g}"
        )
    return roles


@lru_cache(maxsize=64)
def _membership_by_structure(shapes: tuple) -> Membership | str:
    """The roles of sites by their types and shapes, or the reason why the program is none of mixed membership."""
    bound = abstract_bound(shapes)
    program_terms, sites = terms(bound), bound.sites
    discrete = [name for name in bound.latent if sites[name].is_discrete]
    if bound.transform is not None or len(discrete) != 1:
        return f"it has {len(discrete)} discrete latent sites, where one of origins is expected"
    [origins] = discrete
    children = [term for term in program_terms.terms if origins in term.depends and term.name != origins]
    if len(children) != 1 or sites[children[0].name].role != "observed":
        return f"site '{origins}' is not the parent of one observed site alone"
    [child] = children
    parents = sorted(child.depends - {origins}) or _known_components(bound, child.name)
    if len(program_terms.priors[origins].depends) != 1 or len(parents) != 1:
        return f"sites '{origins}' and '{child.name}' do not have the probabilities of one site each"
    [weights], [components] = program_terms.priors[origins].depends, parents
    for name in (weights, components):
        if sites[name].family not in DIRICHLET_FAMILIES or sites[name].event_dim != 1 or len(sites[name].shape) < 2:
            return f"site '{name}' is not Dirichlet"
    shape = _shape(sites[origins].shape, sites[weights].shape, sites[components].shape)
    if shape is None or sites[child.name].shape != sites[origins].shape:
        return (
            f"sites '{origins}', '{weights}' and '{components}' have shapes {sites[origins].shape}, "
            f"{sites[weights].shape} and {sites[components].shape}; expected (individual, locus, copy), "
            "(individual, population) and (population, locus, allele), or (token,), (individual, population) and "
            "(population, allele)"
        )
    choices = program_terms.priors[origins].choices
    if choices is None or choices.tolist() != [*range(shape.populations)]:
        return f"site '{origins}' does not have one of {shape.populations} populations"
    role_names = {weights, components, origins, child.name}
    others = tuple(name for name in bound.latent if name not in role_names)
    unexpected = [
        name for name, site in sites.items() if name not in {*role_names, *others} and site.role != "observed"
    ]
    unexpected += [
        term.name
        for term in program_terms.terms
        if term.name not in role_names and term.depends & {weights, components}
    ]
    if unexpected:
        return f"it has other sites, {sorted(unexpected)}, that are no priors of '{weights}' or '{components}'"
    return Membership(weights, components, origins, child.name, others, shape, components not in bound.latent)


def _shape(
    origins: tuple[int, ...], weights: tuple[int, ...], components: tuple[int, ...]
) -> GenotypeShape | TokenShape | None:
    """The shape of genotypes or of tokens that sites of these shapes have, None where it is neither."""
    if len(weights) != 2:
        return None
    individuals, populations = weights
    if len(origins) == 3 and components[:2] == (populations, origins[1]) and individuals == origins[0]:
        return GenotypeShape(*origins, components[2], populations) if components[2] <= MISSING_ALLELE else None
    if len(origins) == 1 and len(components) == 2 and components[0] == populations:
        return TokenShape(individuals, *origins, components[1], populations)
    return None


def _known_components(bound: Bound, child: str) -> list[str]:
    """Observed sites that may be components of the child; the proof says whether they are."""
    observed = [site for name, site in bound.sites.items() if site.role == "observed" and name != child]
    return [site.name for site in observed if site.family in DIRICHLET_FAMILIES and len(site.shape) > 1]


def _largest_gap(bound: Bound, roles: Membership) -> float:
    """The largest gap between log densities of the program and of mixed membership.

    It is looked for with origins mixed, and with few origins also at each population for all of them.
    """
    compared = jax.jit(partial(_log_density_gap, roles=roles))
    populations = (
        range(roles.shape.populations)
        if np.prod(bound.sites[roles.origins].shape) <= MAX_ORIGINS_FOR_EVERY_POPULATION
        else ()
    )
    origins = [(0, 1), *((k, 0) for k in populations)]
    keys = jax.random.split(jax.random.PRNGKey(0))
    return max(float(compared(keys[mixed], np.int32(k), np.int32(mixed), bound)) for k, mixed in origins)


def _log_density_gap(key: Array, first: Array, mixed: Array, bound: Bound, roles: Membership) -> Array:
    """The largest gap between log densities at random weights and components."""
    values = {name: value for name, value in feasible_point(key, bound).items() if name != roles.origins}
    size, number = bound.sites[roles.origins].shape, jnp.uint32(0)
    for axis in range(len(size)):
        number = number * 73 + jax.lax.broadcasted_iota(jnp.uint32, size, axis)
    hashed = number * jnp.uint32(2654435761) >> jnp.uint32(16)
    origin = (first.astype(jnp.uint32) + mixed.astype(jnp.uint32) * hashed) % roles.shape.populations
    all_values = values | {roles.origins: origin.astype(bound.sites[roles.origins].dtype)}
    named = {term.name: term for term in terms(bound).terms}
    prior, observed = (named[name].density(bound, all_values) for name in (roles.origins, roles.observed))
    if prior.shape != origin.shape or observed.shape != origin.shape:
        return jnp.array(jnp.inf)
    weights, components = (jnp.log((values | bound.observed)[name]) for name in (roles.weights, roles.components))
    expected = _token_log_probabilities if isinstance(roles.shape, TokenShape) else _genotype_log_probabilities
    weight, component = expected(roles, bound, weights, components, origin)
    if roles.observed in bound.present:
        component = jnp.where(bound.present[roles.observed], component, 0.0)
    return jnp.maximum(_largest_relative_difference(prior, weight), _largest_relative_difference(observed, component))


def _genotype_log_probabilities(
    roles: Membership, bound: Bound, weights: Array, components: Array, origin: Array
) -> tuple[Array, Array]:
    """Log probabilities of origins and of observed alleles (individual, locus, copy)."""
    weight, component = jnp.zeros(origin.shape), jnp.zeros(origin.shape)
    for k in range(roles.shape.populations):  # a lookup would need places of all elements in memory
        weight = jnp.where(origin == k, weights[:, k, None, None], weight)
        for j in range(roles.shape.alleles):
            is_observed = (origin == k) & (bound.observed[roles.observed] == j)
            component = jnp.where(is_observed, components[k, :, j, None], component)
    return weight, component


def _token_log_probabilities(
    roles: Membership, bound: Bound, weights: Array, components: Array, origin: Array
) -> tuple[Array, Array]:
    """Log probabilities of origins and of observed words (token,)."""
    return weights[individuals_of_tokens(roles, bound), origin], components[origin, bound.observed[roles.observed]]


def individuals_of_tokens(roles: Membership, bound: Bound) -> Array:
    """The individual of every token (token,), read from the probabilities that its origin has."""
    individuals, populations = roles.shape.individuals, roles.shape.populations
    base = ceil(sqrt(individuals))
    [prior] = [term for term in terms(bound).terms if term.name == roles.origins]
    origins = jnp.zeros(bound.sites[roles.origins].shape, bound.sites[roles.origins].dtype)

    def digit(numbers: Array) -> Array:
        first = (numbers + 1) / (base + 1)
        other_weights = jnp.broadcast_to((1 - first) / max(populations - 1, 1), (populations - 1, individuals))
        weights = jnp.concatenate([first[None], other_weights]).T.astype(bound.sites[roles.weights].dtype)
        log_first = prior.density(bound, {roles.weights: weights, roles.origins: origins})
        return jnp.round(jnp.exp(log_first) * (base + 1) - 1).astype(jnp.int32)

    number = digit(jnp.arange(individuals) // base) * base + digit(jnp.arange(individuals) % base)
    return jnp.clip(number, 0, individuals - 1)


def _largest_relative_difference(computed: Array, expected: Array) -> Array:
    """The largest difference of elements, over 1 plus the size of what is expected; infinite where one is NaN."""
    gap = jnp.where(computed == expected, 0.0, jnp.abs(computed - expected) / (1 + jnp.abs(expected)))
    return jnp.where(jnp.isnan(gap), jnp.inf, gap).max()


def spread_over_devices(roles: Membership, bound: Bound, mesh: Mesh) -> Membership:
    """The roles with individuals spread over the devices of a mesh, whose axis is named "individual" or as their plate.

    Raises ValueError for a mesh without their axis, or with another one.
    """
    names = {INDIVIDUAL_AXIS, *(plate.name for plate in bound.sites[roles.weights].plates)}
    if len(mesh.axis_names) != 1 or mesh.axis_names[0] not in names:
        raise ValueError(f"mesh has axes {list(mesh.axis_names)}; expected one named '{INDIVIDUAL_AXIS}'")
    shape = roles.shape._replace(devices=devices_from_mesh(mesh))
    if isinstance(shape, TokenShape):
        device = np.asarray(jax.jit(partial(individuals_of_tokens, roles))(bound)) // shape.part.individuals
        shape = shape._replace(max_tokens_per_device=int(np.bincount(device).max()))
    return roles._replace(shape=shape)

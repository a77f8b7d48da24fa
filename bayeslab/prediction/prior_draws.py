"""Checks that forward simulation, one site after the other, draws from the distribution that a program states."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import IntervalCensoredDistribution, LeftCensoredDistribution, RightCensoredDistribution
from numpyro.handlers import substitute, trace

from bayeslab.prediction.pointwise_likelihood import masked_rows
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, init_inside_support, is_random
from bayeslab.programs.tracing.provenance import Fact, trace_data_flow
from bayeslab.programs.wrapped_distributions import innermost_distribution


def without_weights(bound: Bound) -> Bound:
    """The program in which every site counts once: weights of rows say how much the parameters learn from them, not how
    the rows are spread."""
    return replace(bound, unweighted=True) if any(site.weighted for site in bound.sites.values()) else bound


def require_prior_draws(bound: Bound, verb: str) -> None:
    """Raises ValueError for a program whose prior is not what its latent sites draw: improper, weighted, or changed by
    a factor."""
    bound = bound.plain
    require_proper_priors(bound, verb)
    require_samplers(sites_without_sampler(bound), verb, bound.observed)
    for fact in trace_data_flow(bound, bound.latent_shapes).of("density"):
        if bound.sites[fact.site].role == "factor" and fact.reached_by("latent"):
            raise ValueError(
                f"{verb} needs draws from the prior, but factor '{fact.site}' changes it, and nothing draws from that"
            )


def require_latent_draws(bound: Bound, verb: str) -> None:
    """Raises ValueError for a program whose latent sites are not drawn from the densities that they state: improper
    ones, and those that are weighted or masked. Factors are no part of them."""
    require_proper_priors(bound, verb)
    for name, (_, masked) in _density_changes(bound.plain).items():
        if masked and name in bound.latent:
            raise ValueError(f"{verb} needs draws from the prior, but that of site '{name}' is masked, hence improper")


def require_own_densities(bound: Bound, verb: str) -> None:
    """Raises ValueError for a program whose observed sites do not have their own densities alone, because a factor
    depends on their values, or has a term for each of their rows, as the log of a truncated site's mass.

    verb: what is done with a site, as "predict draws".
    """
    for fact in trace_data_flow(bound, bound.latent_shapes).of("density"):
        if bound.sites[fact.site].family == "Unit" and (names := _observed_with_factor(fact, bound)):
            raise ValueError(
                f"{verb} site '{whole_site(names[0])}' from its own distribution, but factor '{fact.site}' "
                "changes it, and nothing draws from that; give the site a distribution that has the factor in it"
            )


def _observed_with_factor(factor: Fact, bound: Bound) -> list[str]:
    """The observed sites whose values a factor depends on; or those whose rows it has a term for, which depends on
    latent sites none of which belongs to the rows: else it may be a prior of these."""
    if names := factor.reached_by("observed"):
        return names
    plates_of = {name: {plate.name for plate in site.plates} for name, site in bound.sites.items()}
    latent = [plates_of[name] for name in factor.reached_by("latent")]
    return [
        name
        for name in bound.observed
        if bound.sites[name].family != "Unit" and plates_of[name] and plates_of[name] <= plates_of[factor.site]
        if latent and not any(plates_of[name] <= plates for plates in latent)
    ]


def require_proper_priors(bound: Bound, verb: str) -> None:
    """Raises ValueError for a latent site whose prior is improper, or weighted."""
    for site in bound.plain.sites.values():
        if site.improper:
            raise ValueError(
                f"{verb} needs draws from the prior, but site '{site.name}' has an improper one ({site.family})"
            )
    require_samplers(sites_without_sampler(bound.plain), verb, bound.latent)
    for name, (weighted, _) in _density_changes(bound.plain).items():
        if weighted and name in bound.latent:
            raise ValueError(f"{verb} needs draws from the prior, but handlers.scale weights that of site '{name}'")


def require_samplers(without: Mapping[str, str], verb: str, names: Collection[str]) -> None:
    """Raises ValueError for the first of these sites that no sampler draws. without: `sites_without_sampler`."""
    if missing := [name for name in names if name in without]:
        raise ValueError(
            f"{verb} draws site '{missing[0]}', but {without[missing[0]]}; give the distribution a method "
            "sample(self, key, sample_shape=())"
        )


def sites_without_sampler(bound: Bound) -> dict[str, str]:
    """The random sites whose distribution has a density but no sampler, as many that users write, and for each the
    reason in words."""
    reasons: dict[str, str] = {}

    def run(bound: Bound, key: Array) -> None:
        model = substitute(bound.unconditioned(key), substitute_fn=init_inside_support)
        for name, site in trace(model).get_trace(**bound.inputs).items():
            if is_random(site):
                try:
                    site["fn"].sample(key)
                except (NotImplementedError, ImportError) as error:
                    said = f" ({error})" if str(error) else ""
                    reasons[name] = f"its distribution {bound.sites[name].family} has no sampler{said}"
                except (TypeError, ValueError):  # it has one, but the shape of a step where its parameters have steps
                    continue

    jax.eval_shape(run, bound, jax.random.PRNGKey(0))
    return reasons


def said_of_sites_not_drawn(reasons: Mapping[str, str]) -> str:
    """A sentence on the observed sites that have no draws, for the reasons given."""
    told = "; ".join(f"site '{name}' is not drawn, because {reason}" for name, reason in reasons.items())
    return f"{told}; what depends on it is drawn given its values"


def require_joint_draws(bound: Bound, verb: str) -> None:
    """Raises ValueError for a program whose forward simulation, data included, does not draw from its joint density."""
    require_prior_draws(bound, verb)
    if censored := [name for name, any_row in jax.device_get(_censored_sites(bound.plain)).items() if any_row]:
        raise ValueError(
            f"{verb} draws data, but those of site '{censored[0]}' are drawn without the censoring that its density "
            "has; give it data of which no row is censored"
        )
    for name, (weighted, masked) in _density_changes(bound.plain).items():
        if weighted:
            raise ValueError(f"{verb} draws data, but handlers.scale weights site '{name}', as no draw of it is")
        if masked and name in bound.latent:
            raise ValueError(f"{verb} needs draws from the prior, but that of site '{name}' is masked, hence improper")


@jax.jit
def _censored_sites(bound: Bound) -> dict[str, Array]:
    """For every site of a censored distribution, whether a row is censored: by an interval always, as bounds are no
    draw."""
    model = substitute(bound.unconditioned(jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
    sites = trace(model).get_trace(**bound.inputs)
    fns = {name: innermost_distribution(site["fn"]) for name, site in sites.items() if is_random(site)}
    intervals = {name: jnp.array(True) for name, fn in fns.items() if isinstance(fn, IntervalCensoredDistribution)}
    sided = (LeftCensoredDistribution, RightCensoredDistribution)
    return intervals | {name: jnp.any(fn.censored != 0) for name, fn in fns.items() if isinstance(fn, sided)}


def _density_changes(bound: Bound) -> dict[str, tuple[bool, bool]]:
    """For every random site, whether weights other than 1 multiply its density, and whether a mask hides some of it."""
    return {
        name: (bool(one), bool(other)) for name, (one, other) in jax.device_get(_traced_density_changes(bound)).items()
    }


@jax.jit
def _traced_density_changes(bound: Bound) -> dict[str, tuple[Array, Array]]:
    """What `_density_changes` returns, as arrays, from one run of the program."""
    model = substitute(bound.unconditioned(jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
    sites = trace(model).get_trace(**bound.inputs)
    return {
        name: (
            jnp.any(jnp.asarray(1.0 if site["scale"] is None else site["scale"]) != 1),
            masked_rows(site["fn"]).any(),
        )
        for name, site in sites.items()
        if is_random(site)
    }

"""Refusals of data that are impossible under a program, or of which there are none."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound, init_inside_support
from bayeslab.programs.tracing.provenance import trace_data_flow
from bayeslab.programs.validation import quoted_names
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.sampling.runner import Run
from bayeslab.verification.undefined import describe_undefined


def refuse_nothing_observed(bound: Bound) -> None:
    """Raises ValueError for a program without an observed site and without a factor."""
    if is_prior_alone(bound):
        forgotten = forgotten_arguments(bound)
        raise ValueError(
            f"data give no value to any sample site, so there is nothing to learn from; the sites are "
            f"{list(bound.sites)}{f', and {forgotten}' if forgotten else ''}; simulate() draws from the prior, as do "
            "methods that are named"
        )


def is_prior_alone(bound: Bound) -> bool:
    """Whether a program has neither an observed site nor a factor, so that its posterior is its prior."""
    return not {site.role for site in bound.plain.sites.values()} & {"observed", "factor"}


def forgotten_arguments(bound: Bound) -> str:
    """In words, the arguments that are None, as those are that hand over observed values; empty if there are none."""
    none = [argument.name for argument in bound.settings if argument.tree == jax.tree.structure(None)]
    return f"{quoted_names(none, 'argument')} {'are' if len(none) > 1 else 'is'} None" if none else ""


def refuse_impossible(run: Run, bound: Bound) -> None:
    """Raises ValueError, with the site, for impossible data, which compiled code returns as a frozen 'posterior'."""
    for name in ("elbo", "log_joint"):
        if name in run.history:
            had_converged = np.asarray(run.history.get("converged", np.zeros_like(run.history[name])))[:, 0] == 1
            is_usable = np.isfinite(run.history[name][:, 0]) | had_converged
            if not is_usable.reshape(len(is_usable), -1).any(-1).all():
                _raise_impossible_sites(bound)
    if "lp" in run.draws.stats and not np.isfinite(run.draws.stats["lp"]).any(axis=1).all():
        _raise_impossible_sites(bound)
    if "diverging" in run.draws.stats and np.all(run.draws.stats["diverging"]):
        _refuse_undefined(bound, run.draws.samples)


def _refuse_undefined(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> None:
    """Raises ValueError where a density has a derivative that is not a number, so that no gradient leads anywhere."""
    plain = bound.plain
    if all(name in draws for name in plain.latent):
        values = {name: jnp.asarray(draws[name][0, -1]) for name in plain.latent}
        sites = [name for name in plain.latent if not plain.sites[name].is_discrete]
        if (undefined_text := describe_undefined(terms(plain).terms, sites, (plain, values))) is not None:
            raise ValueError(
                f"{undefined_text}, so gradients lead nowhere; look at the values there, or leave them out"
            )


def _at_points(bound: Bound, look: Callable[[dict[str, Any]], dict[Any, Array]]) -> dict[Any, np.ndarray]:
    """What is seen of the trace of a program at 50 points near the middle of supports, and at as many from the prior
    where it can be drawn from."""

    def at_middle(key: Array) -> dict[Any, Array]:
        return look(trace(substitute(seed(bound.program, key), substitute_fn=init_inside_support)).get_trace())

    def at_prior(key: Array) -> dict[Any, Array]:
        return look(trace(seed(bound.program, key)).get_trace())

    keys = jax.random.split(jax.random.PRNGKey(0), 50)
    seen = [jax.jit(jax.vmap(at_middle))(keys)]
    with suppress(NotImplementedError, ValueError, TypeError):  # an improper prior, or a part of it, has no sampler
        seen.append(jax.jit(jax.vmap(at_prior))(keys))
    return {name: np.concatenate([each[name] for each in seen]) for name in seen[0]}


def _raise_impossible_sites(bound: Bound) -> None:
    """Raises ValueError with the sites whose density is zero or undefined at every point tried, or else at most."""

    def densities(sites: dict[str, Any]) -> dict[str, Array]:
        return {n: s["fn"].log_prob(s["value"]).sum() for n, s in sites.items() if s["type"] == "sample"}

    log_densities = _at_points(bound, densities)
    shares = {name: np.isfinite(values).mean() for name, values in log_densities.items()}
    guilty, tried = [name for name, share in shares.items() if share == 0], "every point tried"
    if not guilty and (guilty := [name for name, share in shares.items() if share < 0.5]):
        tried = "most points tried, and at that where a chain is"
    if factors := [name for name in guilty if bound.plain.sites[name].role == "factor"]:
        raise ValueError(
            f"factor '{factors[0]}' is minus infinity or not a number at {tried}; one that forbids what "
            "does not agree with data leads no method to where they agree: write it as a site that the data observe, "
            "such as numpyro.sample('y', dist.Bernoulli(probs=jnp.where(utility > 0, 1.0, 0.0))) for a threshold"
        )
    if guilty and tried == "every point tried" and (reason := _wrong_parameter(bound, guilty)):
        raise ValueError(reason)
    where = f"of site{'s' if len(guilty) > 1 else ''} {', '.join(map(repr, guilty))}" if guilty else "of the program"
    raise ValueError(
        f"the density {where} is zero or not a number at {tried}, so the data are impossible under this "
        "model or nearly everywhere in it, or its numbers overflow; look at the values, the priors and the units"
    )


def _wrong_parameter(bound: Bound, sites: list[str]) -> str:
    """The sentence that names a parameter which depends on latent sites and is outside of its constraint wherever these
    are, of one of some sites; empty if there is none."""
    plain = bound.plain
    flow = trace_data_flow(plain, plain.latent_shapes)
    facts = {
        (fact.site, fact.name): fact
        for fact in flow.of("valid")
        if fact.site in sites and fact.reached_by("latent") and not fact.name.startswith("_")
    }

    def broken(trace_of_run: dict[str, Any]) -> dict[tuple[str, str], Array]:
        violated = {}
        for site, name in facts:
            family = innermost_distribution(trace_of_run[site]["fn"])
            if name in family.arg_constraints and name in vars(family):  # else it is of a component
                value = vars(family)[name]
                violated[site, name] = ~((family.arg_constraints[name](value)).all() & jnp.isfinite(value).all())
        return violated

    always = [place for place, broken_at in _at_points(plain, broken).items() if broken_at.all()]
    if not always:
        return ""
    fact = facts[always[0]]
    arguments = [argument for argument in fact.reached_by("argument") if argument in plain.arrays]
    source = f"; it is computed from {quoted_names(arguments, 'argument')}" if arguments else ""
    return (
        f"'{fact.name}' of the {fact.family} at site '{fact.site}' must be finite and {fact.expected}, but is not at "
        f"any point tried{source}"
    )

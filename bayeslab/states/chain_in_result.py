"""The chain of hidden states of a program, and the draws that a result has of everything else."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayeslab.distributions import LinearChainCRF, LinearGaussianChain, MarkovChain
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind, bind_new_rows
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.datatree import coordinates, dimensions, has_same_data, posterior_draws
from bayeslab.transforms.collapse import elimination_rules, marginal

if TYPE_CHECKING:
    from xarray import DataTree


class ChainInResult(NamedTuple):
    """A chain and the draws of everything else.

    left: the program with the chain integrated out. draws: (draw, *site). chain: its prior at the first draw.
    dims: of the site. coords: labels by dimension. of_given: log likelihoods (..., step, state) of the states that the
    data give, minus infinity for all others at their steps; None where they give none.
    """

    site: str
    left: Bound
    draws: Values
    chain: Any
    dims: list[str]
    coords: Any
    of_given: np.ndarray | None = None


def read_chain(model: Program, data: Data, tree: "DataTree", site: str | None) -> ChainInResult:
    """The chain of a program and the draws of everything else that a result has.

    Raises ValueError for a program without a chain, for a result without draws of other sites, and for one of other
    data, unless nothing is observed in these: then nothing in them is news of the other sites.
    """
    posterior = posterior_draws(tree, "a summary of states")
    bound = bind(model, data).plain
    site = chain_site(bound, site)
    if not (has_same_data(tree, bound) or _adds_nothing(bound, site, tree)):
        raise ValueError(
            "the result is of other data: give the data of its fit, or new sequences of which nothing is observed"
        )
    of_given = None
    if site in bound.imputed:
        bound, of_given = _with_given_apart(model, data, site)
    names = [name for name in bound.latent if name != site]
    if missing := [name for name in names if name not in posterior]:
        raise ValueError(
            f"the result has no draws of {missing}, on which the states depend; if they were integrated out, recover() "
            "draws them"
        )
    draws = {name: jnp.asarray(posterior[name].values) for name in names}
    for name, value in draws.items():
        if value.shape[2:] != bound.sites[name].shape:
            raise ValueError(
                f"site '{name}' has shape {value.shape[2:]} in the result, but {bound.sites[name].shape} for these data"
            )
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    collapsed, entries = marginal(bound, (site,)), read_entries(data)
    dims, coords = dimensions(bound, entries)[site], coordinates(bound, entries)
    return ChainInResult(site, collapsed, draws, chain_distribution(collapsed, draws), dims, coords, of_given)


def _with_given_apart(model: Program, data: Data, site: str) -> tuple[Bound, np.ndarray]:
    """The program with a whole chain latent of which some states are given, and what these say of its states.

    Raises ValueError where the given states are handed over by the program, or where states are no labels.
    """
    entries = read_entries(data)
    bound = bind_new_rows(model, {name: item for name, item in entries.items() if name != site}).plain
    if site not in entries or site not in bound.latent or site in bound.imputed:
        raise ValueError(
            f"states of '{site}' are given with obs=; give them in the data, as entry '{site}', in place of it"
        )
    if (prior := terms(bound).priors[site]).kind not in (MarkovChain, LinearChainCRF):
        raise ValueError(f"some states of '{site}' are given, and its states are no labels; expected a MarkovChain")
    states = np.asarray(entries[site].value, float)
    is_given = ~np.isnan(states) if entries[site].present is None else np.asarray(entries[site].present)
    is_state = np.arange(prior.num_labels or len(prior.choices or ())) == states[..., None]
    return bound, np.where(is_given[..., None] & ~is_state, -np.inf, 0.0)


def _adds_nothing(bound: Bound, site: str, tree: "DataTree") -> bool:
    """Whether nothing depends on the chain, and what is observed beside it is as it was at the fit."""
    fitted = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    return not any(site in term.depends for term in terms(bound).terms if term.name != site) and all(
        name in fitted and np.array_equal(fitted[name].values, value) for name, value in bound.observed.items()
    )


def chain_site(bound: Bound, site: str | None = None) -> str:
    """The latent site that is a chain; raises ValueError where there is none, or several and no name."""
    kinds = (MarkovChain, LinearChainCRF, LinearGaussianChain)
    chains = [name for name, prior in terms(bound).priors.items() if prior.kind in kinds]
    if site is not None and site not in chains:
        raise ValueError(f"site '{site}' is no latent MarkovChain or LinearGaussianChain; these are {chains}")
    if not chains:
        raise ValueError(f"the program has no latent MarkovChain or LinearGaussianChain, only {list(bound.latent)}")
    if site is None and len(chains) > 1:
        raise ValueError(f"the program has several chains, {chains}; name one, site='{chains[0]}'")
    return chains[0] if site is None else site


def chain_distribution(left: Bound, draws: Values) -> Any:
    """The prior of the chain at the first draw of the other sites."""
    [rule] = elimination_rules(left)
    prior = terms(left.plain).priors[rule.site]
    values = {name: value[0] for name, value in draws.items()}
    return innermost_distribution(jax.jit(prior.distribution)(left.plain, values))

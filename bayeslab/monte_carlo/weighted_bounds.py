"""Bounds of the evidence from several draws of a guide at once: the more, the tighter.

The log of the mean of K weights p(z_k, y) / q(z_k) is on average below log p(y), the less the larger K is; with K = 1
that average is the evidence lower bound (Burda, Grosse and Salakhutdinov 2016, arXiv:1509.00519).
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute
from numpyro.infer.util import compute_log_probs

from bayeslab.methods.guides.automatic import Automatic
from bayeslab.methods.guides.user import UserGuide
from bayeslab.methods.svi import SVI, GuideSampler, GuideState
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Data, Program, precision_scope, raw_key
from bayeslab.sampling.continuation import saved_state
from bayeslab.transforms.analysis import Analysis

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

DRAWS_PER_BATCH = 8
"""The number of draws of all rows that are evaluated side by side."""


def importance_weighted_bounds(
    key: Array | int,
    model: Program,
    data: Data,
    tree: "DataTree",
    method: SVI,
    num_samples: Sequence[int] | int = (1, 10, 100),
) -> "Dataset":
    """Lower bounds of log p(y) from 1, 10 and 100 draws of a fitted guide at once, over all rows.

    tree, method: a fit by SVI and its settings. data: those of the fit, or others, such as rows that were held out,
    where the guide finds the factors of a row from the row itself, and so has no parameters for each.
    num_samples: the number of draws K, or several, ascending. Every bound is an average over 10 times the largest
    number of draws in groups of K.
    Where all sites that are drawn or observed are in one plate, its elements are independent given what is learned,
    and each has a bound of its own: with one for all at once, K would have to grow exponentially with their number.
    Returns a Dataset with bound (num_samples,), its Monte Carlo standard error bound_se, and, for elements of a plate,
    their share element_bound (num_samples, plate).
    Raises ValueError for a method other than SVI or one that integrates sites out, for data of which the guide has no
    parameters, and for numbers of draws that are none.
    """
    from xarray import Dataset

    sizes = np.atleast_1d(np.asarray(num_samples)).tolist()
    if not sizes or not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise ValueError(f"num_samples is {sizes}; expected numbers of draws from 1")
    if not isinstance(method, SVI) or tree.attrs.get("method") != SVI.__name__:
        raise ValueError(
            f"weighted bounds are of a guide that SVI has fitted, not of {tree.attrs.get('method')} and "
            f"{type(method).__name__}"
        )
    with precision_scope():
        bound = bind(model, data)
        sampler = method.plan(Analysis(bound))
        if not isinstance(sampler, GuideSampler):
            raise ValueError("weighted bounds need a guide over all sites, but some are integrated out of this fit")
        try:
            chains = saved_state(tree, sampler, bound)
        except ValueError:
            raise ValueError("the guide of this result has parameters of other shapes than these data need") from None
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), chains)
        keys = jax.random.split(raw_key(key), 10 * max(sizes))
        plate = _common_plate(bound, sampler)
        weights = np.asarray(_log_weights(sampler, plate, state, bound, keys))
    bounds = [_grouped(weights, size) for size in sizes]
    totals = [bound.sum(1) for bound in bounds]
    variables: dict[str, Any] = {
        "bound": ("num_samples", [total.mean() for total in totals]),
        "bound_se": ("num_samples", [total.std(ddof=1) / np.sqrt(total.size) for total in totals]),
    }
    if plate is not None:
        variables["element_bound"] = (("num_samples", plate), np.stack([bound.mean(0) for bound in bounds]))
    return Dataset(variables, {"num_samples": sizes})


def _grouped(weights: np.ndarray, size: int) -> np.ndarray:
    """The log of the mean of so many weights (draw, element) at a time, (group, element)."""
    groups = weights[: len(weights) // size * size].reshape(-1, size, weights.shape[1])
    return np.logaddexp.reduce(groups, axis=1) - np.log(size)


def _common_plate(bound: Bound, sampler: GuideSampler) -> str | None:
    """A plate that all sites of the program and of its guide are in, but for what is learned; None where there is none,
    or where the guide is not a program."""
    if isinstance(sampler.guide, Automatic):
        return None
    drawn = [name for name in bound.latent if name not in bound.learned]
    stacks = [{plate.name for plate in bound.sites[name].plates} for name in (*drawn, *bound.observed)]
    with jax.ensure_compile_time_eval():
        sites = compute_log_probs(seed(UserGuide(sampler.guide), 0), (bound, bound), {}, {})[1]
    stacks += [{frame.name for frame in sites[name]["cond_indep_stack"]} for name in drawn]
    return next((plate.name for plate in bound.sites[drawn[0]].plates if all(plate.name in s for s in stacks)), None)


@partial(jax.jit, static_argnums=(0, 1))
def _log_weights(sampler: GuideSampler, plate: str | None, state: GuideState, bound: Bound, keys: Array) -> Array:
    """log p(z, y) - log q(z) of draws of the guide, (draw, element of the plate), or (draw, 1) without one."""

    def of_all(key: Array) -> Array:
        stats = sampler.advance(state._replace(key=key), bound)[1].stats
        return (stats["lp"] - stats["log_q"])[None]

    def of_elements(key: Array) -> Array:
        params = sampler.parameters(state)
        guide = substitute(seed(UserGuide(sampler.guide), key), data=params)
        log_q, drawn = compute_log_probs(guide, (bound, bound), {}, {}, sum_log_prob=False)
        values = {name: params[name] if name in bound.learned else drawn[name]["value"] for name in bound.latent}
        log_p, sites = compute_log_probs(bound.program, (), {}, values, sum_log_prob=False)
        for name in bound.learned:
            del log_p[name]
        return _summed_to(plate, log_p, sites) - _summed_to(plate, log_q, drawn)

    return jax.lax.map(of_all if plate is None else of_elements, keys, batch_size=DRAWS_PER_BATCH)


def _summed_to(plate: str | None, log_probs: dict[str, Array], sites: dict[str, Any]) -> Array:
    """The log densities of sites, summed over all axes but that of a plate."""
    total: Any = 0.0
    for name, value in log_probs.items():
        [dim] = [frame.dim for frame in sites[name]["cond_indep_stack"] if frame.name == plate]
        total += value.sum([axis for axis in range(-value.ndim, 0) if axis != dim])
    return jnp.asarray(total)

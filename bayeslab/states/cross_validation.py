"""How well a program predicts parts of its series that it has not seen, and which of several programs does it best."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.diagnostics.score_tables import standard_error, with_differences
from bayeslab.fitting import fit
from bayeslab.methods.mean_field import MeanField
from bayeslab.prediction.predict import predict
from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.results.datatree import dimensions
from bayeslab.sampling.protocols import Method
from bayeslab.states.summaries import DRAWS_PER_BATCH, chain_site
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.masked import Masked

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

MIN_SEQUENCES_FOR_LOO = 5
"""The smallest number of sequences for leave-one-out."""
MIN_DRAWS_FOR_LOO = 100
"""The smallest number of draws for importance sampling."""


def held_out(
    key: Array | int, model: Program, data: Data, method: Method, blocks: int = 10, site: str | None = None
) -> "Dataset":
    """The log predictive density of hidden parts of the series, by cross-validation.

    Steps in a row are hidden, a part of every sequence, or whole sequences where there are at least `blocks`; the
    program is fitted to the rest, and log p(hidden | rest) is that of the mean over draws, the states summed over. With
    a point estimate it is that of the point.
    method: for the fits; what is compiled for one serves all. blocks: into how many parts the series are divided.
    site: the chain whose steps are hidden, where the program has several.
    Returns a Dataset with log_density and entries (block,), how many numbers were hidden, and their sum log_score with
    its standard error log_score_se, which takes blocks for independent.
    Raises ValueError for a program without chain, where a sequence has fewer steps with entries than blocks, and where
    observed values are no entry of the data.
    """
    from xarray import Dataset

    masked = Masked(model)
    with precision_scope():
        hidden_masks = _hidden_entries(model, data, blocks, site)
        full_bound = _sum_over_states(bind(masked, data), site)
    keys = jax.random.split(raw_key(key), blocks)
    density = np.empty(blocks)
    for block, names in enumerate(hidden_masks):
        training_data = dict(data) | {name: _hide_elements(data[name], where) for name, where in names.items()}
        tree = fit(keys[block], masked, training_data, method, progress=False)
        with precision_scope():
            training_bound = replace(bind(masked, training_data), transform=full_bound.transform)
            density[block] = _log_predictive(full_bound, training_bound, _flat_draws(tree, full_bound))
    entries = [sum(int(where.sum()) for where in names.values()) for names in hidden_masks]
    scores = {"log_density": ("block", density), "entries": ("block", entries)}
    return Dataset({**scores, "log_score": density.sum(), "log_score_se": standard_error(density)})


def choose(
    key: Array | int,
    model: Program,
    data: Data,
    name: str,
    values: Iterable[Any],
    method: Method | None = None,
    blocks: int = 10,
    site: str | None = None,
) -> "Dataset":
    """Scores of a program for several values of one of its arguments, such as the number of states.

    name, values: the argument, "num_states", and what to give it, range(1, 6).
    method: for all fits; by default MeanField. blocks, site: as for `held_out`.
    Returns a Dataset with a row for every value:
    log_score, log_score_se: as `held_out` returns them. difference, difference_se: from the best of these scores.
    evidence_bound: the log evidence of Exact, else the bound of MeanField, of one of the orders of exchangeable states.
    loo, loo_se, loo_k: leave-one-sequence-out by importance sampling, and its largest Pareto k (reliable below 0.7).
    What does not apply is NaN, with the reason in the attrs of the variable; the attrs have `best`, by log_score.
    Raises ValueError for no value, an unknown argument, and as `held_out` does.
    """
    from xarray import concat

    values = list(values)
    if not values:
        raise ValueError(f"choose needs values of '{name}' to choose from, got none")
    if name not in parameters(model):
        raise ValueError(f"'{name}' is no argument of the program; these are {list(parameters(model))}")
    method = MeanField() if method is None else method
    rows = []
    for value, value_key in zip(values, jax.random.split(raw_key(key), len(values)), strict=True):
        keys, data_of_value = jax.random.split(value_key, 4), dict(data) | {name: value}
        row = held_out(keys[0], model, data_of_value, method, blocks, site)
        tree = fit(keys[1], Masked(model), data_of_value, method, progress=False)
        rows.append(
            row.assign(
                _evidence_bound(keys[2], model, data_of_value, tree) | _loo(keys[3], model, data_of_value, tree, site)
            )
        )
    table = concat(rows, dim=name, combine_attrs="drop_conflicts").assign_coords({name: values})
    return with_differences(table, name).assign_attrs(method=type(method).__name__)


def _sum_over_states(bound: Bound, site: str | None) -> Bound:
    """The program with the states summed over."""
    chain = chain_site(bound.plain, site)
    return marginal(bound, (chain,)) if chain in bound.latent else bound


def _flat_draws(tree: "DataTree", left: Bound) -> Values:
    """The draws (draw, *site) of the sites that are not summed over."""
    posterior = tree["posterior"]
    draws = {name: jnp.asarray(posterior[name].values) for name in left.latent}
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


@jax.jit
def _log_predictive(whole: Bound, part: Bound, draws: Values) -> Array:
    """The log predictive density log p(hidden | rest), from draws given the rest."""

    def gain(values: Values) -> Array:
        return whole.log_joint(values) - part.log_joint(values)

    if not draws:
        return gain({})
    gains = jax.lax.map(gain, draws, batch_size=DRAWS_PER_BATCH)
    return jax.nn.logsumexp(gains) - jnp.log(len(gains))


def _hidden_entries(model: Program, data: Data, blocks: int, site: str | None) -> list[dict[str, np.ndarray]]:
    """For every block, the entries of the observed sites that it hides, as masks of their shapes."""
    from xarray import DataArray

    if blocks < 2:
        raise ValueError(f"blocks must be at least 2, but is {blocks}")
    bound = bind(model, data).plain
    dims, chain = dimensions(bound, read_entries(data)), bound.sites[chain_site(bound, site)]
    batch = len(chain.shape) - chain.event_dim
    *sequences, step = dims[chain.name][: batch + 1]
    observed_masks: dict[str, Any] = {}
    unnamed = []
    for name, value in bound.observed.items():
        axes = list(dims[name])
        if step not in axes and value.shape[: batch + 1] == chain.shape[: batch + 1]:
            axes[batch] = step
        if step not in axes:
            continue
        if (entry_name := _entry_of(name, bound, data)) is None:
            unnamed.append(name)
            continue
        mask = np.asarray(bound.present.get(name, True))
        observed_masks[entry_name] = DataArray(
            np.ones(value.shape, bool) & mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)), dims=axes
        )
    if unnamed and not observed_masks:
        raise ValueError(
            f"no entry of the data has the values of site '{unnamed[0]}' as they are; give them as entry '{unnamed[0]}'"
        )
    if not observed_masks:
        raise ValueError(
            f"no observed site has the steps of '{chain.name}'; name its axis with infer={{'event_dims': [...]}}"
        )
    seen: Any = False
    for mask in observed_masks.values():
        seen = seen | mask.any([dim for dim in mask.dims if dim not in (*sequences, step)])
    seen = seen.transpose(*[dim for dim in sequences if dim in seen.dims], step)
    numbers = seen.copy(data=_block_numbers(seen.values.reshape(-1, seen.sizes[step]), blocks).reshape(seen.shape))
    return [
        {name: ((numbers == block) & mask).transpose(*mask.dims).values for name, mask in observed_masks.items()}
        for block in range(blocks)
    ]


def _entry_of(site: str, bound: Bound, data: Data) -> str | None:
    """The entry of the data that gives an observed site its values: the one of its name, or the argument that the
    program gives it; None where there is none or several."""
    if site in data:
        return site
    values = np.asarray(bound.observed[site])
    same = [
        name
        for name, array in bound.arrays.items()
        if name in data and array.shape == values.shape and bool(((array == values) | (array != array)).all())
    ]
    return same[0] if len(same) == 1 else None


def _block_numbers(seen: np.ndarray, blocks: int) -> np.ndarray:
    """The block of every step (sequence, step), -1 where there is nothing to hide."""
    numbers = np.full(seen.shape, -1)
    nonempty = np.flatnonzero(seen.any(1))
    if len(nonempty) >= blocks:
        for block, rows in enumerate(np.array_split(nonempty, blocks)):
            numbers[rows] = block
        return np.where(seen, numbers, -1)
    for row in nonempty:
        for block, steps in enumerate(np.array_split(np.flatnonzero(seen[row]), blocks)):
            numbers[row, steps] = block
    if len(np.unique(numbers[numbers >= 0])) < blocks:
        raise ValueError(f"no sequence has entries at {blocks} steps; take fewer blocks")
    return numbers


def _hide_elements(value: Any, where: np.ndarray) -> Any:
    """An entry with some of its elements missing, and the labels that it has."""
    from xarray import DataArray

    [item] = read_entries({"": value}).values()
    is_present = np.ones(where.shape, bool) if item.present is None else item.present
    masked_values = np.where(is_present & ~where, np.asarray(item.value, float), np.nan)
    if item.dims and all(item.dims):
        return DataArray(
            masked_values, {item.dims[axis]: list(labels) for axis, labels in item.labels.items()}, item.dims
        )
    return masked_values


def _evidence_bound(key: Array, model: Program, data: Data, tree: "DataTree") -> dict[str, Any]:
    """The log evidence of a fit, or its bound, or that of a fit by MeanField."""
    if "log_evidence" in tree.attrs:
        return {"evidence_bound": tree.attrs["log_evidence"]}
    if tree.attrs["method"] == MeanField.__name__:
        return {"evidence_bound": tree.attrs["elbo"]}
    try:
        mean_field_fit = fit(key, Masked(model), data, MeanField(num_samples=1), progress=False)
    except ValueError as reason:
        return {"evidence_bound": ((), np.nan, {"reason": str(reason)})}
    return {"evidence_bound": mean_field_fit.attrs["elbo"]}


def _loo(key: Array, model: Program, data: Data, tree: "DataTree", site: str | None) -> dict[str, Any]:
    """The leave-one-out score of whole sequences, whose states are summed over, by importance sampling."""
    from arviz_base import from_dict
    from arviz_stats import loo

    reason, density = "", np.empty((1, 1, 0))
    with precision_scope():
        bound = bind(model, data).plain
        chain = bound.sites[chain_site(bound, site)]
    sequences = int(np.prod(chain.batch_shape))
    if tree["posterior"].sizes["draw"] < MIN_DRAWS_FOR_LOO:
        reason = f"needs at least {MIN_DRAWS_FOR_LOO} draws of the posterior"
    elif sequences >= MIN_SEQUENCES_FOR_LOO:
        group = predict(key, Masked(model), data, tree)["log_likelihood"]
        if len(group.data_vars) == 1 and chain.name in group.attrs["integrated_out"]:
            density = next(iter(group.data_vars.values())).values
            density = density.reshape(*density.shape[:2], -1)
            density = density[..., np.isfinite(density).all((0, 1))]
    if not reason and density.shape[2] < MIN_SEQUENCES_FOR_LOO:
        reason = f"needs at least {MIN_SEQUENCES_FOR_LOO} sequences that are independent given the parameters"
    if reason:
        return {name: ((), np.nan, {"reason": reason}) for name in ("loo", "loo_se", "loo_k")}
    if (np.ptp(density, axis=(0, 1)) == 0).all():  # nothing but the states was unknown
        return {"loo": density[0, 0].sum(), "loo_se": standard_error(density[0, 0]), "loo_k": -np.inf}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = loo(from_dict({"posterior": {"y": density}, "log_likelihood": {"y": density}}), pointwise=True)
    return {"loo": result.elpd, "loo_se": result.se, "loo_k": float(result.pareto_k.max())}

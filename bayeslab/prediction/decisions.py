"""Decisions: the expected loss of every action under a posterior, with its Monte Carlo error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.programs.program import Values, precision_scope
from bayeslab.results.datatree import posterior_draws
from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

DRAWS_PER_BATCH = 1000
"""Draws whose losses are computed together."""


def decide(
    tree: DataTree,
    loss: Callable[[Any, Values], Array],
    actions: Mapping[str, Any] | Sequence[Any],
    group: str = "posterior",
) -> Dataset:
    """The expected loss of every action, and which is best.

    loss: (action, values of all sites of one draw by name) -> a number, of JAX's operations.
    actions: what the loss is given, by name or one after the other; numbers, arrays or dictionaries of them, all alike.
    group: of the draws: "posterior", or "predictions" of what `predict` returns.
    Returns a Dataset over `action`: `expected_loss` and `expected_loss_mcse`, its Monte Carlo error; `excess` over the
    best action and `excess_mcse`, which is smaller than the two errors together, as all actions are judged on the same
    draws.
    attrs: `best`, the action with the smallest expected loss, and `undecided`, those whose excess is below three
    errors.
    The weights of `ImportanceSampling`, `SIR` and `AnnealedImportance` are used where the result has them.
    Raises ValueError for no action, for a loss that is no single number, or one that JAX cannot trace.
    """
    from xarray import Dataset

    names, values = ([*actions], [*actions.values()]) if isinstance(actions, Mapping) else ([*actions], [*actions])
    if not values:
        raise ValueError("decide needs an action, got none")
    losses, log_weight = _losses_of_draws(tree, loss, values, group)
    losses = losses.assign_coords(action=[name if np.isscalar(name) else place for place, name in enumerate(names)])
    expected = _weighted_mean(losses, log_weight)
    if not np.isfinite(expected).all():
        worst = losses["action"].values[int(np.argmax(~np.isfinite(expected.values)))].item()
        raise ValueError(f"the expected loss of action {worst!r} is not finite; look at the loss at extreme draws")
    best = int(expected.argmin("action"))
    excess = losses - losses.isel(action=best, drop=True)
    table = Dataset(
        {
            "expected_loss": expected,
            "expected_loss_mcse": _error(losses, log_weight),
            "excess": expected - expected.isel(action=best, drop=True),
            "excess_mcse": _error(excess, log_weight),
        }
    )
    near = (table["excess"] <= 3 * table["excess_mcse"]) & (np.arange(len(values)) != best)
    label = losses["action"].values
    return table.assign_attrs(best=label[best].item(), undecided=[each.item() for each in label[near.values]])


def _losses_of_draws(
    tree: DataTree, loss: Callable[[Any, Values], Array], actions: Sequence[Any], group: str
) -> tuple[DataArray, DataArray | None]:
    """The loss of every draw and action, (chain, draw, action), and the log weights of draws, None where they are
    equal."""
    from xarray import DataArray

    log_weight = None
    if group == "posterior" and "weighted_posterior" in getattr(tree, "children", ()):
        draws = tree["weighted_posterior"].to_dataset()
        log_weight = draws["log_weight"]
        draws = draws.drop_vars("log_weight")
    elif group == "posterior":
        draws = posterior_draws(tree, "decide")
    elif group in getattr(tree, "children", ()):
        draws = tree[group].to_dataset().transpose(*SAMPLE_DIMS, ...)
    else:
        raise ValueError(f"decide needs group {group!r} of the tree, which has {sorted(getattr(tree, 'children', ()))}")
    values = {str(name): array.values for name, array in draws.data_vars.items()}
    shape = draws.sizes["chain"], draws.sizes["draw"]

    def losses(one: Values) -> Array:
        results = [jnp.asarray(loss(action, dict(one))) for action in actions]
        if any(result.shape != () for result in results):
            shapes = next(result.shape for result in results if result.shape != ())
            raise ValueError(f"the loss must be one number for a draw and an action, but has shape {shapes}")
        return jnp.stack([result.astype(float) for result in results])

    with precision_scope():
        flat = {name: jnp.asarray(array.reshape(-1, *array.shape[2:])) for name, array in values.items()}
        try:
            loss_values = np.asarray(jax.jit(lambda flat: jax.lax.map(losses, flat, batch_size=DRAWS_PER_BATCH))(flat))
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise ValueError(
                "the loss must be made of JAX's operations: in place of if, max and NumPy jnp.where, jnp.maximum, jnp"
            ) from error
    coords = {name: draws.coords[name] for name in SAMPLE_DIMS if name in draws.coords}
    return DataArray(loss_values.reshape(*shape, -1), dims=(*SAMPLE_DIMS, "action"), coords=coords), log_weight


def _weighted_mean(losses: DataArray, log_weight: DataArray | None) -> DataArray:
    """The mean over draws, (action,)."""
    if log_weight is None:
        return losses.mean(SAMPLE_DIMS)
    weights: DataArray = np.exp(log_weight - log_weight.max())  # type: ignore[assignment]
    return (weights * losses).sum(SAMPLE_DIMS) / weights.sum()


def _error(losses: DataArray, log_weight: DataArray | None) -> DataArray:
    """The Monte Carlo error of the mean, (action,): zero of what is the same in all draws."""
    import arviz_stats  # noqa: F401  (registers the accessor azstats)

    if log_weight is not None:
        weights = np.exp(log_weight - log_weight.max())
        weights = weights / weights.sum()
        squares: DataArray = weights**2 * (losses - _weighted_mean(losses, log_weight)) ** 2
        return squares.sum(SAMPLE_DIMS) ** 0.5
    constant = losses.max(SAMPLE_DIMS) == losses.min(SAMPLE_DIMS)
    if losses.sizes["chain"] * losses.sizes["draw"] < 4:
        return losses.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True) * np.nan
    with np.errstate(all="ignore"):
        return losses.azstats.mcse(method="mean").where(~constant, 0.0)

"""recover(): draws of the sites that a collapsed program has integrated out."""

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.results.datatree import has_same_data, posterior_draws, to_datatree
from bayeslab.results.draw_batches import map_draws
from bayeslab.transforms.collapse import draw_eliminated, elimination_rules, marginal
from bayeslab.transforms.draw_checks import check_draws, conditionals_of_blocks

if TYPE_CHECKING:
    from xarray import DataTree


def recover(key: Array | int, model: Program, data: Data, tree: "DataTree") -> "DataTree":
    """The result with draws of the sites that it lacks, each from its conditional given the draw of the others.

    model, data: those of the fit; the model as it was fitted, or before it was collapsed.
    tree: what `fit` returned for a collapsed program. It is not changed.
    What the program computes from the sites is computed anew. With the draws of the others these are draws of the joint
    posterior.
    Raises ValueError where the result is of other data, lacks no site, or lacks one that cannot be integrated out, and
    FalseConditional where a conditional does not hold at the draws.
    """
    posterior = posterior_draws(tree, "recover")
    with precision_scope():
        bound = bind(model, data).plain
        if not has_same_data(tree, bound):
            raise ValueError("the result is of other data, so its sites cannot be drawn given these")
        present = {name: posterior[name].values for name in bound.latent if name in posterior}
        missing = tuple(name for name in bound.latent if name not in present)
        if not missing:
            raise ValueError(
                f"the result has draws of all latent sites {list(bound.latent)}: there is nothing to recover"
            )
        collapsed_bound = marginal(bound, missing)
        chains, draws = (posterior.sizes[name] for name in ("chain", "draw"))
        flat = {name: jnp.asarray(value).reshape(-1, *value.shape[2:]) for name, value in present.items()}
        keys = jax.random.split(raw_key(key), chains * draws)
        drawn = jax.device_get(recovered_draws(keys, collapsed_bound, flat))
        shaped = {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in drawn.items()}
        rules = elimination_rules(collapsed_bound)
        check_draws(bound, present | shaped, partial(conditionals_of_blocks, blocks=[rules]))
        added = to_datatree({"posterior": shaped}, bound, read_entries(data))["posterior"].to_dataset()
    added = added.assign_coords(chain=posterior["chain"], draw=posterior["draw"])
    result = tree.copy()
    result["posterior"] = posterior.assign(added.data_vars)[[*added.data_vars]].assign_attrs(posterior.attrs)
    return result


@jax.jit
def recovered_draws(keys: Array, collapsed_bound: Bound, latent: Values) -> Values:
    """Draws (draw, *site) of all latent sites and of deterministic ones, from draws of those not integrated out."""

    def run(key_and_values: tuple[Array, Values]) -> Values:
        values = draw_eliminated(key_and_values[0], collapsed_bound, key_and_values[1])
        return values | deterministic_values(collapsed_bound.plain, values)

    return map_draws(run, (keys, latent))

"""The posterior mode at many values of one argument: the path of a lasso, of a ridge, of a sparse classifier."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from bayeslab.elimination.terms import terms
from bayeslab.programs import unconstrained
from bayeslab.programs.binding import bind, suggestion
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope
from bayeslab.programs.tracing.provenance import trace_data_flow
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.datatree import coordinates, dimensions
from bayeslab.supervised.proximal_newton import Minimum, minimise

if TYPE_CHECKING:
    from xarray import Dataset


def penalty_path(model: Program, data: Data, values: Mapping[str, ArrayLike]) -> "Dataset":
    """The mode of the posterior, as `MAP` has it, at every value of one argument, in one compiled call.

    values: the name of an argument and the numbers (penalty,) that it takes, such as {"b": np.geomspace(1, 1e-3)};
    each mode is where the next one is looked for, so that they should be in an order.
    Sites with a Laplace prior are exactly at its location where that is the mode: the path of `bayesian_lasso` is that
    of the lasso, of `ridge` that of ridge regression, of a logistic regression with Laplace priors that of the sparse
    one. With the penalties alpha of scikit-learn's Lasso for n rows, b is sigma^2 / (n alpha).
    Returns a Dataset with a dimension of the argument's name: the sites, log_joint, and converged, whether no step
    leads further up. Raises ValueError for an argument that the program does not have or that is no single number, for
    values that are not finite, for discrete sites, and for a Laplace prior whose scale or location is a site.
    """
    from xarray import Dataset

    if len(values) != 1:
        raise ValueError(f"values name one argument and give its values, but there are {len(values)}: {list(values)}")
    [(name, given)] = values.items()
    grid = np.asarray(given, float)
    if grid.ndim != 1 or not grid.size or not np.isfinite(grid).all():
        raise ValueError(f"values of '{name}' must be finite numbers along one axis, in an array that is not empty")
    with precision_scope():
        bound = bind(model, data).plain
        _refuse_other_arguments(bound, name)
        for value in (grid.min(), grid.max()):  # where it is a hyperparameter, its support is an interval
            bind(model, {**read_entries(data), name: float(value)})
        laplace = _laplace_sites(bound)
        start, _ = ravel_pytree(unconstrained.random_position(jax.random.PRNGKey(0), bound, 0.1))
        modes, sites = jax.device_get(_path(bound, jnp.asarray(grid), start, name, laplace))
        entries = read_entries(data)
        dims, coords = dimensions(bound, entries), coordinates(bound, entries)
    variables = {site: ((name, *dims[site]), value + 0.0) for site, value in sites.items()}  # minus zero is zero
    variables |= {"log_joint": ((name,), -modes.value), "converged": ((name,), modes.converged)}
    path = Dataset(variables, {name: grid})
    return path.assign_coords({dim: labels for dim, labels in coords.items() if dim in path.dims})


@partial(jax.jit, static_argnames=("name", "laplace"))
def _path(bound: Bound, grid: Array, start: Array, name: str, laplace: tuple[str, ...]) -> tuple[Minimum, Values]:
    """The modes, one after the other, and the values of sites there."""

    def mode(position: Array, value: Array) -> tuple[Array, tuple[Minimum, Values]]:
        here = replace(bound, arrays=bound.arrays | {name: value.astype(bound.arrays[name].dtype)})
        weight, centre = _absolute_values(here, laplace)

        def smooth(flat: Array) -> Array:
            return -unconstrained.flat_log_joint(here, flat) - jnp.sum(weight * jnp.abs(flat - centre))

        optimum = minimise(smooth, weight, centre, position)
        return optimum.position, (optimum, unconstrained.constrain_flat(here, optimum.position))

    return jax.lax.scan(mode, start, grid)[1]


def _absolute_values(bound: Bound, laplace: tuple[str, ...]) -> tuple[Array, Array]:
    """The weight and the centre (coordinate,) of every absolute value in minus the log joint, zero elsewhere."""
    priors = terms(bound).priors
    laplace_priors: dict[str, Any] = {n: innermost_distribution(priors[n].distribution(bound, {})) for n in laplace}
    weight, centre = {}, {}
    for site, shape in unconstrained.unconstrained_shapes(bound):
        prior = laplace_priors.get(site)
        weight[site] = jnp.zeros(shape) if prior is None else jnp.broadcast_to(1 / prior.scale, shape)
        centre[site] = jnp.zeros(shape) if prior is None else jnp.broadcast_to(prior.loc, shape)
    return ravel_pytree(weight)[0], ravel_pytree(centre)[0]


def _laplace_sites(bound: Bound) -> tuple[str, ...]:
    """The sites with a Laplace prior.

    Raises ValueError for discrete sites, and for one whose prior depends on another site.
    """
    if discrete := [name for name in bound.latent if bound.sites[name].is_discrete]:
        raise ValueError(
            f"site '{discrete[0]}' is discrete, and modes move along numbers; collapse it, or fit by MAP()"
        )
    names = tuple(name for name in bound.latent if bound.sites[name].family == "Laplace")
    for fact in trace_data_flow(bound, bound.latent_shapes).of("parameter"):
        if fact.site in names and (reached := fact.reached_by("latent")):
            raise ValueError(
                f"the Laplace prior of '{fact.site}' depends on site '{reached[0]}', so its mode is no lasso; "
                "make that an argument"
            )
    return names


def _refuse_other_arguments(bound: Bound, name: str) -> None:
    """Raises ValueError unless an argument is one number that is data."""
    numbers = [argument for argument, value in bound.arrays.items() if value.ndim == 0]
    if name not in numbers:
        raise ValueError(f"'{name}' is no argument that is one number; those are {numbers}.{suggestion(name, numbers)}")

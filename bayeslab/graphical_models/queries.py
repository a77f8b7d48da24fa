"""Probabilities of any elements of a discrete program, given any others, without draws."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution, log_partition, table_probs
from bayeslab.distributions.factor_graphs.factor_graph import EliminationPlan
from bayeslab.graphical_models.discrete_programs import DiscreteProgram, discrete_program
from bayeslab.graphical_models.missing_elements import with_latent_leaves
from bayeslab.programs.binding import bind_changed
from bayeslab.programs.program import Data, Program, precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all, partial_once
from bayeslab.transforms.collapse import collapse

if TYPE_CHECKING:
    from xarray import DataArray, Dataset


def query(model: Program, data: Data, of: str | Sequence[str], given: Mapping[str, Any] | None = None) -> "DataArray":
    """The table of probabilities p(of | given, data), by variable elimination.

    data: as `fit` takes them. What they leave latent is discrete, or continuous and conjugate, which is integrated out,
        as `bl.collapse` does.
    of: a site, an element of one such as "z[0, 3]", or several of these, whose joint table has an axis for each. A site
    with many elements stands alone: the table has a row of probabilities for every element.
    given: what is known beside the data, by the names of sites or elements: {"rain": 1, "z[2]": 0}. Arrays may have
    NaN.
    The attribute `log_evidence` is log p(data, given).
    Raises ValueError for a name that is no discrete latent element, evidence of probability zero, a continuous latent
    site that cannot be integrated out exactly, and where the sum takes too large a table.
    """
    from xarray import DataArray

    with precision_scope():
        model = _without_continuous_sites(model, data)
    program = discrete_program(model, data, given)
    names = [of] if isinstance(of, str) else list(of)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"of names {names}, but needs one or more names, each once")
    with precision_scope():
        log_evidence = _log_evidence(program, given or {})
        attrs = {"log_evidence": log_evidence}
        if len(names) == 1 and names[0] in program.field.names and names[0] not in program.names:
            return _each_element(program, names[0], attrs)
        scope = tuple(program.place(name) for name in names)
        [probs] = marginals(program, [scope])
    coords = {name: list(program.values[element]) for name, element in zip(names, scope, strict=True)}
    return DataArray(probs, coords, names, "probability", attrs)


def most_probable_explanation(model: Program, data: Data, given: Mapping[str, Any] | None = None) -> "Dataset":
    """The most probable values of all latent sites together, given the data, as variables of a Dataset.

    That is variable elimination with maxima in place of sums; `bl.MAP()` gives the same as a fit, but that missing
    entries on which nothing depends are summed over there. Of several that are equally probable it is one.
    given: as for `query`, whose errors it raises.
    Attributes: `log_probability` of these values given all that is known, `log_joint`, and `log_evidence`.
    """
    from xarray import DataArray, Dataset

    program = discrete_program(model, data, given)
    with precision_scope():
        log_evidence = _log_evidence(program, given or {})
        [(mode, log_prob)] = evaluate_all([partial_once(_mode_and_log_prob, program.plan())], program.flat())
        log_probability = float(log_prob)
        modes = {name: np.ravel(value) for name, value in program.field.named(mode).items()}
    values = {name: _in_whole_site(program, name, value) for name, value in modes.items()}
    attrs = {
        "log_probability": log_probability,
        "log_joint": log_probability + log_evidence,
        "log_evidence": log_evidence,
    }
    return Dataset({n: DataArray(v, _coords(program, n), program.dims[n]) for n, v in values.items()}, attrs=attrs)


def _mode_and_log_prob(plan: EliminationPlan, numbers: Array) -> tuple[Array, Array]:
    """The most probable values of all elements together, and their log probability."""
    joint = FactorDistribution(numbers, plan)
    return (mode := joint.mode()), joint.log_prob(mode)


def _without_continuous_sites(model: Program, data: Data) -> Program:
    """The program with its continuous latent sites integrated out; raises ValueError where that cannot be done."""
    bound = bind_changed(model, data, with_latent_leaves)
    continuous = [name for name in bound.latent if not bound.sites[name].is_discrete]
    if not continuous or len(continuous) == len(bound.latent):
        return model
    marginal = collapse(model, *continuous)
    try:
        bind_changed(marginal, data, with_latent_leaves)
    except ValueError as error:
        raise ValueError(
            f"{error}; give values of what is continuous in the data, or count what "
            "fit(key, model, data, bl.Gibbs()) draws of the discrete sites"
        ) from error
    return marginal


def marginals(program: DiscreteProgram, scopes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """The joint table of probabilities of some elements, for every scope: tables of zeros stand for them in the sum."""
    shapes = [tuple(program.cards[each] for each in scope) for scope in scopes]
    sizes = [int(np.prod(shape)) for shape in shapes]
    plan: EliminationPlan = program.plan(*scopes)
    numbers = np.concatenate([program.flat(), np.zeros(sum(sizes))])
    [probs] = evaluate_all([partial_once(table_probs, plan)], numbers)
    probs = probs[len(numbers) - sum(sizes) :]
    parts = np.split(probs, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) / part.sum() for part, shape in zip(parts, shapes, strict=True)]


def _log_evidence(program: DiscreteProgram, given: Mapping[str, Any]) -> float:
    """log p(data, given). Raises ValueError where that is impossible."""
    [log_sum] = evaluate_all([partial_once(log_partition, program.plan())], program.flat())
    log_evidence = float(log_sum) + program.constant
    if not np.isfinite(log_evidence):
        what = f"with {dict(given)} " if given else ""
        raise ValueError(f"the data {what}have probability zero, so nothing can be said given them")
    return log_evidence


def _each_element(program: DiscreteProgram, site: str, attrs: dict[str, float]) -> "DataArray":
    """The probabilities of every element of a site, (*site, value)."""
    from xarray import DataArray

    values = np.array(program.field.choices[program.field.names.index(site)])
    layout = program.layouts[site]
    probs = (layout.known[:, None] == values).astype(float)
    tables = marginals(program, [(element,) for element, _ in layout.latent])
    for (_, place), table in zip(layout.latent, tables, strict=True):
        probs[place] = table
    axis = f"{site}_value"
    array = probs.reshape(*program.shapes[site], len(values))
    coords = _coords(program, site) | {axis: values.tolist()}
    return DataArray(array, coords, [*program.dims[site], axis], "probability", attrs)


def _in_whole_site(program: DiscreteProgram, site: str, of_elements: np.ndarray) -> np.ndarray:
    """The values of a whole site, from those of its elements in the field."""
    layout = program.layouts[site]
    whole = np.where(np.isnan(layout.known), 0, layout.known).astype(of_elements.dtype)
    for element, place in layout.latent:
        whole[place] = of_elements[element - layout.elements.start]
    return whole.reshape(program.shapes[site])


def _coords(program: DiscreteProgram, site: str) -> dict[str, Any]:
    """Labels of the axes of a site, where the data give them."""
    return {dim: program.coords[dim] for dim in program.dims[site] if dim in program.coords}

"""Which covariates a posterior with indicators includes, one by one and together, as that of `spike_slab`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.results.datatree import posterior_draws

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree


def inclusion_probabilities(tree: "DataTree", site: str = "gamma") -> "Dataset":
    """The posterior probability that each indicator is one.

    tree: the result of a fit. site: indicators (covariate,), 0 or 1.
    Returns a Dataset: probability (covariate,), its Monte Carlo standard error mcse, and median_model, whether it is
    above one half: those covariates make the model that predicts best under orthogonal designs (Barbieri and Berger
    2004). Raises ValueError for a site that has other values.
    """
    from xarray import Dataset

    draws = _indicators(tree, site)
    probability = draws.mean(("chain", "draw"))
    return Dataset({"probability": probability, "mcse": _mcse(draws), "median_model": probability > 0.5})


def model_probabilities(tree: "DataTree", site: str = "gamma", max_models: int = 10) -> "Dataset":
    """The posterior probabilities of the sets of covariates that were drawn most often.

    site: indicators (covariate,), 0 or 1. max_models: how many sets are returned, the most probable first.
    Returns a Dataset: probability and mcse (model,), and included (model, covariate); labels of models are the names of
    the covariates. Raises ValueError for a site that has other values, or other than one axis.
    """
    from xarray import DataArray, Dataset

    if not hasattr(max_models, "__index__") or max_models < 1:
        raise ValueError(f"max_models must be a positive integer, but is {max_models!r}")
    draws = _indicators(tree, site)
    if draws.ndim != 3:
        raise ValueError(f"site '{site}' has {draws.ndim - 2} axes; expected one, of covariates")
    [dim] = [dim for dim in draws.dims if dim not in ("chain", "draw")]
    values = draws.transpose("chain", "draw", dim).values.astype(bool)
    sets, which, counts = np.unique(
        values.reshape(-1, values.shape[-1]), axis=0, return_inverse=True, return_counts=True
    )
    top = np.argsort(-counts, kind="stable")[:max_models]
    visited = which.reshape(values.shape[:2])[..., None] == top
    drawn = DataArray(visited.astype(float), dims=("chain", "draw", "model"))
    names = draws[dim].values if dim in draws.coords else np.arange(values.shape[-1])
    labels = [" + ".join(str(name) for name in names[sets[model]]) or "none" for model in top]
    inclusion = Dataset({"probability": drawn.mean(("chain", "draw")), "mcse": _mcse(drawn)})
    return inclusion.assign(included=(("model", dim), sets[top])).assign_coords({"model": labels, dim: names})


def _indicators(tree: "DataTree", site: str) -> "DataArray":
    """The draws (chain, draw, ...) of indicators as 0.0 and 1.0."""
    posterior = posterior_draws(tree, "inclusion")
    if site not in posterior:
        raise ValueError(f"the posterior has no site '{site}', only {sorted(map(str, posterior))}")
    draws = posterior[site]
    if not np.isin(draws.values, (0, 1)).all():
        raise ValueError(f"site '{site}' has other values than 0 and 1, so it includes nothing")
    return draws.astype(float)


def _mcse(draws: "DataArray") -> Any:
    """Monte Carlo standard errors of means, zero where all draws are the same."""
    from arviz_stats import mcse

    with np.errstate(invalid="ignore", divide="ignore"):
        errors = mcse(draws)
    return errors.copy(data=np.nan_to_num(np.asarray(errors.values, float)))

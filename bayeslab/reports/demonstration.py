"""One lecture on its real data, by every method that applies, side by side: tables, figures and results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.compare import compare_parameters
from bayeslab.explaining import explain
from bayeslab.fitting import fit
from bayeslab.methods.em import EM
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.guides.automatic import full_rank_normal
from bayeslab.methods.laplace import MAP, Laplace
from bayeslab.methods.mcmc import NUTS
from bayeslab.methods.mean_field import MeanField
from bayeslab.methods.svi import SVI
from bayeslab.plots import plot_comparison, plot_elbo, plot_posteriors
from bayeslab.prediction.predict import predict
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Data, precision_scope
from bayeslab.reports.comparison_card import comparison_card
from bayeslab.results.parameters import stacked_parameters
from bayeslab.results.saving import save
from bayeslab.sampling.protocols import Method

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataArray, Dataset, DataTree

MAX_RANK_PANELS = 12
"""The largest number of parameters whose ranks are shown."""
MAX_DISCRETE_VALUES = 20
"""The largest number of values of a discrete site for which it is shown how often each of them occurs."""


def demo(lecture: ModuleType, folder: Path, key: int = 0, draws: int = 1000, progress: bool = False) -> Dataset:
    """The table of `compare_posteriors`, printed with all that leads to it; figures and results go to `folder`.

    lecture: a module of `bayeslab.models`; its `data()`, or else its `example()`, is fitted. If it has SITE_DIMS and
        LABELS, every result is aligned to the first by them.
    draws: of each chain of NUTS; the methods that draw independently make as many as all chains together.
    """
    source = getattr(lecture, "data", lecture.example)
    data = source()
    print(f"{first_line(lecture)}\n{first_line(source)}\n\n{explain(lecture.model, data)}\n")
    trees = _fitted(lecture, data, key, draws, progress)
    card = comparison_card(trees)
    reference = card.table.attrs["reference"]
    print(f"\n{_heading(trees, reference)}:\n\n{card}")
    replicated = predict(key + 1, lecture.model, data, trees[reference])
    written = _write(trees, replicated, folder)
    print("\nWritten:", *written, sep="\n  ")
    return card.table


def _heading(trees: Mapping[str, DataTree], reference: str) -> str:
    """What is printed above the card."""
    if len(trees) == 1:
        return f"{reference} is the only method that applies, so there is nothing to compare it with"
    return f"Against {reference}, mean error and distance in its standard deviations"


def first_line(documented: object) -> str:
    """The first line of a docstring."""
    return (documented.__doc__ or "").strip().partition("\n")[0]


def _fitted(lecture: ModuleType, data: Data, key: int, draws: int, progress: bool) -> dict[str, DataTree]:
    """The results of the methods that apply; prints a line for every method."""
    methods, reasons = _methods(lecture, data, draws)
    width = max(map(len, methods | reasons))
    trees: dict[str, DataTree] = {}
    for name, method in methods.items():
        try:
            result = fit(key, lecture.model, data, method, progress=progress)
        except ValueError as error:
            reasons[name] = str(error)
        else:
            trees[name] = _aligned(lecture, result, next(iter(trees.values()), None))
            print(f"{name.ljust(width)}  {_fit_line(trees[name])}", flush=True)
    for name, reason in reasons.items():
        print(f"{name.ljust(width)}  left out: {reason}")
    if hasattr(lecture, "SITE_DIMS"):
        print(f"\nComponents of {', '.join(lecture.SITE_DIMS)} are aligned, in every draw the same order.")
    return trees


def _aligned(lecture: ModuleType, tree: DataTree, reference: DataTree | None) -> DataTree:
    """The tree with components in the order of the reference, where the lecture has components."""
    if not hasattr(lecture, "SITE_DIMS"):
        return tree
    return align(tree, lecture.SITE_DIMS, lecture.LABELS, reference)


def _methods(lecture: ModuleType, data: Data, draws: int) -> tuple[dict[str, Method], dict[str, str]]:
    """The methods to try, and why the others are not worth it."""
    nuts = NUTS(num_samples=draws)
    total = nuts.num_chains * draws
    reasons = {}
    methods: dict[str, Method] = {"Exact": Exact(total), "Gibbs": Gibbs(num_samples=draws), "NUTS": nuts}
    methods |= {"Laplace": Laplace(num_samples=total), "SVI mean field": SVI(num_samples=total)}
    if _dimension(lecture, data) > 1:
        methods["SVI full rank"] = SVI(full_rank_normal(), num_samples=total)
    else:
        reasons["SVI full rank"] = "with one latent number it is the same as mean field"
    return methods | {"MeanField": MeanField(num_samples=total), "MAP": MAP(), "EM": EM()}, reasons


def _dimension(lecture: ModuleType, data: Data) -> int:
    """The number of latent numbers."""
    with precision_scope():
        bound = bind(lecture.model, data)
        return sum(prod(bound.sites[name].shape) for name in bound.latent)


def _fit_line(tree: DataTree) -> str:
    """A line on how long a fit took and what came out."""
    chains, draws = (tree["posterior"].sizes[dim] for dim in ("chain", "draw"))
    known = tree.attrs
    parts = [f"{chains} x {draws:,} draws" if draws > 1 else "a point"]
    parts += [f"compiled in {known['compile_seconds']:.2f} s, ran in {known['sampling_seconds']:.2f} s"]
    if "log_evidence" in known:
        parts.append(f"log evidence {known['log_evidence']:.4f}")
    if "elbo" in known:
        parts.append(f"ELBO {known['elbo']:.2f}")
    if "converged" in known:
        parts.append("converged" if known["converged"] else "not converged")
    return ", ".join(parts)


def _write(trees: Mapping[str, DataTree], replicated: DataTree, folder: Path) -> list[Path]:
    """Writes figures as PNG and results as netCDF; returns their paths."""
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    figures = {name: draw(trees) for name, draw in _FIGURES.items()} | {"predictive": _predictive(replicated)}
    for name, figure in figures.items():
        if figure is not None:
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=110)
            pyplot.close(figure)
    for name, tree in trees.items():
        written.append(folder / f"{name.lower().replace(' ', '_')}.nc")
        save(tree, written[-1])
    return written


def _posteriors(trees: Mapping[str, DataTree]) -> Figure:
    """The posteriors of all methods."""
    return plot_posteriors(trees)[0].figure


def _comparison(trees: Mapping[str, DataTree]) -> Figure | None:
    """The differences from the first result, where there are others."""
    if len(trees) == 1:
        return None
    return plot_comparison(compare_parameters(trees))[0].figure


def _predictive(replicated: DataTree) -> Figure:
    """Replications of the data over the data: densities, or counts of the values where those are few."""
    import arviz
    from xarray import DataTree

    groups = {name: replicated[name].to_dataset() for name in ("posterior_predictive", "observed_data")}
    if all(values.dtype.kind == "f" for values in groups["observed_data"].values()):
        return arviz.plot_ppc_dist(replicated).viz["figure"].item()
    flat = {name: group.map(_flat_entries) for name, group in groups.items()}
    few = all(np.unique(values).size <= MAX_DISCRETE_VALUES for values in flat["posterior_predictive"].values())
    plot = arviz.plot_ppc_rootogram if few else partial(arviz.plot_ppc_dist, kind="ecdf")
    return plot(DataTree.from_dict(flat)).viz["figure"].item()


def _flat_entries(values: DataArray) -> DataArray:
    """Values with all dimensions but chain and draw along one, `entry`."""
    own = [dim for dim in values.dims if dim not in ("chain", "draw")]
    return values.stack({"entry": own}).reset_index("entry", drop=True)


def _rank(trees: Mapping[str, DataTree]) -> Figure | None:
    """The ranks of the draws of NUTS by chain, for the first parameters."""
    import arviz
    from xarray import Dataset, DataTree

    if "NUTS" not in trees:
        return None
    draws = stacked_parameters(trees["NUTS"]["posterior"].to_dataset())[..., :MAX_RANK_PANELS]
    named = Dataset(
        {
            str(parameter.parameter.item()): parameter.drop_vars("parameter")
            for parameter in draws.transpose("parameter", ...)
        }
    )
    columns = min(4, len(named))
    size = (3 * columns, 2.1 * -(-len(named) // columns))
    shown = arviz.plot_rank(
        DataTree.from_dict({"posterior": named}),
        col_wrap=4,
        figure_kwargs={"figsize": size, "layout": "constrained"},
        visuals={"title": {"size": 11}},
    )
    return shown.viz["figure"].item()


def _elbo(trees: Mapping[str, DataTree]) -> Figure | None:
    """The ELBO of every variational fit, below the log evidence where that is known."""
    from matplotlib import pyplot

    runs = {n: t for n, t in trees.items() if "history" in t.children and "elbo" in t["history"]}
    if not runs:
        return None
    evidence = [tree.attrs["log_evidence"] for tree in trees.values() if "log_evidence" in tree.attrs]
    figure, axes = pyplot.subplots(1, len(runs), figsize=(5 * len(runs), 3.4), layout="constrained", squeeze=False)
    for axis, (name, tree) in zip(axes.ravel(), runs.items(), strict=True):
        known = tree.copy()
        known.attrs |= {"log_evidence": evidence[0]} if evidence else {}
        plot_elbo(known, axis).set_title(name)
    return figure


_FIGURES = {"posteriors": _posteriors, "comparison": _comparison, "rank": _rank, "elbo": _elbo}
"""The figures of a demonstration by the names of their files."""

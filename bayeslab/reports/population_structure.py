"""What `bayeslab structure` writes: tables, figures, and a page that says in plain words what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.diagnose import MAX_R_HAT, MIN_ESS_PER_CHAIN
from bayeslab.diagnostics.modes import modes
from bayeslab.plots import plot_ancestry, plot_choice, plot_divergence, styled
from bayeslab.populations.ancestry import ancestry_summary, divergence, match_populations, q_table, write_q
from bayeslab.populations.run import Results, Settings, linkage_warning
from bayeslab.reports.ancestry_sentences import ancestry_sentences, comparison_table
from bayeslab.reports.page import figure_png, image_html, list_html, page_html, table_html
from bayeslab.results.saving import save, save_bytes, save_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset, DataTree

ANCESTRY_DIMS = {"ancestry": "population"}
"""The site that is aligned, with its dimension over populations."""
MAX_USABLE_R_HAT = 1.1
"""The largest R-hat of chains whose means can be used."""
FIGURE_KINDS = {
    "intervals": "mean ancestry of every individual, with the interval of its largest share",
    "trace": "the draws of every chain of the mean ancestry from each population",
    "rank": "the ranks of the draws of every chain",
    "divergence": "how far populations are from each other",
}
"""The kinds of figures that there are for every K, and what they show."""


class Convergence(NamedTuple):
    """How well chains agree, over all shares of ancestry.

    r_hat: the largest. ess: the smallest effective sample size. gap: the largest difference between the means of two
    chains. modes: the number of groups that chains form. chains: their number.
    """

    r_hat: float
    ess: float
    gap: float
    modes: int
    chains: int

    @property
    def words(self) -> str:
        """Whether the chains have converged, and what to do if not."""
        if self.modes > 1:
            return f"no: the chains are in {self.modes} groups, up to {self.gap:.2f} of ancestry apart; run longer"
        if self.r_hat <= MAX_R_HAT and self.ess >= MIN_ESS_PER_CHAIN * self.chains:
            return "yes"
        if self.r_hat <= MAX_USABLE_R_HAT:
            return "nearly: means can be used, intervals are rough"
        return f"no: the chains are up to {self.gap:.2f} of ancestry apart, so intervals are too narrow; run longer"


def write_report(results: Results, settings: Settings, folder: Path) -> Path:
    """Writes all tables and figures, and report.html; returns the path of the latter.

    For every K: K.Q (a row an individual, as ADMIXTURE writes it), ancestry_K.csv and ancestry_K.nc with intervals.
    """
    from matplotlib import rc_context

    (folder / "figures").mkdir(exist_ok=True)
    aligned = {number: align(tree, ANCESTRY_DIMS) for number, tree in results.fits.items()}
    summaries = {number: ancestry_summary(tree) for number, tree in aligned.items()}
    groups = _groups(results.genotypes)
    for number, summary in summaries.items():
        save_text(q_table(summary, groups).to_csv(index=False), folder / f"ancestry_{number}.csv")
        save(summary, folder / f"ancestry_{number}.nc")
        write_q(summary, folder / f"{number}.Q")
    save_text(_choice_table(results.choice).to_csv(), folder / "choice.csv")
    if (table := comparison_table(results, settings)) is not None:
        save_text(table.to_csv(index=False), folder / "comparison.csv")
    with styled(), rc_context({"backend": "agg"}):
        figures = _figures(results, aligned, summaries, groups, folder)
    converged = {number: convergence(tree) for number, tree in aligned.items()}
    page = _page_html(results, settings, figures, converged)
    save_text(page, folder / "report.html")
    return folder / "report.html"


def convergence(tree: DataTree) -> Convergence:
    """The convergence of aligned chains."""
    ancestry = tree["posterior"].to_dataset()["ancestry"].astype(float)
    moves = (ancestry.max(("chain", "draw")) > ancestry.min(("chain", "draw"))).values
    chains, draws = ancestry.sizes["chain"], ancestry.sizes["draw"]
    if not moves.any() or draws < 4:
        return Convergence(1.0, np.inf, 0.0, 1, chains)
    with np.errstate(all="ignore"):
        r_hat = ancestry.azstats.rhat().values[moves].max() if chains > 1 else np.nan
        ess = ancestry.azstats.ess(method="bulk").values[moves].min()
    centres = ancestry.mean("draw")
    gap = float((centres.max("chain") - centres.min("chain")).max())
    return Convergence(float(r_hat), float(ess), gap, modes(tree, ANCESTRY_DIMS).sizes["mode"], chains)


def choice_verdict(choice: Dataset) -> str:
    """Which number of populations the data support, in a sentence or two."""
    numbers, best, smallest = choice["num_populations"].values, choice.attrs["best"], choice.attrs["smallest"]
    if len(numbers) == 1:
        return f"Only K = {best} was run, so there is nothing to choose from."
    words = f"K = {best} predicts genotypes that were hidden best"
    if smallest < best:
        behind = choice.sel(num_populations=smallest)
        difference, error = abs(float(behind["difference"])), float(behind["difference_se"])
        words = (
            f"The data do not tell K = {smallest} and K = {best} apart: K = {best} predicts hidden genotypes better "
            f"by {difference:.1f}, with a standard error of {error:.1f}. By the rule of one standard "
            f"error, which takes the smallest number that is behind by less, it is K = {smallest}"
        )
    words += "."
    if smallest == numbers.max():
        words += " It is the largest that was run; more populations may predict better still."
    if smallest == numbers.min() and smallest > 1:
        words += " It is the smallest that was run; fewer populations may do as well."
    return words


def _groups(genotypes: Dataset) -> list[str] | None:
    """The labels of the groups that individuals were sampled from, None where there are none."""
    return genotypes["population"].values.astype(str).tolist() if "population" in genotypes.coords else None


def _choice_table(choice: Dataset) -> Any:
    """The scores of every K as a DataFrame."""
    columns = ["log_score", "log_score_se", "difference", "difference_se", "evidence_bound"]
    return choice[columns].to_dataframe()[columns]


def _figures(
    results: Results,
    aligned: Mapping[int, DataTree],
    summaries: Mapping[int, Dataset],
    groups: Sequence[str] | None,
    folder: Path,
) -> dict[str, bytes]:
    """All figures as PNG by their names, which are also written to the folder."""
    colours, images = match_populations(summaries), {}

    def keep(name: str, figure: Any) -> None:
        images[name] = figure_png(figure)
        save_bytes(images[name], folder / "figures" / f"{name}.png")

    keep("ancestry", plot_ancestry(summaries, groups)[0].figure)
    if len(summaries) > 1:
        keep("choice", plot_choice(results.choice.drop_vars("evidence_bound")).figure)
    for number, tree in aligned.items():
        axes = plot_ancestry(summaries[number], groups, intervals=True, colours=colours)
        keep(f"intervals_{number}", axes[0].figure)
        for kind in ("trace", "rank") if tree["posterior"].sizes["chain"] > 1 else ("trace",):
            keep(f"{kind}_{number}", _mixing_figure(tree, kind))
        if number > 1:
            divergence_axes = plot_divergence(divergence(results.fits[number]), colours=colours[number].tolist())
            keep(f"divergence_{number}", divergence_axes.figure)
    return images


def _mixing_figure(tree: DataTree, kind: str) -> Figure:
    """ArviZ's traces or ranks of the mean ancestry from each population, after alignment, and of the log joint."""
    import arviz
    from xarray import Dataset, DataTree

    shares = tree["posterior"].to_dataset()["ancestry"].mean("individual")
    named = {f"population {label}": shares.sel(population=label, drop=True) for label in shares["population"].values}
    named = {name: share for name, share in named.items() if float(share.std()) > 0}  # all of it, where there is one
    draws = Dataset(named | {"log joint": tree["sample_stats"].to_dataset()["lp"]})
    size = (13.0, 2.2 * -(-len(draws) // 4) + 0.4)
    plot = {"trace": arviz.plot_trace, "rank": arviz.plot_rank}[kind]
    shown = plot(
        DataTree.from_dict({"posterior": draws}),
        **({"col_wrap": 4} if kind == "rank" else {}),
        figure_kwargs={"figsize": size, "layout": "constrained"},
        visuals={"title": {"size": 11}},
    )
    return shown.viz["figure"].item()


def _page_html(
    results: Results, settings: Settings, figures: Mapping[str, bytes], converged: Mapping[int, Convergence]
) -> str:
    """The report as HTML."""
    smallest = results.choice.attrs["smallest"]
    rows = [
        [
            f"{number}",
            *(f"{value:,.1f}" for value in _choice_table(results.choice).loc[number]),
            f"{chains.r_hat:.3f}",
            f"{chains.ess:.0f} of {settings.chains * settings.draws}" if np.isfinite(chains.ess) else "all",
            f"{chains.gap:.3f}",
            chains.words,
        ]
        for number, chains in converged.items()
    ]
    headings = ["K", "held-out log score", "± se", "behind the best", "± se", "evidence bound", "largest R-hat"]
    headings += ["fewest effective draws", "largest gap of chains", "converged"]
    details = []
    for number in converged:
        shown = "".join(
            image_html(figures[f"{kind}_{number}"], f"K = {number}: {what}")
            for kind, what in FIGURE_KINDS.items()
            if f"{kind}_{number}" in figures
        )
        details.append(
            f"<details{' open' if number == smallest else ''}><summary>K = {number}</summary>{shown}</details>"
        )
    files = ", ".join(f"{number}.Q, ancestry_{number}.csv, ancestry_{number}.nc" for number in converged)
    body = BODY_TEMPLATE.format(
        verdict=escape(choice_verdict(results.choice)),
        converged=escape(_converged_words(converged)),
        what=list_html(_run_sentences(results, settings)),
        table=table_html(headings, rows),
        choice=image_html(figures["choice"], "held-out scores by number of populations") if "choice" in figures else "",
        ancestry=image_html(figures["ancestry"], "mean ancestry of every individual, for each K"),
        details="\n".join(details),
        times=table_html(["step", "seconds"], [[what, f"{seconds:.1f}"] for what, seconds in results.seconds.items()]),
        files=escape(files),
        settings=escape(str(settings)),
    )
    return page_html(f"Population structure of {Path(settings.file).name}", body)


def _run_sentences(results: Results, settings: Settings) -> list[str]:
    """Sentences on the data, the model and the methods."""
    genotypes = results.genotypes
    attrs, size = genotypes.attrs, genotypes["y"].sizes
    sentences = [
        f"{attrs['individuals_read']:,} individuals at {attrs['loci_read']:,} loci were read from {settings.file}; "
        f"{size['individual']:,} individuals and {size['locus']:,} loci, with {size['copy']} copies each, are used.",
        f"{float((genotypes['y'] < 0).mean()):.2%} of the copies were not read; they are left out of the likelihood.",
    ]
    sentences += [f"{name.replace('_', ' ')}: {attrs[name]:,}" for name in sorted(attrs) if name.startswith("removed_")]
    sentences += [f"{warning[0].upper()}{warning[1:]}."] if (warning := linkage_warning(genotypes)) else []
    return [
        *sentences,
        *ancestry_sentences(results, settings),
        "Frequencies of populations are independent, with a uniform prior."
        if settings.independent
        else "Frequencies of populations have drifted from those of all individuals together, each by its own F (the F "
        "model of Falush, Stephens and Pritchard 2003). F is taken from the moments of a mean-field fit: "
        + "; ".join(f"K = {number}: {_numbers(tree.attrs['drift'])}" for number, tree in results.fits.items())
        + ".",
        f"K was chosen by hiding {settings.share:.0%} of the genotypes and predicting them from a mean-field fit to "
        "the rest, with independent frequencies. The evidence bound leans to few populations: there each further one "
        "pays at every locus.",
        f"The posterior for each K is from Gibbs sampling: {settings.chains} chains of {settings.warmup} sweeps of "
        f"warm-up and {settings.draws} draws, one in {settings.thinning} sweeps; seed {settings.seed}.",
    ]


def _numbers(values: Any) -> str:
    """Numbers as text."""
    return ", ".join(f"{value:.3g}" for value in np.atleast_1d(values))


def _converged_words(converged: Mapping[int, Convergence]) -> str:
    """Sentences on which K have converged."""
    words = {number: chains.words.partition(":")[0] for number, chains in converged.items()}
    kinds = {kind: [f"{number}" for number, word in words.items() if word == kind] for kind in ("yes", "nearly", "no")}
    parts = {"yes": "Converged: K = {}.", "nearly": "Nearly converged, intervals are rough: K = {}."}
    parts["no"] = "Not converged, take intervals of these for too narrow and run longer: K = {}."
    return " ".join(parts[kind].format(", ".join(numbers)) for kind, numbers in kinds.items() if numbers)


BODY_TEMPLATE = """<p class="answer">{verdict}</p>
<p class="answer">{converged}</p>
<h2>Ancestry</h2>
<p>A column an individual, a colour a population; the same order of individuals and the same colours for all K.</p>
{ancestry}
<h2>How many populations</h2>
{table}
{choice}
<h2>What was run</h2>
{what}
<h2>Each K by itself</h2>
<p>The largest share of every individual with its 90 % interval; the draws of each chain; how far populations are from
each other.</p>
{details}
<h2>Time</h2>
{times}
<h2>Files</h2>
<p>{files}; choice.csv; genotypes.nc; figures/; fits/K.nc, with all draws.</p>
<p><small>{settings}</small></p>"""
"""The report below its title."""

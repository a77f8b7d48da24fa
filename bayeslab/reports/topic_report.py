"""What `bayeslab topics` writes: tables, figures, and a page that says in plain words what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bayeslab.plots import plot_choice, plot_shares, plot_stability, plot_topics, styled
from bayeslab.reports.page import figure_png, image_html, list_html, page_html, table_html
from bayeslab.results.saving import save, save_bytes, save_text
from bayeslab.topics.run import WORD_WEIGHT, Results, Settings

NUM_DOCUMENTS_OF_TOPIC = 3
"""The number of documents that are named for every topic."""
FIGURES = {
    "topics": "The first words of every topic with 90 % intervals",
    "shares": "The mean shares of topics in documents",
    "stability": "How similar topics are to those of other chains",
    "choice": "Held-out scores by number of topics",
}
"""The figures, and what they show."""


def write_topic_report(results: Results, settings: Settings, source: str, notes: Sequence[str], folder: Path) -> Path:
    """Writes topics.csv, documents.csv, fit.nc, figures and report.html to a folder; returns the path of the latter.

    What an earlier report left there and this one has not, such as choice.csv, is removed.
    source: what documents were read from. notes: sentences on how.
    """
    from matplotlib import rc_context

    if (folder / "report.html").is_file():
        _remove_optional_files(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    save_text(topic_frame(results).to_csv(index=False), folder / "topics.csv")
    save_text(results.documents.to_csv(index=False), folder / "documents.csv")
    if results.choice is not None:
        columns = ["perplexity", "perplexity_se", "log_score", "difference", "difference_se"]
        save_text(results.choice[columns].to_dataframe()[columns].to_csv(), folder / "choice.csv")
    save(results.tree, folder / "fit.nc")
    with styled(), rc_context({"backend": "agg"}):
        figures = _figures(results)
    for name, png in figures.items():
        save_bytes(png, folder / "figures" / f"{name}.png")
    save_text(page_html(f"Topics of {Path(source).name}", _body(results, settings, source, notes, figures)),
              folder / "report.html")  # fmt: skip
    return folder / "report.html"


def _remove_optional_files(folder: Path) -> None:
    """Remove what not every report has, so that none stays beside the report of another run."""
    for path in (folder / "choice.csv", *(folder / "figures" / f"{name}.png" for name in FIGURES)):
        path.unlink(missing_ok=True)


def topic_frame(results: Results) -> Any:
    """A row for every topic and rank: the share of the topic, the word, mean and interval of its probability."""
    frame = results.words[["share", "word", "mean", "low", "high", "in_top"]].to_dataframe().reset_index()
    return frame[["topic", "share", "rank", "word", "mean", "low", "high", "in_top"]]


def topic_records(results: Results) -> list[dict[str, Any]]:
    """Every topic with its share, its first words, the share of other chains with a partner, and its coherence."""
    stability = None if results.matched is None else results.matched["stability"].values
    return [
        {
            "topic": int(name),
            "share": float(results.words["share"].values[place]),
            "words": list(map(str, results.words["word"].values[place])),
            "stability": None if stability is None else float(stability[place]),
            "coherence": {
                measure: float(values[place]) for measure, values in results.coherence.items()
                if np.isfinite(values[place])
            },
        }
        for place, name in enumerate(results.words["topic"].values)
    ]  # fmt: skip


def topics_verdict(results: Results) -> str:
    """How many topics there are, why, and which of them can be trusted, in a few sentences."""
    choice, number = results.choice, results.words.sizes["topic"]
    words = f"{number} topics of {len(results.documents):,} documents."
    if choice is not None:
        best, smallest = choice.attrs["best"], choice.attrs["smallest"]
        scores = choice.sel(num_topics=best)
        words += (
            f" Of {', '.join(map(str, choice['num_topics'].values))}, {best} predict hidden words best, with a "
            f"perplexity of {float(scores['perplexity']):.0f} (standard error {float(scores['perplexity_se']):.0f})."
        )
        if smallest < best:
            behind = choice.sel(num_topics=smallest)
            words += (
                f" The data do not tell {smallest} and {best} apart: {smallest} are behind by "
                f"{abs(float(behind['difference'])):.1f} nats, with a standard error of "
                f"{float(behind['difference_se']):.1f}."
            )
        if best == choice["num_topics"].values.max():
            words += " It is the largest number that was tried; more topics may predict better still."
    if results.matched is not None:
        stable = int((results.matched["stability"].values == 1).sum())
        words += (
            f" {stable} of the {number} are found by all {len(np.unique(results.matched['chain']))} chains; the others "
            "depend on where a chain started, so read them with care."
            if stable < number
            else f" All are found by each of the {len(np.unique(results.matched['chain']))} chains."
        )
    return words


def _figures(results: Results) -> dict[str, bytes]:
    """All figures as PNG by their names."""
    figures = {"topics": plot_topics(results.words)[0].figure, "shares": plot_shares(results.reading).figure}
    if results.matched is not None:
        figures["stability"] = plot_stability(results.matched).figure
    if results.choice is not None:
        figures["choice"] = plot_choice(results.choice).figure
    return {name: figure_png(figure) for name, figure in figures.items()}


def _body(results: Results, settings: Settings, source: str, notes: Sequence[str], figures: Mapping[str, bytes]) -> str:
    """The report below its title, as HTML."""
    records = topic_records(results)
    measures = list(results.coherence)
    rows = [
        [
            str(record["topic"]),
            f"{record['share']:.1%}",
            "" if record["stability"] is None else f"{record['stability']:.0%}",
            *(f"{record['coherence'][name]:.2f}" if name in record["coherence"] else "" for name in measures),
            ", ".join(_documents_of(results, record["topic"])),
            ", ".join(record["words"]),
        ]
        for record in records
    ]
    headings = ["topic", "share", "found by other chains", *(f"coherence {name}" for name in measures)]
    shown = {name: image_html(figures[name], words) if name in figures else "" for name, words in FIGURES.items()}
    seconds = table_html(["step", "seconds"], [[step, f"{each:.1f}"] for step, each in results.seconds.items()])
    return "\n".join(
        [
            f'<p class="answer">{escape(topics_verdict(results))}</p>',
            "<h2>Topics</h2>",
            table_html([*headings, "documents with most of it", "first words"], rows),
            shown["topics"],
            "<h2>Documents</h2>",
            shown["shares"],
            *(["<h2>Which topics other chains find</h2>", shown["stability"]] if shown["stability"] else []),
            *(["<h2>How many topics</h2>", shown["choice"]] if shown["choice"] else []),
            "<h2>What was run</h2>",
            list_html(_run_sentences(results, settings, source, notes)),
            seconds,
            "<h2>Files</h2>",
            f"<p>topics.csv, documents.csv{', choice.csv' if results.choice is not None else ''}, figures/, and fit.nc "
            "with all draws.</p>",
            f"<p><small>{escape(str(settings))}</small></p>",
        ]
    )


def _documents_of(results: Results, topic: int) -> list[str]:
    """The documents with the largest shares of a topic."""
    column = results.documents.set_index("document")[f"topic_{topic}"]
    return [str(name)[:40] for name in column.nlargest(NUM_DOCUMENTS_OF_TOPIC).index]


def _run_sentences(results: Results, settings: Settings, source: str, notes: Sequence[str]) -> list[str]:
    """Sentences on the data, the model and the method."""
    data = results.data
    learned = {name: "learned" if value is None else f"{value:g}" for name, value in
               (("alpha", settings.alpha), ("concentration", settings.concentration))}  # fmt: skip
    sentences = [
        f"{data['num_documents']:,} documents with {len(data['word']):,} tokens of {data['num_words']:,} words, from "
        f"{source}.",
        *notes,
        f"Model: latent Dirichlet allocation; alpha of the shares is {learned['alpha']}, the concentration of the "
        f"topics {learned['concentration']}.",
        f"Method: {results.tree.attrs['method']}, {results.tree.attrs['settings']}; seed {settings.seed}.",
        f"Words are in the order of relevance with weight {WORD_WEIGHT}, which puts those first that other topics "
        "seldom have; probabilities are those of the topic.",
    ]
    if results.matched is not None:
        sentences.append(f"Words and shares are those of chain {results.chain}, the one with the largest log joint.")
    if not results.coherence:
        sentences.append("Coherence was not measured: it needs gensim, pip install 'bayeslab[topics]'.")
    return sentences

"""`bayeslab topics`: from documents to a report."""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bayeslab.command_line.fit_command import EXIT_PROBLEMS
from bayeslab.command_line.reporting.corpus import Corpus, read_corpus, stop_words
from bayeslab.command_line.reporting.result_folder import require_folder

MIN_STABLE = 0.5
"""The share of topics that other chains find, below which the command says that something is wrong."""
TEXT_FILTERS = {"min_documents": 2, "max_share": 0.8}
"""Which words of texts are kept by default; those of counts, somebody has chosen."""
MAX_WORDS_PRINTED = 8
"""The most words of a topic that are printed; the report has all."""


def run(arguments: Namespace) -> int:
    """Read, choose, fit and report; returns the exit code."""
    from bayeslab.models import lda
    from bayeslab.reports.topic_report import topic_records, topics_verdict, write_topic_report
    from bayeslab.topics.run import Settings, run_topics

    require_folder(arguments.out)
    corpus = read_corpus(arguments.source, arguments)
    data, chosen = _with_chosen_words(corpus, arguments)
    notes = [*corpus.notes, *chosen]
    say = _nothing if arguments.quiet else _say
    for note in notes:
        say(note)
    options = vars(arguments)
    settings = Settings(
        ordered=corpus.texts, **{each.name: options[each.name] for each in fields(Settings) if each.name in options}
    )
    results = run_topics(lda.model, data, settings, say, sys.stderr.isatty() and not arguments.quiet)
    report = write_topic_report(results, settings, str(arguments.source), notes, arguments.out)
    complaint = _complaint(results)
    records = topic_records(results)
    if arguments.json:
        summary = {"verdict": topics_verdict(results), "topics": records, "documents": len(results.documents),
                  "report": str(report), "seed": settings.seed, "problems": complaint}  # fmt: skip
        print(json.dumps(summary, indent=1))
    elif not arguments.quiet:
        for record in records:
            words = " ".join(record["words"][:MAX_WORDS_PRINTED])
            print(f"{record['topic']:3d}  {record['share']:6.1%}  {words}")
        print(f"{topics_verdict(results)}\nWritten: {report}")
    for line in complaint:
        print(line, file=sys.stderr)
    return EXIT_PROBLEMS if complaint else 0


def _with_chosen_words(corpus: Corpus, arguments: Namespace) -> tuple[Mapping[str, Any], list[str]]:
    """The data with the words that the options keep, and sentences on what was left out."""
    from bayeslab.datasets import select_words

    options = vars(arguments)
    given = {name: options[name] for name in TEXT_FILTERS if options[name] is not None}
    filters: dict[str, Any] = (TEXT_FILTERS if corpus.texts else {}) | given
    left_out = stop_words(arguments.stop_words) if arguments.stop_words else frozenset()
    try:
        data = select_words(corpus.data, **filters, stop_words=left_out)
    except ValueError as error:
        message = str(error).replace("min_documents", "--min-documents").replace("max_share", "--max-share")
        raise ValueError(f"{message.rstrip('.')}; see --min-documents, --max-share and --stop-words") from error
    notes = []
    if data["num_words"] < (before := corpus.data["num_words"]):
        tokens = len(corpus.data["word"])
        rules = [
            *([f"of fewer than {filters['min_documents']} documents"] if filters.get("min_documents", 1) > 1 else []),
            *([f"of more than {filters['max_share']:.0%} of them"] if filters.get("max_share", 1.0) < 1 else []),
            *(["stop words"] if left_out else []),
        ]
        notes.append(
            f"{before - data['num_words']:,} of {before:,} words left out ({', '.join(rules) or 'in no document'}), "
            f"and {tokens - len(data['word']):,} of {tokens:,} tokens with them"
        )
    if empty := data["num_documents"] - data["document"].nunique():
        notes.append(f"{empty:,} documents have none of the words; their shares are those of the prior")
    return data, notes


def _complaint(results: Any) -> list[str]:
    """What is wrong with a result, and what to do."""
    complaints = []
    if results.matched is not None and float(results.matched["stable"]) < MIN_STABLE:
        complaints.append(
            f"Other chains find {float(results.matched['stable']):.0%} of the topics: take fewer with --num-topics, "
            "leave out more words, or raise --warmup"
        )
    if not results.tree.attrs.get("converged", 1):
        complaints.append(f"{results.tree.attrs['method']} has not converged: raise --chains, or take --method gibbs")
    return complaints


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _nothing(what: str) -> None:
    """Say nothing."""

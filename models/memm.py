"""A maximum entropy Markov model: every label is a softmax regression on the covariates and the label before it.

    w_k               ~ Normal(0, tau0^2 I),    label k = 1..K
    moves_kl          ~ Normal(0, tau0^2),      a label k and the next one l
    start_k           ~ Normal(0, tau0^2)
    y_1 | x           ~ Categorical(softmax(start + w x_1))
    y_t+1 | y_t, x    ~ Categorical(softmax(moves_{y_t} + w x_t+1)),    step t = 1..T - 1

Whiteboard notes, the opening of "CRF". The scores are those of `crf`, normalised at every step in place of once for a
sequence. So what comes later says nothing of a label whose successors are certain, whatever their covariates: label
bias (Lafferty, McCallum and Pereira 2001).
"""

from typing import Any

import jax
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import MarkovChain
from bayeslab.models import crf


def model(x: Array, num_labels: int, lengths: Array | None = None, tau0: float = 1.0) -> None:
    """Draw w (state, feature), moves (state, state_), start (state,) and labels y (sequence, step).

    Labels are the states of the chain; ArviZ has a dimension "label" of its own.
    x: covariates (sequence, step, feature). lengths: (sequence,), of sequences that end before the last step; from
    there on y is missing. None: all are whole.
    """
    num_sequences, _, num_features = x.shape
    normal = dist.Normal(0.0, tau0)
    with numpyro.plate("state", num_labels):
        start = numpyro.sample("start", normal)
        w = normal.expand([num_features]).to_event(1)
        w = numpyro.sample("w", w, infer={"event_dims": ["feature"]})
        moves = normal.expand([num_labels]).to_event(1)
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
    scores = x @ w.T
    first, following = jax.nn.softmax(start + scores[:, 0]), jax.nn.softmax(moves + scores[:, 1:, None, :])
    with numpyro.plate("sequence", num_sequences):
        chain = MarkovChain(first, following, time_varying=True, lengths=lengths)
        numpyro.sample("y", chain, infer={"event_dims": ["step"]})


def example() -> dict[str, Any]:
    """The three sequences of `crf`."""
    return crf.example()


def data() -> dict[str, Any]:
    """The simulated words of `crf`."""
    return crf.data()

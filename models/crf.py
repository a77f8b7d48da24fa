"""A linear-chain conditional random field: labels of a sequence given covariates of its steps.

    w_k           ~ Normal(0, tau0^2 I),    label k = 1..K
    moves_kl      ~ Normal(0, tau0^2),      a label k and the next one l
    start_k       ~ Normal(0, tau0^2)
    p(y | x, ...) = exp(start_{y_1} + sum_t w_{y_t}' x_t + sum_t moves_{y_t y_t+1}) / Z(x)

Whiteboard notes, "CRF", where w is eta and moves is lambda, with the features g that are the covariates of a step if
its label is k, and f that are the indicators of pairs; the fixed label y_0 gives a row of scores of its own, start. The
notes sum over y_0 in one line, as if it were unknown. Z is the sum over all labellings of the whole sequence, by the
forward recursion; `memm` normalises step by step. One number added to all start or to all moves,
and one vector to all w_k, change no probability: only the prior says where they lie.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import LinearChainCRF


def model(x: Array, num_labels: int, lengths: Array | None = None, tau0: float = 1.0) -> None:
    """Draw w (state, feature), moves (state, state_), start (state,) and labels y (sequence, step).

    Labels are the states of the chain; ArviZ has a dimension "label" of its own.
    x: covariates (sequence, step, feature). lengths: (sequence,), of sequences that end before the last step; from
    there on x does not count, and y is missing. None: all are whole.
    """
    num_sequences, _, num_features = x.shape
    normal = dist.Normal(0.0, tau0)
    with numpyro.plate("state", num_labels):
        start = numpyro.sample("start", normal)
        w = normal.expand([num_features]).to_event(1)
        w = numpyro.sample("w", w, infer={"event_dims": ["feature"]})
        moves = normal.expand([num_labels]).to_event(1)
        moves = numpyro.sample("moves", moves, infer={"event_dims": ["state_"]})
    scores = jnp.asarray(x @ w.T).at[:, 0].add(start)
    with numpyro.plate("sequence", num_sequences):
        field = LinearChainCRF(scores, moves, lengths=lengths)
        numpyro.sample("y", field, infer={"event_dims": ["step"]})


def example() -> dict[str, Any]:
    """Three sequences of five, three and four steps, two covariates and three labels."""
    first = np.array([[0.3, -1.2, 0.8, 1.5, -0.4], [1.1, -0.2, 0.5, 0.0, 0.0], [-1.0, 0.4, 0.9, -0.7, 0.0]])
    x = np.stack([first, np.roll(first, 1, axis=1)], axis=-1)
    y = np.ma.masked_less([[0, 2, 1, 1, 0], [1, 2, 1, -1, -1], [2, 2, 0, 1, -1]], 0)
    return {"x": x, "num_labels": 3, "lengths": np.array([5, 3, 4]), "tau0": 1.5, "y": y}


def data() -> dict[str, Any]:
    """300 simulated words, "rib" or "rob", with errors of spelling: the labels are states of the word."""
    from bayeslab.datasets import rib_and_rob

    return {"num_labels": 5, **rib_and_rob(300)}

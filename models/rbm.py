"""A restricted Boltzmann machine: visible units that hidden ones tie together.

    w_lj    ~ Normal(0, tau^2),    hidden unit l = 1..m, visible unit j = 1..n
    alpha_j ~ Normal(0, tau^2)
    beta_l  ~ Normal(0, tau^2)
    p(v, h | w, alpha, beta) = exp(h'wv + alpha'v + beta'h) / Z,    v, h of 0 and 1, row i = 1..rows

Whiteboard notes, "RBM" and "Partition function". Given one layer the units of the other are independent,
p(h_l = 1 | v) = sigmoid(w_l v + beta_l) and p(v_j = 1 | h) = sigmoid(h'w_j + alpha_j). So the joint probability is
drawn in two steps, v ~ p(v) = exp(alpha'v + sum over l of softplus(w_l v + beta_l)) / Z, then h | v. Z is summed out
exactly, which takes up to 16 units in the smaller layer; `bl.graphical_models.contrastive_divergence` does without it.
Hidden units may be exchanged, so their posterior has equal modes: compare what does not depend on their order.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.distributions import RestrictedBoltzmann


def model(num_rows: int, num_visible: int, num_hidden: int, tau: float = 1.0) -> None:
    """Draw alpha (visible,), beta (hidden,), w (hidden, visible), v (row, visible) and h (row, hidden)."""
    with numpyro.plate("visible", num_visible):
        alpha = numpyro.sample("alpha", dist.Normal(0.0, tau))
    with numpyro.plate("hidden", num_hidden):
        beta = numpyro.sample("beta", dist.Normal(0.0, tau))
    with numpyro.plate("hidden", num_hidden, dim=-2), numpyro.plate("visible", num_visible, dim=-1):
        w = numpyro.sample("w", dist.Normal(0.0, tau))
    with numpyro.plate("row", num_rows):
        v = numpyro.sample("v", RestrictedBoltzmann(w, alpha, beta), infer={"event_dims": ["visible"]})
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("hidden", num_hidden, dim=-1):
        numpyro.sample("h", dist.Bernoulli(logits=v @ w.T + beta))


def bars_and_stripes(side: int) -> np.ndarray:
    """All pictures (picture, side * side) of whole rows or whole columns, each once."""
    lines = (np.arange(2**side)[:, None] >> np.arange(side)) & 1
    rows = np.repeat(lines[:, :, None], side, axis=2).reshape(len(lines), -1)
    columns = np.repeat(lines[:, None, :], side, axis=1).reshape(len(lines), -1)
    return np.unique(np.concatenate([rows, columns]), axis=0)


def example() -> dict[str, Any]:
    """The six pictures of bars and stripes in 2 x 2 fields, and two hidden units."""
    return {"num_rows": 6, "num_visible": 4, "num_hidden": 2, "tau": 0.8, "v": bars_and_stripes(2)}


def data() -> dict[str, Any]:
    """The ink in 4 x 4 fields of 360 handwritten zeros and ones (Alpaydin and Kaynak 1998)."""
    from sklearn.datasets import load_digits
    from xarray import DataArray

    digits = load_digits()
    shown = digits.images[digits.target < 2]
    ink = shown.reshape(-1, 4, 2, 4, 2).mean((2, 4)) > 7.5
    coords = {"row": np.arange(len(ink)), "visible": [f"{row}, {column}" for row, column in np.ndindex(4, 4)]}
    v = DataArray(ink.reshape(-1, 16).astype(int), coords, ("row", "visible"))
    return {"num_rows": len(v), "num_visible": 16, "num_hidden": 4, "v": v}

"""Softmax regression of the digits of scikit-learn: seconds of NUTS and of MeanField, and the gap between the two.

    python benchmarks/digits.py

Both run once, in this process, with all cores, compilation included. README.md says what is measured.
"""

import argparse
import time
import warnings

import arviz_stats as azs
import numpy as np
from sklearn.datasets import load_digits

import bayeslab as bl
from bayeslab.models import softmax_regression
from tables import note, number, table

PIXEL_RANGE = 16.0
"""Largest brightness of a pixel, by which all are divided."""


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    digits = load_digits()
    x = np.column_stack([np.ones(len(digits.data)), digits.data / PIXEL_RANGE])
    data = {"x": x, "num_classes": 10, "tau0": 1.0, "y": digits.target}
    draws, seconds = {}, []
    for name, method in (("MeanField", bl.MeanField()), ("NUTS", bl.NUTS())):
        wall, cpu = time.perf_counter(), time.process_time()
        tree = bl.fit(1, softmax_regression.model, data, method, progress=False)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        draws[name] = tree["posterior"]["w"]
        r_hat = float(azs.rhat(tree)["w"].max()) if name == "NUTS" else np.nan
        seconds.append((name, number(wall), number(cpu), f"{r_hat:.4f}" if r_hat == r_hat else ""))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            note(name, bl.diagnose(tree))
    table(["", "s", "CPU s", "largest R-hat"], seconds)
    report_gap({name: np.asarray(w.stack(sample=("chain", "draw"))) for name, w in draws.items()}, x)


def report_gap(draws: dict[str, np.ndarray], x: np.ndarray) -> None:
    """Print how means and standard deviations of coefficients, and probabilities of classes, differ.

    draws: (class, feature, sample) of each method.
    """
    of_contrasts = {name: w - w.mean(0) for name, w in draws.items()}
    rows = []
    for label, values in (("coefficients", draws), ("less their mean over classes", of_contrasts)):
        mean, sd = ({name: np.asarray(f(w, -1)) for name, w in values.items()} for f in (np.mean, np.std))
        error = np.abs(mean["MeanField"] - mean["NUTS"]) / sd["NUTS"]
        ratio = sd["MeanField"] / sd["NUTS"]
        rows += [
            (label, "mean, distance in sd of NUTS", *quantiles(error)),
            (label, "sd, over sd of NUTS", *quantiles(ratio)),
        ]
    gap = np.abs(probabilities(draws["MeanField"], x) - probabilities(draws["NUTS"], x)).max(-1)
    rows.append(("probabilities of rows", "largest difference of a class", *quantiles(gap)))
    table(["", "mean field beside NUTS", "median", "95 % below", "largest"], rows)


def quantiles(values: np.ndarray) -> tuple[str, str, str]:
    return number(np.median(values)), number(np.quantile(values, 0.95)), number(values.max())


def probabilities(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Averaged over some draws, (row, class)."""
    total, chosen = 0.0, np.linspace(0, w.shape[-1] - 1, 400).astype(int)
    for index in chosen:
        logits = x @ w[..., index].T
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        total = total + odds / odds.sum(-1, keepdims=True)
    return np.asarray(total) / len(chosen)


if __name__ == "__main__":
    main()

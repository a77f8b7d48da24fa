"""Effective draws per CPU second from the posterior of a mixture of four Normals, on one core, compilation excluded.

    python benchmarks/mixture_posterior.py --rounds 5

The components of every draw are first put in one order, for all contenders alike. Then the ESS counts weights, means
and standard deviations, the means of all contenders are compared, and chains in a poor mode are named. README.md says
what is measured.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from scipy.stats import norm

from problems import MIXTURE_MU, MIXTURE_SD, PROBLEMS
from race import HERE, Command, Runs, arguments, ess, pin, report, start
from tables import note, number, table

PROBLEM = "diagonal_mixture"
OURS = ["bayeslab, Gibbs", "bayeslab, NUTS", "NumPyro, density", "NumPyro, density, dense"]
POOR = 20.0
"""Draws whose log-likelihood is this far below the typical one are in a poor mode; elsewhere it scatters by 3."""
TOLERATED = 0.01
"""The share of poor draws up to which a chain is sound."""

Draws = dict[str, np.ndarray]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peers", default=".tools/peers/bin/python", help="Python with nutpie, NumPyro and funsor")
    parser.add_argument("--stan", default=".tools/stan/bin/python", help="Python with PyStan")
    options = parser.parse_args()
    pin(options.core)
    found: Runs = {}
    drawn: dict[str, list[Draws]] = {}
    arrays = PROBLEMS[PROBLEM]()
    with tempfile.TemporaryDirectory() as folder:
        running = start(commands(options.peers, options.stan), PROBLEM, arrays, Path(folder))
        for seed in range(1, options.rounds + 1):
            note(f"round {seed} of {options.rounds}")
            for contender in running:
                draws, seconds = contender.draw(seed)
                draws = relabelled(draws)
                found.setdefault(contender.name, []).append((min(map(ess, draws.values())), seconds))
                drawn.setdefault(contender.name, []).append(draws)
        for contender in running:
            contender.close()
    report(PROBLEM, found, "nutpie")
    compare({name: joined(rounds) for name, rounds in drawn.items()}, arrays["y"])


def commands(peers: str, stan: str) -> Iterable[Command]:
    for name in OURS:
        yield name, [sys.executable, str(HERE / "contenders.py")]
    yield "NumPyro, enumeration", [peers, str(HERE / "contenders.py")]
    for name, python in {
        "nutpie": peers,
        "nutpie, low rank": peers,
        "JAGS, 200 + 1,000": sys.executable,
        "Stan": stan,
    }.items():
        yield name, [python, str(HERE / "peers.py")]


def relabelled(draws: Draws) -> Draws:
    """Weights, means and standard deviations, with the components of every draw in the order nearest to the truth."""
    distance = np.square((draws["mu"][:, :, None] - MIXTURE_MU[:, None]) / MIXTURE_SD[:, None]).sum(-1)
    order = np.array([[linear_sum_assignment(one)[1] for one in chain] for chain in distance])
    return {
        "weights": np.take_along_axis(draws["weights"], order, 2),
        "mu": np.take_along_axis(draws["mu"], order[..., None], 2),
        "sd": np.take_along_axis(draws["tau"], order[..., None], 2) ** -0.5,
    }


def joined(rounds: list[Draws]) -> Draws:
    """The chains of all rounds."""
    return {name: np.concatenate([draws[name] for draws in rounds]) for name in rounds[0]}


def compare(drawn: dict[str, Draws], y: np.ndarray) -> None:
    """A table: what is in a poor mode, the ESS of the sound chains, and how far their means are from all others."""
    fits = {name: log_likelihood(draws, y) for name, draws in drawn.items()}
    typical = max(np.median(fit, axis=1).max() for fit in fits.values())
    poor = {name: (fit < typical - POOR).mean(1) for name, fit in fits.items()}
    sound = {
        name: flattened(drawn[name], share <= TOLERATED) for name, share in poor.items() if share.min() <= TOLERATED
    }
    means = {name: scalars.mean((0, 1)) for name, scalars in sound.items()}
    errors = {name: np.array([mcse(one) for one in np.moveaxis(scalars, -1, 0)]) for name, scalars in sound.items()}
    rows = []
    for name, share in poor.items():
        row = [name, f"{100 * share.mean():.1f} %", f"{np.sum(share > TOLERATED)} of {share.size}", "", ""]
        if name in sound:
            row[3:] = number(ess(sound[name])), f"{disagreement(name, means, errors):.1f}"
            note(f"{name:26} means: weights, mu, sd {' '.join(f'{mean:.2f}' for mean in means[name])}")
        rows.append(row)
    table([PROBLEM, "poor draws", "poor chains", "ESS of sound chains", "largest difference of a mean"], rows)


def disagreement(name: str, means: Draws, errors: Draws) -> float:
    """The largest difference from the weighted mean of all others, in Monte Carlo standard errors."""
    others = [other for other in means if other != name]
    precisions = np.array([errors[other] ** -2 for other in others])
    consensus = np.average([means[other] for other in others], axis=0, weights=precisions)
    return np.max(np.abs(means[name] - consensus) / np.sqrt(errors[name] ** 2 + 1 / precisions.sum(0)))


def mcse(scalar: np.ndarray) -> float:
    return float(array_stats.mcse(scalar, method="mean"))


def flattened(draws: Draws, chains: np.ndarray) -> np.ndarray:
    """All scalars of some chains, (chain, draw, scalar)."""
    return np.concatenate([value[chains].reshape(chains.sum(), value.shape[1], -1) for value in draws.values()], axis=2)


def log_likelihood(draws: Draws, y: np.ndarray) -> np.ndarray:
    """That of every tenth draw, (chain, draw)."""
    found = []
    for weights, mu, sd in zip(*(draws[name][:, ::10, None] for name in ("weights", "mu", "sd")), strict=True):
        each = np.log(weights) + norm.logpdf(y[:, None], mu, sd).sum(-1)
        found.append(logsumexp(each, axis=-1).sum(-1))
    return np.array(found)


if __name__ == "__main__":
    main()

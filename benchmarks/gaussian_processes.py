"""Gaussian processes: one gradient of the log marginal likelihood, and NUTS, beside the same written by hand.

    python benchmarks/gaussian_processes.py gradient    # 2,225 rows, four kernels, covariance matrix
    python benchmarks/gaussian_processes.py line        # 100,000 rows, Matern 3/2, state space
    python benchmarks/gaussian_processes.py nuts        # 500 rows, five parameters, two chains

CPU seconds on one core, float64. README.md says what is measured.
"""

import time
from typing import Any

import numpy as np

from race import arguments, pin
from tables import note, spread, table

EVIDENCE = {
    "gradient": "2,225 rows, four kernels, covariance matrix",
    "line": "100,000 rows, Matérn 3/2, state space",
}
NAMES = ["amplitude", "lengthscale", "level", "sigma"]


def main() -> None:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("what", choices=[*EVIDENCE, "nuts"])
    options = parser.parse_args()
    pin(options.core)

    import jax  # which counts the cores

    jax.config.update("jax_enable_x64", True)
    if options.what == "nuts":
        sampled(options.rounds)
    else:
        derived(options.what, options.rounds)


def derived(what: str, rounds: int) -> None:
    """Milliseconds for a value with its gradient."""
    import jax

    import gaussian_functions

    ready = {}
    for name, (function, given) in getattr(gaussian_functions, what)().items():
        compiled, placed = jax.jit(jax.value_and_grad(function)), jax.device_put(given)
        note(name, *jax.block_until_ready(compiled(*placed)))
        ready[name] = (compiled, placed)
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (compiled, placed) in ready.items():
            began = time.process_time()
            jax.block_until_ready(compiled(*placed))
            times[name].append(1000 * (time.process_time() - began))
    ours, hand = times["bayeslab"], times["by hand"]
    row = [f"value and gradient, {EVIDENCE[what]}", spread(ours), spread(hand), spread(np.divide(hand, ours))]
    table(["", "bayeslab, ms", "by hand in JAX, ms", "by hand, to bayeslab"], [row])


def sampled(rounds: int) -> None:
    """Effective draws per CPU second of whole fits, compilation included."""
    import gaussian_functions

    rates: dict[str, list[float]] = {}
    for seed in range(rounds):
        for name, fit in gaussian_functions.nuts().items():
            began = time.process_time()
            tree = fit(seed)
            seconds = time.process_time() - began
            ess, rhat = judged(tree)
            rates.setdefault(name, []).append(ess / seconds)
            note(f"{name}: R-hat {rhat:.4f}, least ESS {ess:.0f}, {seconds:.0f} CPU s")
    ours, hand = rates["bayeslab"], rates["by hand"]
    row = ["least ESS per CPU s, 500 rows", spread(ours), spread(hand), spread(np.divide(ours, hand))]
    table(["", "bayeslab", "by hand in NumPyro", "bayeslab, to by hand"], [row])


def judged(tree: Any) -> tuple[float, float]:
    """The least ESS and the largest R-hat of a parameter."""
    import arviz as az  # after NumPyro

    summary = az.summary(tree, var_names=NAMES, round_to="none")
    return float(summary["ess_bulk"].min()), float(summary["r_hat"].max())


if __name__ == "__main__":
    main()

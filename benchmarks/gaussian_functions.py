"""Gaussian processes in bayeslab and written by hand; `gaussian_processes.py` times them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayeslab as bl
from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.gaussian_processes.solvers import Dense, StateSpace

Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
"""Name -> a log marginal likelihood, and its arguments."""

PARAMETERS = np.log([1.0, 10.0, 0.5, 1.2, 0.3, 1.0, 0.8, 0.2])


def gradient() -> Cases:
    """2,225 rows on a line, a sum of three kernels and noise, through the covariance matrix."""
    rows = 2225
    x, y = np.linspace(0, 43, rows), np.random.default_rng(0).normal(size=rows)
    apart = x[:, None] - x
    squares, sines = apart**2, np.sin(np.pi * apart) ** 2

    def ours(logs: Any, x: Any, y: Any) -> Any:
        e = jnp.exp(logs)
        smooth, season = kernels.squared_exponential(e[1]), kernels.periodic(1.0, e[3])
        kernel = e[0] ** 2 * smooth + e[2] ** 2 * season + e[4] ** 2 * kernels.rational_quadratic(e[5], e[6])
        precision = jnp.full(rows, e[7] ** -2)
        return Dense().represent(kernel, x).log_mass(precision, y * precision) - rows * logs[7]

    def by_hand(logs: Any, squares: Any, sines: Any, y: Any) -> Any:
        e = jnp.exp(logs)
        total = e[0] ** 2 * jnp.exp(-squares / (2 * e[1] ** 2)) + e[2] ** 2 * jnp.exp(-2 * sines / e[3] ** 2)
        total += e[4] ** 2 * (1 + squares / (2 * e[6] * e[5] ** 2)) ** -e[6] + e[7] ** 2 * jnp.eye(rows)
        lower = jnp.linalg.cholesky(total)
        white = jax.scipy.linalg.solve_triangular(lower, y, lower=True)
        return -white @ white / 2 - jnp.log(jnp.diagonal(lower)).sum()

    return {"bayeslab": (ours, (PARAMETERS, x, y)), "by hand": (by_hand, (PARAMETERS, squares, sines, y))}


def line() -> Cases:
    """100,000 rows on a line, Matern 3/2, as a state space."""
    rows = 100_000
    random = np.random.default_rng(0)
    x = np.cumsum(random.exponential(size=rows)) / 10
    y = np.sin(x) + 0.3 * random.normal(size=rows)
    logs = np.log([1.0, 1.5, 0.3])

    def ours(logs: Any, x: Any, y: Any) -> Any:
        e = jnp.exp(logs)
        precision = jnp.full(rows, e[2] ** -2)
        process = StateSpace().represent(e[0] ** 2 * kernels.matern32(e[1]), x)
        return process.log_mass(precision, y * precision) - rows * logs[2]

    def by_hand(logs: Any, x: Any, y: Any) -> Any:
        """A Kalman filter of scalars, in the order of steps that was fastest: moved, then updated."""
        e = jnp.exp(logs)
        rate, first, noise = jnp.sqrt(3.0) / e[1], e[0] ** 2, e[2] ** 2
        second = first * rate**2

        def step(state: Any, row: Any) -> Any:
            m, s, a, b, c, total = state
            apart, now = row
            turn = rate * apart
            decay = jnp.exp(-turn)
            p, q, r, t = decay * (1 + turn), decay * apart, -decay * rate * turn, decay * (1 - turn)
            m, s = p * m + q * s, r * m + t * s
            u, w = a - first, c - second
            up, across, down, low = p * u + q * b, p * b + q * w, r * u + t * b, r * b + t * w
            a, b, c = up * p + across * q + first, up * r + across * t, down * r + low * t + second
            spread, miss = a + noise, now - m
            total -= (jnp.log(spread) + miss * miss / spread) / 2
            one, two = a / spread, b / spread
            return (m + one * miss, s + two * miss, a - one * a, b - one * b, c - two * b, total), None

        start = (0.0 * first, 0.0 * first, first, 0.0 * first, second, 0.0 * first)
        return jax.lax.scan(step, start, (jnp.append(0.0, jnp.diff(x)), y))[0][-1]

    return {"bayeslab": (ours, (logs, x, y)), "by hand": (by_hand, (logs, x, y))}


def nuts() -> dict[str, Callable[[int], Any]]:
    """Name -> a DataTree given a seed: 500 rows, two inputs, five parameters, two chains of 250 + 250."""
    import arviz as az
    from numpyro.infer import MCMC, NUTS

    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (500, 2))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * random.normal(size=500)

    def ours(key: int) -> Any:
        method = bl.NUTS(num_warmup=250, num_samples=250, num_chains=2)
        return bl.fit(key, bl.collapse(program, "f"), {"x": x, "y": y}, method, progress=False)

    def theirs(key: int) -> Any:
        run = MCMC(NUTS(by_hand), num_warmup=250, num_samples=250, num_chains=2, chain_method="sequential")
        run.progress_bar = False
        run.run(jax.random.PRNGKey(key), x, y)
        return az.from_numpyro(run)

    return {"bayeslab": ours, "by hand": theirs}


def program(x: Any) -> None:
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
    with numpyro.plate("input", 2):
        lengthscale = numpyro.sample("lengthscale", dist.InverseGamma(3.0, 2.0))
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    f = numpyro.sample("f", GaussianProcess(amplitude**2 * kernels.squared_exponential(lengthscale), x, level))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, sigma))


def by_hand(x: Any, y: Any) -> None:
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
    lengthscale = numpyro.sample("lengthscale", dist.InverseGamma(3.0, 2.0).expand([2]))
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    scaled = x / lengthscale
    covariance = amplitude**2 * jnp.exp(-((scaled[:, None] - scaled) ** 2).sum(-1) / 2)
    covariance += (sigma**2 + 1e-8) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(level * jnp.ones(len(x)), covariance), obs=y)

"""State-space models with scans whose posteriors are known: linear and Normal ones, by dense algebra."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from scipy.stats import multivariate_normal

Y = np.array([0.9, -0.4, 1.7, 2.2, 0.3, -1.1, 0.8, 2.5])
GRID = np.linspace(0.005, 6.0, 1200)


def linear(num_steps: int, a: float = 0.8, q: float = 0.7, r: float = 0.9) -> None:
    """A state that follows the one before, and starts from a site of its own."""
    z0 = numpyro.sample("z0", dist.Normal(0.5, 1.2))

    def step(z: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(a * z, q))
        numpyro.sample("y", dist.Normal(z, r))
        return z, None

    scan(step, z0, None, num_steps)


def observed_start(num_steps: int, a: float = 0.8) -> None:
    """`linear` with a value observed of the state that the steps start from."""
    z0 = numpyro.sample("z0", dist.Normal(0.5, 1.2))
    numpyro.sample("y0", dist.Normal(z0, 0.9))

    def step(z: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(a * z, 0.7))
        numpyro.sample("y", dist.Normal(z, 0.9))
        return z, None

    scan(step, z0, None, num_steps)


def unknown_coefficient_after_a_start(num_steps: int) -> None:
    """`observed_start` with an unknown coefficient."""
    observed_start(num_steps, numpyro.sample("a", dist.Uniform(-1.0, 1.0)))


def second_order(num_steps: int, a: float = 0.5, b: float = 0.3, q: float = 0.7, r: float = 0.9) -> None:
    """A state that follows the two before it; time is counted along."""

    def step(carry: Any, _: Any) -> Any:
        time, last, before = carry
        z = numpyro.sample("z", dist.Normal(a * last + b * before, q))
        numpyro.sample("y", dist.Normal(z, r))
        return (time + 1, z, last), None

    scan(step, (0, 0.5, -0.5), None, num_steps)


def unknown_precision(num_steps: int) -> None:
    """`linear` with the precision of its steps unknown."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    linear(num_steps, q=1 / jnp.sqrt(tau))


def unknown_coefficient(num_steps: int) -> None:
    """`linear` with an unknown coefficient, whose conditional is no Normal."""
    a = numpyro.sample("a", dist.Uniform(-1.0, 1.0))
    linear(num_steps, a=a)


def observed_in_the_program(y: Any) -> None:
    """`linear` with its values given by obs=, of two series that do not know each other."""
    with numpyro.plate("series", 2):
        z0 = numpyro.sample("z0", dist.Normal(0.5, 1.2))

    def step(z: Any, value: Any) -> Any:
        with numpyro.plate("series", 2):
            z = numpyro.sample("z", dist.Normal(0.8 * z, 0.7))
            numpyro.sample("y", dist.Normal(z, 0.9), obs=value)
        return z, None

    scan(step, z0, y)


def optimal(carry: Any, element: Any, values: Any) -> None:
    """The guide that draws a state of `linear` given the state before and what is observed."""
    precision = 1 / 0.7**2 + 1 / 0.9**2
    mean = (0.8 * carry / 0.7**2 + values["y"] / 0.9**2) / precision
    numpyro.sample("z", dist.Normal(mean, precision**-0.5))


def broad(carry: Any, element: Any, values: Any) -> None:
    """A guide for the states of `linear` that is neither their prior nor optimal."""
    numpyro.sample("z", dist.Normal(0.5 * carry + 0.4 * values["y"], 0.9))


class Truth(NamedTuple):
    """What is exact: log p(y); moments of z0 and of states given all of y (step + 1,); and given y up to each step."""

    log_evidence: float
    mean: np.ndarray
    sd: np.ndarray
    filtered: np.ndarray


def linear_truth(y: np.ndarray = Y, a: float = 0.8, q: float = 0.7, r: float = 0.9, first_state: int = 1) -> Truth:
    """The answers for `linear`, by conditioning a joint Normal.

    y: NaN where it is missing. first_state: number of the state that the first of it is of; the start is 0.
    """
    size = len(y) + first_state
    root = np.linalg.inv(np.eye(size) - a * np.eye(size, k=-1))  # states are root @ (z0, steps)
    mean = root @ np.array([0.5, *np.zeros(size - 1)])
    return _conditioned(y, mean, root @ np.diag([1.2**2, *np.full(size - 1, q**2)]) @ root.T, r)


def observed_start_truth(y0: float, y: np.ndarray = Y, a: float = 0.8) -> Truth:
    """The answers for `observed_start`."""
    return linear_truth(np.array([y0, *y]), a, first_state=0)


def second_order_truth(y: np.ndarray = Y, a: float = 0.5, b: float = 0.3, q: float = 0.7, r: float = 0.9) -> Truth:
    """The answers for `second_order`, whose first state is not there."""
    size = len(y)
    root = np.linalg.inv(np.eye(size) - a * np.eye(size, k=-1) - b * np.eye(size, k=-2))
    mean = root @ np.array([a * 0.5 - b * 0.5, b * 0.5, *np.zeros(size - 2)])
    return _conditioned(y, mean, q**2 * root @ root.T, r)


def _conditioned(y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, r: float) -> Truth:
    def given(count: int) -> tuple[np.ndarray, np.ndarray]:
        seen = np.flatnonzero(np.isfinite(y[:count]))
        places = seen + len(mean) - len(y)
        gain = np.linalg.solve(covariance[np.ix_(places, places)] + r**2 * np.eye(len(seen)), covariance[places])
        return mean + gain.T @ (y[seen] - mean[places]), covariance - gain.T @ covariance[places]

    seen = np.flatnonzero(np.isfinite(y))
    places = seen + len(mean) - len(y)
    noisy = covariance[np.ix_(places, places)] + r**2 * np.eye(len(seen))
    evidence = multivariate_normal(mean[places], noisy).logpdf(y[seen])
    filtered = np.array([given(count)[0][count - len(y) - 1] for count in range(1, len(y) + 1)])
    after, left = given(len(y))
    return Truth(float(evidence), after, np.sqrt(np.diag(left)), filtered)

"""Programs with discrete sites in scans, small enough to sum over all values: chains, and what only looks like one."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask

RNG = np.random.default_rng(5)
THREE = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
TWO = np.array([[0.8, 0.2], [0.35, 0.65]])
Y = RNG.normal(size=6)


class ScanCase(NamedTuple):
    """A program. shared: of its functions of neighbours, how many all steps share; None where it is no chain."""

    model: Any
    data: dict[str, Any]
    shared: int | None


def counts(y: Any) -> None:
    """A hidden Markov model as NumPyro's documentation writes it: a carry of int32, an array in single precision."""
    rows = jnp.asarray(THREE, jnp.float32)

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(rows[last]))
        numpyro.sample("y", dist.Poisson(jnp.array([1.0, 4.0, 9.0])[z]), obs=value)
        return z, None

    scan(step, jnp.array(0, jnp.int32), y)


def long_counts(y: Any) -> None:
    """Enough steps to show all values of the function that they share at once."""
    counts(y)


def first_state(y: Any) -> None:
    """The state before the first step is a site of its own."""
    z0 = numpyro.sample("z0", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(THREE)[last]))
        numpyro.sample("y", dist.Normal(1.0 * z, 0.7), obs=value)
        return z, None

    scan(step, z0, y)


def factorial(y: Any) -> None:
    """Two chains that meet in what is observed."""

    def step(carry: Any, value: Any) -> Any:
        a = numpyro.sample("a", dist.Categorical(jnp.asarray(THREE)[carry[0]]))
        b = numpyro.sample("b", dist.Bernoulli(jnp.asarray(TWO)[carry[1], 1]))
        numpyro.sample("y", dist.Normal(1.0 * a - 2.0 * b, 0.7), obs=value)
        return (a, b), None

    scan(step, (0, 0), y)


def coupled(y: Any) -> None:
    """Two chains, of which one follows both."""

    def step(carry: Any, value: Any) -> Any:
        a = numpyro.sample("a", dist.Categorical(jnp.asarray(THREE)[carry[0]]))
        b = numpyro.sample("b", dist.Bernoulli(jnp.asarray(TWO)[(carry[0] + carry[1]) % 2, 1]))
        numpyro.sample("y", dist.Normal(1.0 * a - 2.0 * b, 0.7), obs=value)
        return (a, b), None

    scan(step, (0, 0), y)


def observed_outside(y: Any) -> None:
    """The scan returns its states, backwards in time; they are observed in a plate."""

    def step(last: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(THREE)[last]))
        return z, z

    _, states = scan(step, 0, None, length=len(y), reverse=True)
    with numpyro.plate("time", len(y)):
        numpyro.sample("y", dist.Normal(1.0 * states, 0.7), obs=y)


def covariates(x: Any, y: Any) -> None:
    """Transitions that differ from step to step."""

    def step(last: Any, now: Any) -> Any:
        z = numpyro.sample("z", dist.Bernoulli(logits=1.5 * last - 0.5 + now[0]))
        numpyro.sample("y", dist.Normal(1.0 * z, 0.7), obs=now[1])
        return z, None

    scan(step, 0, (x, y))


def regimes(y: Any) -> None:
    """What is observed follows what was observed before, as the state says; states and values are carried."""

    def step(carry: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Bernoulli(jnp.asarray(TWO)[carry[0], 1]))
        numpyro.sample("y", dist.Normal(jnp.array([0.2, 0.9])[z] * carry[1], 0.7), obs=value)
        return (z, value), None

    scan(step, (0, 0.5), y)


def sequences(lengths: Any, y: Any) -> None:
    """A plate of sequences of different length."""

    def step(last: Any, now: Any) -> Any:
        time, value = now
        with numpyro.plate("sequence", len(y)), mask(mask=time < lengths):
            z = numpyro.sample("z", dist.Categorical(jnp.asarray(THREE)[last]))
            numpyro.sample("y", dist.Normal(1.0 * z, 0.7), obs=value)
        return z, None

    scan(step, jnp.zeros(len(y), jnp.int32), (jnp.arange(y.shape[1]), y.T))


def capture_recapture(first: Any, y: Any) -> None:
    """Animals that live on or not, and are seen or not, from when they were first caught (Cormack, Jolly, Seber)."""

    def step(alive: Any, now: Any) -> Any:
        time, seen = now
        with numpyro.plate("animal", len(y)), mask(mask=first < time):
            z = numpyro.sample("z", dist.Bernoulli(jnp.where(first < time, 0.8 * alive, 1.0)))
            numpyro.sample("y", dist.Bernoulli(0.6 * z), obs=seen)
        return jnp.where(first < time, z, 1), None

    scan(step, jnp.ones(len(y), int), (jnp.arange(y.shape[1]), y.T))


def second_order(y: Any) -> None:
    """A state that follows the two before it."""

    def step(carry: Any, value: Any) -> Any:
        last, before = carry
        z = numpyro.sample("z", dist.Bernoulli(jnp.array([[0.1, 0.7], [0.4, 0.8]])[before, last]))
        numpyro.sample("y", dist.Normal(1.0 * z, 0.7), obs=value)
        return (z, last), None

    scan(step, (0, 0), y)


def closed(y: Any) -> None:
    """A chain whose ends meet."""

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Bernoulli(jnp.asarray(TWO)[last, 1]))
        numpyro.sample("y", dist.Normal(1.0 * z, 0.7), obs=value)
        return z, z

    _, states = scan(step, 0, y)
    numpyro.factor("ends", 0.8 * states[0] * states[-1])


def running_total(y: Any) -> None:
    """What is observed depends on all states so far."""

    def step(carry: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Bernoulli(jnp.asarray(TWO)[carry[0], 1]))
        numpyro.sample("y", dist.Normal(1.0 * (carry[1] + z), 0.7), obs=value)
        return (z, carry[1] + z), None

    scan(step, (0, 0), y)


SCANS: dict[str, ScanCase] = {
    "counts": ScanCase(counts, {"y": RNG.poisson(3.0, 6)}, 0),
    "long_counts": ScanCase(long_counts, {"y": RNG.poisson(3.0, 8).repeat(3)}, 1),
    "first_state": ScanCase(first_state, {"y": Y}, 0),
    "factorial": ScanCase(factorial, {"y": Y[:5]}, 0),
    "coupled": ScanCase(coupled, {"y": Y[:5]}, 0),
    "observed_outside": ScanCase(observed_outside, {"y": Y}, 0),
    "covariates": ScanCase(covariates, {"x": RNG.normal(size=6), "y": Y}, 0),
    "regimes": ScanCase(regimes, {"y": Y.repeat(2)}, 2),
    "sequences": ScanCase(sequences, {"lengths": np.array([4, 2]), "y": RNG.normal(size=(2, 4))}, 0),
    "capture_recapture": ScanCase(
        capture_recapture,
        {"first": np.array([0, 1, 0]), "y": np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 0]])},
        0,
    ),
    "second_order": ScanCase(second_order, {"y": Y}, None),
    "closed": ScanCase(closed, {"y": Y}, None),
    "running_total": ScanCase(running_total, {"y": Y}, None),
}
"""By name."""

"""What a program raises without a text is told by the line that raised it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array

import bayeslab as bl


class WithoutDensity(dist.Distribution):
    """A distribution of which nothing is written but its shape and its support."""

    support = dist.constraints.real

    def log_prob(self, value: Any) -> Array:
        raise NotImplementedError


def without_words(x: Any, y: Any) -> None:
    if x.ndim != 2:
        raise LookupError
    numpyro.sample("y", dist.Normal(jnp.sum(x, 1), 1.0), obs=y)


def without_density(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", WithoutDensity())
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def speaking(x: Any, y: Any) -> None:
    raise RuntimeError("x is in metres")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (without_words, r"\(LookupError: at `raise LookupError`\)"),
        (without_density, r"\(NotImplementedError: at `raise NotImplementedError`\)"),
        (speaking, r"\(RuntimeError: x is in metres\)"),
        (numpyro.handlers.scale(without_words, scale=1.0), r"\(LookupError: at `raise LookupError`\)"),
    ],
)
def test_an_error_without_a_text_is_told_by_its_line(program: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.explain(program, {"x": np.ones(3), "y": np.ones(3)})

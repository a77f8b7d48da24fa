"""Programs as they are lowered for an NVIDIA GPU, which none is needed for."""

from collections.abc import Callable
from typing import Any

import jax

from bayeslab.distributions.processor import as_on_accelerator


def lowered_for_cuda(function: Callable[..., Any], *arguments: Any) -> str:
    """The StableHLO of a function of arrays or their shapes."""
    with as_on_accelerator():
        traced = jax.jit(lambda *x: function(*x)).trace(*arguments)
        return traced.lower(lowering_platforms=("cuda",)).as_text()


def num_operations(program: str) -> int:
    """The number of operations of a program, those inside of loops counted once."""
    return sum(" = " in line for line in program.splitlines())

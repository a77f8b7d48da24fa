"""A program whose data come twice: the observed sites, and copies of them given the same latent values."""

import inspect
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.handlers import substitute, trace
from numpyro.primitives import Messenger

from bayeslab.programs.arguments import signature
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Data, DerivedProgram, Program, init_inside_support


def replicate_data(model: Program, data: Data, bound: Bound) -> Bound:
    """The program with a copy of every observed site, `name_again`, that has the values and gaps of the first.

    bound: of model and data. Raises ValueError where an observed site cannot be copied.
    """
    if isinstance(model, DerivedProgram):
        raise ValueError(
            "data of a program with sites integrated out cannot come twice; give the program it was made of"
        )
    if bound.imputed:
        raise ValueError(
            f"others depend on site '{bound.imputed[0]}', which is missing in part, so its data cannot come twice"
        )
    copies = _Copies(tuple(bound.observed))
    with copies:
        drawn = substitute(bound.unconditioned(jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        sites = trace(drawn).get_trace(**bound.inputs)
    if uncopied := [name for name in bound.observed if name_of_copy(name) not in sites]:
        raise ValueError(f"the observed sites {uncopied} are drawn inside a scan, so their data cannot come twice")
    present = {name: np.asarray(bound.present.get(name, True)) for name in bound.observed}
    values = {
        name_of_copy(name): np.ma.masked_array(value, np.broadcast_to(~present[name], np.shape(value)))
        for name, value in bound.observed.items()
    }
    return bind(Replicated(model, tuple(bound.observed)), {**data, **values})


def name_of_copy(name: str) -> str:
    """The name of the copy of a site."""
    return f"{name}_again"


@dataclass(frozen=True)
class Replicated:
    """A program with copies of observed sites, equal for equal arguments. observed: the sites that are copied."""

    function: Program
    observed: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        return signature(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Copies(self.observed):
            return self.function(*args, **kwargs)


class _Copies(Messenger):
    """Samples, after each of some sites, another one of the same distribution in the same plates."""

    def __init__(self, observed: tuple[str, ...]):
        super().__init__()
        self.observed = observed

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.observed:
            numpyro.sample(name_of_copy(msg["name"]), msg["fn"])

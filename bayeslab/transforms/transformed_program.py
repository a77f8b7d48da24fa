"""Programs that are made of others."""

import inspect
from dataclasses import dataclass

from bayeslab.programs.arguments import signature
from bayeslab.programs.program import Program


@dataclass(frozen=True)
class TransformedProgram:
    """A program that is made of another one, whose arguments and module it has; equal for equal fields."""

    model: Program

    @property
    def __signature__(self) -> inspect.Signature:
        return signature(self.model)

    def __post_init__(self) -> None:
        # of the instance: a class statement gives its own module to the class, whatever it inherits
        object.__setattr__(self, "__module__", getattr(self.model, "__module__", ""))

    @property
    def model_name(self) -> str:
        """The name of the other program."""
        return getattr(self.model, "__name__", type(self.model).__name__)

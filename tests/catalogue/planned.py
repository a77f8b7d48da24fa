"""Methods for tests of samplers: one that takes a sampler as it is, and one that keeps some draws of a population."""

from dataclasses import dataclass
from typing import Any

from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class Thinned(Method):
    """Some of the draws of a population, spread over all of it, so that they hardly depend on each other."""

    method: Any
    num_samples: int = 39
    num_chains: int = 1

    @property
    def num_warmup(self) -> int:
        return self.method.num_warmup

    @property
    def thinning(self) -> int:
        return self.method.num_samples // self.num_samples

    def plan(self, analysis: Analysis) -> Sampler:
        return self.method.plan(analysis)


@dataclass(frozen=True)
class Planned(Method):
    """A method that draws with a sampler as it is."""

    sampler: Sampler
    num_warmup: int = 200
    num_samples: int = 39
    num_chains: int = 1
    thinning: int = 1

    def plan(self, analysis: Analysis) -> Sampler:
        return self.sampler

"""What all samplers of mixed membership share."""

from dataclasses import dataclass
from typing import Any

from bayeslab.mixed_membership.packed_data import PackedData, pack_data
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Sampler

MAX_COMPONENTS_KEPT = 50_000
"""Most components that every draw keeps; of more, means and standard deviations over all draws are kept."""


def keeps_components(roles: Membership) -> bool:
    """Whether components are few enough to be kept in every draw."""
    return roles.shape.populations * roles.shape.loci * roles.shape.alleles <= MAX_COMPONENTS_KEPT


@dataclass(frozen=True)
class MembershipSampler(Sampler):
    """A sampler of packed data, whose individuals may be spread over devices.

    roles: of the sites. structure: of the Bound.
    """

    roles: Membership
    structure: Any

    compiler_options = (("xla_cpu_prefer_vector_width", 512),)  # for loops over loci and tokens
    prepares = True

    @property
    def num_devices(self) -> int:
        return self.roles.shape.devices.number

    def prepare(self, bound: Bound) -> PackedData:
        return pack_data(self.roles, bound)

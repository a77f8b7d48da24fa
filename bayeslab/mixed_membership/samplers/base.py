"""What all samplers of mixed membership share."""

from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh, PartitionSpec

from bayeslab.mixed_membership.devices import INDIVIDUAL_AXIS
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
    def mesh(self) -> Mesh | None:
        return self.roles.shape.devices.mesh

    @property
    def data_partition(self) -> PackedData | None:
        """Individuals are spread over devices, the rest is the same on each."""
        if self.mesh is None:
            return None
        return PackedData(PartitionSpec(), PartitionSpec(INDIVIDUAL_AXIS), PartitionSpec())  # type: ignore[arg-type]

    def prepare(self, bound: Bound) -> PackedData:
        return pack_data(self.roles, bound)

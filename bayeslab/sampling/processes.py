"""What several processes of one fit agree on: they run the same script, and each must make the same calls.

Sizes of chunks depend on clocks, an interruption comes to one process, files may differ: the first process decides, or
all are asked. One process needs nothing of this.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh


class Processes(NamedTuple):
    """The processes of a fit. several: whether there is more than one."""

    several: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and shows things."""
        return not self.several or jax.process_index() == 0

    def from_first(self, number: int) -> int:
        """The number that the first process has."""
        return int(self._all(number)[0])

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return bool(self._all(int(flag)).any())

    def require_same(self, what: str, text: str) -> None:
        """Raises ValueError in every process unless all have the same text. what: the text is about."""
        digest = int.from_bytes(sha256(text.encode()).digest()[:4], "big") >> 1
        digests = self._all(digest)
        if (other := np.flatnonzero(digests != digests[0])).size:
            raise ValueError(f"{what} differ between processes 0 and {other[0]}; every process needs the same")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The scope of computations on several processes; raises RuntimeError where one fails, as when another ends."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if not self.several:
                raise
            raise RuntimeError(
                f"a computation of several processes failed, as it does where one of them ends "
                f"({str(error).splitlines()[0]}); with a checkpoint the same call goes on, on any number of processes"
            ) from error

    def _all(self, number: int) -> np.ndarray:
        """The numbers of all processes, below 2^31."""
        if not self.several:
            return np.array([number])
        from jax.experimental.multihost_utils import process_allgather

        return np.asarray(process_allgather(np.int32(number))).reshape(-1)


ONE_PROCESS = Processes()
"""This process alone."""


def processes_of(mesh: Mesh | None) -> Processes:
    """The processes whose devices are in a mesh."""
    return Processes(mesh is not None and len({device.process_index for device in mesh.devices.flat}) > 1)

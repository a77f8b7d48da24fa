"""What several processes of one fit agree on: they run the same script, and each must make the same calls.

Sizes of chunks depend on clocks, an interruption comes to one process, files may differ: the first process decides, or
all are asked. One process needs nothing of this.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

STATUS = re.compile("[A-Z_]+: ")
"""How a message of XLA begins, which comes as a ValueError as well where a process that another one needs is gone."""


class Processes(NamedTuple):
    """The processes of a fit. several: whether there is more than one."""

    several: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and shows things."""
        return not self.several or jax.process_index() == 0

    def from_first(self, number: int) -> int:
        """The number that the first process has."""
        return int(self._all([number])[0, 0])

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return bool(self._all([int(flag)]).any())

    def require_same(self, texts: Mapping[str, str]) -> None:
        """Raises ValueError in every process unless all have the same texts. Their names say what they are about."""
        hashes = [sha256(text.encode(errors="backslashreplace")).digest() for text in texts.values()]
        digests = self._all([int.from_bytes(each[:4], "big") >> 1 for each in hashes])
        others, about = np.nonzero(digests != digests[0])
        if others.size:
            what = list(texts)[about.min()]
            process = others[about == about.min()].min()
            raise ValueError(f"{what} differ between processes 0 and {process}; every process needs the same")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The scope of computations on several processes; raises RuntimeError where one fails, as when another ends."""
        try:
            yield
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            if not self.several or not STATUS.match(str(error)):
                raise
            raise RuntimeError(
                f"a computation of several processes failed, as it does where one of them ends "
                f"({str(error).splitlines()[0]}); with a checkpoint the same call goes on, on any number of processes"
            ) from error

    def _all(self, numbers: list[int]) -> np.ndarray:
        """The numbers (process, number) of all processes, below 2^31."""
        if not self.several:
            return np.array([numbers])
        from jax.experimental.multihost_utils import process_allgather

        with self.watched():
            return np.asarray(process_allgather(np.array(numbers, np.int32))).reshape(-1, len(numbers))


ONE_PROCESS = Processes()
"""This process alone."""


def processes_of(mesh: Mesh | None) -> Processes:
    """The processes whose devices are in a mesh."""
    return Processes(mesh is not None and len({device.process_index for device in mesh.devices.flat}) > 1)

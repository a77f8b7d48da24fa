"""Several processes of one fit: start() makes them known to each other through JAX's own runtime.

Every process runs the same script, which begins with start(). What a process may do alone, such as writing files, is
done by the first one.
"""

import os
import platform
import sys
from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import NamedTuple

import jax

from bayeslab.results.datatree import package_versions
from bayeslab.sampling.processes import Processes

LAUNCHERS = ("SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE")
"""Environment variables of processes that Slurm and Open MPI have started."""
SECONDS_BETWEEN_SIGNALS = 0.2
"""How long a Ctrl-C waits at most while processes wait for each other."""


class ThisProcess(NamedTuple):
    """Which process this is, of how many."""

    number: int
    num_processes: int

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.number == 0


def start(
    address: str | None = None,
    num_processes: int | None = None,
    process: int | None = None,
    *,
    seconds_to_start: int = 300,
    seconds_to_live: int = 60,
) -> ThisProcess:
    """Begin one of several processes, before anything is computed; returns which one it is.

    Under Slurm (`srun`) and Open MPI (`mpirun`), JAX finds the three arguments itself. Elsewhere they
    may be in the environment variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. Where nothing
    says that there are several, this process is the only one, so that the same script runs on one machine too.

    address: of the first process, as "host:port"; the port must be free there.
    process: the number of this process, from 0 on.
    seconds_to_start: how long the first process and the others wait for each other.
    seconds_to_live: how long a process may be silent, as where its machine is down, before the others are ended.
    A process that ends by an error leaves at once, and the others fail with a RuntimeError when they next need it.
    Raises ValueError where processes have other versions of Python or of packages, and for arguments that do not go
    together; RuntimeError where JAX has begun to compute, and where the others do not come in time.
    """
    address = address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    num_processes = _from_environment(num_processes, "JAX_NUM_PROCESSES")
    process = _from_environment(process, "JAX_PROCESS_ID")
    is_launched = any(name in os.environ for name in LAUNCHERS)
    if num_processes == 1 or (address is num_processes is process is None and not is_launched):
        return ThisProcess(0, 1)
    _require_possible(address, num_processes, process, is_launched)

    def initialise() -> None:
        jax.distributed.initialize(
            address,
            num_processes,
            process,
            initialization_timeout=seconds_to_start,
            heartbeat_timeout_seconds=seconds_to_live,
        )

    _in_thread(initialise)
    here = ThisProcess(jax.process_index(), jax.process_count())
    if here.num_processes > 1:
        _leave_at_errors()
        Processes(several=True).require_same({f"versions of {name}": text for name, text in _versions().items()})
    return here


def _from_environment(number: int | None, name: str) -> int | None:
    """The number, or that of an environment variable; raises ValueError for one that holds no number."""
    text = os.environ.get(name)
    if number is not None or not text:
        return number
    if not text.isdecimal():
        raise ValueError(f"the environment variable {name} is {text!r}; expected a number from 0 on")
    return int(text)


def _require_possible(address: str | None, num_processes: int | None, process: int | None, is_launched: bool) -> None:
    """Raises ValueError for arguments that cannot be, and for those that are missing where no launcher has them."""
    given = {"address": address, "num_processes": num_processes, "process": process}
    if (missing := [name for name, value in given.items() if value is None]) and not is_launched:
        raise ValueError(f"{' and '.join(missing)} must be given as well, since no launcher such as srun says it")
    if address is not None and not address.rpartition(":")[2].isdecimal():
        raise ValueError(f'address must be "host:port" of the first process, but is {address!r}')
    if num_processes is not None and num_processes < 1:
        raise ValueError(f"num_processes must be 1 or more, but is {num_processes}")
    if process is not None and not 0 <= process < (num_processes or sys.maxsize):
        raise ValueError(f"process is {process}, but the {num_processes} processes are numbered from 0 on")


def _in_thread(call: Callable[[], None]) -> None:
    """Run a call that takes no notice of Ctrl-C while it waits, so that Ctrl-C ends this process all the same."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SECONDS_BETWEEN_SIGNALS)
    if errors:
        raise errors[0]


def _leave_at_errors() -> None:
    """Let an error that nothing catches end this process at once. JAX would wait for the others, and they for it."""
    shown = sys.excepthook

    def leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        shown(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = leave


def _versions() -> dict[str, str]:
    """The versions of Python and of the packages that draws depend on."""
    packages = {name.removesuffix("_version"): text for name, text in package_versions().items()}
    return {"Python": platform.python_version()} | packages

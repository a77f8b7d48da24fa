"""Whether a program is compiled for a CPU or for an accelerator, which wants few and wide operations."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

_is_assumed = jax.make_user_context(False)


def on_accelerator() -> bool:
    """Whether what is traced now will run on an accelerator: on JAX's default device, where one is set, or by default.

    What is traced under `jax.default_device` of another processor is another program, and both are kept.
    """
    device = jax.config.jax_default_device
    platform = jax.default_backend() if device is None else getattr(device, "platform", device)
    return _is_assumed.value or platform != "cpu"


@contextmanager
def on_cpu(wanted: bool) -> Iterator[None]:
    """Within it, if it is wanted and JAX has a CPU beside its accelerator, programs are compiled for that CPU."""
    if not wanted or not on_accelerator() or (cpu := _first_cpu()) is None:
        yield
        return
    with _is_assumed(False), jax.default_device(cpu):
        yield


def _first_cpu() -> jax.Device | None:
    """A CPU of this process, None where JAX was told to leave it alone."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@contextmanager
def as_on_accelerator() -> Iterator[None]:
    """Within it, programs are those for an accelerator, wherever they run: to look at them where there is none."""
    with _is_assumed(True):
        yield

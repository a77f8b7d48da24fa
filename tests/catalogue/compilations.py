"""Counting compilations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax


@contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """Names of everything that XLA compiles or fetches from a cache inside."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)

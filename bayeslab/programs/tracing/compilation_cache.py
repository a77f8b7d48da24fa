"""What is compiled is kept on disk, so that the next process finds it."""

import os
import platform
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import jax

SETTING = "BAYESLAB_CACHE"
"""The variable of the environment with a folder for compiled code, or "off"."""
MAX_BYTES = 2 * 2**30
"""The size above which the oldest files go when a process begins."""


def keep_compilations() -> None:
    """Turn on JAX's persistent compilation cache, where it is not on already and `BAYESLAB_CACHE` is not "off".

    Code is kept by processor, so that computers may share a home directory. A folder that cannot be written to is left
    alone.
    """
    setting = os.environ.get(SETTING, "")
    if setting == "off" or jax.config.jax_compilation_cache_dir is not None:
        return
    folder = Path(setting or _user_cache() / "bayeslab") / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_oldest(folder)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _user_cache() -> Path:
    """The folder for what programs of this user can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache")


@lru_cache(maxsize=1)
def _processor() -> str:
    """A name for processors that run the same code: their architecture, and a digest of what they can do."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else [platform.processor()]
    abilities = {line for line in lines if line.startswith(("flags", "Features", "model name"))} or set(lines[:1])
    return f"{platform.machine()}-{sha256(''.join(sorted(abilities)).encode()).hexdigest()[:12]}"


def _remove_oldest(folder: Path) -> None:
    """Remove the oldest files of a folder until it is not too large. Other processes may do the same meanwhile."""
    files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder))
    excess = sum(size for _, size, _ in files) - MAX_BYTES
    for _, size, path in files:
        if excess <= 0:
            break
        Path(path).unlink(missing_ok=True)
        excess -= size

"""A laboratory for Bayesian models written as NumPyro programs."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """What `__init__.pyi` lists, imported when it is used, so that the command and scripts start at once."""
    if name == "__version__":
        return version("bayeslab")
    import_module("numpyro")  # as a whole: ArviZ may have left a half of it, to be loaded when it is used
    return _load(name)

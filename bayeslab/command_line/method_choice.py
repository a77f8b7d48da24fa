"""The method that a command names, with its settings; every method of the library that needs no more than numbers."""

import re
from argparse import Namespace
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayeslab.programs.program import Data, Program
    from bayeslab.sampling.protocols import Method

SETTINGS = {
    "draws": "num_samples",
    "warmup": "num_warmup",
    "chains": "num_chains",
    "thinning": "thinning",
    "steps": "num_steps",
    "starts": "num_starts",
    "target_accept": "target_accept_prob",
    "max_tree_depth": "max_tree_depth",
    "guide": "guide",
}
"""Options of the command, and the settings of methods that they are."""
GUIDES = {
    "mean-field": "mean_field_normal",
    "full-rank": "full_rank_normal",
    "low-rank": "low_rank_normal",
    "flow": "normalising_flow",
}
"""The guides of SVI by their names on the command line."""


def methods() -> dict[str, Any]:
    """The methods by their names on the command line: those whose settings all have a default."""
    import bayeslab as bl

    methods = {}
    for name in dir(bl):
        kind = getattr(bl, name)
        if isinstance(kind, type) and hasattr(kind, "plan") and hasattr(kind, "__dataclass_fields__"):
            settings = fields(kind)
            if all(s.default is not MISSING or s.default_factory is not MISSING for s in settings):
                methods[re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()] = kind
    return methods


def chosen_method(arguments: Namespace, model: "Program", data: "Data") -> "Method":
    """The method asked for, or the one that the program allows, with the settings given.

    Raises ValueError for a method that there is not, and for a setting that it does not have.
    """
    import bayeslab as bl
    from bayeslab.planning import default_method
    from bayeslab.programs.binding import suggestion
    from bayeslab.programs.program import precision_scope
    from bayeslab.transforms.analysis import Analysis

    changes = {option: value for option in SETTINGS if (value := getattr(arguments, option, None)) is not None}
    if (alone := getattr(arguments, "chain", None)) is not None:
        if "chains" in changes:
            raise ValueError("--chain is one chain alone; give that or --chains, not both")
        changes["chains"] = 1
    method: Any
    if arguments.method is None:
        with precision_scope():
            method = default_method(Analysis(bl.bind(model, data))).method
    else:
        known = methods()
        name = arguments.method.lower().replace("_", "-")
        if name not in known:
            raise ValueError(
                f"there is no method '{arguments.method}'.{suggestion(name, known)} The methods are {', '.join(known)}"
            )
        method = known[name]()
    names = {field.name for field in fields(method)}
    for option in changes:
        if SETTINGS[option] not in names:
            option = "chain" if option == "chains" and alone is not None else option.replace("_", "-")
            raise ValueError(f"--{option} does not apply to the method {type(method).__name__}")
    if "guide" in changes:
        changes["guide"] = getattr(bl, GUIDES[changes["guide"]])()
    return replace(method, **{SETTINGS[option]: value for option, value in changes.items()})

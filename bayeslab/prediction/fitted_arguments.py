"""Arguments of a fit that new data leave out, from what a result keeps of them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind
from bayeslab.programs.data import Entry, as_entry
from bayeslab.programs.program import Program
from bayeslab.programs.tracing.provenance import trace_data_flow
from bayeslab.results.datatree import argument_recipes, categories_of

if TYPE_CHECKING:
    from xarray import DataArray, DataTree


def fitted_arguments(program: Program, given: Mapping[str, Entry], tree: "DataTree") -> dict[str, Entry]:
    """The arguments of the fit that are not given, but for those that only hand over data and may be None.

    Raises ValueError for one that the result does not hold.
    """
    declared = parameters(program)
    observed = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    constants = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    descriptions = argument_recipes(tree)
    if not descriptions:
        kept = [n for n in map(str, constants) if n in declared and declared[n].default is not None]
        descriptions = {name: {"array": name, "default": False} for name in kept}
    left_out = [name for name in descriptions if name in declared and name not in given and name not in observed]
    fitted: dict[str, Entry] = {}
    for name, description in descriptions.items():
        if name not in declared or (
            "array" not in description and "value" not in description and description["default"]
        ):
            continue
        if missing := next(_missing_parts(description, constants), None):
            if name in left_out:
                raise ValueError(
                    f"data lack argument '{name}', which was not its default at the fit and is not in the result, "
                    f"because it is made of {missing}; give it"
                )
            if name in given:
                fitted[name] = given[name]
        else:
            value = _rebuild_argument(description, constants)
            item = as_entry(constants[name], name) if "array" in description and constants[name].ndim else Entry(value)
            fitted[name] = item._replace(categories=categories_of(tree, name))
    optional = {n for n in left_out if n in fitted and declared[n].default is None and [*_array_names(descriptions[n])]}
    data_only = optional & _data_only_arguments(program, fitted) if optional else set()
    return {name: fitted[name] for name in left_out if name in fitted and name not in data_only}


def sites_of_fit(program: Program, tree: "DataTree") -> set[str]:
    """The names of the sites that the program had with the data of the fit, those integrated out among them; none where
    the result does not keep all of its arguments."""
    observed = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    constants = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    arrays = dict(observed) | {name: constants[name] for name in parameters(program) if name in constants}
    try:
        entries = {str(name): as_entry(value, str(name)) for name, value in arrays.items()}
        return set(bind(program, entries | fitted_arguments(program, {}, tree)).plain.sites)
    except (TypeError, ValueError):
        return set()


def _missing_parts(how: Mapping[str, Any], constants: Mapping[Any, "DataArray"]) -> Iterator[str]:
    """The parts of an argument that a result does not hold, in words: classes, and arrays that were taken out of it."""
    if "other" in how:
        yield f"a {how['other']}"
    yield from (f"array '{name}'" for name in _array_names(how) if name not in constants)
    for part in _nested_parts(how):
        yield from _missing_parts(part, constants)


def _array_names(how: Mapping[str, Any]) -> Iterator[str]:
    """The names of the arrays in the description of an argument."""
    if "array" in how:
        yield how["array"]
    for part in _nested_parts(how):
        yield from _array_names(part)


def _nested_parts(how: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The descriptions of the elements of a dict, list or tuple."""
    return [*how.get("dict", {}).values(), *how.get("list", []), *how.get("tuple", [])]


def _rebuild_argument(how: Mapping[str, Any], constants: Mapping[Any, "DataArray"]) -> Any:
    """An argument from its description and its arrays."""
    if "array" in how:
        value = constants[how["array"]]
        return value.values if value.ndim else value.item()
    if "dict" in how:
        return {key: _rebuild_argument(part, constants) for key, part in how["dict"].items()}
    if "value" in how:
        return how["value"]
    parts = [_rebuild_argument(part, constants) for part in _nested_parts(how)]
    return tuple(parts) if "tuple" in how else parts


def _data_only_arguments(program: Program, arguments: Mapping[str, Entry]) -> set[str]:
    """The arguments that are observed values and reach no parameter of a distribution."""
    bound = bind(program, arguments).plain
    facts = trace_data_flow(bound, bound.latent_shapes)
    reached = [
        {name.split(".")[0] for fact in facts.of(*kinds) for name in fact.reached_by("argument")}
        for kinds in (("written",), ("parameter", "bound"))
    ]
    return reached[0] - reached[1]

"""One scan, computed variable by variable for all its steps at once."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

from bayeslab.programs.tracing.analyticity import scan_counts


class Loop:
    """One scan, computed variable by variable for all steps at once.

    fixed: values that are the same in all steps, by variable. stacked: those of all steps (step, ...), arrays of NumPy
    where they depend on no argument of the program.
    """

    def __init__(self, equation: Any, inputs: Sequence[Any]) -> None:
        params = equation.params
        self.length, self.reverse = params["length"], params["reverse"]
        self.jaxpr = params["jaxpr"].jaxpr
        num_consts, num_carry = scan_counts(params)
        variables = self.jaxpr.invars
        self.carried = variables[num_consts : num_consts + num_carry]
        self.initial = dict(zip(self.carried, inputs[num_consts : num_consts + num_carry], strict=True))
        self.next = dict(zip(self.carried, self.jaxpr.outvars[:num_carry], strict=True))
        self.collected = self.jaxpr.outvars[num_carry:]
        self.fixed: dict[Var, Any] = dict(zip(self.jaxpr.constvars, params["jaxpr"].consts, strict=True))
        self.fixed |= dict(zip(variables[:num_consts], inputs[:num_consts], strict=True))
        self.stacked: dict[Var, Any] = dict(
            zip(variables[num_consts + num_carry :], inputs[num_consts + num_carry :], strict=True)
        )

    def outputs(self, wanted: Sequence[bool]) -> list[Any]:
        """What the scan returns, None in place of what nobody wants."""
        ends = [*self.next.values(), *self.collected]
        needed = set().union(*(self._reached(end) for end, asked in zip(ends, wanted, strict=True) if asked))
        for component in self._components():
            if not needed.isdisjoint(component):
                self._carry(component)
        stacks = [self._stack(self._value(end)) if asked else None for end, asked in zip(ends, wanted, strict=True)]
        last = [each if each is None else each[0 if self.reverse else -1] for each in stacks[: len(self.carried)]]
        return [*last, *stacks[len(self.carried) :]]

    def _reached(self, output: Any) -> set[Var]:
        """The carried variables that an output needs, in this step or in one before."""
        reached, queue = set(), self._needed_carries(output)
        while queue:
            reached |= queue
            queue = set().union(*(self._needed_carries(self.next[variable]) for variable in queue)) - reached
        return reached

    def _components(self) -> list[list[Var]]:
        """The carried variables, each after what it depends on; those together that depend on each other."""
        reach = {variable: self._reached(self.next[variable]) for variable in self.carried}
        components: list[list[Var]] = []
        for variable in sorted(self.carried, key=lambda v: len(reach[v])):
            if not any(variable in component for component in components):
                circle = [v for v in self.carried if v in reach[variable] and variable in reach[v]]
                components.append(circle or [variable])
        return sorted(components, key=lambda component: len(reach[component[0]] - set(component)))

    def _needed_carries(self, output: Any) -> set[Var]:
        return {v for v in self._inputs_of(self._equations_for([output], set()), [output]) if v in self.initial}

    def _equations_for(self, outputs: Sequence[Any], known: set[Var]) -> list[Any]:
        """The equations that some variables need besides what is known."""
        wanted, chosen = {v for v in outputs if not isinstance(v, Literal)} - known, []
        for equation in reversed(self.jaxpr.eqns):
            if not wanted.isdisjoint(equation.outvars):
                chosen.append(equation)
                wanted |= {v for v in equation.invars if not isinstance(v, Literal)} - known
        return chosen[::-1]

    def _inputs_of(self, equations: Sequence[Any], outputs: Sequence[Any]) -> list[Var]:
        """What some equations are given, and what of the outputs they do not make."""
        made = {v for equation in equations for v in equation.outvars}
        used = [v for equation in equations for v in equation.invars] + list(outputs)
        return list(dict.fromkeys(v for v in used if not isinstance(v, Literal) and v not in made))

    def _carry(self, component: list[Var]) -> None:
        """Compute carried variables at the beginning of every step."""
        outputs = [self.next[variable] for variable in component]
        if component[0] in self._needed_carries(outputs[0]) or len(component) > 1:
            self._loop(component, outputs)
            return
        [variable], first = component, self.initial[component[0]]
        if outputs[0] is variable:
            self.fixed[variable] = first
            return
        after = self._stack(self._value(outputs[0]))
        lib: Any = np if isinstance(after, np.ndarray) and not isinstance(first, jax.core.Tracer) else jnp
        first = lib.asarray(first, after.dtype)[None]
        pieces = [after[1:], first] if self.reverse else [first, after[:-1]]
        self.stacked[variable] = lib.concatenate(pieces)

    def _loop(self, component: list[Var], outputs: list[Any]) -> None:
        """Carried variables that depend on themselves, step by step."""
        if len(component) == 1 and outputs[0] is component[0]:
            self.fixed[component[0]] = self.initial[component[0]]
            return
        known = set(self.fixed) | set(self.stacked)
        equations = self._equations_for(outputs, known)
        given = [v for v in self._inputs_of(equations, outputs) if v not in component]
        body = jaxpr_as_fun(self._closed([*component, *given], outputs, equations))
        moving = {place: self.stacked[v] for place, v in enumerate(given) if v in self.stacked}
        fixed = {place: self.fixed[v] for place, v in enumerate(given) if v in self.fixed}

        def step(carry: list[Any], now: dict[int, Any]) -> tuple[list[Any], list[Any]]:
            both = fixed | now
            return body(*carry, *(both[place] for place in range(len(given)))), carry

        start = [self.initial[variable] for variable in component]
        concrete = not any(isinstance(v, jax.core.Tracer) for v in [*start, *moving.values(), *fixed.values()])

        def run() -> list[Any]:
            begin = [jnp.asarray(v, _dtype(variable)) for v, variable in zip(start, component, strict=True)]
            return jax.lax.scan(step, begin, moving, self.length, self.reverse)[1]

        if concrete:
            with jax.ensure_compile_time_eval():
                stacks = [np.asarray(each) for each in jax.jit(run)()]
        else:
            stacks = run()
        self.stacked |= dict(zip(component, stacks, strict=True))

    def _value(self, variable: Any) -> tuple[Any, bool]:
        """A variable, and whether it is stacked; computes what it needs."""
        if isinstance(variable, Literal):
            return variable.val, False
        for equation in self._equations_for([variable], set(self.fixed) | set(self.stacked)):
            self._compute(equation)
        return (self.stacked[variable], True) if variable in self.stacked else (self.fixed[variable], False)

    def _compute(self, equation: Any) -> None:
        """One equation for all steps at once."""
        inputs = [self._known(v) for v in equation.invars]
        function = run_alone(self.jaxpr, equation)
        values = [value for value, _ in inputs]
        if not any(stacked for _, stacked in inputs):
            self.fixed |= dict(zip(equation.outvars, function(*values), strict=True))
            return
        axes = tuple(0 if stacked else None for _, stacked in inputs)
        concrete = not any(isinstance(value, jax.core.Tracer) for value in values)
        if (part := _contiguous_slice(equation, inputs)) is not None:
            outputs = [part]
        elif concrete:
            with jax.ensure_compile_time_eval():
                outputs = [np.asarray(each) for each in jax.jit(jax.vmap(function, axes))(*values)]
        else:
            outputs = jax.vmap(function, axes)(*values)
        self.stacked |= dict(zip(equation.outvars, outputs, strict=True))

    def _known(self, variable: Any) -> tuple[Any, bool]:
        if isinstance(variable, Literal):
            return variable.val, False
        return (self.stacked[variable], True) if variable in self.stacked else (self.fixed[variable], False)

    def _stack(self, value: tuple[Any, bool]) -> Any:
        """A variable at all steps."""
        array, stacked = value
        return array if stacked else jnp.broadcast_to(array, (self.length, *jnp.shape(array)))

    def _closed(self, inputs: Sequence[Var], outputs: Sequence[Any], equations: Sequence[Any]) -> ClosedJaxpr:
        names = self.jaxpr.debug_info.with_unknown_names()
        return ClosedJaxpr(
            self.jaxpr.replace(
                constvars=[], invars=list(inputs), outvars=list(outputs), eqns=list(equations), debug_info=names
            ),
            [],
        )


def _dtype(variable: Any) -> Any:
    return variable.aval.dtype


def _contiguous_slice(equation: Any, inputs: Sequence[tuple[Any, bool]]) -> Any:
    """What a step takes of an array by its number, at all steps: part of the array; None for other operations."""
    (operand, stacked), *places = inputs
    if equation.primitive.name != "dynamic_slice" or stacked or not jnp.ndim(operand):
        return None
    values = [np.asarray(place) for place, _ in places if not isinstance(place, jax.core.Tracer)]
    sizes = equation.params["slice_sizes"]
    if len(values) < len(places) or sizes[0] != 1 or tuple(sizes[1:]) != jnp.shape(operand)[1:]:
        return None
    first = values[0]
    if first.ndim == 0 or (np.diff(first) != 1).any() or first[0] < 0 or first[-1] >= jnp.shape(operand)[0]:
        return None
    if any((value != 0).any() for value in values[1:]):
        return None
    part = operand if len(first) == len(operand) else operand[int(first[0]) : int(first[-1]) + 1]
    return jnp.expand_dims(part, 1)


def run_alone(jaxpr: Any, equation: Any) -> Callable[..., list[Any]]:
    """One equation of a trace as a function of all its operands, which remembers where it is from."""
    inputs = [Var(variable.aval) for variable in equation.invars]
    names = jaxpr.debug_info.with_unknown_names()
    part = equation.replace(invars=inputs)
    closed = ClosedJaxpr(
        jaxpr.replace(constvars=[], invars=inputs, outvars=equation.outvars, eqns=[part], debug_info=names), []
    )
    return jaxpr_as_fun(closed)

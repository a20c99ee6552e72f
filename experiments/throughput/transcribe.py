"""The model's own formulas as plain Python and as NumPy: its jaxpr written out as source, operation by operation.

That way the three that are timed cannot drift apart. ``python`` works on floats, one candidate a call; ``numpy`` on arrays
whose trailing axes are candidates.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call")
REDUCTIONS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min", "reduce_and": "and", "reduce_or": "or"}
SHAPES: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": lambda params, value: _broadcast(value, params["shape"], params["broadcast_dimensions"]),
    "reshape": lambda params, value: value.reshape(params["new_sizes"]),
    "squeeze": lambda params, value: np.squeeze(value, params["dimensions"]),
    "concatenate": lambda params, *values: np.concatenate(values, params["dimension"]),
    "stack": lambda params, *values: np.stack(values, params["axis"]),
    "slice": lambda params, value: value[tuple(map(slice, params["start_indices"], params["limit_indices"]))],
}
PYTHON = {
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
    "ceil": "float(ceil({0}))",
    "floor": "float(floor({0}))",
    "neg": "-{0}",
    "and": "({0} and {1})",
    "or": "({0} or {1})",
    "not": "(not {0})",
    "rem": "fmod({0}, {1})",
    "select_n": "({2} if {0} else {1})",
    "stop_gradient": "{0}",
    "copy": "{0}",
    "convert_element_type": "{0}",
    "round": "float(round({0}))",
}
NUMPY = PYTHON | {
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "round": "np.rint({0})",
    "ceil": "np.ceil({0})",
    "floor": "np.floor({0})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "not": "~np.asarray({0})",
    "rem": "np.fmod({0}, {1})",
    "select_n": "np.where({0}, {2}, {1})",
}


def _broadcast(value: np.ndarray, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> np.ndarray:
    sizes = [value.shape[dimensions.index(axis)] if axis in dimensions else 1 for axis in range(len(shape))]
    return np.broadcast_to(value.reshape(sizes), shape)


Value = np.ndarray
"""A traced value as an object array of scalar expressions: small vectors are written out element by element."""


class Writer:
    """Writes one jaxpr as the body of a Python function of scalars (which may be NumPy arrays over candidates)."""

    def __init__(self, forms: dict[str, str], vectorised: bool) -> None:
        self.forms, self.vectorised = forms, vectorised
        self.lines: list[str] = []
        self.count = 0

    def assign(self, expression: str, indent: str) -> str:
        """A new variable that holds ``expression``."""
        self.count += 1
        self.lines.append(f"{indent}v{self.count} = {expression}")
        return f"v{self.count}"

    def body(self, jaxpr: Any, inputs: list[Value], indent: str) -> list[Value]:
        """Write a (closed) jaxpr for these inputs; its outputs."""
        consts = [_spelled(value) for value in getattr(jaxpr, "consts", ())]
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        known: dict[Any, Value] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

        def read(atom: Any) -> Value:
            return _spelled(atom.val) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            known |= zip(eqn.outvars, self.equation(eqn, [read(atom) for atom in eqn.invars], indent), strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: Any, values: list[Value], indent: str) -> list[Value]:
        """Write one equation; its outputs."""
        name, params = eqn.primitive.name, eqn.params
        if name in CALLS:
            return self.body(params.get("jaxpr") or params["call_jaxpr"], values, indent)
        if name == "while":
            return self.loop(params, values, indent)
        if name in SHAPES:
            return [SHAPES[name](params, *values)]
        if name in REDUCTIONS:
            return [np.array(self.folded(REDUCTIONS[name], list(values[0].ravel()), indent), object)]
        form = f"({{0}} {BINARY[name]} {{1}})" if name in BINARY else self.forms[name]
        spread = np.broadcast_arrays(*values)
        columns = zip(*(value.ravel() for value in spread), strict=True)
        written = [self.assign(form.format(*column), indent) for column in columns]
        return [np.array(written, object).reshape(spread[0].shape)]

    def folded(self, name: str, parts: list[str], indent: str) -> str:
        """``parts`` combined by a binary operation."""
        form = f"({{0}} {BINARY[name]} {{1}})" if name in BINARY else self.forms[name]
        total = parts[0]
        for part in parts[1:]:
            total = self.assign(form.format(total, part), indent)
        return total

    def loop(self, params: Any, values: list[Value], indent: str) -> list[Value]:
        """Write a while loop; vectorised ones run until every candidate is done and update only those that are not."""
        tests, steps = params["cond_nconsts"], params["body_nconsts"]
        for_test, for_step, start = values[:tests], values[tests : tests + steps], values[tests + steps :]
        state = [_each(lambda old: self.assign(old, indent), value) for value in start]
        self.lines.append(f"{indent}while True:")
        inner = indent + "    "
        (going,) = self.body(params["cond_jaxpr"], [*for_test, *state], inner)
        more = " or ".join(f"np.any({lane})" if self.vectorised else lane for lane in going.ravel())
        self.lines.append(f"{inner}if not ({more}): break")
        new = self.body(params["body_jaxpr"], [*for_step, *state], inner)
        rows = [_lanes(old, after, going) for old, after in zip(state, new, strict=True)]
        olds, news, lanes = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        keep = "np.where({2}, {1}, {0})" if self.vectorised else "{1} if {2} else {0}" if going.ndim else "{1}"
        updates = (keep.format(*entry) for entry in zip(olds, news, lanes, strict=True))
        self.lines.append(f"{inner}{', '.join(olds)}, = {', '.join(updates)},")
        return state


def _lanes(old: Value, new: Value, going: Value) -> tuple[Value, ...]:
    """Old and new elements of a loop's state, flat, and for each the test of the lane that it belongs to."""
    test = going.reshape(going.shape + (1,) * (old.ndim - going.ndim))
    return old.ravel(), new.ravel(), np.broadcast_to(test, old.shape).ravel()


def _each(function: Callable[[str], str], value: Value) -> Value:
    return np.array([function(part) for part in value.ravel()], object).reshape(value.shape)


def _spelled(value: Any) -> Value:
    numbers = np.asarray(value)
    return np.array([repr(number) for number in numbers.ravel().tolist()], object).reshape(numbers.shape)


def _freeing(lines: list[str]) -> list[str]:
    """``lines`` with each array dropped after its last use, so that NumPy gets memory that is warm and not fresh pages."""
    last: dict[str, int] = {}
    group, groups = 0, []
    for line in lines:
        group += not line.startswith("     ")  # a loop's body belongs to the line that opens it
        groups.append(group)
        last |= dict.fromkeys(re.findall(r"\bv\d+\b", line), group)
    dead: dict[int, list[str]] = {}
    for name, at in last.items():
        dead.setdefault(at, []).append(name)
    freed: list[str] = []
    for line, this, following in zip(lines, groups, [*groups[1:], group + 1], strict=True):
        freed.append(line)
        if this not in (following, group) and this in dead:
            freed.append(f"    del {', '.join(dead[this])}")
    return freed


def transcribe(function: Callable[..., Any], *examples: Any, vectorised: bool) -> Callable[..., tuple[Any, ...]]:
    """``function`` of pytrees of rank-0 leaves as a function of their flat leaves, on floats or on NumPy arrays."""
    closed = jax.make_jaxpr(function)(*examples)
    writer = Writer(NUMPY if vectorised else PYTHON, vectorised)
    inputs = [f"a{number}" for number in range(len(closed.jaxpr.invars))]
    outputs = writer.body(closed, [np.array(name, object) for name in inputs], "    ")
    result = f"    return ({', '.join(output.item() for output in outputs)},)"
    lines = [*writer.lines, result]
    source = "\n".join([f"def run({', '.join(inputs)}):", *(_freeing(lines) if vectorised else lines)])
    scope: dict[str, Any] = {"np": np, **{name: getattr(math, name) for name in ("ceil", "floor", "fmod", "inf", "nan")}}
    exec(compile(source, f"<{'numpy' if vectorised else 'python'} transcript>", "exec"), scope)
    return scope["run"]

"""Compilation of the model's long scalar graphs, which XLA's default CPU code generator is slow at."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.core import Tracer


@cache
def quick_options() -> dict[str, Any]:
    """Compiler options that compile such graphs two to three times as fast on CPU, to code as fast; none if unknown here."""
    options = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except Exception:  # an option that this XLA does not know raises whatever its client raises
        return {}
    return options


def quick_jit(function: Callable[..., Any], static_argnums: tuple[int, ...]) -> Callable[..., Any]:
    """``jax.jit`` with :func:`quick_options` where the call is the outermost; a plain one inside other transformations.

    jax takes compiler options of the outermost jit only.
    """
    plain = jax.jit(function, static_argnums=static_argnums)

    @cache
    def quick() -> Callable[..., Any]:
        return jax.jit(function, static_argnums=static_argnums, compiler_options=quick_options())

    def call(*args: Any) -> Any:
        numbers = [arg for position, arg in enumerate(args) if position not in static_argnums]
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers))
        return plain(*args) if traced else quick()(*args)

    return call

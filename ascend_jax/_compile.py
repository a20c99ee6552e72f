"""Compilation of the model's long scalar graphs, which XLA's default CPU code generator is slow at."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.core import Tracer

OFTEN = {"xla_cpu_use_fusion_emitters": False}
"""For what runs over millions: compiles such graphs two to three times as fast as XLA's default, to code as fast."""
SELDOM = OFTEN | {"xla_backend_optimization_level": 0}
"""For what runs over few: compiles twice as fast again, to slow code."""

SLOPES = {"xla_disable_hlo_passes": "fusion", "xla_cpu_enable_fast_min_max": True, "xla_cpu_prefer_vector_width": 512}
"""For gradients of thousands of tilings: fused, the backward pass computes everything several times over. Unfused it runs two
to seven times as fast from a thousand tilings on, and compiles in half the time."""


def compile_with(lowered: Any, wanted: dict[str, Any]) -> Any:
    """``lowered`` compiled with the options ``wanted``, or without where this XLA does not know them."""
    try:
        return lowered.compile(wanted)
    except jax.errors.JaxRuntimeError:  # an unknown option; whatever else it was, the next line raises it again
        return lowered.compile()


def options(wanted: dict[str, Any]) -> dict[str, Any]:
    """``wanted``, or nothing where this XLA does not know them."""
    return dict(wanted) if _known(tuple(sorted(wanted.items()))) else {}


@cache
def _known(wanted: tuple[tuple[str, Any], ...]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=dict(wanted)).lower(0.0).compile()
    except Exception:  # an unknown option raises whatever the backend's client raises
        return False
    return True


def quick_jit(function: Callable[..., Any], static_argnums: tuple[int, ...], wanted: dict[str, Any]) -> Callable[..., Any]:
    """``jax.jit`` with the options ``wanted`` where the call is the outermost; a plain one inside other transformations.

    jax takes compiler options of the outermost jit only.
    """
    plain = jax.jit(function, static_argnums=static_argnums)

    @cache
    def quick() -> Callable[..., Any]:
        return jax.jit(function, static_argnums=static_argnums, compiler_options=options(wanted))

    def call(*args: Any) -> Any:
        numbers = [arg for position, arg in enumerate(args) if position not in static_argnums]
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers))
        return plain(*args) if traced else quick()(*args)

    return call

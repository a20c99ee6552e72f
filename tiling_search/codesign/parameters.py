"""The numbers of a chip by name, what kind each is, and a chip with some of them multiplied."""

from collections.abc import Mapping
from dataclasses import fields, replace

from ascend_jax.hardware.spec import NpuSpec, VectorCosts

WHOLE = ("cube_cores", "vector_cores_per_cube")
"""Counts: the model rounds by them, so that they have steps and no slope."""
CAPACITIES = ("ub_bytes", "l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes", "gm_bytes")
"""Sizes that only decide what fits: the slope of the time by them is 0, though a larger one may admit a faster tiling."""
DISCRETE = (*WHOLE, *CAPACITIES)


def chip_parameters(spec: NpuSpec) -> dict[str, float]:
    """Every number of the chip by name, ``vector.exp`` and the like included; paths that it lacks are left out.

    >>> from ascend_jax import load_chip
    >>> chip_parameters(load_chip("910B3"))["cube_cores"]
    20.0
    """
    own = {item.name: getattr(spec, item.name) for item in fields(spec) if item.name not in ("architecture", "name", "vector")}
    vector = {f"vector.{item.name}": getattr(spec.vector, item.name) for item in fields(VectorCosts)}
    return {name: float(value) for name, value in (own | vector).items() if value is not None}


def scaled_chip(spec: NpuSpec, factors: Mapping[str, float]) -> NpuSpec:
    """``spec`` with numbers multiplied; counts are rounded to whole ones, of at least 1.

    Raises:
      ValueError: the chip has no such number.

    >>> from ascend_jax import load_chip
    >>> scaled_chip(load_chip("910B3"), {"cube_cores": 1.26, "vector.exp": 0.5}).cube_cores
    25
    """
    known = chip_parameters(spec)
    changes: dict[str, float] = {}
    vector: dict[str, float] = {}
    for name, factor in factors.items():
        if name not in known:
            raise ValueError(f"{spec.name} has no number {name!r}: there are {', '.join(known)}")
        value = known[name] * factor
        if name in WHOLE:
            value = max(round(value), 1)
        if name.startswith("vector."):
            vector[name.removeprefix("vector.")] = value
        else:
            changes[name] = value
    return replace(spec, vector=replace(spec.vector, **vector), **changes)  # pyright: ignore[reportArgumentType]

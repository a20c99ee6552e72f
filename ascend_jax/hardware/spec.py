"""``NpuSpec``: what a chip is, as numbers. Bytes, bytes per second, hertz, cycles and seconds; nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from jax.tree_util import GetAttrKey, register_dataclass, register_pytree_with_keys

from ascend_jax._pytree import Leaf, all_numbers

Number = Leaf
Architecture = Literal["coupled", "separated", "direct"]
"""How Cube and Vector reach each other: through on-chip buffers of one AI core (``coupled``: 910A, 310P), through GM/L2
between separate cores (``separated``: 910B, 910_93), or by L0C→UB and UB→L1 paths between separate cores (``direct``: 950)."""


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class VectorCosts:
    """Cycles of one Vector instruction per repeat (``NpuSpec.vector_repeat_bytes``) of float32 operands, on one vector core.

    ``scale`` multiplies by a scalar, ``row_max`` and ``row_sum`` reduce along a row (cost per repeat reduced), ``subtract``
    takes a broadcast row value off, ``multiply`` and ``add`` take two sources. ``head`` and ``tail`` are paid once per
    instruction that starts on an idle pipe.
    """

    scale: Number
    row_max: Number
    subtract: Number
    exp: Number
    row_sum: Number
    cast: Number
    select: Number
    multiply: Number
    add: Number
    divide: Number
    head: Number
    tail: Number
    round_trip: Number
    """What each instruction takes at least, per repeat, outside of a fused vector function: operands from UB and back."""

    def __post_init__(self) -> None:
        _check_numbers(self)


@dataclass(frozen=True, kw_only=True)
class NpuSpec:
    """One Ascend chip (one die) as the model sees it. Every number is a leaf; a path that the silicon lacks is ``None``.

    Rates are bytes per second: ``gm`` and ``l2`` of the whole chip, the paths of one core (``…_to_ub``, ``ub_to_…`` of one
    vector core, the others of one cube core). Sizes are bytes of one core's buffer; ``l2`` and ``gm`` of the chip.
    ``name`` is for people: jax drops it, so chips of one architecture share one compilation.

    Load one with :func:`ascend_jax.hardware.load_chip`; vary one with :func:`dataclasses.replace`.
    """

    architecture: Architecture = field(metadata={"static": True})
    name: str = ""

    cube_cores: Number
    vector_cores_per_cube: Number
    cube_clock_hz: Number
    vector_clock_hz: Number

    ub_bytes: Number
    l1_bytes: Number
    l0a_bytes: Number
    l0b_bytes: Number
    l0c_bytes: Number
    l2_bytes: Number
    gm_bytes: Number

    gm_bytes_per_s: Number
    l2_bytes_per_s: Number
    gm_to_l1_bytes_per_s: Number
    gm_to_ub_bytes_per_s: Number
    ub_to_gm_bytes_per_s: Number
    l1_to_l0a_bytes_per_s: Number
    l1_to_l0b_bytes_per_s: Number
    l0c_to_gm_bytes_per_s: Number | None = None
    l0c_to_ub_bytes_per_s: Number | None = None
    ub_to_l1_bytes_per_s: Number | None = None

    gm_latency_s: Number
    """From the end of a transfer's bytes on the path to GM or L2 until they are visible at the other end, either way."""
    dma_startup_s: Number
    """One DMA instruction's start-up: a transfer of that many seconds' worth of bytes runs at half speed."""
    dma_burst_gap_bytes: Number
    """What every contiguous burst of a strided transfer costs besides its own bytes, also in GM and L2."""
    nd2nz_burst_gap_bytes: Number
    """The same of loads into L1, which turn rows into fractals (ND to NZ) on the way."""

    cube_mac_cycles: Number
    """Cycles of one 16 × 32 B × 16 multiply-accumulate of 1- and 2-byte operands."""
    cube_mac_cycles_fp32: Number
    """The same for float32 operands."""
    cube_issue_cycles: Number
    """Cycles to issue one matrix multiplication."""
    vector: VectorCosts
    vector_repeat_bytes: Number

    handoff_s: Number
    """One flag between a cube core and its vector cores (or between pipes that share no queue)."""
    launch_s: Number
    """A kernel launch, from the scheduler to the completion report, without any work."""
    operator_head_s: Number
    """Scalar work of one of the vendor's operators before its first task: it reads and copies its tiling data."""
    mask_setup_s: Number
    """Scalar work of such an operator before its first task, where a mask cuts through blocks."""
    task_s: Number
    """Scalar work to begin one task (one block of q rows) on a core."""

    def __post_init__(self) -> None:
        if self.architecture not in get_args(Architecture):
            raise ValueError(f"architecture={self.architecture!r} must be one of {', '.join(get_args(Architecture))}")
        _check_numbers(self)


_LEAVES = tuple(item.name for item in fields(NpuSpec) if item.name not in ("architecture", "name"))


def _flatten(spec: NpuSpec) -> tuple[list[tuple[Any, Any]], Architecture]:
    return [(GetAttrKey(name), getattr(spec, name)) for name in _LEAVES], spec.architecture


def _unflatten(architecture: Architecture, leaves: Iterable[Any]) -> NpuSpec:
    return NpuSpec(architecture=architecture, **dict(zip(_LEAVES, leaves, strict=True)))


# By hand, since ``drop_fields`` of register_dataclass takes a name for its letters before jax 0.10.
register_pytree_with_keys(NpuSpec, _flatten, _unflatten)


ZERO_OK = {
    *("head", "tail", "round_trip", "gm_latency_s", "dma_startup_s", "dma_burst_gap_bytes", "nd2nz_burst_gap_bytes"),
    *("cube_issue_cycles", "handoff_s", "launch_s", "operator_head_s", "mask_setup_s", "task_s"),
}
"""Numbers of which there may be none."""


def _check_numbers(spec: "NpuSpec | VectorCosts") -> None:
    """Plain numbers must be finite and not negative; sizes, counts, clocks and rates must be above zero."""
    for item in fields(spec):
        value = getattr(spec, item.name)
        if item.name in ("architecture", "name") or not all_numbers(value):
            continue
        least = "≥ 0" if item.name in ZERO_OK else "> 0"
        if not (0 < value < float("inf") or (value == 0 and item.name in ZERO_OK)):
            raise ValueError(f"{item.name}={value} must be a finite number {least}; leave out a path that the chip lacks")

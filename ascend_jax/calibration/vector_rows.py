"""Vector operators: bytes through UB against vector instructions, kernel after kernel."""

import math
import re
from typing import NamedTuple

from ascend_jax.calibration.assume import Unmodelled
from ascend_jax.calibration.predict import Prediction
from ascend_jax.calibration.row_shape import element_bytes, stated_sizes
from ascend_jax.calibration.rows import Row
from ascend_jax.cost.units import vector_seconds
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import VectorOps

OPERATORS = ("softmax", "exp", "add", "relu")
SOFTMAX = ("row_max", "subtract", "exp", "row_sum", "divide")
STEPS = {"Mul": "scale", "Muls": "scale", "Add": "add", "Exp": "exp"}
"""Kernels of a chain, and the vector instruction that each is."""
UB_TENSORS = 6
"""Tiles that UB holds: two slots of two that come in and one that goes out, or room for what lies between."""
BLOCK_BYTES = 32
"""Unit of UB: rows of other lengths are moved one by one."""


class Kernel(NamedTuple):
    """One launch: ``sources`` tensors in, one out, and the vector instructions between, each once an element."""

    steps: tuple[str, ...]
    sources: int = 1
    wide: bool = False
    """Computes in float32 whatever comes in."""


class Tensor(NamedTuple):
    """What each operand is: how many rows of how many elements, and the bytes of an element."""

    rows: int
    columns: int
    size: int
    native: bool
    """The vector core computes in this type."""

    @property
    def elements(self) -> int:
        """All of them."""
        return self.rows * self.columns


class Manner(NamedTuple):
    """How a kernel was written."""

    fused: bool
    """Its instructions are one vector function."""
    overlapped: bool
    """Copies of neighbouring tiles pass beside the vector instructions; else these wait for them, in all cores at once."""
    head: bool
    """It starts with the scalar work of a general operator."""


def operator_of(row: Row) -> str:
    """Which of ``OPERATORS`` a row is about.

    Raises:
      Unmodelled: none of them.
    """
    words = re.findall(r"[a-z]+", row.op.lower())
    for name in OPERATORS:
        if name in words:
            return name
    raise Unmodelled(f"{row.op}: the vector operators modelled are {', '.join(OPERATORS)}")


def vector_row(row: Row, spec: NpuSpec) -> Prediction:
    """A vector operator: each of its kernels reads from GM, or from L2 what the one before wrote.

    Raises:
      Unmodelled: an operator, shape, type or circumstance that is not modelled.
    """
    name = operator_of(row)
    _refuse(row)
    tensor = _tensor(row, name, spec)
    kernels, manner = _kernels(row, name, spec)
    done = [kernel_seconds(spec, tensor, kernel, manner, first=place == 0) for place, kernel in enumerate(kernels)]
    return Prediction(sum(one.seconds for one in done), max(done, key=lambda one: one.seconds).bound_by)


def kernel_seconds(spec: NpuSpec, tensor: Tensor, kernel: Kernel, manner: Manner, first: bool = True) -> Prediction:
    """Seconds of one kernel. What it writes stays in L2 in the share that L2 can hold of all that it reads and writes; where
    it is not the ``first``, so did what it reads."""
    cores = float(spec.cube_cores * spec.vector_cores_per_cube)
    row_bytes = tensor.columns * tensor.size
    gaps = 1.0 if row_bytes % BLOCK_BYTES == 0 else 1 + float(spec.dma_burst_gap_bytes) / row_bytes
    one = tensor.elements * tensor.size * gaps
    kept = min(float(spec.l2_bytes) / (one * (kernel.sources + 1)), 1.0)
    hits = one * kept + (0.0 if first else one * kernel.sources * kept)
    shared_s = (one * (kernel.sources + 1) - hits) / float(spec.gm_bytes_per_s) + hits / float(spec.l2_bytes_per_s)
    core_s = one / cores * max(kernel.sources / float(spec.gm_to_ub_bytes_per_s), 1 / float(spec.ub_to_gm_bytes_per_s))
    memory_s = max(shared_s, core_s)
    tile = float(spec.ub_bytes) / UB_TENSORS / (4 if kernel.wide or not tensor.native else tensor.size)
    tiles = math.ceil(tensor.elements / cores / tile)
    vector_s = _vector_seconds(spec, tensor, kernel, manner.fused, tiles)
    less = min(memory_s, vector_s)
    start_s = float(spec.launch_s + 2 * spec.gm_latency_s) + (float(spec.operator_head_s) if manner.head else 0.0)
    seconds = start_s + max(memory_s, vector_s) + (less / tiles if manner.overlapped else less)
    parts = {"launch": start_s, "GM and L2": shared_s, "MTE2": core_s, "V": vector_s}
    return Prediction(seconds, max(parts, key=lambda part: parts[part]))


def _vector_seconds(spec: NpuSpec, tensor: Tensor, kernel: Kernel, fused: bool, tiles: int) -> float:
    """Of the busiest core: whole rows where rows are reduced, else its share of the elements."""
    cores = float(spec.cube_cores * spec.vector_cores_per_cube)
    reduces = "row_max" in kernel.steps and tensor.rows >= cores
    share = math.ceil(tensor.rows / cores) * tensor.columns if reduces else tensor.elements / cores
    casts = ("cast", "cast") if tensor.size < 4 and (kernel.wide or not tensor.native) else ()
    repeats = share if casts or tensor.size == 4 else share / 2  # a repeat of a native 2-byte type is twice as long
    elements: dict[str, float] = {}
    for step in (*kernel.steps, *casts):
        elements[step] = elements.get(step, 0.0) + repeats
    starts = tiles * (1 if fused else len(kernel.steps) + len(casts))
    return float(vector_seconds(spec, VectorOps(elements={**elements}, instructions=float(starts), fused=fused)))


def _refuse(row: Row) -> None:
    """What neither the shape nor the chip says anything about."""
    if "triton" in row.op:
        raise Unmodelled("compiled by Triton with tiles that the row does not state; small ones decide its time")
    if row.tiling and re.search("bypass|final", row.tiling):
        raise Unmodelled("run again on operands of which L2 still holds an unknown share")


def _tensor(row: Row, name: str, spec: NpuSpec) -> Tensor:
    shape = row.input_shape[0] if row.input_shape and row.input_shape[0] else stated_sizes(row.op)
    if not shape or min(shape) < 1:
        raise Unmodelled("the row lacks the shape of its operand: input_shape [[...]], or 256x2048 in its words")
    axis = row.attrs.get("dim", -1)
    if name == "softmax" and axis not in (-1, len(shape) - 1) and spec.architecture != "direct":
        raise Unmodelled(f"softmax along axis {axis} of {len(shape)}: rows are transposed first, at no published cost")
    size = element_bytes(row.dtype)[0]
    columns = shape[-1] if name == "softmax" else math.prod(shape)
    native = "bf" not in (row.dtype or "").lower()
    return Tensor(math.prod(shape) // columns, columns, size, native)


def _kernels(row: Row, name: str, spec: NpuSpec) -> tuple[list[Kernel], Manner]:
    """The kernels of a row and how they were written.

    Operators of the 950 are vector functions that overlap with their copies, and a chain is one of them: the shortest chain of
    cann-bench takes 4.5 µs, less than two launches. Before it, softmax and what the graph compiler fuses are general
    operators, tile after tile; the kernels of a chain are lean.
    """
    chain = re.findall(r"(\w+)×(\d+)", (row.note or "").partition("baseline_kernels:")[2])
    steps = [STEPS[kernel] for kernel, times in chain if kernel in STEPS for _ in range(int(times))]
    direct = spec.architecture == "direct"
    general = any(kernel not in STEPS for kernel, _ in chain)
    fused = direct and "membase" not in (row.tiling or "")
    overlapped = "single buffer" not in (row.tiling or "") and (direct or not general)
    manner = Manner(fused=fused, overlapped=overlapped, head=general and not direct)
    if name == "softmax":
        return [Kernel(SOFTMAX, wide=True)], manner
    if name in ("add", "relu"):
        return [Kernel(("add",), sources=2) if name == "add" else Kernel(("scale",))], manner
    if steps and not direct:
        return [Kernel((step,)) for step in steps], manner
    return [Kernel(tuple(steps) or _exp_steps(row))], manner


def _exp_steps(row: Row) -> tuple[str, ...]:
    """``base ** (scale · x + shift)`` as its attributes ask for it."""
    scaled = row.attrs.get("scale", 1.0) != 1.0 or row.attrs.get("base", -1.0) > 0
    return (*(("scale",) if scaled else ()), *(("add",) if row.attrs.get("shift", 0.0) else ()), "exp")

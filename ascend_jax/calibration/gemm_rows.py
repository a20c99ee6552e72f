"""Matrix products: blocks of the result dealt out over the cube cores, their k steps through L1 and L0."""

import math
import re
from typing import NamedTuple

import jax.numpy as jnp

from ascend_jax.calibration.assume import Unmodelled
from ascend_jax.calibration.predict import Prediction
from ascend_jax.calibration.row_shape import element_bytes, stated_sizes
from ascend_jax.calibration.rows import Row
from ascend_jax.cost.units import matmul_time
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Matmul
from ascend_jax.rounding import EXACT

ACCUMULATOR_BYTES = 4
SIDES = (64, 128, 256)
"""Sides of the blocks of the result that are tried."""


class Product(NamedTuple):
    """``[m, k] × [k, n]``, with the bytes of an element of the operands and of the result."""

    m: int
    k: int
    n: int
    in_bytes: int
    out_bytes: int


class Pace(NamedTuple):
    """Seconds of one k step of a block, by what may set the pace."""

    cube: float
    mte1: float
    mte2: float
    shared: float
    slots: float
    """The loop of a slot in L1: load, latency, read."""

    @property
    def bound_by(self) -> str:
        """The slowest, as reports name it."""
        names = {"cube": "Cube", "mte1": "MTE1", "mte2": "MTE2", "shared": "GM and L2", "slots": "L1 slots"}
        return names[max(names, key=lambda name: getattr(self, name))]


def gemm_row(row: Row, spec: NpuSpec) -> Prediction:
    """A matrix product with the fastest block of the result (the vendor's tiling chooses one too).

    Raises:
      Unmodelled: more than a product in one kernel, or no shape or type.
    """
    if "fused" in row.op:
        raise Unmodelled("a product and a vector operator in one kernel, whose hand-off the row does not describe")
    product = _product(row)
    slots = 1 if re.search(r"no DB|unit_flag only", row.op) else 2
    task = stated_sizes(found[1]) if (found := re.search(r"single (\S+)", row.tiling or "")) else None
    tried = [gemm_seconds(spec, product, block, slots, task) for block in _blocks(spec, product)]
    return min(tried, key=lambda one: one.seconds)


def cube_busy_seconds(spec: NpuSpec, product: Product) -> float:
    """Seconds that the Cube of each core computes, the product dealt out evenly: the formula of ``cost/units.py``."""
    return _cube_seconds(spec, (product.m, product.k, product.n), product.in_bytes) / float(spec.cube_cores)


def _cube_seconds(spec: NpuSpec, sizes: tuple[int, int, int], size: int) -> float:
    m, k, n = (jnp.asarray(float(one)) for one in sizes)
    return float(matmul_time(spec, Matmul(m=m, k=k, n=n), size, jnp.asarray(2.0), EXACT).cube_s)


def gemm_seconds(
    spec: NpuSpec, product: Product, block: tuple[int, int], slots: int = 2, task: tuple[int, ...] | None = None
) -> Prediction:
    """Seconds of a product whose result is made in blocks ``(m, n)``, each by one core from all of k.

    A step is as deep in k as half of L0A and L0B. Every step loads its piece of both operands into one of ``slots`` in L1, with
    the latency of GM, and MTE1 reads it from there. The result leaves L0C beside the next block only where L0C holds two.
    ``task``: blocks come in tasks of that ``(m, n)``, as the row states.
    """
    steps = math.ceil(product.k / _depth(spec, product, block))
    waves = _waves(float(spec.cube_cores), product, block, task)
    pace = _pace(spec, product, block, slots, waves * steps)
    store_s = min(block[0], product.m) * block[1] * product.out_bytes / _store_rate(spec)
    single = 2 * block[0] * block[1] * ACCUMULATOR_BYTES > spec.l0c_bytes
    block_s = max(pace) * steps + (store_s if single else 0.0)
    fill_s = pace.mte2 + pace.mte1 + 2 * spec.gm_latency_s + (0.0 if single else store_s)
    return Prediction(float(spec.launch_s + waves * block_s + fill_s), pace.bound_by)


def _pace(spec: NpuSpec, product: Product, block: tuple[int, int], slots: int, core_steps: int) -> Pace:
    m, n = block
    depth, size = _depth(spec, product, block), product.in_bytes
    cube = _cube_seconds(spec, (m, product.k, n), size) / math.ceil(product.k / depth)
    left = spec.dma_startup_s + _with_gaps(spec, min(m, product.m), depth * size) / spec.gm_to_l1_bytes_per_s
    right = spec.dma_startup_s + _with_gaps(spec, depth, n * size) / spec.gm_to_l1_bytes_per_s
    left_read, right_read = m * depth * size / spec.l1_to_l0a_bytes_per_s, n * depth * size / spec.l1_to_l0b_bytes_per_s
    shared = _shared_seconds(spec, product, block) / core_steps
    if slots == 1:
        loop = max(left + right, shared) + spec.gm_latency_s + left_read + right_read
    else:
        loop = (max(left + left_read, right + right_read) + spec.gm_latency_s) / slots
    return Pace(
        cube=cube,
        mte1=float(left_read + right_read),
        mte2=float(left + right),
        shared=shared,
        slots=float(loop),
    )


def _shared_seconds(spec: NpuSpec, product: Product, block: tuple[int, int]) -> float:
    """GM and L2: each operand comes from GM once, and again as far as L2 cannot hold the smaller one while the other passes;
    what is written stays in L2 in the share that it can hold of all."""
    depth, size = _depth(spec, product, block), product.in_bytes
    left, right = product.m * product.k * size, product.k * product.n * size
    out = product.m * product.n * product.out_bytes
    gap = spec.nd2nz_burst_gap_bytes
    left_gap, right_gap = 1 + gap / (depth * size), 1 + gap / (min(block[1], product.n) * size)
    read = left * math.ceil(product.n / block[1]) * left_gap + right * math.ceil(product.m / block[0]) * right_gap
    once = left * left_gap + right * right_gap
    again = (read - once) * (1 - min(spec.l2_bytes / min(left, right), 1.0))
    written = out * (1 - min(spec.l2_bytes / (left + right + out), 1.0))
    missed = once + again + written
    return float(missed / spec.gm_bytes_per_s + (read + out - missed) / spec.l2_bytes_per_s)


def _waves(cores: float, product: Product, block: tuple[int, int], task: tuple[int, ...] | None) -> int:
    """Blocks of the busiest core."""
    m, n = task[:2] if task else block
    tasks = math.ceil(product.m / m) * math.ceil(product.n / n)
    return math.ceil(tasks / cores) * math.ceil(m / block[0]) * math.ceil(n / block[1])


def _depth(spec: NpuSpec, product: Product, block: tuple[int, int]) -> int:
    """k of one step: what half of L0A and half of L0B hold, in fractals, at most 256."""
    unit = 32 // product.in_bytes
    room = min(spec.l0a_bytes / block[0], spec.l0b_bytes / block[1]) / 2 / product.in_bytes
    return max(min(int(room) // unit * unit, 256, math.ceil(product.k / unit) * unit), unit)


def _blocks(spec: NpuSpec, product: Product) -> list[tuple[int, int]]:
    """Blocks that fit L0C, no larger than the result."""
    rows = {min(side, math.ceil(product.m / 16) * 16) for side in SIDES}
    columns = {min(side, math.ceil(product.n / 16) * 16) for side in SIDES}
    return [(m, n) for m in sorted(rows) for n in sorted(columns) if m * n * ACCUMULATOR_BYTES <= spec.l0c_bytes]


def _store_rate(spec: NpuSpec) -> float:
    """Bytes per second from L0C to GM; through UB where there is no direct path."""
    if spec.l0c_to_gm_bytes_per_s is not None:
        return float(spec.l0c_to_gm_bytes_per_s)
    return 1 / (1 / float(spec.l0c_to_ub_bytes_per_s or math.inf) + 1 / float(spec.ub_to_gm_bytes_per_s))


def _with_gaps(spec: NpuSpec, rows: float, row_bytes: float) -> float:
    return rows * (row_bytes + float(spec.nd2nz_burst_gap_bytes))


def _product(row: Row) -> Product:
    if (found := re.search(r"(\w+) command line says", row.note or "")) and found[1] in row.op:
        raise Unmodelled("the row gives two shapes, one on the command line and one by the Cube's time")
    sizes, bytes_each = _stated_product(row), element_bytes(row.dtype)
    if sizes is None:
        raise Unmodelled("the row lacks the sizes of the matrices: input_shape [[M, K], [K, N]], or MxKxN in its words")
    return Product(*sizes, *bytes_each)


def _stated_product(row: Row) -> tuple[int, int, int] | None:
    shapes = [shape for shape in row.input_shape if len(shape) == 2]
    if len(shapes) >= 2 and shapes[0][1] == shapes[1][0] and min(shapes[0] + shapes[1]) > 0:
        return shapes[0][0], shapes[0][1], shapes[1][1]
    for text in (row.op, row.note or ""):
        sizes = stated_sizes(text)
        if sizes and len(sizes) == 3:
            return sizes
    return None

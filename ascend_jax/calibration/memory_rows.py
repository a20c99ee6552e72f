"""Data copies out of GM: the vendor's sample, and how efficient a copy loop is by the size of its packets."""

import re
from collections.abc import Sequence

from ascend_jax.calibration.assume import Unmodelled
from ascend_jax.calibration.predict import Prediction
from ascend_jax.calibration.row_shape import element_bytes
from ascend_jax.calibration.rows import Row
from ascend_jax.cost.units import burst_gap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Path, Transfer

PATHS: dict[str, Path] = {"UB": "gm_to_ub", "L1": "gm_to_l1"}
WIDEST = {"UB": (64, 1024), "L1": (64, 256)}
"""Rows and columns of a copy where the row states none: the largest of the sample's."""
COPY_PACKETS = 4
"""Packets that a vector core has under way in a copy loop: the one number of the published curve (vTriton, 910B3) that nobody
states."""


def copy_row(row: Row, spec: NpuSpec) -> Prediction:
    """One of the vendor's data-copy rows: all cores read a matrix of GM block by block, once or several times.

    Raises:
      Unmodelled: no copy of whole, aligned blocks without conflicts, or no path, shape or type.
    """
    target = _target(row)
    rows, columns, width = _block(row, target)
    transfer = _transfer(row, PATHS[target], (rows, columns), width)
    repeats = int(found[1]) if (found := re.search(r"(\d+)x repeat", row.op)) else 1
    hit = int(found[1]) / 100 if (found := re.search(r"\((\d+)% hit\)", row.op)) else 0.0
    return copy_seconds(spec, transfer, float(repeats * row.input_shape[0][0] * width / (rows * columns)), hit)


def copy_seconds(spec: NpuSpec, transfer: Transfer, times: float, hit: float) -> Prediction:
    """``times`` copies like ``transfer``, dealt out evenly over the cores that have its path; ``hit`` of the bytes from L2.

    The cores issue and move their own; GM and L2 serve all: misses and hits, with what the gaps between bursts cost there.
    """
    cores = spec.cube_cores * (spec.vector_cores_per_cube if transfer.path == "gm_to_ub" else 1)
    moved = times * transfer.bursts * (transfer.burst_bytes + burst_gap(spec, transfer))
    shared_s = moved * ((1 - hit) / spec.gm_bytes_per_s + hit / spec.l2_bytes_per_s)
    rate = getattr(spec, f"{transfer.path}_bytes_per_s")
    core_s = (times * transfer.instructions * spec.dma_startup_s + moved / rate) / cores
    seconds = spec.launch_s + spec.gm_latency_s + max(shared_s, core_s)
    return Prediction(float(seconds), "GM and L2" if shared_s >= core_s else "MTE2")


def _target(row: Row) -> str:
    """The buffer that a row copies to, where nothing speaks against modelling it."""
    if "datacopy" not in row.op:
        raise Unmodelled("a rate of one operator's reads, not a copy of known blocks")
    if "conflict" in row.op:
        raise Unmodelled("cores that read the same addresses at once: how much the row does not say")
    if "unaligned" in row.op:
        raise Unmodelled("rows that start off the bounds of 32 and 512 bytes: the catalogue has no number for their cost")
    target = re.search(r"GM->(\w+)", row.op)
    if target is None or target[1] not in PATHS:
        raise Unmodelled(f"{row.op}: the paths modelled are GM->{' and GM->'.join(PATHS)}")
    return target[1]


def _block(row: Row, target: str) -> tuple[int, int, int]:
    """Rows and columns of one copy, and columns of the matrix."""
    if not row.input_shape or len(row.input_shape[0]) != 2 or min(row.input_shape[0]) < 1:
        raise Unmodelled("the row lacks the shape of the matrix: input_shape [[rows, columns]]")
    width = row.input_shape[0][1]
    found = re.search(r"\[(\d+),(\d+)\]", row.op)
    rows, columns = (int(found[1]), int(found[2])) if found else WIDEST[target]
    if rows < 1 or columns < 1:
        raise Unmodelled(f"{row.op}: blocks of {rows} x {columns} hold nothing")
    return rows, min(columns, width), width


def _transfer(row: Row, path: Path, block: tuple[int, int], width: int) -> Transfer:
    rows, columns = block
    burst = float(columns * element_bytes(row.dtype)[0])
    whole = columns == width  # whole rows of the matrix lie one after the other
    bursts = 1.0 if whole else float(rows)
    return Transfer(path=path, stream="q", bursts=bursts, burst_bytes=burst * rows / bursts)


def copy_efficiency(spec: NpuSpec, packet_bytes: float, packets: int = COPY_PACKETS) -> float:
    """Share of the chip's copy limit that a loop reaches which loads packets and stores each when its load has come.

    All vector cores run the same loop in phase, so the latency of a round of ``packets``, or as many as UB holds, is idle time
    for GM too: a packet takes ``(gm_latency + 2 startups) / packets`` besides its share of GM (read) and L2 (written).
    """
    cores = spec.cube_cores * spec.vector_cores_per_cube
    shared_s = packet_bytes * cores * (1 / spec.gm_bytes_per_s + 1 / spec.l2_bytes_per_s)
    core_s = packet_bytes * max(1 / spec.gm_to_ub_bytes_per_s, 1 / spec.ub_to_gm_bytes_per_s)
    limit_s = max(shared_s, core_s)
    under_way = min(packets, max(spec.ub_bytes // packet_bytes, 1))
    return float(limit_s / ((spec.gm_latency_s + 2 * spec.dma_startup_s) / under_way + limit_s))


def copy_curve(spec: NpuSpec, packets_bytes: Sequence[float]) -> list[float]:
    """:func:`copy_efficiency` of each packet, relative to the best of them: a published curve is relative to its own peak (of
    vTriton's 1167 GB/s read and written, half of what GM and L2 allow here).

    >>> from ascend_jax.hardware import load_chip
    >>> [round(share, 2) for share in copy_curve(load_chip("910b3"), (128, 4096, 65536))]
    [0.04, 0.57, 1.0]
    """
    shares = [copy_efficiency(spec, packet) for packet in packets_bytes]
    return [share / max(shares) for share in shares]

"""Candidates and results made by hand, so that what is shown and written can be tested without a search."""

from typing import Any

import numpy as np

from ascend_jax import Attention, Mask, Report, Tiling, Verdict
from ascend_jax.occupancy import Occupancy
from tiling_search.result import Candidate, TuningResult

KIB = 1024.0
CAPACITIES = {"UB": 192 * KIB, "L1": 512 * KIB, "L0A": 64 * KIB, "L0B": 64 * KIB, "L0C": 128 * KIB, "GM": 2.0**36}
WORK = Attention(batch=1, q_heads=8, kv_heads=2, q_len=256, kv_len=512, head_dim=64, value_dim=32, mask=Mask.parse("band:7,0"))


def leaf(value: float) -> Any:
    """A number as a report holds it."""
    return np.float64(value)


def make_candidate(seconds: float = 0.002, ub_kib: float = 96, verdict: Verdict = Verdict.FITS, **tiling: int) -> Candidate:
    """A candidate of that time, UB bytes and verdict, bound by its Vector."""
    used = dict.fromkeys(CAPACITIES, 1 * KIB) | {"UB": ub_kib * KIB}
    held = Occupancy(
        used_bytes={name: leaf(size) for name, size in used.items()},
        capacity_bytes={name: leaf(size) for name, size in CAPACITIES.items()},
        buffer_bytes={name: {"S": leaf(size)} for name, size in used.items()},
        verdict=leaf(float(verdict)),
    )
    report = Report(
        seconds=leaf(seconds),
        launch_s=leaf(1e-5),
        flops=leaf(4e11),
        peak_flops_per_s=leaf(4e14),
        bounds=np.array([0.25, 0.75, *[0.01] * 12]),  # pyright: ignore[reportArgumentType] — a numpy array is an array
        limits=("Cube", "Vector", *(f"loop {number}" for number in range(12))),
        cycles={"Cube": leaf(1000), "MTE1": leaf(900), "Vector": leaf(3000)},
        path_bytes={"gm": leaf(1e9), "l2": leaf(4e9 + 0.4)},
        blocks_computed=leaf(96),
        blocks_partial=leaf(32),
        blocks_skipped=leaf(32),
        tasks=leaf(16),
        active_cores=leaf(16),
        period_s=leaf(2e-6),
        tile_latency_s=leaf(8e-6),
        occupancy=held,
    )
    return Candidate(Tiling(**({"block_q": 128, "block_kv": 256} | tiling)), report)


def make_result(*found: Candidate, nearest: Candidate | None = None, **changes: Any) -> TuningResult:
    """The result of a search that found ``found``, fastest first."""
    values: dict[str, Any] = {
        "chip": "Ascend910B3",
        "workload": WORK,
        "workload_name": "made-up",
        "kernel": "separated",
        "overlap": "pipelined",
        "top": found,
        "pareto": found,
        "rejected": {"UB_OVERFLOW": 30, "L1_OVERFLOW": 1_200},
        "candidates": 2_000,
        "feasible": len(found),
        "evaluated": 1_000,
        "bounded": 0,
        "exact": True,
        "search_s": 0.5,
        "nearest": nearest,
        "would_fit": "head_dim 2032 would fit",
        "provenance": {"versions": {"jax": "0"}, "seed": None, "model": "made up"},
    }
    return TuningResult(**(values | changes))

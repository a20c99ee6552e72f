"""Counters of the cores as op_summary has them with PipeUtilization, from the cost model's report that a kernel carries."""

from typing import Any

from ascend_jax.runtime.profiler.records import Clocks, Row

NOT_AVAILABLE = "N/A"
CUBE = {"mac": ("Cube",), "scalar": ("Scalar",), "mte1": ("MTE1",), "mte2": ("MTE2",), "fixpipe": ("FixPipe",)}
VECTOR = {"vec": ("Vector",), "scalar": ("Vector Scalar",), "mte2": ("Vector MTE2",), "mte3": ("MTE3",)}
"""Word of a column → pipes of the model. What the model has no pipe for is N/A."""


def _columns() -> list[str]:
    columns = ["aicore_time(us)", "aic_total_cycles"]
    columns += [f"aic_{word}_{unit}" for word in CUBE for unit in ("time(us)", "ratio")] + ["aic_icache_miss_rate"]
    columns += ["aiv_time(us)", "aiv_total_cycles"]
    columns += [f"aiv_{word}_{unit}" for word in VECTOR for unit in ("time(us)", "ratio")] + ["aiv_icache_miss_rate"]
    return [*columns, "cube_utilization(%)"]


PIPE_COLUMNS = _columns()


def pipe_cells(row: Row, clocks: Clocks | None) -> list[str]:
    """The cells of one row; N/A for what is no kernel, and for the cores that it does not use."""
    if row.kind != "kernel" or row.core == "none" or clocks is None or not row.duration_s:
        return [NOT_AVAILABLE] * len(PIPE_COLUMNS)
    report = row.info.get("report")
    cycles: dict[str, Any] = {} if report is None else report.cycles
    cells = _half(row, cycles if row.core != "vector" else None, CUBE, clocks.cube_hz, row.block_dim)
    vectors = row.block_dim * (clocks.vector_per_cube if row.core == "mix" else 1)
    cells += _half(row, cycles if row.core != "cube" else None, VECTOR, clocks.vector_hz, vectors)
    used = NOT_AVAILABLE if row.core == "vector" else f"{100 * min(row.block_dim / clocks.cube_cores, 1):.3f}"
    return [*cells, used]


def _half(row: Row, cycles: dict[str, Any] | None, pipes: dict[str, tuple[str, ...]], hz: float, cores: int) -> list[str]:
    """The columns of one kind of core; ``cycles`` is None where the kernel does not use it."""
    if cycles is None:
        return [NOT_AVAILABLE] * (3 + 2 * len(pipes))
    cells = [f"{row.duration_s * 1e6:.3f}", str(round(row.duration_s * hz * cores))]
    for names in pipes.values():
        busy = [float(cycles[name]) / hz for name in names if name in cycles]
        cells += [f"{sum(busy) * 1e6:.3f}", f"{sum(busy) / row.duration_s:.3f}"] if busy else [NOT_AVAILABLE] * 2
    return [*cells, NOT_AVAILABLE]

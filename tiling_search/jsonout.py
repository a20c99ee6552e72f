"""Results as plain dictionaries, which the tables show and ``--json`` writes: finite numbers or null, counts as integers."""

import math
from dataclasses import fields
from typing import Any

from ascend_jax import Attention, NpuSpec, Report, peak_flops
from tiling_search.jsonfile import Json
from tiling_search.result import Candidate, TuningResult, tiling_dict

MOST_LIMITS = 10
SIZES = ("ub", "l1", "l0a", "l0b", "l0c", "l2", "gm")


def number(value: Any) -> float | None:
    """``value`` as a float; None where JSON has no such number (infinity, NaN)."""
    return float(value) if math.isfinite(float(value)) else None


def whole(value: Any) -> int | None:
    """``value`` rounded to a whole number; None where it is not finite."""
    return round(float(value)) if math.isfinite(float(value)) else None


def chip_dict(spec: NpuSpec) -> Json:
    """What the table of chips shows, in base units."""
    return {
        "name": spec.name,
        "architecture": spec.architecture,
        "cube_cores": whole(spec.cube_cores),
        "vector_cores": whole(spec.cube_cores * spec.vector_cores_per_cube),
        "cube_clock_hz": number(spec.cube_clock_hz),
        "peak_fp16_flops_per_s": number(peak_flops(spec)),
        **{f"{memory}_bytes": whole(getattr(spec, f"{memory}_bytes")) for memory in SIZES},
        "gm_bytes_per_s": number(spec.gm_bytes_per_s),
    }


def workload_dict(name: str, work: Attention) -> Json:
    """Every field of a workload, the mask as the text that ``--mask`` reads, and the name."""
    values = {item.name: getattr(work, item.name) for item in fields(work)} | {"mask": str(work.mask)}
    return {"name": name} | {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def tuning_dict(result: TuningResult) -> Json:
    """The outcome of a search; ``message`` and ``nearest`` only where nothing fits."""
    found = {
        "chip": result.chip,
        "workload": workload_dict(result.workload_name, result.workload),
        "kernel": result.kernel,
        "overlap": result.overlap,
        "best": candidate_dict(result.best) if result.best else None,
        "top": [candidate_dict(candidate) for candidate in result.top],
        "pareto": [candidate_dict(candidate) for candidate in result.pareto],
        "rejected": {code: int(count) for code, count in result.rejected.items()},
        "space": {"candidates": int(result.candidates), "feasible": int(result.feasible)}
        | {"evaluated": int(result.evaluated), "bounded": int(result.bounded)},
        "exact": bool(result.exact),
        "evaluations_per_s": number(result.evaluations_per_s),
        "provenance": dict(result.provenance),
    }
    return found if result.best else found | _nothing_fits(result)


def candidate_dict(candidate: Candidate) -> Json:
    """One tiling with the numbers that people compare."""
    report = candidate.report
    return {
        "tiling": tiling_dict(candidate.tiling),
        "latency_s": number(report.seconds),
        "tflops": number(report.tflops),
        "utilisation": number(report.utilisation),
        "bound_by": report.bound_by,
        "occupancy": _occupancy(report),
        "blocks": _blocks(report),
    }


def evaluation_dict(chip: str, workload: Json, kernel: str, overlap: str, candidate: Candidate) -> Json:
    """Everything about one tiling; ``report`` holds what it would take even where it does not fit."""
    return {
        "chip": chip,
        "workload": workload,
        "kernel": kernel,
        "overlap": overlap,
        "tiling": tiling_dict(candidate.tiling),
        "verdict": candidate.verdict.name,
        "message": candidate.message,
        "report": _report(candidate.report),
    }


def _report(report: Report) -> Json:
    shares = sorted(zip(report.limits, map(number, report.bounds), strict=True), key=lambda entry: -(entry[1] or 0))
    buffers = report.occupancy.buffer_bytes
    held = {
        memory: sizes | {"buffers": {name: whole(size) for name, size in buffers[memory].items()}}
        for memory, sizes in _occupancy(report).items()
    }
    return {
        "latency_s": number(report.seconds),
        "tflops": number(report.tflops),
        "utilisation": number(report.utilisation),
        "bound_by": report.bound_by,
        "launch_s": number(report.launch_s),
        "period_s": number(report.period_s),
        "latency_tile_s": number(report.tile_latency_s),
        "cycles": {pipe: number(cycles) for pipe, cycles in report.cycles.items()},
        "path_bytes": {path: whole(moved) for path, moved in report.path_bytes.items()},
        "limits": dict(shares[:MOST_LIMITS]),
        "occupancy": held,
        "blocks": _blocks(report),
        "tasks": whole(report.tasks),
        "active_cores": whole(report.active_cores),
    }


def _occupancy(report: Report) -> dict[str, Json]:
    held = report.occupancy
    return {
        memory: {"used_bytes": whole(used), "capacity_bytes": whole(held.capacity_bytes[memory])}
        for memory, used in held.used_bytes.items()
    }


def _blocks(report: Report) -> Json:
    return {kind: whole(getattr(report, f"blocks_{kind}")) for kind in ("computed", "skipped", "partial")}


def _nothing_fits(result: TuningResult) -> Json:
    nearest = result.nearest
    if nearest is None:
        return {"message": "nothing fits: the space holds no tiling", "nearest": None}
    near = candidate_dict(nearest) | {"verdict": nearest.verdict.name, "message": nearest.message}
    tiling = ", ".join(f"{name}={value}" for name, value in tiling_dict(nearest.tiling).items())
    found = "nothing fits: none of" if result.exact else "nothing that fits was found, and the search did not look at all of"
    text = f"{found} {result.candidates:,} tilings. The nearest ({tiling}): {nearest.message}; {result.would_fit}"
    return {"message": text, "nearest": near}

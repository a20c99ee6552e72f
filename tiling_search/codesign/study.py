"""One co-design question as data: the loss, the sensitivities, and a grid of designs with its Pareto front."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import exp

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from tiling_search.codesign.grid import Cost, Design, design_grid, pareto
from tiling_search.codesign.latency import Loss, Task
from tiling_search.codesign.sensitivity import SWING, Sensitivity, sensitivities
from tiling_search.jsonfile import Json
from tiling_search.result import tiling_dict

Progress = Callable[[int, int], None]


def study(
    spec: NpuSpec,
    tasks: Sequence[Task],
    *,
    kernel: str | Kernel = "auto",
    names: Sequence[str] = (),
    swing: float = SWING,
    factors: Mapping[str, Sequence[float]] | None = None,
    cost: Cost | None = None,
    progress: Progress | None = None,
) -> Json:
    """What :func:`sensitivities` and :func:`design_grid` say, as JSON; arguments are theirs.

    Returns:
      ``chip``, ``log_seconds`` (the weighted mean), ``geomean_s``, ``workloads``, ``sensitivities``, ``designs`` and ``pareto``
      (places in ``designs``; both empty without ``factors``).
    """
    here, rows = sensitivities(spec, tasks, kernel=kernel, swing=swing, names=names, progress=progress)
    weights = cost.weights if cost else {}
    designs: tuple[Design, ...] = ()
    if factors:
        designs = design_grid(spec, tasks, factors, cost=cost, kernel=kernel, progress=progress)
    return {
        "chip": spec.name or spec.architecture,
        "log_seconds": here.value,
        "geomean_s": exp(here.value),
        "workloads": _workloads(tasks, here),
        "sensitivities": [_row(one, here, weights) for one in rows],
        "designs": [asdict(one) for one in designs],
        "pareto": [designs.index(one) for one in pareto(designs)],
    }


def _workloads(tasks: Sequence[Task], here: Loss) -> list[Json]:
    return [
        {
            "name": task.name,
            "weight": task.weight,
            "seconds": best.seconds,
            "tiling": tiling_dict(best.tiling) if best.tiling else None,
        }
        for task, best in zip(tasks, here.best, strict=True)
    ]


def _row(one: Sensitivity, here: Loss, weights: Mapping[str, float]) -> Json:
    """A sensitivity, with what each workload's is, and per share of cost: where that is largest, a unit of cost buys most."""
    gain = None
    if one.elasticity is not None and weights.get(one.parameter):
        gain = -one.elasticity / weights[one.parameter]
    each = [own.get(one.parameter) for own in here.each]
    return asdict(one) | {"swing": one.swing, "by_workload": each, "gain_per_cost": gain}

"""``Σ log min over tilings of the time``, and its slope by the chip's numbers through the exact argmin.

The minimum over tilings is exact, and at the chip given its slope by a number of the chip is that of the best tiling alone
(the envelope theorem): no relaxation. Where two tilings tie the slope is that of the first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import jax
import numpy as np
from jax import Array

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import chosen, model
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem
from tiling_search.codesign.parameters import DISCRETE, chip_parameters
from tiling_search.tuner import tune


@dataclass(frozen=True)
class Task:
    """A workload of the set: its name, the call, and its weight in the sum."""

    name: str
    work: Attention
    weight: float = 1.0


@dataclass(frozen=True)
class Best:
    """The best tiling of one task on one chip, and its seconds; None and ``inf`` where nothing fits."""

    tiling: Tiling | None
    seconds: float


@dataclass(frozen=True)
class Loss:
    """The whole set on one chip.

    Attributes:
      value: the weighted mean of ``log seconds``; ``inf`` where a task does not fit.
      best: of each task.
      slope: elasticity of the loss, ``d value / d log parameter``, by name; without the numbers in ``DISCRETE``.
      each: the same of each task's ``log seconds``.
    """

    value: float
    best: tuple[Best, ...]
    slope: Mapping[str, float]
    each: tuple[Mapping[str, float], ...]


def best_of(spec: NpuSpec, task: Task, kernel: str | Kernel = "auto", overlap: str | Overlap = PIPELINED) -> Best:
    """The fastest tiling of a task, proven by evaluating all. Kept, since many questions ask about the same chip."""
    return _best(spec, task.work, *chosen(spec, kernel, overlap))


@lru_cache(maxsize=4096)
def _best(spec: NpuSpec, work: Attention, kernel: Kernel, overlap: Overlap) -> Best:
    found = tune(spec, work, kernel=kernel, overlap=overlap, top=1).best
    return Best(found.tiling, float(found.report.seconds)) if found else Best(None, np.inf)


def loss_value(spec: NpuSpec, tasks: Sequence[Task], kernel: str | Kernel = "auto") -> float:
    """The weighted mean of ``log seconds`` of the best tilings; ``inf`` where a task does not fit."""
    total = sum(task.weight for task in tasks)
    return sum(task.weight * log(best_of(spec, task, kernel).seconds) for task in tasks) / total


def loss(spec: NpuSpec, tasks: Sequence[Task], kernel: str | Kernel = "auto") -> Loss:
    """The loss with its elasticities.

    Raises:
      ValueError: no tasks, or one of which nothing fits the chip.
    """
    if not tasks:
        raise ValueError("no workloads: name at least one")
    dataflow, overlap = chosen(spec, kernel, PIPELINED)
    best = tuple(best_of(spec, task, dataflow) for task in tasks)
    each = []
    for task, one in zip(tasks, best, strict=True):
        if one.tiling is None:
            raise ValueError(f"nothing of {task.name} fits {spec.name}: tiling-search tune says what would")
        each.append(elasticities(spec, task.work, one.tiling, dataflow, overlap))
    total = sum(task.weight for task in tasks)
    slope = {name: sum(task.weight * own[name] for task, own in zip(tasks, each, strict=True)) / total for name in each[0]}
    value = sum(task.weight * log(one.seconds) for task, one in zip(tasks, best, strict=True)) / total
    return Loss(value, best, slope, tuple(each))


def elasticities(spec: NpuSpec, work: Attention, tiling: Tiling, kernel: Kernel, overlap: Overlap) -> dict[str, float]:
    """``d log seconds / d log parameter`` of one tiling in float64, by name; without the numbers in ``DISCRETE``."""
    with jax.enable_x64(True):
        slope = _log_slope(as_arrays(spec), problem(work), as_arrays(tiling), kernel, overlap)
        by_name = chip_parameters(slope)
    return {name: by_name[name] * value for name, value in chip_parameters(spec).items() if name not in DISCRETE}


def _log_seconds(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, overlap: Overlap) -> Array:
    return jax.numpy.log(model(spec, given, tiling, kernel, overlap, EXACT).seconds)


_log_slope: Any = quick_jit(jax.grad(_log_seconds), static_argnums=(3, 4), wanted=SELDOM)

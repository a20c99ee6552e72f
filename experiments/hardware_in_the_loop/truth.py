"""The machine that the model does not know: another kernel schedule, event by event, with other constants, and noise."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ascend_jax import Attention, NpuSpec, Tiling, Verdict
from ascend_jax._pytree import as_arrays
from ascend_jax.calibration.constants import own_values, usual_constants, with_constants
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.timeline.numbers import depths_of, durations, numbers_jit
from ascend_jax.timeline.passes import Work, makespans
from ascend_jax.timeline.program import Depths, Stuck
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.simulate import contenders, task_seconds
from ascend_jax.timeline.tasks import deal, runs_of
from ascend_jax.timeline.weights import weigh
from ascend_jax.workload.problem import problem

SPREAD = 0.3
"""Standard deviation of the logarithm by which each constant is off, within the bounds that calibration knows."""


class Machine(NamedTuple):
    """Seconds of each tiling without noise, ``[P]``; infinite where it fails."""

    seconds: np.ndarray

    def measure(self, place: int, draw: np.random.Generator, noise: float) -> float:
        """One measurement: the time with a relative error of ``noise``."""
        return float(self.seconds[place] * np.exp(noise * draw.standard_normal()))


def perturbed(spec: NpuSpec, seed: int, spread: float = SPREAD) -> NpuSpec:
    """``spec`` with each of the constants that no document settles off by a random factor."""
    constants = usual_constants(spec)
    draw = np.random.default_rng(seed)
    factors = np.exp(spread * draw.standard_normal(len(constants)))
    low, high = (np.array([getattr(one, side) for one in constants]) for side in ("lower", "upper"))
    return with_constants(spec, constants, np.clip(own_values(spec, constants) * factors, low, high))


def machine(spec: NpuSpec, work: Attention, tilings: Sequence[Tiling], kernel: Kernel) -> Machine:
    """The timeline's seconds of every tiling; those with one program are simulated side by side."""
    with jax.enable_x64(True):
        given, numbers_of = problem(work), as_arrays(spec)
        seconds = np.full(len(tilings), np.inf)
        alike: dict[Depths, list[tuple[int, Work, float]]] = defaultdict(list)
        for place, tiling in enumerate(tilings):
            found = jax.device_get(numbers_jit(numbers_of, given, as_arrays(tiling), kernel))
            if Verdict(int(found.report.occupancy.verdict)) is not Verdict.FITS:
                continue
            runs = runs_of(given, tiling, found.tiles)
            dealt, loads = deal(runs, task_seconds(runs, found), int(spec.cube_cores))
            depths, held = depths_of(kernel, found, tiling.preload)
            try:
                weights = weigh(program(kernel.graph, depths), kernel.graph, durations(spec, kernel, found, held))
            except Stuck:
                continue
            outside = float(found.start_s + found.combine_s)
            alike[depths].append((place, Work(weights, contenders(dealt, loads)), outside))
        for depths, members in alike.items():
            spans = makespans(program(kernel.graph, depths), [work for _, work, _ in members])
            for (place, _, outside), span in zip(members, spans, strict=True):
                seconds[place] = outside + span
    return Machine(seconds)

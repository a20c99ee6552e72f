"""How much each number of a chip matters: elasticities, and what the times become when it is smaller or larger, retuned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from tiling_search.codesign.latency import Loss, Task, loss, loss_value
from tiling_search.codesign.parameters import DISCRETE, WHOLE, chip_parameters, scaled_chip

SWING = 1.25
"""By how much a number is divided and multiplied for the ends of its bar."""
NEGLIGIBLE = 1e-4
"""Elasticities below this are not retuned: the bar would have no width."""


@dataclass(frozen=True)
class Sensitivity:
    """One number of the chip.

    Attributes:
      parameter: its name.
      value: on the chip.
      elasticity: ``d log latency / d log parameter``: exact, through the best tilings, for what has a slope; for counts and
        sizes the difference quotient between the ends; None where an end does not fit.
      low, high: the number at the ends, counts as whole numbers.
      at_low, at_high: latency there over latency on the chip, with every tiling chosen anew; None where nothing fits.
    """

    parameter: str
    value: float
    elasticity: float | None
    low: float
    high: float
    at_low: float | None
    at_high: float | None

    @property
    def swing(self) -> float:
        """The width of the bar: the ratio of the latencies at its ends, as a logarithm."""
        return abs(log((self.at_high or 1.0) / (self.at_low or 1.0)))


def sensitivities(
    spec: NpuSpec,
    tasks: Sequence[Task],
    *,
    kernel: str | Kernel = "auto",
    swing: float = SWING,
    names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Loss, tuple[Sensitivity, ...]]:
    """The loss of the chip, and every number's sensitivity, the most important first.

    Args:
      spec, tasks, kernel: the chip, the workloads, the dataflow.
      swing: the factor of the ends of the bars, above 1.
      names: the numbers to look at; all where left out.
      progress: called with the numbers done and their total.

    Raises:
      ValueError: ``swing`` not above 1, a number that the chip lacks, no tasks, or one of which nothing fits.
    """
    if not swing > 1:
        raise ValueError(f"swing={swing} must be above 1")
    known = chip_parameters(spec)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{spec.name} has no number {unknown[0]!r}: there are {', '.join(known)}")
    names = names or tuple(known)
    here = loss(spec, tasks, kernel)
    rows = []
    for done, name in enumerate(names):
        rows.append(_sensitivity(spec, tasks, kernel, here, name, swing))
        if progress:
            progress(done + 1, len(names))
    return here, tuple(sorted(rows, key=lambda row: (-row.swing, -abs(row.elasticity or 0.0), row.parameter)))


def _sensitivity(
    spec: NpuSpec, tasks: Sequence[Task], kernel: str | Kernel, here: Loss, name: str, swing: float
) -> Sensitivity:
    value = chip_parameters(spec)[name]
    if name not in DISCRETE and abs(here.slope[name]) < NEGLIGIBLE:
        return Sensitivity(name, value, here.slope[name], value / swing, value * swing, 1.0, 1.0)
    chips = [_moved(spec, name, factor) for factor in (1 / swing, swing)]
    low, high = (chip_parameters(chip)[name] for chip in chips)
    at_low, at_high = (_ratio(loss_value(chip, tasks, kernel), here.value) for chip in chips)
    if name in DISCRETE:
        both = at_low is not None and at_high is not None and high > low
        elasticity = log(at_high / at_low) / log(high / low) if both and at_low and at_high else None
    else:
        elasticity = here.slope[name]
    return Sensitivity(name, value, elasticity, low, high, at_low, at_high)


def _moved(spec: NpuSpec, name: str, factor: float) -> NpuSpec:
    """``spec`` with one number multiplied; a count by at least one, but never to none."""
    value = chip_parameters(spec)[name]
    if name in WHOLE and round(value * factor) == value:
        factor = (value + 1) / value if factor > 1 else max(value - 1, 1) / value
    return scaled_chip(spec, {name: factor})


def _ratio(value: float, here: float) -> float | None:
    return exp(value - here) if isfinite(value) else None

"""Chips with numbers scaled over a grid: what each costs by the user's weights, how fast it is, and which none beats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp, inf, isfinite

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from tiling_search.codesign.latency import Task, loss_value
from tiling_search.codesign.parameters import chip_parameters, scaled_chip


@dataclass(frozen=True)
class Design:
    """One chip of a grid.

    Attributes:
      factors: what was multiplied, by name.
      parameters: the numbers that this made, by name.
      cost: the weighted sum of the chip's numbers over that of the chip given; 1 without weights.
      seconds: the geometric mean of the latencies; None where a workload does not fit, or the cost is over the budget.
      speedup: over the chip given.
    """

    factors: Mapping[str, float]
    parameters: Mapping[str, float]
    cost: float
    seconds: float | None
    speedup: float | None


@dataclass(frozen=True)
class Cost:
    """What numbers of the chip cost, as shares of the chip given (see :func:`chip_cost`), and the most a design may cost."""

    weights: Mapping[str, float] = field(default_factory=dict)
    budget: float = inf


def chip_cost(spec: NpuSpec, weights: Mapping[str, float], base: NpuSpec) -> float:
    """What a chip costs: the sum of ``weight × number / number of base``, over the sum of the weights.

    So a weight is the share of area (or of money) that the number takes on ``base``; what has no weight is the rest, and is
    the same on every chip: weights of 0.3 and 0.2 leave 0.5 that does not change.

    Raises:
      ValueError: a negative weight, weights above 1 together, or one for a number that the chip lacks.
    """
    known, own = chip_parameters(base), chip_parameters(spec)
    if unknown := [name for name in weights if name not in known]:
        raise ValueError(f"no number {unknown[0]!r} to weigh: there are {', '.join(known)}")
    total = sum(weights.values())
    if min(weights.values(), default=0) < 0 or total > 1 + 1e-9:
        raise ValueError(f"weights {dict(weights)} must be shares of the base chip: not negative, at most 1 together")
    return 1 - total + sum(share * own[name] / known[name] for name, share in weights.items())


def design_grid(
    spec: NpuSpec,
    tasks: Sequence[Task],
    factors: Mapping[str, Sequence[float]],
    *,
    cost: Cost | None = None,
    kernel: str | Kernel = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Design, ...]:
    """Every combination of ``factors`` of the chip's numbers, each with its tilings chosen anew.

    Args:
      spec, tasks, kernel: the chip given, the workloads, the dataflow.
      factors: by name, what a number is multiplied with.
      cost: chips beyond its budget are not evaluated; nothing costs anything where left out.
      progress: called with the chips done and their total.
    """
    limit = cost or Cost()
    here = loss_value(spec, tasks, kernel)
    designs = []
    combinations = list(product(*factors.values()))
    for done, choice in enumerate(combinations):
        own = dict(zip(factors, choice, strict=True))
        chip = scaled_chip(spec, own)
        price = chip_cost(chip, limit.weights, spec)
        value = loss_value(chip, tasks, kernel) if price <= limit.budget * (1 + 1e-9) else inf
        made = {name: chip_parameters(chip)[name] for name in own}
        fits = isfinite(value)
        designs.append(Design(own, made, price, exp(value) if fits else None, exp(here - value) if fits else None))
        if progress:
            progress(done + 1, len(combinations))
    return tuple(designs)


def pareto(designs: Sequence[Design]) -> tuple[Design, ...]:
    """Those that no other beats in both cost and time, the cheapest first; of equals the first."""
    front: list[Design] = []
    for one in sorted((one for one in designs if one.seconds is not None), key=lambda one: (one.cost, one.seconds)):
        if not front or (one.seconds or 0) < (front[-1].seconds or 0):
            front.append(one)
    return tuple(front)

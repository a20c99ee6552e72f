"""Named physical constants of a chip: where each lives in ``NpuSpec``, between which bounds, and what is known beforehand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jax import Array

from ascend_jax.hardware.spec import NpuSpec, VectorCosts

ALL_SLOPES = "vector"
"""The field of a common factor on all costs per repeat of the Vector (``head`` and ``tail`` are no slopes)."""
DIGITS = 5
SLOPES = tuple(item.name for item in fields(VectorCosts) if item.name not in ("head", "tail"))

# What is fitted unless asked otherwise: name, field, how far below and above the chip's own number the truth may lie (as
# factors), and how sure that number is (a standard deviation of its logarithm). Published rates are ceilings, so the
# effective ones lie rather below; start-ups and flags are guesses within a factor of two or so.
_USUAL = (
    ("GM bandwidth", "gm_bytes_per_s", 0.5, 1.25, 0.1),
    ("L2 bandwidth", "l2_bytes_per_s", 0.35, 1.6, 0.2),
    ("GM → L1 of a core", "gm_to_l1_bytes_per_s", 0.5, 1.5, 0.15),
    ("GM → UB of a core", "gm_to_ub_bytes_per_s", 0.5, 1.5, 0.15),
    ("UB → GM of a core", "ub_to_gm_bytes_per_s", 0.5, 1.5, 0.15),
    ("L0C → GM of a core", "l0c_to_gm_bytes_per_s", 0.5, 1.5, 0.15),
    ("GM latency", "gm_latency_s", 0.1, 10.0, 0.7),
    ("DMA start-up", "dma_startup_s", 0.1, 10.0, 0.7),
    ("DMA burst gap", "dma_burst_gap_bytes", 0.1, 10.0, 0.7),
    ("hand-off", "handoff_s", 0.1, 10.0, 0.7),
    ("launch", "launch_s", 0.25, 2.5, 0.3),
    ("head of an operator", "operator_head_s", 0.1, 10.0, 0.7),
    ("set-up of a mask", "mask_setup_s", 0.1, 10.0, 0.7),
    ("task", "task_s", 0.1, 10.0, 0.7),
    ("vector slopes", ALL_SLOPES, 0.4, 4.0, 0.3),
)


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One number that a fit may move, in the unit of its field.

    Attributes:
      name: what people call it.
      field: of ``NpuSpec`` (``gm_bytes_per_s``), one slope (``vector.exp``), or ``vector`` for a factor on all slopes.
      lower, upper: bounds, above zero; the fit works on the logarithm between them.
      prior: the documented value.
      prior_log_std: how sure it is, a standard deviation of its natural logarithm (0.1 is about 10 %).
      relative: the value multiplies each chip's own number, so that chips may share one constant; always so for ``vector``.

    Raises:
      ValueError: no such field, or bounds, prior and deviation that do not go together.
    """

    name: str
    field: str
    lower: float
    upper: float
    prior: float
    prior_log_std: float
    relative: bool = False

    def __post_init__(self) -> None:
        if self.field not in FIELDS:
            raise ValueError(f"{self.name}: NpuSpec has no number {self.field!r} to fit: there are {', '.join(FIELDS)}")
        if not 0 < self.lower < self.upper < math.inf:
            raise ValueError(f"{self.name}: bounds {self.lower} to {self.upper} must be finite, above zero and in order")
        if not self.lower <= self.prior <= self.upper:
            raise ValueError(f"{self.name}: prior {self.prior} must lie between its bounds {self.lower} and {self.upper}")
        if not 0 < self.prior_log_std < math.inf:
            raise ValueError(f"{self.name}: prior_log_std={self.prior_log_std} must be above zero: 0.1 says about 10 %")
        if self.field == ALL_SLOPES:
            object.__setattr__(self, "relative", True)


FIELDS = (
    *(item.name for item in fields(NpuSpec) if item.name not in ("architecture", "name", "vector")),
    *(f"vector.{item.name}" for item in fields(VectorCosts)),
    ALL_SLOPES,
)


def usual_constants(spec: NpuSpec) -> tuple[Constant, ...]:
    """The constants that no document settles, around the chip's own numbers; those that it lacks or has at zero are left out.

    >>> from ascend_jax.hardware import load_chip
    >>> usual_constants(load_chip("910b3"))[0].name
    'GM bandwidth'
    """
    found = []
    for name, field, low, high, deviation in _USUAL:
        own = 1.0 if field == ALL_SLOPES else getattr(spec, field)
        if own:
            bounds = {"lower": own * low, "upper": own * high, "prior": float(own)}
            found.append(Constant(name=name, field=field, **bounds, prior_log_std=deviation))
    return tuple(found)


def shared_constants(specs: Sequence[NpuSpec]) -> tuple[Constant, ...]:
    """The usual constants that all of ``specs`` have, as factors on each chip's own numbers: 1 is what the chips say."""
    common = set.intersection(*({constant.field for constant in usual_constants(spec)} for spec in specs))
    found = []
    for name, field, low, high, deviation in _USUAL:
        if field in common:
            bounds = {"lower": low, "upper": high, "prior": 1.0}
            found.append(Constant(name=name, field=field, **bounds, prior_log_std=deviation, relative=True))
    return tuple(found)


def own_values(spec: NpuSpec, constants: Sequence[Constant]) -> np.ndarray:
    """Where a fit starts, ``[P]``: the chip's own numbers; 1 for what is relative.

    Raises:
      ValueError: the chip lacks the number, or it is not between the constant's bounds.
    """
    values = [1.0 if constant.relative else _own(spec, constant.field) for constant in constants]
    for constant, value in zip(constants, values, strict=True):
        if value is None:
            raise ValueError(f"{constant.name}: {spec.name} has no {constant.field}: leave this constant out")
        if not constant.lower < value < constant.upper:
            raise ValueError(
                f"{constant.name}: {spec.name} has {constant.field}={value}, which is not between the bounds "
                f"{constant.lower} and {constant.upper}: widen them, or change the chip's number"
            )
    return np.array(values, np.float64)


def _own(spec: NpuSpec, field: str) -> Any:
    owner, _, cost = field.partition(".")
    return getattr(getattr(spec, owner), cost) if cost else getattr(spec, field)


def with_constants(spec: NpuSpec, constants: Sequence[Constant], values: Array | np.ndarray) -> NpuSpec:
    """``spec`` with the constants at ``values`` ``[P]``; differentiable by ``values`` and by the spec's own numbers.

    A slope that is a constant of its own is not multiplied by the factor on all slopes.
    """
    given = {constant.field: (constant, values[place]) for place, constant in enumerate(constants)}
    if len(given) < len(constants):
        raise ValueError(f"two constants for one field among {', '.join(constant.field for constant in constants)}: keep one")
    factor = given.pop(ALL_SLOPES, (None, 1.0))[1]
    costs = {name: getattr(spec.vector, name) for name in SLOPES if f"vector.{name}" not in given}
    costs = {name: cost * factor for name, cost in costs.items()}
    numbers: dict[str, Any] = {}
    for field, (constant, value) in given.items():
        number = value * _own(spec, field) if constant.relative else value
        owner, _, cost = field.partition(".")
        (costs if cost else numbers)[cost or owner] = number
    return replace(spec, vector=replace(spec.vector, **costs), **numbers)


def rounded(value: float) -> float:
    """``value`` to ``DIGITS`` digits: well beyond what a fit leaves unsure, and short enough to read in a file.

    >>> rounded(1.234567e12)
    1234600000000.0
    """
    return float(f"{value:.{DIGITS - 1}e}")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Free numbers ``[P]`` and logarithms of values between bounds: a sigmoid from the one to the other."""

    low: np.ndarray
    high: np.ndarray

    def logs(self, theta: np.ndarray) -> np.ndarray:
        """Logarithms of values, never beyond the bounds."""
        return self.low + (self.high - self.low) * _sigmoid(theta)

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """The derivative of :meth:`logs`."""
        return (self.high - self.low) * _sigmoid(theta) * _sigmoid(-theta)

    def theta(self, logs: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`logs`; infinite on a bound."""
        return np.log(logs - self.low) - np.log(self.high - logs)


def _sigmoid(theta: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * theta))


def bounds(constants: Sequence[Constant]) -> Bounds:
    """The bounds of the constants' logarithms."""
    low, high = (np.log([getattr(constant, side) for constant in constants]) for side in ("lower", "upper"))
    return Bounds(low=low, high=high)

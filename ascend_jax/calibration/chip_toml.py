"""A fit as a chip file: ``base`` and the numbers that it changed, each with what it rests on.

Written by hand and not with a TOML library: it is a flat list of numbers, and the comments behind them are half of it.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ascend_jax.calibration.constants import ALL_SLOPES, SLOPES, rounded, with_constants
from ascend_jax.calibration.fit import Fit, FittedConstant
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.hardware.units import Unit, keys_of, to_base


def fitted_spec(spec: NpuSpec, fit: Fit) -> NpuSpec:
    """``spec`` with the fitted constants, every number of them to five digits: what the chip file says."""
    fitted = [found for found in fit.constants if found.fitted]
    moved = with_constants(spec, [found.constant for found in fitted], np.array([found.value for found in fitted]))
    costs, numbers = {}, {}
    for field in _owners(fitted):
        owner, _, cost = field.partition(".")
        value = getattr(getattr(moved, owner), cost) if cost else getattr(moved, owner)
        (costs if cost else numbers)[cost or owner] = rounded(float(value))
    return replace(moved, vector=replace(moved.vector, **costs), **numbers)


def chip_text(spec: NpuSpec, fit: Fit, *, base: str, about: Iterable[str] = ()) -> str:
    """The TOML text of a chip that differs from ``base`` by what was fitted.

    Args:
      spec: the chip as it was.
      fit: constants that were not fitted stay with the base.
      base: a chip's name, or the path of a TOML file from where this one will lie.
      about: lines of comment at the top.

    Returns:
      Text that :func:`ascend_jax.hardware.load_chip` reads as exactly the numbers of :func:`fitted_spec`.
    """
    after = fitted_spec(spec, fit)
    owners = _owners(found for found in fit.constants if found.fitted)
    lines = [_line(field, found, spec, after, fit.rows) for field, found in owners.items() if "." not in field]
    costs = [_line(field, found, spec, after, fit.rows) for field, found in owners.items() if "." in field]
    head = [*(f"# {_one_line(line)}" for line in about), f"base = {json.dumps(base, ensure_ascii=False)}"]
    return "\n".join([*head, "", *lines, *(["", "[vector]", *costs] if costs else [])]).rstrip() + "\n"


def _owners(fitted: Iterable[FittedConstant]) -> dict[str, FittedConstant]:
    """The fields that change (``vector.exp`` for a slope), each with the constant that decides it."""
    by_field = {found.constant.field: found for found in fitted}
    factor = by_field.pop(ALL_SLOPES, None)
    slopes = {f"vector.{name}": factor for name in SLOPES} if factor else {}
    return {field: found for field, found in (slopes | by_field).items() if found}


def _line(field: str, found: FittedConstant, before: NpuSpec, after: NpuSpec, rows: int) -> str:
    owner, _, cost = field.partition(".")
    old, new = (getattr(getattr(spec, owner), cost) if cost else getattr(spec, owner) for spec in (before, after))
    key, unit = _unit(cost or owner, new)
    factor = f" × {found.value:.3g}" if found.constant.field == ALL_SLOPES else ""
    said = f"{found.constant.name}{factor}: fitted from {rows} rows, {uncertainty_text(found.log_std)}; was {_in(old, unit)!r}"
    weak = f"; weakly identified: {', '.join(found.notes)}" if found.notes else ""
    return f"{key} = {_in(new, unit)!r}  # {_one_line(said + weak)}"


def uncertainty_text(log_std: float) -> str:
    """A standard error of a logarithm as people read it: percent, or a factor where percent would mislead.

    >>> uncertainty_text(0.031), uncertainty_text(0.7)
    ('± 3.1 %', '×/÷ 2.01')
    """
    factor = 2.718281828459045**log_std
    return f"± {100 * (factor - 1):.2g} %" if factor < 1.5 else f"×/÷ {factor:.3g}"


def _unit(field: str, value: float) -> tuple[str, Unit]:
    """The key whose unit says ``value`` exactly with the largest number below a thousand, or as it is."""
    decimal = {key: unit for key, unit in keys_of(field).items() if not unit.times and _power_of_ten(unit.scale)}
    exact = {key: unit for key, unit in decimal.items() if to_base(_in(value, unit), unit, {}) == value}
    below = {key: unit for key, unit in exact.items() if _in(value, unit) < 1000}
    best = max(below or exact, key=lambda key: _in(value, exact[key]))
    return best, exact[best]


def _power_of_ten(scale: Fraction) -> bool:
    return set(str(scale.numerator)[1:]) <= {"0"} and set(str(scale.denominator)[1:]) <= {"0"}


def _in(value: float, unit: Unit) -> float:
    return float(Fraction(repr(float(value))) / unit.scale)


def _one_line(text: str) -> str:
    """Without what would end a comment or is not allowed in one."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]+", " ", text)

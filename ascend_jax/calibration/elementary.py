"""Rows that are no attention: data copies, matrix products and vector operators, from the same numbers of the chip."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import jax

from ascend_jax.calibration.assume import Unmodelled
from ascend_jax.calibration.gemm_rows import gemm_row
from ascend_jax.calibration.memory_rows import copy_row
from ascend_jax.calibration.predict import Prediction
from ascend_jax.calibration.rows import Row
from ascend_jax.calibration.vector_rows import operator_of, vector_row
from ascend_jax.hardware import NpuSpec, load_chip

CATEGORIES = ("gemm", "memory", "vector")


class Operator(NamedTuple):
    """What stands in the place of an attention kernel."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Elementary:
    """A row of one of ``CATEGORIES``, as :class:`~ascend_jax.calibration.assume.Case` is one of attention; it has no tiling."""

    row: Row
    spec: NpuSpec
    kernel: Operator
    group: str
    prediction: Prediction
    tiling: None = None


def assume_elementary(row: Row) -> Elementary:
    """The chip and operator that ``row`` stands for, with its prediction.

    Raises:
      Unmodelled: the chip, the operator or its shape is not known, or the row is about what the catalogue has no number for.
    """
    spec = _chip(row)
    prediction = elementary(row, spec)
    name = {"gemm": "gemm", "memory": "copy"}.get(row.category) or operator_of(row)
    return Elementary(row=row, spec=spec, kernel=Operator(name), group=name, prediction=prediction)


def elementary(row: Row, spec: NpuSpec) -> Prediction:
    """Seconds and bound of a row of one of ``CATEGORIES`` on ``spec``.

    Raises:
      Unmodelled: as :func:`assume_elementary`.

    >>> row = Row(id="copy", value=212.0, category="memory", op="datacopy GM->UB [64,1024]",
    ...           dtype="fp16", input_shape=((12288, 12288),))
    >>> elementary(row, load_chip("910b2")).bound_by
    'GM and L2'
    """
    with jax.enable_x64(True):
        match row.category:
            case "gemm":
                return gemm_row(row, spec)
            case "memory":
                return copy_row(row, spec)
            case "vector":
                return vector_row(row, spec)
    raise Unmodelled(f"category {row.category!r} is none of {', '.join(CATEGORIES)}")


def _chip(row: Row) -> NpuSpec:
    """The chip of the catalogue; of two 950 with one name the one with the cores that the row states."""
    name = row.catalog_chip or row.chip
    if not name:
        raise Unmodelled("the row names no chip of the catalogue")
    if name in ("950PR", "950DT") and re.search(r"\b28 AIC\b", row.chip or ""):
        name += "_957x"
    try:
        return load_chip(name)
    except ValueError as error:
        raise Unmodelled(str(error)) from error

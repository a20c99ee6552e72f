"""Measured rows: one published or private measurement each, read from JSON and checked at the door."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_jax._pytree import is_whole

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
"""Seconds of each unit of time; the two micro signs are different characters that look alike."""
FLOPS_PER_S = {"GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15}

TEXTS = ("op", "metric", "unit", "category", "chip", "catalog_chip", "dtype", "layout", "tiling", "quality")
TEXTS += ("note", "caveat", "method", "source")
WHOLES = ("batch", "q_heads", "kv_heads", "q_seq", "kv_seq", "head_dim", "flops_unmasked")
FLAGS = ("causal", "core_validation")
LEAVE_OUT = "correct it, or leave the row out"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement. Text that a row lacks is "" where every row should have it, else None.

    Attributes:
      id: its name, unique in its file.
      value, unit, metric: what was measured: ``latency``, ``throughput`` or ``bandwidth``.
      op, category: the operator in the source's words; ``attention``, ``gemm``, ``vector`` or ``memory``.
      chip, catalog_chip: the chip in the source's words, and its name in the catalogue.
      dtype, layout: as the source writes them (``bf16``, ``BNSD``).
      batch, q_heads, kv_heads, q_seq, kv_seq, head_dim, causal: the shape of attention.
      tiling: what the source says of blocks and schedule, in its words.
      quality: A (stated method on a stated chip), B (with a caveat) or C (not to be fitted).
      core_validation: whether it is a dense attention row with its full shape.
      flops_unmasked: operations of the score pairs that the mask leaves.
      attrs: attributes of the operator's call.
      input_shape: shapes of its inputs.
      note, caveat, method, source: what else the source says, and which it is.
    """

    id: str
    value: float
    unit: str = ""
    metric: str = ""
    op: str = ""
    category: str = ""
    chip: str | None = None
    catalog_chip: str | None = None
    dtype: str | None = None
    layout: str | None = None
    batch: int | None = None
    q_heads: int | None = None
    kv_heads: int | None = None
    q_seq: int | None = None
    kv_seq: int | None = None
    head_dim: int | None = None
    causal: bool | None = None
    tiling: str | None = None
    quality: str | None = None
    core_validation: bool = False
    flops_unmasked: int | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    input_shape: tuple[tuple[int, ...], ...] = ()
    note: str | None = None
    caveat: str | None = None
    method: str | None = None
    source: str | None = None

    @property
    def measured_s(self) -> float | None:
        """Seconds measured; None where the row says a rate and not of how much.

        >>> Row(id="a", value=250.0, unit="ms", metric="latency").measured_s
        0.25
        >>> Row(id="b", value=2.0, unit="TFLOPS", metric="throughput", flops_unmasked=4 * 10**12).measured_s
        2.0
        >>> Row(id="c", value=267.0, unit="GB/s", metric="bandwidth").measured_s is None
        True
        """
        if self.metric in ("latency", "") and self.unit in SECONDS:
            return self.value * SECONDS[self.unit]
        if self.metric == "throughput" and self.unit in FLOPS_PER_S and self.flops_unmasked and not self.causal:
            return self.flops_unmasked / (self.value * FLOPS_PER_S[self.unit])  # causal: the source may count all pairs
        return None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An entry of a file that is no row: its id where it has one, and the reason."""

    id: str | None
    reason: str


def read_rows(path: str | Path) -> list[Row]:
    """Every row of the file, in its order; ``[{…}, …]`` or ``{"rows": [{…}, …]}``. Fields that are not known are left out.

    Raises:
      OSError: the file cannot be read.
      ValueError: the file holds no list of rows, or a row is wrong; with the file, the row, the field and the remedy.
    """
    entries = read_entries(path)
    if refused := [entry for entry in entries if isinstance(entry, Refused)]:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise ValueError(f"{path}: {refused[0].reason}{more}")
    return [entry for entry in entries if isinstance(entry, Row)]


def read_entries(path: str | Path) -> list[Row | Refused]:
    """As :func:`read_rows`, with what is wrong in the place of a wrong row, so that one does not stop the others.

    Raises:
      OSError: the file cannot be read.
      ValueError: the file holds no list of rows.
    """
    seen: set[str] = set()
    entries: list[Row | Refused] = []
    for number, given in enumerate(_list_in(path), 1):
        name = _id_of(given)
        try:
            entries.append(_row(given, name, seen))
            seen.add(str(name))
        except (ValueError, OverflowError) as error:  # OverflowError: a whole number beyond what a float holds
            place = f"row {name!r}" if name else f"row number {number}"
            entries.append(Refused(id=name, reason=f"{place}: {error}"))
    return entries


def _list_in(path: str | Path) -> list[Any]:
    """The list of rows in the file, none of them checked."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise ValueError(f"{path} is not JSON ({error}): give a list of rows, [{{...}}, ...]") from error
    rows = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        found = f"an object with {', '.join(map(repr, data)) or 'nothing'}" if isinstance(data, dict) else type(data).__name__
        raise ValueError(f'{path} holds {found:.200}: give a list of rows, [{{...}}, ...] or {{"rows": [...]}}')
    if not rows:
        raise ValueError(f"{path} holds no rows: give at least one")
    return rows


def _id_of(given: Any) -> str | None:
    name = given.get("id") if isinstance(given, dict) else None
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    return name if isinstance(name, str) and name else None


def _row(given: Any, name: str | None, seen: set[str]) -> Row:
    """``given`` as a row.

    Raises:
      ValueError: the field, its value, the rule and the remedy.
    """
    if not isinstance(given, dict):
        raise ValueError(f"it is {_short(given)}, not an object with fields: {LEAVE_OUT}")
    if name is None:
        raise ValueError(f"id={_short(given.get('id'))} must be text that names it: give it one that no other row has")
    if name in seen:
        raise ValueError(f"id={name!r} is taken by an earlier row: give it one that no other row has")
    present = {field: value for field, value in given.items() if value is not None}
    values: dict[str, Any] = {"id": name, "value": _value(present)}
    for names, reader in ((TEXTS, _text), (WHOLES, _whole), (FLAGS, _flag)):
        values |= {field: reader(field, present[field]) for field in names if field in present}
    if "attrs" in present:
        values["attrs"] = _attributes(present["attrs"])
    if "input_shape" in present:
        values["input_shape"] = _shapes(present["input_shape"])
    return Row(**values)


def _value(present: Mapping[str, Any]) -> float:
    if "value" not in present:
        raise ValueError("value is missing: give what was measured, in unit")
    value = present["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"value={_short(value)} must be a finite number above 0: {LEAVE_OUT}")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}={_short(value)} must be text: put it in quotes, or leave the field out")
    return value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int | float) or not is_whole(value, 1):
        raise ValueError(f"{name}={_short(value)} must be a whole number of at least 1: correct it, or leave the field out")
    return int(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={_short(value)} must be true or false: correct it, or leave the field out")
    return value


def _attributes(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"attrs={_short(value)} must be an object of names and values: correct it, or leave the field out")
    return value


def _shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    """A list of shapes, null for an input left out; a list of numbers is the one shape of a single input."""
    nested = isinstance(value, list) and all(isinstance(shape, list | None) for shape in value)
    shapes = [shape or [] for shape in value] if nested else [value]
    if not all(isinstance(shape, list) and all(map(_is_size, shape)) for shape in shapes):
        raise ValueError(f"input_shape={_short(value)} must be lists of whole numbers: correct it, or leave the field out")
    return tuple(tuple(shape) for shape in shapes)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and is_whole(value, 0)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""Measured rows from the profiler's own tables: ``op_summary_*.csv`` of msprof and ``kernel_details.csv`` of torch_npu."""

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ascend_jax.calibration.call_shapes import LAYOUTS, Call, Hints, Tensor, Unclear, read_call
from ascend_jax.calibration.rows import Row

INFERENCE = ("BNSD", "BSND", "BSH")
OPERATORS = {
    "FlashAttentionScore": LAYOUTS,
    "FusedInferAttentionScore": INFERENCE,
    "PromptFlashAttention": INFERENCE,
    "IncreFlashAttention": INFERENCE,
}
"""Forward operators of attention that the model knows, with their layouts; others of attention are named as not modelled."""
COLUMNS = {
    "type": ("OP Type", "Type"),
    "duration": ("Task Duration(us)", "Duration(us)"),
    "input_shapes": ("Input Shapes",),
    "input_types": ("Input Data Types",),
    "input_formats": ("Input Formats",),
}
"""What is needed, by the names it has in the two tables."""
OPTIONAL = {"output_shapes": ("Output Shapes",), "output_types": ("Output Data Types",)}
TENSOR_COLUMNS = ("input_shapes", "input_types", "input_formats")
NOTHING = ("", "n/a", "undefined", "null")
BYTE_ORDER_MARK = "utf-8-sig"


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Executions of attention that made no row: the first one's line, how many were alike, the operator and the reason."""

    line: int
    count: int
    op: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The rows of a table, one for each different call; what of attention was skipped; and how many lines were other work."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    others: int


def read_profile(path: str | Path, *, chip: str, hints: Hints | None = None) -> Profile:
    """Attention in a profile. Executions of the same call become one row: the median of their times.

    Args:
      path: ``op_summary_*.csv`` or ``kernel_details.csv``.
      chip: what it ran on; the table does not say.
      hints: what to take where the shapes leave it open.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no such table, or was written without the operators' shapes.
    """
    path = Path(path)
    calls: dict[tuple[str, Call], list[float]] = defaultdict(list)
    skipped: dict[tuple[str, str], Skipped] = {}
    others = 0
    for line, cells in _records(path):
        op = cells["type"]
        if op not in OPERATORS:
            if "attention" not in op.lower():
                others += 1
                continue
            _skip(skipped, line, op, f"not modelled; the operators known are {', '.join(OPERATORS)}")
            continue
        try:
            duration, call = _duration(cells["duration"]), _call(cells, hints or Hints())
        except Unclear as error:
            _skip(skipped, line, op, str(error))
        else:
            calls[op, call].append(duration)
    rows = tuple(_row(op, call, times, path.name, chip) for (op, call), times in calls.items())
    return Profile(rows=rows, skipped=tuple(skipped.values()), others=others)


def _records(path: Path) -> Iterable[tuple[int, dict[str, str]]]:
    """Line numbers and the cells of interest, by our own names."""
    try:
        with path.open(encoding=BYTE_ORDER_MARK, newline="") as file:
            reader = csv.reader(file)
            places = _places(path, next(reader, []))
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, {name: _clean(cells[at]) if at < len(cells) else "" for name, at in places.items()}
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: is no CSV in UTF-8 ({error}): give op_summary_*.csv or kernel_details.csv") from error


def _clean(cell: str) -> str:
    """Without the blanks, tabs and second pair of quotes that the exporters leave."""
    return cell.strip().strip('"').strip()


def _places(path: Path, header: Sequence[str]) -> dict[str, int]:
    found = {_clean(name).lower(): place for place, name in reversed(list(enumerate(header)))}
    places: dict[str, int] = {}
    for name, spellings in (COLUMNS | OPTIONAL).items():
        at = next((found[spelling.lower()] for spelling in spellings if spelling.lower() in found), None)
        if at is not None:
            places[name] = at
    missing = [" or ".join(spellings) for name, spellings in COLUMNS.items() if name not in places]
    if not missing:
        return places
    if all(name in places for name in COLUMNS if name not in TENSOR_COLUMNS):
        remedy = "the shapes were not recorded; profile again with the operators' attributes (torch_npu: Level1 or above)"
    else:
        remedy = "give op_summary_*.csv of msprof or kernel_details.csv of torch_npu"
    raise ValueError(f"{path}: no column {', '.join(missing)}: {remedy}")


def _duration(cell: str) -> float:
    try:
        duration = float(cell)
    except ValueError:
        duration = math.nan
    if not 0 < duration < math.inf:
        raise Unclear(f"its duration {cell!r} is no time")
    return duration


def _call(cells: Mapping[str, str], hints: Hints) -> Call:
    formats = [part.strip().upper() for part in cells["input_formats"].split(";")][:3]
    if packed := [form for form in formats if form.startswith("FRACTAL")]:
        raise Unclear(f"format {packed[0]} of query, key or value is not modelled")
    inputs = _tensors(cells["input_shapes"], cells["input_types"])
    outputs = _tensors(cells.get("output_shapes", ""), cells.get("output_types", ""))
    if not inputs:
        raise Unclear("it has no shapes")
    return read_call(inputs, outputs, hints, OPERATORS[cells["type"]])


def _tensors(shapes: str, types: str) -> list[Tensor]:
    """``1,8,512,64;1,8,512,64;;`` and ``FLOAT16;FLOAT16;;`` as tensors; the absent ones are left out."""
    names = [_clean(part).lower().removeprefix("dt_") for part in types.split(";")]
    tensors = []
    for place, text in enumerate(shapes.split(";")):
        sizes = _clean(text).strip("[]() ")
        if sizes.lower() in NOTHING:
            continue
        try:
            shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        except ValueError:
            raise Unclear(f"shape {sizes!r} is no list of whole numbers") from None
        if math.prod(shape):
            tensors.append(Tensor(place=place, dtype=names[place] if place < len(names) else "", shape=shape))
    return tensors


def _skip(skipped: dict[tuple[str, str], Skipped], line: int, op: str, reason: str) -> None:
    before = skipped.get((op, reason), Skipped(line=line, count=0, op=op, reason=reason))
    skipped[op, reason] = replace(before, count=before.count + 1)


def _row(op: str, call: Call, times: Sequence[float], source: str, chip: str) -> Row:
    heads, lengths = f"N{call.q_heads}/{call.kv_heads}", f"S{call.q_seq}/{call.kv_seq}"
    mask = " causal" if call.causal else ""
    return Row(
        id=f"{op} {call.layout} B{call.batch} {heads} {lengths} D{call.head_dim} {call.dtype}{mask}",
        value=statistics.median(times),
        unit="us",
        metric="latency",
        op=op,
        category="attention",
        chip=chip,
        catalog_chip=chip,
        quality="A",
        core_validation=True,
        method=f"profiler, median of {len(times)}",
        source=source,
        attrs={"runs": len(times), "shortest_us": min(times), "longest_us": max(times)},
        **asdict(call),
    )

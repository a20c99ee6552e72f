"""The profiler's tables, each as a header and rows of text.

Times count from the start of the recording, in microseconds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ascend_jax.runtime.profiler.counters import PIPE_COLUMNS, pipe_cells
from ascend_jax.runtime.profiler.headers import (
    API_STATISTIC,
    COMMUNICATION_STATISTIC,
    KERNEL_DETAILS,
    MEMORY_RECORD,
    OP_ATTRIBUTES,
    OP_STATISTIC,
    OP_SUMMARY,
    OPERATOR_MEMORY,
    STEP_TRACE_TIME,
    TASK_TIME,
    TENSORS,
)
from ascend_jax.runtime.profiler.kinds import AicoreMetrics, DataType
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.records import ApiCall, MemoryEvent, Row, Statistic, task_type

NOT_AVAILABLE = "N/A"
SINGLE_OPERATOR = "4294967295"
"""Model ID of what belongs to no model."""
KERNEL_TYPES = {
    "AI_CORE": "KERNEL_AICORE",
    "AI_VECTOR_CORE": "KERNEL_AIVEC",
    "MIX_AIC": "KERNEL_MIX_AIC",
    "AI_CPU": "KERNEL_AICPU",
}
TYPE_NAMES = {"bfloat16": "DT_BF16", "float32": "FLOAT", "float64": "DOUBLE"}
"""Where the profiler's name of a type is not ours in capitals."""


class TableText(NamedTuple):
    """A table on its way to a file."""

    header: list[str]
    rows: Iterator[list[str]]


def op_summary(profile: Profile) -> TableText:
    """One row for every kernel and collective; tensors with OP_ATTR, counters with AICORE_METRICS."""
    attributes, counters = bool(profile.data & DataType.OP_ATTR), _has_counters(profile)
    vectors = {device: clocks.vector_per_cube for device, clocks in profile.clocks.items()}
    header = OP_SUMMARY + OP_ATTRIBUTES * attributes + PIPE_COLUMNS * counters

    def cells(row: Row) -> list[str]:
        first = [str(row.device_id), SINGLE_OPERATOR, str(row.task_id), str(row.stream_id), row.name, row.op_type or row.name]
        times = [_since(profile, row.start_s), _us(row.duration_s), _us(row.gap_s)]
        found = [*first, NOT_AVAILABLE, task_type(row), *times]
        if attributes:
            mixed = row.block_dim * vectors.get(row.device_id, 0) if row.core == "mix" else 0
            found += [str(row.block_dim), str(mixed), "NO", *tensor_cells(row), NOT_AVAILABLE]
        if counters:
            found += pipe_cells(row, profile.clocks.get(row.device_id))
        return found

    return TableText(header, map(cells, profile.operators()))


def kernel_details(profile: Profile) -> TableText:
    """The same as torch_npu writes it: other names for eight columns, the rest only where it was collected."""
    attributes, counters = bool(profile.data & DataType.OP_ATTR), _has_counters(profile)
    header = KERNEL_DETAILS + TENSORS * attributes + PIPE_COLUMNS * counters

    def cells(row: Row) -> list[str]:
        found = [str(row.device_id), row.name, row.op_type or row.name, task_type(row)]
        found += [_since(profile, row.start_s), _us(row.duration_s), _us(row.gap_s), str(row.block_dim)]
        return found + tensor_cells(row) * attributes + pipe_cells(row, profile.clocks.get(row.device_id)) * counters

    return TableText(header, map(cells, profile.operators()))


def tensor_cells(row: Row) -> list[str]:
    """Shapes, types and formats of inputs and outputs, N/A where the operator did not tell.

    Shapes of one tensor are joined by commas, tensors by semicolons.
    """
    found = []
    for side in ("input", "output"):
        shapes, types, formats = (row.info.get(f"{side}_{what}") for what in ("shapes", "dtypes", "formats"))
        if shapes is None:
            found += [NOT_AVAILABLE] * 3
            continue
        found.append(";".join(",".join(map(str, shape)) for shape in shapes))
        found.append(";".join(type_name(str(name)) for name in types or ()) or NOT_AVAILABLE)
        found.append(";".join(formats or ["ND"] * len(shapes)))
    return found


def type_name(name: str) -> str:
    """A type as the profiler names it.

    >>> type_name("bfloat16"), type_name("float16"), type_name("bool")
    ('DT_BF16', 'FLOAT16', 'BOOL')
    """
    return TYPE_NAMES.get(name, name.upper())


def op_statistic(profile: Profile) -> TableText:
    """Times by type of operator and core, the largest total first."""
    found = profile.statistics("kernel")
    return TableText(OP_STATISTIC, ([str(one.device_id), one.op_type, one.core, *_times(one)] for one in found))


def communication_statistic(profile: Profile) -> TableText:
    """Times by collective."""
    found = profile.statistics("collective")
    return TableText(COMMUNICATION_STATISTIC, ([str(one.device_id), one.op_type, *_times(one)] for one in found))


def _times(one: Statistic) -> list[str]:
    mean = one.total_s / one.calls
    return [str(one.calls), *map(_us, (one.total_s, one.min_s, mean, one.max_s)), f"{one.share * 100:.3f}"]


def task_time(profile: Profile) -> TableText:
    """Every task of every stream, by start."""

    def cells(row: Row) -> list[str]:
        kind = task_type(row)
        first = [str(row.device_id), row.name, KERNEL_TYPES.get(kind, kind), str(row.stream_id), str(row.task_id)]
        return [*first, _us(row.duration_s), _since(profile, row.start_s), _since(profile, row.end_s)]

    rows = sorted(profile.rows, key=lambda row: (row.start_s, row.task_id))
    return TableText(TASK_TIME, map(cells, rows))


def api_statistic(profile: Profile) -> TableText:
    """Time of the host by call. ``Device_id`` is that of the host."""
    groups: dict[tuple[str, str], list[ApiCall]] = defaultdict(list)
    for call in profile.apis:
        groups[call.level, call.name].append(call)

    def cells(key: tuple[str, str]) -> list[str]:
        times = [call.duration_s * 1e6 for call in groups[key]]
        mean = sum(times) / len(times)
        variance = sum((time - mean) ** 2 for time in times) / len(times)
        return [
            "host",
            *key,
            f"{sum(times):.3f}",
            str(len(times)),
            *(f"{x:.3f}" for x in (mean, min(times), max(times), variance)),
        ]

    return TableText(API_STATISTIC, map(cells, sorted(groups)))


def memory_record(profile: Profile) -> TableText:
    """Totals after every allocation and release."""

    def cells(event: MemoryEvent) -> list[str]:
        totals = _kb(event.allocated), _kb(event.reserved)
        return [str(event.device_id), event.component, _since(profile, event.at_s), *totals, f"NPU:{event.device_id}"]

    return TableText(MEMORY_RECORD, map(cells, profile.memory))


def operator_memory(profile: Profile) -> TableText:
    """Every allocation with its release; N/A where it was not released."""

    def rows() -> Iterator[list[str]]:
        for taken, given in pairs(profile.memory):
            end = [NOT_AVAILABLE] * 2 if given is None else [_kb(given.allocated), _kb(given.reserved)]
            lasted = NOT_AVAILABLE if given is None else _us(given.at_s - taken.at_s)
            first = [str(taken.device_id), taken.name, _kb(taken.bytes), _since(profile, taken.at_s), lasted]
            yield [*first, _kb(taken.allocated), _kb(taken.reserved), *end, f"NPU:{taken.device_id}"]

    return TableText(OPERATOR_MEMORY, rows())


def pairs(events: Sequence[MemoryEvent]) -> list[tuple[MemoryEvent, MemoryEvent | None]]:
    """Every allocation and its release, or None, in order of the allocations."""
    found: list[tuple[MemoryEvent, MemoryEvent | None]] = []
    live: dict[tuple[int, str, int], int] = {}
    for event in events:
        key = event.device_id, event.component, event.address
        if event.bytes > 0:
            live[key] = len(found)
            found.append((event, None))
        elif key in live:
            place = live.pop(key)
            found[place] = (found[place][0], event)
    return found


def step_trace_time(profile: Profile) -> TableText:
    """How computing and communication share the time of each device; the whole recording is one step."""

    def cells(device: int) -> list[str]:
        found = profile.overlap(device)
        hidden = found.communication_s - found.exposed_s
        spent = found.computing_s, found.exposed_s, hidden, found.communication_s, found.free_s, found.total_s, 0.0
        return [str(device), "", *map(_us, (*spent, found.exposed_s, 0.0))]

    return TableText(STEP_TRACE_TIME, map(cells, sorted({row.device_id for row in profile.rows})))


def _has_counters(profile: Profile) -> bool:
    return bool(profile.data & DataType.AICORE_METRICS) and profile.metrics is AicoreMetrics.PIPE_UTILIZATION


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3f}"


def _since(profile: Profile, at_s: float) -> str:
    return _us(at_s - profile.origin_s)


def _kb(size: int) -> str:
    return f"{size / 1024:.3f}"


Maker = Callable[[Profile], TableText]
MSPROF: dict[str, Maker] = {
    "op_summary": op_summary,
    "op_statistic": op_statistic,
    "task_time": task_time,
    "api_statistic": api_statistic,
    "memory_record": memory_record,
    "operator_memory": operator_memory,
    "communication_statistic": communication_statistic,
}
"""Tables of CANN's profiler by the beginning of their names."""
TORCH: dict[str, Maker] = {
    "kernel_details": kernel_details,
    "op_statistic": op_statistic,
    "api_statistic": api_statistic,
    "step_trace_time": step_trace_time,
    "memory_record": memory_record,
    "operator_memory": operator_memory,
}
"""Tables of torch_npu's profiler."""

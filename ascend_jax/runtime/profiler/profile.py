""":class:`Profile`: what was recorded, as rows for Python, as a summary for people, and on the way to files."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from ascend_jax.runtime.profiler.kinds import EVERYTHING, AicoreMetrics, DataType
from ascend_jax.runtime.profiler.overlap import Overlap, overlap
from ascend_jax.runtime.profiler.records import ApiCall, Clocks, MemoryEvent, Row, Statistic, task_type

MOST_SHOWN = 12


@dataclass(kw_only=True)
class Profile:
    """What a profiler has recorded.

    Attributes:
      rows: tasks in the order in which they ended.
      memory, apis: allocations and calls of the host, in order of time.
      clocks: of the devices.
      unfinished: tasks that had been submitted and not ended when the profiler stopped.
      dropped: tasks that never ran.
      data, metrics: what was asked for.
    """

    rows: list[Row] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    apis: list[ApiCall] = field(default_factory=list)
    clocks: dict[int, Clocks] = field(default_factory=dict)
    unfinished: int = 0
    dropped: int = 0
    data: DataType = EVERYTHING
    metrics: AicoreMetrics = AicoreMetrics.PIPE_UTILIZATION

    @property
    def devices(self) -> list[int]:
        """Devices that have rows or memory."""
        return sorted({row.device_id for row in self.rows} | {event.device_id for event in self.memory})

    @cached_property
    def origin_s(self) -> float:
        """The earliest time in it, which the files count from; asked for when the recording is over."""
        times = [row.submit_s for row in self.rows] + [call.start_s for call in self.apis] + [one.at_s for one in self.memory]
        return min(times, default=0.0)

    def of_kind(self, *kinds: str) -> list[Row]:
        """Rows of these kinds (``kernel``, ``copy``, ``collective``, …), by device and start."""
        return sorted(
            (row for row in self.rows if row.kind in kinds), key=lambda row: (row.device_id, row.start_s, row.task_id)
        )

    def operators(self) -> list[Row]:
        """Kernels and collectives."""
        return self.of_kind("kernel", "collective")

    def statistics(self, *kinds: str) -> list[Statistic]:
        """Times by device and type, the largest total first."""
        return statistics(self.of_kind(*(kinds or ("kernel", "collective"))))

    def overlap(self, device_id: int) -> Overlap:
        """How long the device computed, communicated, did both, or nothing."""
        return overlap(row for row in self.rows if row.device_id == device_id)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table()
        for device in self.devices:
            found = self.overlap(device)
            yield (
                f"device {device}: {found.total_s * 1e6:,.1f} µs, computing {found.share(found.computing_s):.0%}, "
                f"communication {found.share(found.communication_s):.0%} "
                f"(not hidden {found.share(found.exposed_s):.0%}), free {found.share(found.free_s):.0%}"
            )
        failed = [row for row in self.rows if row.error]
        for row in failed[:MOST_SHOWN]:
            yield f"failed: {row.name} of stream {row.stream_id} on device {row.device_id}: {row.error} ({row.site})"
        if self.unfinished or self.dropped:
            yield f"{self.unfinished} tasks had not ended, {self.dropped} never ran"

    def _table(self) -> Table:
        table = Table(title=f"{len(self.rows)} tasks")
        for heading in ("device", "type", "core", "count", "total µs", "mean µs", "share"):
            table.add_column(heading, justify="left" if heading in ("type", "core") else "right")
        found = self.statistics("kernel", "collective", "copy", "memset", "host")
        for one in found[:MOST_SHOWN]:
            total, mean = f"{one.total_s * 1e6:,.1f}", f"{one.total_s / one.calls * 1e6:,.1f}"
            table.add_row(str(one.device_id), one.op_type, one.core, str(one.calls), total, mean, f"{one.share:.1%}")
        if len(found) > MOST_SHOWN:
            table.add_row("", f"{len(found) - MOST_SHOWN} more", "", "", "", "", "")
        return table

    def __str__(self) -> str:
        console = Console(width=100, record=True, file=_NOWHERE)
        console.print(self)
        return console.export_text()


class _Nowhere:
    def write(self, text: str) -> int:
        """Forget it."""
        return len(text)

    def flush(self) -> None:
        """Nothing to do."""


_NOWHERE: Any = _Nowhere()


def statistics(rows: Iterable[Row]) -> list[Statistic]:
    """Times by device, type and core; ``share`` is of all rows of the device. The largest total first."""
    groups: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    totals: dict[int, float] = defaultdict(float)
    for row in rows:
        groups[row.device_id, row.op_type or row.name, task_type(row)].append(row.duration_s)
        totals[row.device_id] += row.duration_s
    found = [_statistic(key, times, totals[key[0]]) for key, times in groups.items()]
    return sorted(found, key=lambda one: (one.device_id, -one.total_s, one.op_type))


def _statistic(key: tuple[int, str, str], times: Sequence[float], whole_s: float) -> Statistic:
    total = sum(times)
    return Statistic(*key, len(times), total, min(times), max(times), total / whole_s if whole_s else 0.0)

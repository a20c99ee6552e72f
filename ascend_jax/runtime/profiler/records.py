"""What a profile is made of: tasks, memory events, host calls, the clocks of a device, and statistics of them."""

from typing import Any, NamedTuple


class Row(NamedTuple):
    """One task that has ended. Times are virtual seconds of the system.

    Attributes:
      submit_s, ready_s, start_s, end_s: submitted by the host, first of its stream with nothing to wait for, started, ended.
      gap_s: from the end of the task before it on its stream to its start; 0 for the first.
      info: what the operator told: shapes, dtypes, bytes, the report of the cost model, the plan of a collective.
      error: what it failed with, "" if it did not.
    """

    name: str
    op_type: str
    kind: str
    core: str
    engine: str
    block_dim: int
    device_id: int
    stream_id: int
    task_id: int
    submit_s: float
    ready_s: float
    start_s: float
    end_s: float
    gap_s: float
    site: str
    info: dict[str, Any]
    error: str

    @property
    def duration_s(self) -> float:
        """From start to end."""
        return self.end_s - self.start_s

    @property
    def wait_s(self) -> float:
        """From the moment when only cores, an engine or other ranks were lacking to the start."""
        return self.start_s - self.ready_s


class MemoryEvent(NamedTuple):
    """An allocation (``bytes`` > 0) or a release, with the totals after it, all in bytes."""

    device_id: int
    component: str
    name: str
    address: int
    bytes: int
    at_s: float
    allocated: int
    reserved: int


class ApiCall(NamedTuple):
    """One call of the runtime by the host: its level (``acl``, ``node``, ``runtime``, ``communication``), name and time."""

    level: str
    name: str
    start_s: float
    duration_s: float
    task_id: int


class Clocks(NamedTuple):
    """What a device's counters are made of: hertz of the two kinds of core, how many there are, and the chip's name."""

    cube_hz: float
    vector_hz: float
    cube_cores: int
    vector_per_cube: int
    chip: str


class Statistic(NamedTuple):
    """Times of the tasks of one type on one device."""

    device_id: int
    op_type: str
    core: str
    calls: int
    total_s: float
    min_s: float
    max_s: float
    share: float


def task_type(row: Row) -> str:
    """``Task Type`` and ``Core Type`` of the profiler."""
    if row.kind == "kernel":
        return {"cube": "AI_CORE", "vector": "AI_VECTOR_CORE", "mix": "MIX_AIC"}.get(row.core, "AI_CPU")
    names = {"collective": "HCCL", "record": "EVENT_RECORD", "wait": "EVENT_WAIT", "host": "CALLBACK"}
    return names.get(row.kind, "MEMCPY_ASYNC" if row.kind == "copy" else "MEMSET_ASYNC")

"""Where a stage is shown: the process of its core and the thread of its pipe, and the whole nanoseconds of its slices.

Names, order and colours are those of the operator simulator (``msprof op simulator``): process ``core0.cubecore0``, thread
``CUBE``. Colours are names of the palette that chrome://tracing reserves.
"""

from typing import NamedTuple

import numpy as np

from ascend_jax.timeline.events import Events, Simulated, StageInfo

NS_PER_S = 1e9


class Lane(NamedTuple):
    """A thread of a core: its name, its place from the top, and the colour of its slices."""

    thread: str
    place: int
    colour: str


LANES = {
    "Scalar": Lane("SCALAR", 1, "startup"),
    "MTE1": Lane("MTE1", 3, "thread_state_running"),
    "Cube": Lane("CUBE", 4, "background_memory_dump"),
    "FixPipe": Lane("FIXP", 5, "thread_state_unknown"),
    "MTE2": Lane("MTE2", 6, "thread_state_iowait"),
    "Vector MTE2": Lane("MTE2", 6, "thread_state_iowait"),
    "Vector": Lane("VECTOR", 7, "cq_build_failed"),
    "MTE3": Lane("MTE3", 8, "rail_response"),
}
"""By pipe."""


class Process(NamedTuple):
    """A core as a viewer shows it: its name, and its place from the top."""

    name: str
    place: int


def is_split(timeline: Simulated) -> bool:
    """Whether vector cores stand beside the cube core, rather than being a part of it (as on 910A and 310P)."""
    return timeline.vector_cores_per_cube > 1 or any(stage.pipe == "Vector MTE2" for stage in timeline.stages)


def processes(timeline: Simulated, stage: StageInfo, core: int) -> list[Process]:
    """The processes that show ``stage`` of cube core ``core``: one, or one for each vector core."""
    vector_cores = timeline.vector_cores_per_cube
    place = core * (1 + vector_cores) + 1
    if not is_split(timeline):
        return [Process(f"core{core}", place)]
    if stage.core == "cube":
        return [Process(f"core{core}.cubecore0", place)]
    return [Process(f"core{core}.veccore{index}", place + 1 + index) for index in range(vector_cores)]


class NanosecondSlices:
    """Start and end of the events of one core in whole nanoseconds, so that no two slices of one pipe overlap.

    Both are rounded on one grid, so that slices which touch still do. Where float noise puts a start before the end that it
    follows, by less than the grid, it moves to that end.
    """

    def __init__(self, stages: tuple[StageInfo, ...]) -> None:
        pipes = [(stage.core, stage.pipe) for stage in stages]
        names = list(dict.fromkeys(pipes))
        self._pipe_of_stage = np.array([names.index(pipe) for pipe in pipes], dtype=np.int64)
        self._names = names
        self._ends = np.zeros(len(names), dtype=np.int64)

    def of(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """``[E]`` starts and ends of the next chunk of the core.

        Raises:
          ValueError: stages overlap on a pipe, or a time is negative or not finite: the timeline is wrong.
        """
        for name, times in (("start_s", events.start_s), ("end_s", events.end_s)):
            if not np.all(np.isfinite(times) & (times >= 0)):
                raise ValueError(f"core {events.core} has {name} that is negative or not finite: the timeline is wrong")
        start, end = (np.rint(times * NS_PER_S).astype(np.int64) for times in (events.start_s, events.end_s))
        pipe_of_event = self._pipe_of_stage[events.stage]
        for pipe, name in enumerate(self._names):
            mine = np.flatnonzero(pipe_of_event == pipe)
            if mine.size:
                before = np.concatenate([self._ends[pipe : pipe + 1], end[mine][:-1]])
                self._check(events, name, start[mine] - before, end[mine] - start[mine])
                start[mine] = np.maximum(start[mine], before)
                end[mine] = np.maximum(end[mine], start[mine])
                self._ends[pipe] = end[mine][-1]
        return start, end

    @staticmethod
    def _check(events: Events, name: tuple[str, str], gaps: np.ndarray, lengths: np.ndarray) -> None:
        worst = min(gaps.min(), lengths.min())
        if worst < -1:
            raise ValueError(f"stages on {name[1]} of core {events.core} overlap by {-worst} ns: the timeline is wrong")

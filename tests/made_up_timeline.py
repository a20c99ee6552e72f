"""A timeline made by hand: random durations, one tile after the other, every wait as a plain loop. No engine."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ascend_jax.timeline.events import Events, FlowInfo, StageInfo

LOAD_Q = StageInfo("load_q", "MTE2", "cube", per_row=True)
FINALISE = StageInfo("finalise", "Vector", "vector", per_row=True)
TILE_STAGES = (
    StageInfo("load_k", "MTE2", "cube"),
    StageInfo("mm_qk", "Cube", "cube"),
    StageInfo("fix_s", "FixPipe", "cube"),
    StageInfo("load_s", "Vector MTE2", "vector"),
    StageInfo("softmax", "Vector", "vector"),
    StageInfo("store_p", "MTE3", "vector"),
    StageInfo("load_p", "MTE2", "cube"),
    StageInfo("mm_pv", "Cube", "cube"),
)
TILE_NAMES = {stage.name for stage in TILE_STAGES}
FLOWS = (
    FlowInfo("load_k", "mm_qk", "K", handoff=False),
    FlowInfo("mm_qk", "fix_s", "S in L0C", handoff=False, chunked=True),
    FlowInfo("fix_s", "load_s", "S workspace", handoff=True),
    FlowInfo("load_s", "softmax", "S in UB", handoff=False, chunked=True),
    FlowInfo("softmax", "store_p", "P in UB", handoff=False),
    FlowInfo("store_p", "load_p", "P workspace", handoff=True),
    FlowInfo("load_p", "mm_pv", "P", handoff=False),
    FlowInfo("load_q", "mm_qk", "Q", handoff=True),
    FlowInfo("mm_pv", "finalise", "O", handoff=True),
    FlowInfo("mm_pv", "mm_qk", None, handoff=True, lag=1),
)
MEMORY = {
    "K": "L1",
    "S workspace": "GM",
    "S in UB": "UB",
    "P in UB": "UB",
    "P workspace": "GM",
    "P": "L1",
    "Q": "L1",
    "O": "UB",
    "max, sum": "UB",
    "left": "L0A",
    "right": "L0B",
    "result": "L0C",
}
SLOTS = dict.fromkeys(MEMORY, 2) | {"max, sum": 1, "S in UB": 3}


class Event(NamedTuple):
    """One row of ``Events``."""

    core: int
    stage: int
    task: int
    tile: int
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class MadeUpTimeline:
    """Keeps the promises of ``Simulated``; every random number follows from ``seed`` and the core.

    With ``hides_zero`` there is no event of what takes no time.
    """

    seed: int = 0
    cores: int = 2
    tasks: int = 3
    most_tiles: int = 6
    vector_cores_per_cube: int = 2
    chunk: int = 7
    hides_zero: bool = False
    stages: tuple[StageInfo, ...] = (LOAD_Q, *TILE_STAGES, FINALISE)
    flows: tuple[FlowInfo, ...] = FLOWS

    @property
    def slot_bytes(self) -> dict[str, float]:
        return {name: 1000.0 * (place + 1) for place, name in enumerate(MEMORY)}

    @property
    def memory(self) -> dict[str, str]:
        return MEMORY

    @property
    def slots(self) -> dict[str, int]:
        return SLOTS

    def events(self, core: int) -> list[Event]:
        """Every event of ``core``, in order of start."""
        draw = random.Random(f"{self.seed} {core}")
        free_s: dict[tuple[str, str], float] = defaultdict(float)  # of a pipe
        ends: dict[str, list[float]] = defaultdict(list)  # of a stage's tiles, of all tasks
        found = []

        def run(stage: StageInfo, task: int, tile: int, ready_s: float) -> float:
            start_s = max(free_s[stage.core, stage.pipe], ready_s)
            end_s = start_s + draw.choice([0.0, 1e-9 * draw.random(), 1e-6 * draw.random(), 3e-6])
            free_s[stage.core, stage.pipe] = end_s
            found.append(Event(core, self.stages.index(stage), task, tile, start_s, end_s))
            return end_s

        for task in range(self.tasks):
            loaded_s = run(LOAD_Q, task, -1, 0.0)
            for tile in range(draw.randint(1, self.most_tiles)):
                for stage in TILE_STAGES:
                    of_tiles = [flow for flow in self.flows if {flow.producer, flow.consumer} <= TILE_NAMES and not flow.lag]
                    inputs = [ends[flow.producer][-1] for flow in of_tiles if flow.consumer == stage.name]
                    outputs = [flow for flow in of_tiles if flow.producer == stage.name]
                    frees = [ends[flow.consumer][-SLOTS.get(str(flow.buffer), 2) :] for flow in outputs]
                    slots = [SLOTS.get(str(flow.buffer), 2) for flow in outputs]
                    waits = [done[0] for done, count in zip(frees, slots, strict=True) if len(done) == count]
                    ends[stage.name].append(run(stage, task, tile, max([loaded_s, *inputs, *waits])))
            run(FINALISE, task, -1, ends["mm_pv"][-1])
        shown = [event for event in found if event.end_s > event.start_s or not self.hides_zero]
        return sorted(shown, key=lambda event: event.start_s)  # a stable sort: events of a pipe stay in order

    def chunks(self, cores: Sequence[int]) -> Iterator[Events]:
        """``chunk`` events at a time."""
        for core in cores:
            events = self.events(core)
            for first in range(0, len(events), self.chunk):
                yield as_chunk(core, self.stages, events[first : first + self.chunk])

    def shown_on(self, stage: StageInfo, core: int) -> list[str]:
        """The processes that have to show a stage of a core whose vector cores stand apart."""
        if stage.core == "cube":
            return [f"core{core}.cubecore0"]
        return [f"core{core}.veccore{index}" for index in range(self.vector_cores_per_cube)]


def as_chunk(core: int, stages: tuple[StageInfo, ...], events: Sequence[Event]) -> Events:
    """Rows as columns."""
    columns = {name: np.array([getattr(row, name) for row in events], dtype=np.int64) for name in ("stage", "task", "tile")}
    start_s, end_s = (np.array([getattr(event, name) for event in events], dtype=np.float64) for name in ("start_s", "end_s"))
    return Events(core=core, stages=stages, **columns, start_s=start_s, end_s=end_s, done_s=end_s)

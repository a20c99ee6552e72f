"""When slots are taken and free again: from the start of the stage that fills one to the end of the stage that empties it."""

from typing import NamedTuple, Protocol

import numpy as np

from ascend_jax.timeline.events import Events, FlowInfo, Simulated, StageInfo
from ascend_jax.timeline.handoffs import TILES

FED_BY_CUBE = ("L0A", "L0B")
"""Memories that the Cube's own stages fill: in use while one runs."""
NEVER = np.iinfo(np.int64).max
Changes = tuple[np.ndarray, np.ndarray]
"""Nanoseconds, and by how much the number of slots in use changes then."""


class Use(Protocol):
    """Something that takes slots on one core."""

    def changes(self, events: Events, start: np.ndarray, end: np.ndarray) -> Changes:
        """The changes that the next chunk makes certain, in any order."""
        ...

    @property
    def decided(self) -> int:
        """The nanosecond before which no later chunk, nor :meth:`rest`, changes anything beside what it starts."""
        ...

    def rest(self) -> Changes:
        """What remains after the last chunk."""
        ...


class PipeUse:
    """One slot while any stage of a pipe runs."""

    decided = NEVER

    def __init__(self, stages: tuple[StageInfo, ...], pipe: str) -> None:
        self._stages = [index for index, stage in enumerate(stages) if stage.pipe == pipe]

    def changes(self, events: Events, start: np.ndarray, end: np.ndarray) -> Changes:
        mine = np.isin(events.stage, self._stages)
        ones = np.ones(int(mine.sum()), dtype=np.int64)
        return np.concatenate([start[mine], end[mine]]), np.concatenate([ones, -ones])

    def rest(self) -> Changes:
        return _nothing()


class FlowUse:
    """The slots of a flow: one for each tile, or for each task where one end of it is a stage of tasks.

    What is empty when its stage ends (a stage that takes no time has no event) is freed with the next one.
    """

    def __init__(self, stages: tuple[StageInfo, ...], flow: FlowInfo) -> None:
        names = [stage.name for stage in stages]
        self._producer, self._consumer = names.index(flow.producer), names.index(flow.consumer)
        from_row, to_row = stages[self._producer].per_row, stages[self._consumer].per_row
        self._by_tile = from_row == to_row
        self._until_last = from_row and not to_row
        self._open = np.empty(0, dtype=np.int64)  # keys of the slots in use
        self._newest = -1
        self._last = (-1, NEVER)  # key and end of the latest consumer, where a later one may hold the slot still

    @property
    def decided(self) -> int:
        return self._last[1]

    def changes(self, events: Events, start: np.ndarray, end: np.ndarray) -> Changes:
        key = events.task * TILES + events.tile + 1 if self._by_tile else events.task
        made, taken = (events.stage == index for index in (self._producer, self._consumer))
        keys, first = np.unique(key[made], return_index=True)
        new = keys > self._newest
        opened = start[made][first][new]
        self._open = np.concatenate([self._open, keys[new]])
        self._newest = int(self._open[-1]) if self._open.size else self._newest
        freed, steps = self._freed(key[taken], end[taken])
        return np.concatenate([opened, freed]), np.concatenate([np.ones_like(opened), steps])

    def rest(self) -> Changes:
        key, end = self._last
        return self._freed(np.array([NEVER]), np.array([end])) if key >= 0 else _nothing()

    def _freed(self, keys: np.ndarray, ends: np.ndarray) -> Changes:
        """What consumers with these ``keys`` (in order) free when they end."""
        if self._until_last and keys.size:
            last_key, last_end = self._last
            keys, ends = (np.append(old, new) for old, new in ((last_key, keys), (last_end, ends)))
            final = keys[1:] > keys[:-1]  # the last of its task
            self._last = (int(keys[-1]), int(ends[-1]))
            keys, ends = keys[:-1][final], ends[:-1][final]
        upto = np.searchsorted(self._open, keys, side="right")
        self._open = self._open[upto[-1] if upto.size else 0 :]
        counts = np.diff(upto, prepend=0)
        return ends[counts > 0], -counts[counts > 0]


def _nothing() -> Changes:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


class Held(NamedTuple):
    """What takes bytes while slots are in use: ``min(slots · each, most)``."""

    memory: str
    each: float
    most: float
    uses: tuple[Use, ...]


def what_is_held(timeline: Simulated) -> tuple[list[Held], dict[str, float]]:
    """What takes bytes while stages of one core run, and the bytes per memory that are taken throughout.

    A tile that passes in pieces takes all slots of its buffer. Flows without a buffer of their own (``S in L0C``, ``O in L0C``)
    share the one of their memory. Buffers that no flow passes through are taken throughout, but for L0A and L0B.
    """
    stages = timeline.stages
    held, resident = [], dict[str, float]()
    for name, slot_bytes in timeline.slot_bytes.items():
        memory, total = timeline.memory[name], timeline.slots[name] * slot_bytes
        mine = [flow for flow in timeline.flows if flow.buffer == name]
        sharing = [
            flow
            for flow in timeline.flows
            if flow.buffer not in timeline.slot_bytes and f"{flow.buffer}".endswith(f" in {memory}")
        ]
        each = slot_bytes if mine and not any(flow.chunked for flow in mine) else total
        if uses := [FlowUse(stages, flow) for flow in mine or sharing]:
            held.append(Held(memory, each, total, tuple(uses)))
        elif memory in FED_BY_CUBE:
            held.append(Held(memory, total, total, (PipeUse(stages, "Cube"),)))
        else:
            resident[memory] = resident.get(memory, 0.0) + total
    return held, resident

"""How many bytes of each memory are in use, over time: what is in the slots that the stages hand on."""

import json
from typing import Literal, NamedTuple, TextIO

import numpy as np

from ascend_jax.timeline.events import Events, Simulated
from ascend_jax.timeline.lanes import NanosecondSlices
from ascend_jax.timeline.trace import microseconds

Format = Literal["csv", "json"]
MEMORIES = ("UB", "L1", "L0A", "L0B", "L0C", "GM")
FED_BY_CUBE = ("L0A", "L0B")
"""Memories that the Cube's own stages fill: in use while one runs."""


class _Held(NamedTuple):
    """Something that takes bytes while any of it is under way: ``amount(n) = min(n · each, most)`` for n tiles under way."""

    memory: str
    each: float
    most: float
    opens: tuple[int, ...]
    """Stages whose start takes a slot."""
    closes: tuple[int, ...]
    """Stages whose end frees one."""


class OccupancySeries:
    """Writes a row whenever the use of a memory changes, chunk after chunk; :meth:`close` ends the file.

    A slot is in use from the start of the stage that fills it to the end of the stage that empties it. A tile that passes in
    pieces takes all slots of its buffer meanwhile; L0A and L0B are in use while the Cube works. Buffers that no flow passes
    through (O, the rows' maxima and sums) are in use throughout. Bytes are those of one core: of one vector core for UB, of
    one cube core for L1 and L0; GM counts the workspace of the pair.
    """

    def __init__(self, file: TextIO, timeline: Simulated, kind: Format) -> None:
        self._file, self._timeline, self._kind = file, timeline, kind
        self._held, resident = _what_is_held(timeline)
        self.memories = tuple(name for name in MEMORIES if name in set(timeline.memory.values()))
        self._resident = np.array([resident.get(name, 0.0) for name in self.memories])
        self.peak_bytes = dict(zip(self.memories, self._resident.tolist(), strict=True))
        self._core: int | None = None
        self._rows = 0
        columns = ["core", "time_us", *(f"{name}_bytes" for name in self.memories)]
        file.write(",".join(columns) + "\n" if kind == "csv" else f'{{"columns":{json.dumps(columns)},"rows":[')

    def add(self, events: Events) -> None:
        """Write what the next chunk decides: all changes before its last start."""
        if events.core != self._core:
            self._end_core()
            self._core = events.core
            self._rounded = NanosecondSlices(events.stages)
            self._under_way = np.zeros(len(self._held), dtype=np.int64)
            self._pending = np.empty((3, 0), dtype=np.int64)  # nanoseconds, what is held, +1 or -1
            self._last = np.full((1, len(self.memories)), -1)  # no row is like that
        if not events.stage.size:
            return
        start, end = self._rounded.of(events)
        changes = [self._pending]
        for index, held in enumerate(self._held):
            for stages, times, step in ((held.opens, start, 1), (held.closes, end, -1)):
                mine = times[np.isin(events.stage, stages)]
                changes.append(np.stack([mine, np.full_like(mine, index), np.full_like(mine, step)]))
        pending = np.concatenate(changes, axis=1)
        decided = pending[0] < start.max()  # whatever comes later starts no earlier
        self._pending = pending[:, ~decided]
        self._write(pending[:, decided])

    def close(self) -> int:
        """Write the rest and end the file (it stays open); the number of rows."""
        self._end_core()
        if self._kind == "json":
            self._file.write("\n]}\n")
        return self._rows

    def _end_core(self) -> None:
        if self._core is not None:
            self._write(self._pending)

    def _write(self, changes: np.ndarray) -> None:
        """One row for each time at which something changes: the use from then on."""
        if not changes.shape[1]:
            return
        times, row = np.unique(changes[0], return_inverse=True)
        steps = np.zeros((len(times), len(self._held)), dtype=np.int64)
        np.add.at(steps, (row, changes[1]), changes[2])
        under_way = self._under_way + np.cumsum(steps, axis=0)
        self._under_way = under_way[-1]
        used = np.tile(self._resident, (len(times), 1))
        for index, held in enumerate(self._held):
            used[:, self.memories.index(held.memory)] += np.minimum(under_way[:, index] * held.each, held.most)
        for name, peak in zip(self.memories, used.max(axis=0).tolist(), strict=True):
            self.peak_bytes[name] = max(self.peak_bytes[name], peak)
        self._write_rows(times, used)

    def _write_rows(self, times: np.ndarray, used: np.ndarray) -> None:
        """Write the rows that differ from those before them."""
        whole = np.rint(used).astype(np.int64)
        changed = np.any(whole != np.concatenate([self._last, whole[:-1]]), axis=1)
        self._last = whole[-1:]
        head, tail, separator = ("", "\n", "") if self._kind == "csv" else ("\n[", "]", ",")
        row = f"{head}{self._core},%r,{','.join(['%d'] * len(self.memories))}{tail}"
        columns = (microseconds(times[changed]).tolist(), *whole[changed].T.tolist())
        lines = [row % line for line in zip(*columns, strict=True)]
        if lines:
            self._file.write((separator if self._rows else "") + separator.join(lines))
        self._rows += len(lines)


def _what_is_held(timeline: Simulated) -> tuple[list[_Held], dict[str, float]]:
    """What takes bytes while stages run, and the bytes per memory that are taken throughout."""
    total = {name: timeline.slots[name] * size for name, size in timeline.slot_bytes.items()}
    place = {stage.name: index for index, stage in enumerate(timeline.stages)}
    held, alone = [], dict(total)
    for flow in timeline.flows:
        if flow.buffer in total:
            alone.pop(flow.buffer, None)
            each = total[flow.buffer] if flow.chunked else timeline.slot_bytes[flow.buffer]
            ends = (place[flow.producer],), (place[flow.consumer],)
            held.append(_Held(timeline.memory[flow.buffer], each, total[flow.buffer], *ends))
    cube = tuple(index for index, stage in enumerate(timeline.stages) if stage.pipe == "Cube")
    resident: dict[str, float] = {}
    for name, size in alone.items():
        memory = timeline.memory[name]
        sharing = [flow for flow in timeline.flows if flow.buffer not in total and f"{flow.buffer}".endswith(f" in {memory}")]
        if memory in FED_BY_CUBE and cube:
            held.append(_Held(memory, size, size, cube, cube))
        elif sharing:  # "S in L0C" and "O in L0C" pass through the one buffer of L0C
            opens, closes = (tuple(place[getattr(flow, end)] for flow in sharing) for end in ("producer", "consumer"))
            held.append(_Held(memory, size, size, opens, closes))
        else:
            resident[memory] = resident.get(memory, 0.0) + size
    return held, resident

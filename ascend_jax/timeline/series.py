"""How many bytes of each memory are in use, over time: what is in the slots that the stages hand on."""

import json
from typing import Literal, TextIO

import numpy as np

from ascend_jax.timeline.events import Events, Simulated
from ascend_jax.timeline.lanes import NanosecondSlices
from ascend_jax.timeline.slots import Changes, what_is_held
from ascend_jax.timeline.trace import microseconds

Format = Literal["csv", "json"]
MEMORIES = ("UB", "L1", "L0A", "L0B", "L0C", "GM")


class OccupancySeries:
    """Writes a row whenever the use of a memory changes, chunk after chunk; :meth:`close` ends the file.

    A slot is in use from the start of the stage that fills it to the end of the stage that empties it. A tile that passes in
    pieces takes all slots of its buffer meanwhile; L0A and L0B are in use while the Cube works. Buffers that no flow passes
    through (O, the rows' maxima and sums) are in use throughout. Bytes are those of one core: of one vector core for UB, of
    one cube core for L1 and L0; GM counts the workspace of the pair.
    """

    def __init__(self, file: TextIO, timeline: Simulated, kind: Format) -> None:
        self._file, self._timeline, self._kind = file, timeline, kind
        self._held, resident = what_is_held(timeline)
        self.memories = tuple(name for name in MEMORIES if name in set(timeline.memory.values()))
        self._resident = np.array([resident.get(name, 0.0) for name in self.memories])
        self.peak_bytes = dict(zip(self.memories, self._resident.tolist(), strict=True))
        self._core: int | None = None
        self._rows = 0
        columns = ["core", "time_us", *(f"{name}_bytes" for name in self.memories)]
        file.write(",".join(columns) + "\n" if kind == "csv" else f'{{"columns":{json.dumps(columns)},"rows":[')

    def add(self, events: Events) -> None:
        """Write what the next chunk decides."""
        if events.core != self._core:
            self._begin(events.core)
        if not events.stage.size:
            return
        start, end = self._rounded.of(events)
        self._collect([[use.changes(events, start, end) for use in held.uses] for held in self._held])
        decided = min([int(start.max()), *(use.decided for held in self._held for use in held.uses)])
        early = self._pending[0] < decided
        self._write(self._pending[:, early])
        self._pending = self._pending[:, ~early]

    def close(self) -> int:
        """Write the rest and end the file (it stays open); the number of rows."""
        self._end_core()
        if self._kind == "json":
            self._file.write("\n]}\n")
        return self._rows

    def _begin(self, core: int) -> None:
        self._end_core()
        self._core = core
        self._held, _ = what_is_held(self._timeline)
        self._rounded = NanosecondSlices(self._timeline.stages)
        self._under_way = np.zeros(len(self._held), dtype=np.int64)
        self._pending = np.empty((3, 0), dtype=np.int64)  # nanoseconds, what is held, by how much it changes
        self._last = np.full((1, len(self.memories)), -1)  # no row is like that

    def _end_core(self) -> None:
        if self._core is not None:
            self._collect([[use.rest() for use in held.uses] for held in self._held])
            self._write(self._pending)

    def _collect(self, changes: list[list[Changes]]) -> None:
        found = [
            np.stack([times, np.full_like(times, index), steps]) for index, mine in enumerate(changes) for times, steps in mine
        ]
        self._pending = np.concatenate([self._pending, *found], axis=1)

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

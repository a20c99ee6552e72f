"""How busy each pipe of each core is, with the columns of ``PipeUtilization.csv`` (``msprof op``)."""

import csv
from collections import defaultdict
from typing import NamedTuple, TextIO

import numpy as np

from ascend_jax.timeline.events import Events, Simulated
from ascend_jax.timeline.lanes import is_split

NOT_AVAILABLE = "N/A"
CUBE_PIPES = {"Cube": "cube", "Scalar": "scalar", "FixPipe": "fixpipe", "MTE1": "mte1", "MTE2": "mte2", "MTE3": "mte3"}
VECTOR_PIPES = {"Vector": "vec", "Scalar": "scalar", "Vector MTE2": "mte2", "MTE2": "mte2", "MTE3": "mte3"}
"""Word of a pipe in the columns of a cube core (``aic``) and of a vector core (``aiv``)."""


def _columns() -> list[str]:
    columns = ["block_id", "sub_block_id"]
    for core, pipes in (("aic", CUBE_PIPES), ("aiv", VECTOR_PIPES)):
        columns += [f"{core}_time(us)", f"{core}_total_cycles"]
        for word in dict.fromkeys(pipes.values()):
            columns += [f"{core}_{word}_time(us)", f"{core}_{word}_ratio"]
    return columns


COLUMNS = _columns()


class Clocks(NamedTuple):
    """Hertz of the cube cores and of the vector cores."""

    cube_hz: float
    vector_hz: float


class PipeTotals:
    """Sums up the seconds of every pipe, chunk by chunk; :meth:`write` is one row a cube core and a vector core.

    A core's time is from the kernel's start to the end of its last stage. What the timeline has no stage for (MTE1, whose
    loads are part of the Cube's stages) is ``N/A``. Vector cores of one pair work alike, so their rows are equal. On an AI
    core with a Vector unit of its own (910A, 310P) one row has both halves.
    """

    def __init__(self, timeline: Simulated, clocks: Clocks) -> None:
        self._timeline, self._clocks = timeline, clocks
        self.busy_s: dict[tuple[int, str, str], float] = defaultdict(float)
        """By cube core, kind of core (``cube`` or ``vector``) and pipe."""
        self.core_s: dict[tuple[int, str], float] = defaultdict(float)

    def add(self, events: Events) -> None:
        """Count the next chunk."""
        busy = np.bincount(events.stage, events.end_s - events.start_s, minlength=len(events.stages))
        for index, stage in enumerate(events.stages):
            mine = events.end_s[events.stage == index]
            self.busy_s[events.core, stage.core, stage.pipe] += float(busy[index])
            last = max(self.core_s[events.core, stage.core], float(mine.max(initial=0.0)))
            self.core_s[events.core, stage.core] = last

    def write(self, file: TextIO) -> int:
        """Write the table; the number of its rows."""
        rows = [row for core in dict.fromkeys(core for core, _ in self.core_s) for row in self._rows(core)]
        writer = csv.DictWriter(file, COLUMNS, restval=NOT_AVAILABLE, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return len(rows)

    def _rows(self, core: int) -> list[dict[str, str]]:
        cube = self._half(core, "cube", "aic", CUBE_PIPES, self._clocks.cube_hz)
        vector = self._half(core, "vector", "aiv", VECTOR_PIPES, self._clocks.vector_hz)
        if not is_split(self._timeline):
            return [{"block_id": str(core), "sub_block_id": "core0"} | cube | vector]
        vectors = [(f"vector{index}", vector) for index in range(self._timeline.vector_cores_per_cube)]
        return [{"block_id": str(core), "sub_block_id": name} | half for name, half in [("cube0", cube), *vectors]]

    def _half(self, core: int, kind: str, prefix: str, pipes: dict[str, str], clock_hz: float) -> dict[str, str]:
        """The columns of one kind of core; none where it has no stages."""
        if not any(stage.core == kind for stage in self._timeline.stages):
            return {}
        whole_s = self.core_s[core, kind]
        cells = {f"{prefix}_time(us)": f"{whole_s * 1e6:.6f}", f"{prefix}_total_cycles": str(round(whole_s * clock_hz))}
        for pipe in dict.fromkeys(stage.pipe for stage in self._timeline.stages if stage.core == kind):
            busy_s = self.busy_s[core, kind, pipe]
            cells[f"{prefix}_{pipes[pipe]}_time(us)"] = f"{busy_s * 1e6:.6f}"
            cells[f"{prefix}_{pipes[pipe]}_ratio"] = f"{busy_s / whole_s if whole_s else 0.0:.6f}"
        return cells

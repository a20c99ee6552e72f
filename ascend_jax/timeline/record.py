"""``Recorder``: starts of the recurrence as events in order of time."""

from collections.abc import Iterator

import numpy as np

from ascend_jax.kernels.kernel import Graph, Stage
from ascend_jax.timeline.events import Events, StageInfo
from ascend_jax.timeline.jump import Columns
from ascend_jax.timeline.program import Node, Program
from ascend_jax.timeline.recurrence import BLOCK, Passed
from ascend_jax.timeline.schedule import DISPATCH
from ascend_jax.timeline.weights import Durations

VECTOR_PIPES = ("Vector", "Vector MTE2", "MTE3")


def stage_infos(graph: Graph) -> tuple[StageInfo, ...]:
    """The stages of ``graph``, and before them the scalar work that begins a task."""
    return tuple(
        StageInfo(stage.name, stage.pipe, "vector" if stage.pipe in VECTOR_PIPES else "cube", stage.per_row)
        for stage in (Stage(DISPATCH, "Scalar"), *graph.stages)
    )


def shown(graph: Graph) -> str:
    """The scalar work that is shown: of the queue that opens the tasks. The others wait at other times, for the same."""
    first = next((stage for stage in graph.row_stages if stage.opens), graph.stages[0])
    return f"{DISPATCH} {graph.queue(first)}"


class Recorder:
    """Turns the passes of one core into events, and holds back those that later ones may precede."""

    def __init__(self, core: int, graph: Graph, program: Program, given: Durations) -> None:
        self.core, self.program, self.stages = core, program, stage_infos(graph)
        self.index = {stage.name: place for place, stage in enumerate(self.stages)}
        self.shown = [place for place, node in enumerate(program.nodes) if node.when != "begin" or node.stage == shown(graph)]
        zero = np.zeros_like(given.share_s)
        self.seconds = np.stack([given.seconds.get(stage.name, zero + given.task_s) for stage in self.stages])
        self.latency = np.stack([given.latency_s.get(stage.name, zero) for stage in self.stages])
        self.base = 0.0
        self.past = {name: np.zeros(program.drain, int) for name in ("codes", "sequences", "task", "tile")}
        self.task, self.tile = -1, 0
        self.held: tuple[np.ndarray, ...] = tuple(np.zeros(0, kind) for kind in (int, int, float, int, int))

    def add(self, columns: Columns, passed: Passed) -> Iterator[Events]:
        """The events that are sure to come before all later ones."""
        assert passed.starts is not None
        bases = self.base + np.concatenate([[0.0], np.cumsum(np.asarray(passed.bases, np.float64)[:, 0])])
        self.base = float(bases[-1])
        starts = np.asarray(passed.starts, np.float64)[:, :, 0] + np.repeat(bases[:-1], BLOCK)[:, None]
        steps = self._with_past(columns)
        nodes = self.program.nodes
        found = [self._of_node(nodes[place], starts[:, place], steps) for place in self.shown]
        begun = [events[2] for events, place in zip(found, self.shown, strict=True) if nodes[place].when == "tile"]
        surely = min((float(start[-1]) if start.size else -np.inf) for start in begun)
        self.past = {name: column[len(column) - self.program.drain :] for name, column in steps.items()}
        joined = [np.concatenate(parts) for parts in zip(self.held, *found, strict=True)]
        order = np.argsort(joined[2], kind="stable")
        count = int(np.searchsorted(joined[2][order], surely))
        self.held = tuple(column[order[count:]] for column in joined)
        yield from self._events(*(column[order[:count]] for column in joined))

    def close(self) -> Iterator[Events]:
        """What was held back."""
        yield from self._events(*self.held)

    def _with_past(self, columns: Columns) -> dict[str, np.ndarray]:
        """Per step, those that are still under way first: code, sequence, task, and the first tile of its group."""
        codes = columns["codes"].astype(int)
        first, tiles = (codes & 8) > 0, codes & 7
        task = self.task + np.cumsum(first)
        before = self.tile + np.concatenate([[0], np.cumsum(tiles)[:-1]])  # tiles since the chunk's first task began
        begin = np.maximum.accumulate(np.where(first, before, 0))
        self.task, self.tile = int(task[-1]), int(before[-1] + tiles[-1] - begin[-1])
        now = {"codes": codes, "sequences": columns["sequences"].astype(int), "task": task, "tile": before - begin}
        return {name: np.concatenate([self.past[name], column]) for name, column in now.items()}

    def _of_node(self, node: Node, starts: np.ndarray, steps: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Stage, class, start, task and tile of every event of ``node``."""
        begin = self.program.drain - node.behind
        codes, sequences, task, tile = (column[begin : begin + len(starts)] for column in steps.values())
        tiles, masked = codes & 7, codes >> 5
        runs = {"tile": tiles > node.place, "close": (codes & 16) > 0}.get(node.when, (codes & 8) > 0)
        kind = 2 * sequences + (tiles - masked <= node.place)
        tile = tile + node.place if node.when == "tile" else np.full_like(tile, -1)
        stage = np.full(int(runs.sum()), self.index[DISPATCH if node.when == "begin" else node.stage])
        return stage, kind[runs], starts[runs], task[runs], tile[runs]

    def _events(self, stage: np.ndarray, kind: np.ndarray, start_s: np.ndarray, *where: np.ndarray) -> Iterator[Events]:
        """Those of them that take any time."""
        seconds = self.seconds[stage, kind]
        takes = seconds > 0
        if takes.any():
            stage, kind, start_s, end_s = stage[takes], kind[takes], start_s[takes], (start_s + seconds)[takes]
            yield Events(
                core=self.core,
                stages=self.stages,
                stage=stage,
                task=where[0][takes],
                tile=where[1][takes],
                start_s=start_s,
                end_s=end_s,
                done_s=end_s + self.latency[stage, kind],
            )

"""Made-up numbers on real kernels: the same case for the recurrence and for the slow simulator of queues."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from queue_oracle import Run as QueueRun

from ascend_jax.kernels import KERNELS
from ascend_jax.kernels.cube_vector import CubeVector
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.timeline.jump import every_step
from ascend_jax.timeline.passes import passes
from ascend_jax.timeline.program import Depths, Program
from ascend_jax.timeline.recurrence import BLOCK
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import Durations, weigh

GRAPHS = {
    **{name: kernel.graph for name, kernel in (KERNELS | SCHEDULES).items()},
    "groups through GM": CubeVector("groups through GM", issue="grouped", group=3).graph,
    "sums in GM, V with K": CubeVector("sums in GM", accumulate="GM", v_load="with_k", o_slots=2.0).graph,
}
"""Every dataflow and schedule, and two more."""
HANDOFF_S, TASK_S, ROW_SHARE_S = 0.25, 1.7, 1.3


@dataclass(frozen=True)
class Case:
    """A graph with numbers; class 0 of ``seconds`` and ``shares`` is a full tile, class 1 a masked one."""

    graph: Any
    slots: dict[str, int]
    pieces: dict[str, int]
    preload: int
    seconds: dict[str, np.ndarray]
    latency: dict[str, np.ndarray]
    shares: np.ndarray
    tasks: tuple[Run, ...]

    @property
    def program(self) -> Program:
        held = {name: -(-count // self.pieces.get(name, 1)) for name, count in self.slots.items()}
        alone = frozenset(name for name, count in self.pieces.items() if count > 1 and self.slots[name] == 1)
        return program(self.graph, Depths(tuple(sorted(held.items())), self.preload, alone))

    @property
    def durations(self) -> Durations:
        return Durations(
            seconds=self.seconds,
            latency_s=self.latency,
            pieces={name: np.array(float(count)) for name, count in self.pieces.items()},
            piece_slots={name: self.slots[name] for name in self.pieces},
            held={name: -(-self.slots[name] // count) for name, count in self.pieces.items()},
            handoff_s=HANDOFF_S,
            task_s=TASK_S,
            share_s=self.shares,
            row_share_s=np.full(2, ROW_SHARE_S),
        )

    @property
    def queues(self) -> QueueRun:
        """The same for the slow simulator."""
        counts = [run.tiles for run in self.tasks for _ in range(run.times)]
        masked = [
            int(tile >= run.tiles - run.masked) for run in self.tasks for _ in range(run.times) for tile in range(run.tiles)
        ]
        rows = {stage.name for stage in self.graph.stages if stage.per_row}

        def of(times: dict[str, np.ndarray], begin_s: float, name: str, index: int) -> float:
            return begin_s if name not in times else float(times[name][0 if name in rows else masked[index]])

        return QueueRun(
            graph=self.graph,
            seconds=partial(of, self.seconds, TASK_S),
            latency=partial(of, self.latency, 0.0),
            slots=self.slots,
            pieces=self.pieces,
            tasks=counts,
            preload=self.preload,
            handoff_s=HANDOFF_S,
            share_s=lambda tile: float(self.shares[masked[tile]]),
            row_share_s=ROW_SHARE_S,
        )


def draw(name: str, seed: int, tasks: tuple[Run, ...] | None = None) -> Case:
    """Numbers of all sizes on the graph called ``name``: bound by any pipe, slot, flag, or by GM and L2."""
    rng, graph = np.random.default_rng([seed, *map(ord, name)]), GRAPHS[name]
    chunked = sorted({str(flow.buffer) for flow in graph.flows if flow.chunked})
    flags = {stage.name: stage for stage in graph.stages}

    def times(scale: float, stage: str) -> np.ndarray:
        drawn = scale * rng.uniform(0.1, 1.0, 2) * rng.choice([1.0, 1.0, 3.0])
        return np.full(2, drawn[0]) if flags[stage].per_row else drawn

    lengths = [(int(tiles), int(rng.integers(0, tiles + 1))) for tiles in rng.integers(1, 9, 7)]
    return Case(
        graph=graph,
        slots={str(flow.buffer): int(rng.integers(1, 4)) for flow in graph.flows if flow.buffer},
        pieces={buffer: int(rng.integers(1, 5)) for buffer in chunked},
        preload=int(rng.integers(0, 4)),
        seconds={stage: times(3.0, stage) for stage in flags},
        latency={stage: times(1.0, stage) * flags[stage].gm for stage in flags},
        shares=rng.uniform(0, 4, 2),
        tasks=tasks or tuple(Run(tiles, masked, 0, 1) for tiles, masked in lengths),
    )


def full_tiles_only(case: Case) -> Case:
    """``case`` with tiles of one class."""
    return replace(case, seconds={name: np.full(2, both[0]) for name, both in case.seconds.items()})


def starts(case: Case) -> tuple[dict[tuple[str, int], float], float]:
    """Starts by stage and tile of the stream (row stages: task) from the recurrence, and when all is done."""
    step, found, base, codes = case.program, {}, 0.0, np.zeros(0, int)
    weights, finish = weigh(step, case.graph, case.durations), 0.0
    table = []
    for columns, passed in passes(step, weights, [every_step(step, case.tasks)], watch=True):
        moved = np.concatenate([[0.0], np.cumsum(np.asarray(passed.bases)[:, 0])]) + base
        table.append(np.asarray(passed.starts)[:, :, 0] + np.repeat(moved[:-1], BLOCK)[:, None])
        base, codes = moved[-1], np.concatenate([codes, columns[0]["codes"].astype(int)])
        ends = [*passed.state.clocks, passed.state.end]
        finish = float(base + max(float(jnp.max(end)) for end in ends))
    times = np.concatenate(table)
    tile = task = 0
    for at, code in enumerate(codes[: len(codes) - step.drain]):
        task += code >> 3 & 1
        for place, node in enumerate(step.nodes):
            start = times[at + node.behind, place]
            if node.when == "tile" and node.place < code & 7:
                found[node.stage, tile + node.place] = start
            elif (node.when in ("begin", "open") and code & 8) or (node.when == "close" and code & 16):
                found[node.stage, task - 1] = start
        tile += code & 7
    return found, finish

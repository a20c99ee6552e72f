"""What two terms for a tile that is handed over in pieces leave out: every piece simulated, against the timeline.

``python experiments/timeline/pieces.py [--cases N] [--json FILE|-]``
"""

import json
import sys
from collections import defaultdict
from math import lcm
from typing import Any, TextIO

import agreement
import click
import jax
import numpy as np

from ascend_jax import kernel_for, load_chip
from ascend_jax.kernels.kernel import Flow, Graph
from ascend_jax.timeline.numbers import Numbers, depths_of, durations
from ascend_jax.timeline.passes import makespan
from ascend_jax.timeline.program import Stuck
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import Durations, weigh

KERNELS = ("separated", "direct", "coupled", "flash_attention_score")
TILES = 60
"""Tiles of the one task that is simulated, all of one class."""

Spot = tuple[str, int, int]
"""A stage, its tile, and which part of it."""


class Pieces:
    """A task's tiles, part by part: a stage stops wherever a piece of its input or a slot for its output is missing."""

    def __init__(self, graph: Graph, takes: Durations, slots: dict[str, int], preload: int) -> None:
        self.graph, self.slots, self.handoff_s = graph, slots, takes.handoff_s
        self.names = [stage.name for stage in graph.tile_stages]
        self.seconds = {name: float(takes.seconds[name][0]) for name in self.names}
        self.latency = {name: float(takes.latency_s[name][0]) for name in self.names}
        self.pieces = {name: int(count[0]) for name, count in takes.pieces.items()}
        self.parts = {name: lcm(*(self.pieces[str(flow.buffer)] for flow in self._chunked(name))) for name in self.names}
        self.preload = preload if any(stage.late for stage in graph.stages) else 0
        self.share_s = float(takes.share_s[0])
        self.end: dict[Spot, float] = {}
        self.start: dict[Spot, float] = {}

    def _chunked(self, name: str) -> list[Flow]:
        return [flow for flow in self.graph.tile_flows if flow.chunked and name in (flow.producer, flow.consumer)]

    def run(self) -> float:
        """Seconds until the last stage of the last tile has ended."""
        queues = self._issue()
        at, free = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0.0)
        moved = True
        while moved:
            moved = False
            for queue, spots in queues.items():
                while at[queue] < len(spots) and (ready := self._ready(spots[at[queue]])) is not None:
                    spot = spots[at[queue]]
                    self.start[spot] = max(ready, free[queue])
                    self.end[spot] = free[queue] = self.start[spot] + self.seconds[spot[0]] / self.parts[spot[0]]
                    at[queue], moved = at[queue] + 1, True
        if any(at[queue] < len(spots) for queue, spots in queues.items()):
            raise Stuck("the pieces wait for each other")
        return max(self.end.values())

    def _issue(self) -> dict[str, list[Spot]]:
        queues: dict[str, list[Spot]] = defaultdict(list)
        for step in range(TILES + self.preload):
            for stage in self.graph.tile_stages:
                tile = step - self.preload * stage.late
                if 0 <= tile < TILES:
                    queues[self.graph.queue(stage)] += [(stage.name, tile, part) for part in range(self.parts[stage.name])]
        return queues

    def _ready(self, spot: Spot) -> float | None:
        """When a part may start; None if something that it waits for is not known yet."""
        name, tile, part = spot
        times: list[float | None] = [0.0]
        for flow in self.graph.tile_flows:
            if flow.consumer == name:
                times.append(self._input(flow, tile, part))
            if flow.producer == name and flow.buffer is not None:
                times.append(self._slot(flow, tile, part))
        first = next(stage.name for stage in self.graph.tile_stages if stage.gm and not stage.late)
        if name == first and tile > 0 and part == 0:
            times.append(self.start[name, tile - 1, 0] + self.share_s)
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    def _input(self, flow: Flow, tile: int, part: int) -> float | None:
        count = self.pieces[str(flow.buffer)] if flow.chunked else 1
        each, own = self.parts[flow.producer] // count, self.parts[flow.consumer] // count
        if tile < flow.lag or part % own:
            return 0.0
        end = self.end.get((flow.producer, tile - flow.lag, (part // own + 1) * each - 1))
        return None if end is None else end + self.latency[flow.producer] + self.handoff_s * flow.handoff

    def _slot(self, flow: Flow, tile: int, part: int) -> float | None:
        count = self.pieces[str(flow.buffer)] if flow.chunked else 1
        each, own = self.parts[flow.consumer] // count, self.parts[flow.producer] // count
        piece = tile * count + part // own - self.slots[str(flow.buffer)]
        if part % own or piece < 0:
            return 0.0
        end = self.end.get((flow.consumer, piece // count, (piece % count + 1) * each - 1))
        return None if end is None else end + self.handoff_s * flow.handoff


def compare(case: agreement.Case, found: Numbers) -> float | None:
    """Error of the timeline's time for a task's full tiles, against every piece; None where none is in pieces, or it sticks."""
    spec = load_chip(case.chip)
    kernel = kernel_for(spec, case.kernel)
    depths, held = depths_of(kernel, found, case.tiling.preload)
    takes = durations(spec, kernel, found, held)._replace(task_s=0.0)
    if not any(count[0] > 1 for count in takes.pieces.values()):
        return None
    none = {stage.name: np.zeros(2) for stage in kernel.graph.row_stages}
    takes = takes._replace(seconds={**takes.seconds, **none}, latency_s={**takes.latency_s, **none}, row_share_s=np.zeros(2))
    slots = {name: int(count) for name, count in depths.slots} | {name: int(count) for name, count in takes.piece_slots.items()}
    try:
        step = program(kernel.graph, depths)
        exact = Pieces(kernel.graph, takes, slots, depths.preload).run()
    except Stuck:
        return None
    return makespan(step, weigh(step, kernel.graph, takes), [[Run(TILES, 0, 0, 1)]], "full") / exact - 1


@click.command()
@click.option("--cases", default=60, help="Cases of each kernel [60].")
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
def main(cases: int, target: TextIO) -> None:
    """Print quantiles of the signed error by kernel."""
    jax.config.update("jax_enable_x64", True)
    data: dict[str, Any] = {}
    for kernel in KERNELS:
        pairs = agreement.feasible(kernel, "none", cases, np.random.default_rng(5), 5)
        errors = np.array([error for case, found in pairs if (error := compare(case, found)) is not None])
        quantiles = np.quantile(errors, [0.0, 0.05, 0.5, 0.95, 1.0]) if errors.size else []
        data[kernel] = {"n": int(errors.size), "quantiles 0, 5, 50, 95, 100 %": [round(float(q), 4) for q in quantiles]}
        print(kernel, data[kernel], file=sys.stderr, flush=True)
    target.write(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""The loops of the kernels' graphs: against networkx, against all loops, and against a simulator that knows no loops."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from ascend_jax import EXACT, KERNELS
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.loops import Edge, Tokens, edges, loops
from ascend_jax.cost.overlap import PIPELINED, Tile, pace
from ascend_jax.cost.stages import StageCosts
from ascend_jax.cost.traffic import no_traffic
from ascend_jax.kernels.kernel import Graph, Kernel
from ascend_jax.kernels.schedules import SCHEDULES

ALL: dict[str, Kernel] = KERNELS | SCHEDULES
GROUPED = sorted(name for name, kernel in ALL.items() if kernel.graph.group > 1)
NAMES = [*sorted(KERNELS), "cann_separated", "falite_v0", "falite_v8"]
"""Kernels whose stages take turns tile by tile: all dataflows, O that adds up in GM, tiles in series, V that comes with K."""


@cache
def all_loops(name: str) -> list[tuple[Edge, ...]]:
    """Every simple loop of the kernel's waits, parallel waits apart, as networkx finds them."""
    between: dict[tuple[str, str], list[Edge]] = defaultdict(list)
    for edge in edges(ALL[name].graph):
        between[edge.producer, edge.consumer].append(edge)
    return [
        path
        for stages in nx.simple_cycles(nx.DiGraph(list(between)))
        for path in product(*(between[pair] for pair in pairwise([*stages, stages[0]])))
    ]


def tokens_of(path: tuple[Edge, ...], slots: dict[str, int], preload: int) -> int:
    return sum(edge.steps + edge.ahead * preload + (slots[edge.slot] if edge.slot else 0) for edge in path)


def grouped_tokens(tokens: Tokens, slots: dict[str, int], preload: int) -> int:
    return tokens.steps + tokens.ahead * preload + sum(slots[name] for name in tokens.slots)


class Numbers:
    """Random durations of stages, terms that are no longer than them, slots and preload."""

    def __init__(self, graph: Graph, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spread = rng.choice([1, 2, 4])
        self.seconds = {stage.name: float(rng.exponential() ** spread) for stage in graph.tile_stages}
        late = [float(rng.exponential()) * float(rng.choice([0, 1])) for _ in graph.tile_stages]
        self.latency = {stage.name: wait * stage.gm for stage, wait in zip(graph.tile_stages, late, strict=True)}
        self.slots = {flow.buffer: int(rng.integers(1, 4)) for flow in graph.tile_flows if flow.buffer}
        self.preload = int(rng.integers(0, 5))
        self.flag_s = float(rng.choice([0.0, 0.3]))
        self.terms = {("stage", name): duration for name, duration in self.seconds.items()}
        self.terms |= {("done", name): duration + self.latency[name] for name, duration in self.seconds.items()}
        for flow in graph.tile_flows:
            if not flow.buffer:
                continue
            whole = self.seconds[flow.producer] * float(rng.choice([1.0, rng.uniform()]))
            self.terms["lead", flow.buffer] = whole + self.latency[flow.producer]
            self.terms["release", flow.buffer] = self.seconds[flow.consumer] * float(rng.choice([1.0, rng.uniform()]))


@pytest.mark.parametrize("name", NAMES)
def test_kept_loops_are_simple_loops_of_the_graph(name: str) -> None:
    found = set()
    for path in all_loops(name):
        terms = tuple(sorted((edge.term.kind, edge.term.name) for edge in path))
        slots = tuple(sorted(edge.slot for edge in path if edge.slot))
        counts = (sum(edge.steps for edge in path), sum(edge.ahead for edge in path))
        found.add((*counts, slots, terms, sum(edge.flags for edge in path)))
    kept = [
        (tokens.steps, tokens.ahead, tokens.slots, tuple(tuple(term) for term in loop.terms), loop.flags)
        for tokens, members in loops(ALL[name].graph).items()
        for loop in members
    ]
    assert len(kept) == len(set(kept)) > 0
    assert set(kept) <= found


@pytest.mark.parametrize("name", NAMES)
def test_dropped_loops_never_set_the_pace(name: str) -> None:
    """Over all loops with tiles under way, the largest ratio is that of the kept ones or the load of a pipe."""
    graph, turned = ALL[name].graph, 0
    for seed in range(400):
        case = Numbers(graph, seed)
        tokens = [tokens_of(path, case.slots, case.preload) for path in all_loops(name)]
        kept = [(grouped_tokens(t, case.slots, case.preload), loop) for t, members in loops(graph).items() for loop in members]
        assert (min(tokens) < 1) == (min(under_way for under_way, _ in kept) < 1)
        if min(tokens) < 1:
            continue
        turned += 1
        times = [sum(case.terms[edge.term] + edge.flags * case.flag_s for edge in path) for path in all_loops(name)]
        loads: dict[str, float] = defaultdict(float)
        for stage in graph.tile_stages:
            loads[graph.queue(stage)] += case.seconds[stage.name]
        ratios = [(sum(case.terms[t] for t in loop.terms) + loop.flags * case.flag_s) / under_way for under_way, loop in kept]
        everything = max(time / count for time, count in zip(times, tokens, strict=True))
        assert max(*ratios, *loads.values()) == pytest.approx(everything, rel=1e-12), seed
    assert turned > 200


def issue_order(graph: Graph, preload: int, tiles: int) -> dict[str, list[tuple[str, int]]]:
    """What each queue is given: step by step, stage by stage, late stages ``preload`` tiles behind; or group by group."""
    queues: dict[str, list[tuple[str, int]]] = defaultdict(list)
    if graph.group > 1:
        for first in range(0, tiles, graph.group):
            for queue, order in graph.issue_order(graph.group).items():
                queues[queue] += [(name, first + tile) for name, tile in order]
        return queues
    for step in range(tiles + preload):
        for stage in graph.tile_stages:
            tile = step - preload * stage.late
            if 0 <= tile < tiles:
                queues[graph.queue(stage)].append((stage.name, tile))
    return queues


def simulate(graph: Graph, case: Numbers, tiles: int) -> dict[tuple[str, int], float] | None:
    """When each stage of each tile ends; None if the pipes wait for each other for ever. Nothing is handed over in pieces.

    A pipe runs its queue in order. A stage starts when its pipe is free, its inputs have ended, and what last lay in the
    slots that it writes has been consumed; a flag takes its time on the way.
    """
    queues = issue_order(graph, case.preload, tiles)
    waits = {stage.name: list(_waits(graph, case, stage.name)) for stage in graph.tile_stages}
    ends: dict[tuple[str, int], float] = {}
    free, done, moved = dict.fromkeys(queues, 0.0), dict.fromkeys(queues, 0), True
    while moved:
        moved = False
        for pipe, queue in queues.items():
            for name, tile in queue[done[pipe] :]:
                needs = [((other, tile - behind), later) for other, behind, later in waits[name] if tile >= behind]
                if any(need not in ends for need, _ in needs):
                    break
                start = max([free[pipe], *(ends[need] + later for need, later in needs)])
                free[pipe] = ends[name, tile] = start + case.seconds[name]
                done[pipe], moved = done[pipe] + 1, True
    return ends if all(done[pipe] == len(queue) for pipe, queue in queues.items()) else None


def _waits(graph: Graph, case: Numbers, name: str) -> Iterator[tuple[str, int, float]]:
    """What ``name`` waits for: a stage, how many tiles before, and how long after its end: latency of GM, and the flag."""
    for flow in graph.tile_flows:
        flag = case.flag_s if flow.handoff else 0.0
        if flow.consumer == name:
            yield flow.producer, flow.lag, flag + case.latency[flow.producer]
        if flow.producer == name and flow.buffer:
            yield flow.consumer, case.slots[flow.buffer], flag


@cache
def closed_form(name: str) -> Any:
    """A compiled function from stage times, slots, preload and flag to period, fewest tiles under way and largest limit."""
    graph = ALL[name].graph
    in_pieces = [str(flow.buffer) for flow in graph.tile_flows if flow.chunked]

    def period(seconds: dict[str, Any], latency: Any, slots: dict[str, Any], preload: Any, flag_s: Any) -> tuple[Any, ...]:
        zero, one = jnp.zeros_like(flag_s), jnp.ones_like(flag_s)
        nothing = no_traffic(zero)
        busy: dict[str, Any] = defaultdict(lambda: zero)
        for stage in graph.tile_stages:
            busy[graph.queue(stage)] = busy[graph.queue(stage)] + seconds[stage.name]
        costs = StageCosts(
            seconds=seconds | {stage.name: zero for stage in graph.row_stages},
            latency_s=latency | {stage.name: zero for stage in graph.row_stages},
            busy=dict(busy),
            row_busy={},
            cube_s=zero,
            paths={},
            row_paths={},
            traffic=nothing,
            row_traffic=nothing,
            chunks=dict.fromkeys(in_pieces, one),
        )
        spec: Any = SimpleNamespace(handoff_s=flag_s, gm_bytes_per_s=one, l2_bytes_per_s=one)
        steady = PIPELINED.steady(Tile(spec, graph, costs, {buffer: slots[buffer] for buffer in in_pieces}, one, EXACT))
        found = pace(graph, steady, slots, preload)
        return found.period_s, found.fewest, jnp.max(jnp.stack(list(found.limits_s.values())))

    return jax.jit(period)


def predicted(name: str, case: Numbers) -> tuple[float, float]:
    period, fewest, largest = closed_form(name)(*as_arrays((case.seconds, case.latency, case.slots, case.preload, case.flag_s)))
    assert float(period) == pytest.approx(float(largest), rel=1e-12)
    return float(period), float(fewest)


@pytest.mark.parametrize("name", NAMES)
def test_the_period_is_that_of_the_simulated_tiles(name: str) -> None:
    """Between two tiles 2,520 apart, so that a loop with 1 to 10 tiles under way has come full circle."""
    graph, around = ALL[name].graph, 2520
    for seed in range(3):
        case = Numbers(graph, seed)
        case.preload = min(case.preload, 2)
        ends = simulate(graph, case, 1000 + around + 20)
        period, fewest = predicted(name, case)
        assert (ends is None) == (fewest < 1)
        if ends is not None:
            first, last = (max(ends[stage.name, tile] for stage in graph.tile_stages) for tile in (1000, 1000 + around))
            assert (last - first) / around == pytest.approx(period, rel=1e-6), seed


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_without_a_tile_under_way_is_a_deadlock_of_the_simulated_pipes(name: str) -> None:
    graph, stuck = ALL[name].graph, 0
    for seed in range(150):
        case = Numbers(graph, seed)
        ends = simulate(graph, case, 25)
        assert (ends is None) == (predicted(name, case)[1] < 1), seed
        stuck += ends is None
    assert stuck < 150 or name.startswith("falite_v8")  # V comes with K and waits for P·V three tiles later


@pytest.mark.parametrize("name", NAMES)
def test_a_period_is_at_least_each_pipe_and_at_most_all_stages_one_after_the_other(name: str) -> None:
    graph = ALL[name].graph
    flags = 2 * sum(flow.handoff for flow in graph.flows)
    for seed in range(50):
        case = Numbers(graph, seed)
        period, _ = predicted(name, case)
        loads: dict[str, float] = defaultdict(float)
        for stage in graph.tile_stages:
            loads[graph.queue(stage)] += case.seconds[stage.name]
        assert max(loads.values()) <= period * (1 + 1e-12)
        assert period <= (sum(loads.values()) + sum(case.latency.values()) + flags * case.flag_s) * (1 + 1e-12)


@pytest.mark.parametrize("name", GROUPED)
def test_the_period_of_grouped_tiles_is_that_of_the_simulated_queues(name: str) -> None:
    """The slots of the schedule: two of what passes between the stages of a group, one or two of the rest."""
    graph, around = ALL[name].graph, 240
    for seed in range(20):
        case = Numbers(graph, seed)
        case.slots = {buffer: 2 if "L0C" not in buffer else 1 + seed % 2 for buffer in case.slots}
        ends = simulate(graph, case, 300 + around)
        assert ends is not None
        first, last = (max(ends[stage.name, tile] for stage in graph.tile_stages) for tile in (201, 201 + around))
        assert (last - first) / around == pytest.approx(predicted(name, case)[0], rel=1e-9), seed

"""A slow simulator of queues: one list of instructions per queue, run until all are done. It imports no model code.

Pieces of chunked flows can be simulated one by one, or with the two terms that stand for them in the closed form.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, int]
"""A stage and the tile of the stream that it works on; for row stages the task."""


@dataclass
class Run:
    """What is simulated: a graph, numbers, and the tasks of one core.

    ``seconds(stage, tile)`` and ``latency(stage, tile)`` take the index of the tile (row stages: of the task).
    """

    graph: Any
    seconds: Any
    latency: Any
    slots: dict[str, int]
    pieces: dict[str, int]
    tasks: list[int]
    preload: int = 0
    handoff_s: float = 0.0
    task_s: float = 0.0
    share_s: Any = None
    row_share_s: float = 0.0
    start: dict[Key, float] = field(default_factory=dict)
    end: dict[Key, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.firsts = [sum(self.tasks[:task]) for task in range(len(self.tasks))]
        self.lasts = [first + count - 1 for first, count in zip(self.firsts, self.tasks, strict=True)]
        self.task_of = [task for task, count in enumerate(self.tasks) for _ in range(count)]
        self.row = {stage.name: stage.per_row for stage in self.graph.stages}

    @property
    def finish(self) -> float:
        return max(self.end[key] + self.latency(*key) for key in self.end)


def issue(run: Run) -> dict[str, list[Key]]:
    """Every queue's instructions in order."""
    queues: dict[str, list[Key]] = defaultdict(list)
    for name in dict.fromkeys(run.graph.queue(stage) for stage in run.graph.stages):
        mine = [stage for stage in run.graph.stages if run.graph.queue(stage) == name]
        queues[name] = _grouped(run, mine, name) if run.graph.group > 1 else _rolling(run, mine, name)
    return queues


def _rolling(run: Run, mine: list[Any], queue: str) -> list[Key]:
    total, found = len(run.task_of), []
    preload = run.preload if any(stage.late for stage in run.graph.stages) else 0
    for step in range(total + preload):
        behind = step - preload
        if step in run.firsts:
            found.append((f"dispatch {queue}", run.firsts.index(step)))
            found += [(stage.name, run.firsts.index(step)) for stage in mine if stage.per_row and stage.opens]
        for stage in mine:
            tile = behind if stage.late else step
            if not stage.per_row and 0 <= tile < total:
                found.append((stage.name, tile))
        if behind in run.lasts:
            found += [(stage.name, run.lasts.index(behind)) for stage in mine if stage.per_row and not stage.opens]
    return found


def _grouped(run: Run, mine: list[Any], queue: str) -> list[Key]:
    found = []
    for task, (first, last) in enumerate(zip(run.firsts, run.lasts, strict=True)):
        found.append((f"dispatch {queue}", task))
        found += [(stage.name, task) for stage in mine if stage.per_row and stage.opens]
        for start in range(first, last + 1, run.graph.group):
            tiles = range(start, min(start + run.graph.group, last + 1))
            found += [(name, tile) for unit in _units(run, mine) for tile in tiles for name in unit]
        found += [(stage.name, task) for stage in mine if stage.per_row and not stage.opens]
    return found


def _units(run: Run, mine: list[Any]) -> list[list[str]]:
    """Stages that stay together in a group: where pipes share a queue, one of the first pipe and those that follow it."""
    found: list[list[str]] = []
    for stage in mine:
        if stage.per_row:
            continue
        if found and stage.pipe in run.graph.joined and stage.pipe != run.graph.joined[0]:
            found[-1].append(stage.name)
        else:
            found.append([stage.name])
    return found


def simulate(run: Run) -> Run:
    """Fill ``run.start`` and ``run.end``; raises if the queues wait for each other."""
    queues = issue(run)
    at, free = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0.0)
    while any(at[name] < len(keys) for name, keys in queues.items()):
        moved = False
        for name, keys in queues.items():
            while at[name] < len(keys):
                start = ready(run, keys[at[name]])
                if start is None:
                    break
                key = keys[at[name]]
                run.start[key] = max(start, free[name])
                run.end[key] = free[name] = run.start[key] + run.seconds(*key)
                at[name], moved = at[name] + 1, True
        if not moved:
            raise RuntimeError(f"stuck at {[keys[at[name]] for name, keys in queues.items() if at[name] < len(keys)]}")
    return run


def ready(run: Run, key: Key) -> float | None:
    """When ``key`` may start as far as inputs, slots and shares go; None if something that it waits for has not started."""
    name, index = key
    times: list[float | None] = [0.0]
    if name.startswith("dispatch"):
        return 0.0
    for flow in run.graph.flows:
        if flow.consumer == name:
            times.append(_input(run, flow, index))
        if flow.producer == name and flow.buffer is not None:
            times.append(_slot(run, flow, index))
    first_load = next(one.name for one in run.graph.stages if one.gm and not one.late and not one.per_row)
    if name == first_load and index > 0 and run.share_s is not None:
        before = run.start.get((name, index - 1))
        row = run.row_share_s if index in run.firsts else 0.0
        times.append(None if before is None else before + run.share_s(index - 1) + row)
    return _latest(times)


def _latest(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _input(run: Run, flow: Any, index: int) -> float | None:
    """When the input of ``flow`` is there for its consumer's tile (or task) ``index``."""
    source = index - flow.lag
    if run.row[flow.producer] and not run.row[flow.consumer]:
        if index not in run.firsts:
            return 0.0
        source = run.task_of[index]
    elif run.row[flow.consumer] and not run.row[flow.producer]:
        source = run.lasts[index]
    if source < 0:
        return 0.0
    key = flow.producer, source
    if key not in run.start:
        return None
    flag = run.handoff_s if flow.handoff else 0.0
    if flow.chunked:
        count, own = run.pieces[flow.buffer], run.seconds(flow.consumer, index)
        lead = max(run.seconds(*key) / count, run.seconds(*key) - own * (1 - 1 / count))
        return run.start[key] + lead + run.latency(*key) + flag
    return run.end[key] + run.latency(*key) + flag


def _slot(run: Run, flow: Any, index: int) -> float | None:
    """When a slot of ``flow``'s buffer is free for its producer's tile (or task) ``index``."""
    slots, flag = run.slots[flow.buffer], run.handoff_s if flow.handoff else 0.0
    if run.row[flow.producer] or run.row[flow.consumer]:
        return _task_slot(run, flow, index, slots, flag)
    if not flow.chunked:
        if index < slots:
            return 0.0
        end = run.end.get((flow.consumer, index - slots))
        return None if end is None else end + flag
    count = run.pieces[flow.buffer]
    tiles, times = -(-slots // count), [0.0]
    if index >= tiles:
        key = flow.consumer, index - tiles
        if key not in run.start:
            return None
        times.append(run.start[key] + run.seconds(*key) * (tiles * count - slots + 1) / count + flag)
    if slots == 1 and count > 1 and index > 0:  # pieces are produced and consumed in turn
        times.append(
            run.start[flow.producer, index - 1] + run.seconds(flow.producer, index - 1) + run.seconds(flow.consumer, index - 1)
        )
    return max(times)


def _task_slot(run: Run, flow: Any, index: int, slots: int, flag: float) -> float | None:
    if not run.row[flow.producer] and index not in run.firsts:
        return 0.0
    task = (index if run.row[flow.producer] else run.task_of[index]) - slots
    if task < 0:
        return 0.0
    end = run.end.get((flow.consumer, task if run.row[flow.consumer] else run.lasts[task]))
    return None if end is None else end + flag

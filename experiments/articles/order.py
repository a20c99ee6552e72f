"""Order: inside one kernel, between two streams, among 32 streams, and between devices."""

import re
from typing import Any

import numpy as np

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.hccl.init import comm_init_all
from ascend_jax.runtime.hccl.kinds import DataType, ReduceOp
from ascend_jax.runtime.ops.executor import Executor
from ascend_jax.runtime.ops.tensor import Tensor
from experiments.articles.machine import CHIP, Log, Machine, attention_out, difference, random_qkv, softmax_attention
from experiments.articles.page import ARCHITECTURE, CALL_PATH, HANDS_ON, Page, program, refusal

SMALL = (1, 8, 256, 64)
LINE = re.compile(r"\[DEBUG\] (DMA|Cube|Vector) (Submit|Wait): (\w+), (.*) @ ([\d.]+) us, task (\d+)")
PRINTED = ["DMA LOAD", "DMA LOAD", "Cube GEMM", "Cube SCALE", "Cube REDUCE_MAX", "DMA LOAD", "Cube SOFTMAX_ACC", "DMA STORE"]
"""What the hands-on trace submits, in its order."""


@program(f"{HANDS_ON}: the debug log of one call, DMA and Cube in turns; {CALL_PATH}: the loops that submit and wait")
def dma_cube_log(page: Page) -> None:
    """The same log of the simulated kernel, in order, with virtual times, and what its order says."""
    with Log(0) as log, Machine() as machine:
        machine.launch(machine.attention(shape=SMALL))
        machine.seconds()
    found = [match.groups() for line in log.lines if (match := LINE.match(line))]
    page.show("\n".join(line for line in log.lines if LINE.match(line)))
    times = [float(line[4]) for line in found]
    page.point("lines are in order of time", True, times == sorted(times))
    first = [line for line in found if line[5] == "0"]
    submitted = [f"{unit} {verb}" for unit, what, verb, *_ in first if what == "Submit"]
    page.point("what one block of Q submits", PRINTED, submitted, WHY_SUBMITTED)
    units = sorted({unit for unit, _, verb, *_ in found if verb in ("SOFTMAX", "SOFTMAX_ACC", "SCALE")})
    page.point("unit of scale, maximum and sum", ["Cube"], units, "the Cube multiplies matrices only")
    memories = sorted({name.split("_")[0] for line in found for name in re.findall(r"\b(?:ub|l1|l0c|gm)_\w+", line[3])})
    page.point(
        "memories on the way", ["ub"], memories, "Q, K, V and P come to L1, products leave L0C, S, P and O pass through GM"
    )
    lone = [line for line in first if line[1] == "Submit" and not any(_ends(line, other) for other in first)]
    page.point(
        "submissions without a wait",
        ["Q", "Cube", "STORE"],
        lone,
        "every result is waited for, also that of Q and the last store",
    )
    v_there, second = _time(first, "Wait", "l1_v"), _time(first, "Submit", "probs, v")
    page.point(
        "V is waited for before it is used", False, v_there <= second, "in the printed log its wait stands after its use"
    )
    early = _time(first, "Submit", "q, k") < _time(first, "Wait", "l1_k")
    page.point("the product starts before K is there", True, early, "it may: K comes in pieces, and the first one is there")
    ahead = sum(line[1] == "Submit" and line[5] == "1" and float(line[4]) < _time(first, "Wait", "out_base") for line in found)
    page.point("work of the next block before this one's end", 0, ahead, WHY_AHEAD)


WHY_SUBMITTED = (
    "scale, maximum and sum are one pass of the Vector; O is rescaled, and divided by the sum, which the log leaves out"
)
WHY_AHEAD = (
    "the article's loop waits right behind each load, so that nothing overlaps; two slots of each buffer are what makes it"
)
Line = tuple[str, ...]


def _ends(line: Line, other: Line) -> bool:
    """Whether ``other`` is the wait for what ``line`` submits."""
    return other[:3] == (line[0], "Wait", line[2]) and line[3].endswith(other[3])


def _time(lines: list[Line], what: str, operands: str) -> float:
    return next(float(line[4]) for line in lines if line[1] == what and operands in line[3])


@program(f"{ARCHITECTURE}: attention on one stream, a matrix product on another, and an event between them")
def streams_and_events(page: Page) -> None:
    """The article's order of calls: the product is submitted before its stream waits; and the order that was meant."""
    printed, meant = _two_streams(page, wait_first=False), _two_streams(page, wait_first=True)
    page.point("the product waits for the attention", True, _follows(*printed), "it was submitted before the wait was")
    page.point("… when the wait is submitted first", True, _follows(*meant))
    page.point("without a wait both run side by side", True, (printed[1].start_s or 0.0) < (printed[0].end_s or 0.0))
    page.point("a launch returns before the kernel has ended", True, printed[1].submit_s < (printed[0].end_s or 0.0))


def _two_streams(page: Page, *, wait_first: bool) -> tuple[Task, Task]:
    """Attention on four cores, and a product on two that is to wait for it."""
    with Machine() as machine:
        context = machine.current_context()
        one, other = context.create_stream(), context.create_stream()
        event = context.create_event()
        attention = machine.launch(machine.attention(shape=(1, 1, 256, 64)), one)
        if wait_first:
            event.record(one)
            other.wait_event(event)
        product = machine.launch(matmul(machine, (256, 256)), other)
        if not wait_first:
            event.record(one)
            other.wait_event(event)
        machine.seconds()
    for task in (attention, product):
        how = "wait first" if wait_first else "as printed"
        page.show(f"{how}: {task.name} on {task.block_dim} cores, {task.start_s:.7f} to {task.end_s:.7f} s")
    return attention, product


def _follows(first: Task, second: Task) -> bool:
    assert first.end_s is not None and second.start_s is not None
    return second.start_s >= first.end_s


def matmul(machine: Machine, shape: tuple[int, int]) -> tuple[int, Executor]:
    """Phase one of a product of two such matrices, with memory."""
    return machine.operators.get_workspace_size("MatMul", [machine.empty(shape)] * 2, None, [machine.empty(shape)])


@program(f"{ARCHITECTURE}: 32 heads on 32 streams, each stream on an AI core of its own")
def multi_stream(page: Page) -> None:
    """One launch of 32 heads, 32 launches on one stream, and 32 on 32 streams."""
    found = {}
    for rows in (4096, 128):
        with Machine() as machine:
            times = {
                "one launch": head_seconds(machine, 32, rows, launches=1, streams=1),
                "32 launches, 1 stream": head_seconds(machine, 1, rows, launches=32, streams=1),
                "32 launches, 32 streams": head_seconds(machine, 1, rows, launches=32, streams=32),
            }
        found[rows] = {how: round(seconds * 1e6, 1) for how, seconds in times.items()}
        page.show("\n".join(f"{rows:5} rows, {how:24} {us:9.1f} us" for how, us in found[rows].items()))
    why = "a launch is split over the cores by itself, a head of 4096 rows fills all 20; streams are queues and make no cores"
    page.point("µs at 4096 rows", "32 streams are the fastest", found[4096], why)
    why = "a head of 128 rows leaves cores free: streams help, but 32 launches cost 64 µs of the host alone"
    page.point("µs at 128 rows", "32 streams are the fastest", found[128], why)
    with Machine() as machine:
        page.point(
            "streams of a device", "no limit told", machine.device(0).stream_limit, "then create_stream fails with 207008"
        )


def head_seconds(machine: Machine, heads: int, rows: int, *, launches: int, streams: int) -> float:
    """Virtual seconds of so many launches of so many heads, dealt out to so many streams."""
    context = machine.current_context()
    lanes = [context.create_stream() for _ in range(streams)]
    prepared = [machine.attention(shape=(1, heads, rows, 128)) for _ in range(launches)]
    began = machine.seconds()
    for number, one in enumerate(prepared):
        machine.launch(one, lanes[number % streams])
    found = machine.seconds() - began
    for lane in lanes:
        context.destroy_stream(lane)
    return found


@program(f"{ARCHITECTURE}: a context and a stream for each device, other work on each, HCCL between them")
def multi_device(page: Page) -> None:
    """32 heads on four devices, each with its rows of the output matrix; all-reduce adds the parts up."""
    devices, heads, seq, dim = 4, 8, 512, 64
    parts = [random_qkv((1, heads, seq, dim), seed=rank) for rank in range(devices)]
    generator = np.random.default_rng(9)
    weights = [(generator.normal(size=(heads * dim, 64)) / 32).astype(np.float16) for _ in range(devices)]
    with Machine(*[CHIP] * devices, numerics=True) as machine:
        page.point("devices", "aclrtGetDeviceCount", machine.device_count(), "as many as the program asks for")
        contexts = [machine.create_context(device) for device in range(devices)]
        streams = [context.create_stream() for context in contexts]
        comms = comm_init_all(machine, range(devices))
        tasks, totals = [], []
        for rank, context in enumerate(contexts):
            machine.set_context(context)
            total = share(machine, parts[rank], weights[rank], streams[rank])
            totals.append(total)
            buffer, count = total.address, seq * 64
            tasks.append(comms[rank].all_reduce(buffer, buffer, count, DataType.FP16, ReduceOp.SUM, stream=streams[rank]))
        foreign = refusal(streams[0].synchronize)
        for rank, context in enumerate(contexts):
            machine.set_context(context)
            comms[rank].synchronize(streams[rank])
            page.show(f"{tasks[rank]}: {(tasks[rank].start_s or 0) * 1e6:.1f} to {(tasks[rank].end_s or 0) * 1e6:.1f} µs")
        results = [_on(machine, context, total) for context, total in zip(contexts, totals, strict=True)]
    expected: Any = sum(_heads_last(softmax_attention(*part)) @ weight for part, weight in zip(parts, weights, strict=True))
    page.point("largest error on any device", None, max(difference(one, expected) for one in results), "not told; float16")
    page.point("all devices hold the same", "not told", all((one == results[0]).all() for one in results), "bit by bit")
    page.point(
        "a stream of another context", "not told", foreign.code, "the loop must set the context before it uses the stream"
    )
    alike = len({(task.start_s, task.end_s) for task in tasks}) == 1
    page.point(
        "who does what", "the runtime runs, HCCL talks", alike, "collectives are tasks of streams, at the same time everywhere"
    )


def share(machine: Machine, part: list[np.ndarray], weight: np.ndarray, stream: Any) -> Tensor:
    """One device's part: attention of its heads, times its rows of the output matrix; ``[S, columns]``."""
    rows, dim = part[0].shape[2:]
    laid_out = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in part]
    prepared = machine.attention([machine.put(array) for array in laid_out], layout="BSND")
    machine.launch(prepared, stream)
    out = Tensor(attention_out(prepared[1]).address, (rows, part[0].shape[1] * dim), "float16")
    total = machine.empty((rows, weight.shape[1]))
    machine.launch(machine.operators.get_workspace_size("MatMul", [out, machine.put(weight)], None, [total]), stream)
    return total


def _heads_last(out: np.ndarray) -> np.ndarray:
    """``[1, N, S, D]`` → ``[S, N·D]``."""
    return out[0].transpose(1, 0, 2).reshape(out.shape[2], -1)


def _on(machine: Machine, context: Any, tensor: Tensor) -> np.ndarray:
    machine.set_context(context)
    return machine.get(tensor)

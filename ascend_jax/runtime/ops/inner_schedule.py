"""What goes on inside of one kernel, as the lines of the articles' debug log, read from its simulated timeline.

``DMA`` is a transfer (MTE1, MTE2, MTE3, FixPipe), ``Cube`` a matrix product, ``Vector`` the softmax and its kin. ``Submit`` is
when the unit takes the work up, ``Wait`` when its result is there. On chips whose Cube and Vector are apart the Cube's operands
come to L1, not to UB as in the articles. Times are virtual, from the start of the kernel.
"""

from collections.abc import Iterator
from itertools import islice

from ascend_jax.runtime.log import get_logger
from ascend_jax.timeline.events import Events, Simulated

LOG = get_logger("OP")
MOST_LINES = 200
"""Lines of one call: a longer log says of every tile the same."""

UNITS = {"Cube": "Cube", "Vector": "Vector", "Scalar": ""}
"""By pipe; every other pipe is a DMA's."""
WORK = {
    "load_q": ("LOAD", "q_base", "q"),
    "load_k": ("LOAD", "k_base", "k"),
    "load_v": ("LOAD", "v_base", "v"),
    "load_mask": ("LOAD", "mask_base", "mask"),
    "load_p": ("LOAD", "gm_probs", "probs"),
    "load_s": ("LOAD", "gm_scores", "scores"),
    "load_o": ("LOAD", "gm_out", "out"),
    "move_q": ("MOVE", "ub_q", "q"),
    "move_k": ("MOVE", "ub_k", "k"),
    "move_v": ("MOVE", "ub_v", "v"),
    "move_p": ("MOVE", "ub_probs", "probs"),
    "fix_s": ("STORE", "l0c_scores", "scores"),
    "fix_o": ("STORE", "l0c_out", "out"),
    "store_p": ("STORE", "ub_probs", "probs"),
    "store_o": ("STORE", "ub_out", "out_base"),
    "store_sum": ("STORE", "ub_row_sum", "row_sum"),
    "mm_qk": ("GEMM", "q, k", "scores"),
    "mm_pv": ("GEMM", "probs, v", "out"),
    "softmax": ("SOFTMAX", "scores, row_max, row_sum", "probs"),
    "rescale": ("SOFTMAX_ACC", "out, row_max", "out"),
    "finalise": ("SCALE", "out, 1/row_sum", "ub_out"),
}
"""By stage of a kernel: what it does, from what, to what."""


def log_inner_schedule(timeline: Simulated, most: int = MOST_LINES) -> None:
    """Write the first ``most`` lines of core 0 to the log, at level debug."""
    lines = list(islice(inner_schedule(timeline), most + 1))
    for line in lines[:most]:
        LOG.debug("%s", line)
    if len(lines) > most:
        LOG.debug("… and so on: the first %d lines of core 0 of %d", most, timeline.cores)


def inner_schedule(timeline: Simulated) -> Iterator[str]:
    """The lines of core 0, in order of time: ``DMA Submit: LOAD, q_base, ub_q @ 1.225 us, task 0``."""
    targets = _targets(timeline)
    waits: list[tuple[float, int, str]] = []
    for count, (events, index) in enumerate(_each(timeline)):
        stage = events.stages[events.stage[index]]
        unit = UNITS.get(stage.pipe, "DMA")
        if not unit:
            continue
        start = float(events.start_s[index])
        yield from _over(waits, start)
        verb, source, _ = WORK.get(stage.name, (stage.name.upper(), "", ""))
        tile = "" if events.tile[index] < 0 else f", tile {events.tile[index]}"
        place = f"task {events.task[index]}{tile}"
        target = targets.get(stage.name, "")
        yield f"{unit} Submit: {', '.join(filter(None, (verb, source, target)))} @ {start * 1e6:.3f} us, {place}"
        done = float(events.done_s[index])
        waits.append((done, count, f"{unit} Wait: {', '.join(filter(None, (verb, target)))} @ {done * 1e6:.3f} us, {place}"))
    yield from _over(waits, float("inf"))


def _each(timeline: Simulated) -> Iterator[tuple[Events, int]]:
    for events in timeline.chunks((0,)):
        for index in range(len(events.stage)):
            yield events, index


def _over(waits: list[tuple[float, int, str]], until: float) -> Iterator[str]:
    """The results that are there by ``until``, the earliest first; they leave the list."""
    waits.sort()
    while waits and waits[0][0] <= until:
        yield waits.pop(0)[2]


def _targets(timeline: Simulated) -> dict[str, str]:
    """Where each stage puts its result: the memory of the buffer that it fills, and what it puts there."""
    found = {name: target for name, (_, _, target) in WORK.items()}
    for flow in timeline.flows:
        if flow.buffer is not None and flow.producer in WORK and not found[flow.producer].count("_"):
            # What passes through L0C has one buffer there together, and a name of its own in the flow: "S in L0C".
            memory = timeline.memory.get(flow.buffer, flow.buffer.rpartition(" in ")[2])
            found[flow.producer] = f"{memory.lower()}_{WORK[flow.producer][2]}"
    return found

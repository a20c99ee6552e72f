"""One part of the benchmark, in a process of its own that `run.py` starts: ``python parts.py PART '{"lengths": [512], …}'``.

Its last line of output is the part's figures as JSON.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from sides import (
    CAUSAL,
    DENSE,
    Run,
    Shape,
    block_of,
    check,
    compiled,
    jax_run,
    sharded_run,
    sides,
    tensors,
    tiled,
    torch_run,
    with_gradient,
)

HEADS = 8
Options = dict[str, Any]
Clock = Callable[[], float]
SETTLED_S = 0.05
"""Seconds before a run is timed: XLA frees what the run before needed when its answer is there already, on another thread."""


def medians(runs: dict[str, Run], options: Options, clock: Clock = time.process_time) -> dict[str, float]:
    """Median seconds of each, run in turn: ``repeats`` rounds, which a side leaves once it has taken ``seconds`` in all."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options["repeats"]):
        for name, run in runs.items():
            if sum(spent[name]) < options["seconds"]:
                time.sleep(SETTLED_S)
                before = clock()
                run()
                spent[name].append(clock() - before)
    return {name: statistics.median(times) for name, times in spent.items()}


def ratio(over: float | None, under: float | None) -> float | None:
    """None where a side is missing."""
    return None if over is None or under is None else over / under


def against(options: Options, gradient: bool) -> list[Any]:
    """Ours, torch's and jax's own, length by length."""
    check(Shape(2, 300, 64))
    rows = []
    for width in options["widths"]:
        for length in options["lengths"]:
            runs = sides(Shape(HEADS, length, width), gradient)
            whole_matrix = {"jax_nn": runs.pop("jax_nn")}  # last: freeing its gigabytes would count as the next side's time
            spent = medians(runs, options) | medians(whole_matrix, options)
            ours, theirs, plain = (spent.get(name) for name in ("tiled", "torch", "jax_nn"))
            rows.append(
                {"length": length, "width": width, "tiled_s": ours, "torch_s": theirs, "jax_nn_s": plain}
                | {"tiled_over_torch": ratio(ours, theirs), "jax_nn_over_tiled": ratio(plain, ours)}
            )
    return rows


def forward(options: Options) -> list[Any]:
    """The output alone."""
    return against(options, gradient=False)


def both(options: Options) -> list[Any]:
    """The output and the gradients by Q, K and V."""
    return against(options, gradient=True)


def halves(options: Options) -> list[Any]:
    """Ours in float16 and in bfloat16 over ours in float32."""
    rows = []
    for width in options["widths"]:
        shape = Shape(HEADS, options["length"], width)
        for gradient in (False, True):
            attend = with_gradient(tiled(shape)) if gradient else tiled(shape)
            inputs = tensors(shape, 4 if gradient else 3)
            runs = {name: jax_run(attend, inputs, getattr(jnp, name)) for name in ("float32", "float16", "bfloat16")}
            spent = medians(runs, options)
            over = {f"{name}_over_float32": spent[name] / spent["float32"] for name in ("float16", "bfloat16")}
            rows.append({"length": shape.length, "width": width, "gradient": gradient} | over)
    return rows


def causal(options: Options) -> list[Any]:
    """Causal over dense, ours; n blocks a side leave ``(n + 1) / 2n`` of the blocks to compute."""
    rows = []
    for width in options["widths"]:
        shape = Shape(HEADS, options["length"], width)
        blocks = -(-shape.length // block_of(shape.length))
        ideal = (blocks + 1) / (2 * blocks)
        for gradient in (False, True):
            wrap = with_gradient if gradient else lambda attend: attend
            inputs = tensors(shape, 4 if gradient else 3)
            windows = {"causal": CAUSAL, "dense": DENSE}
            spent = medians({name: jax_run(wrap(tiled(shape, window)), inputs) for name, window in windows.items()}, options)
            share = spent["causal"] / spent["dense"]
            row = {"length": shape.length, "width": width, "gradient": gradient, "causal_over_dense": share}
            rows.append(row | {"ideal": ideal, "over_ideal": share / ideal})
    return rows


def threads(options: Options) -> list[Any]:
    """Two threads: ours on two devices of the host with the heads dealt, torch with two threads of its own; elapsed and CPU."""
    shape, rows = Shape(HEADS, options["length"], 64), []
    for gradient in (False, True):
        attend = with_gradient(tiled(shape)) if gradient else tiled(shape)
        inputs = tensors(shape, 4 if gradient else 3)
        theirs = torch_run(shape, gradient)
        runs = {"alone": jax_run(attend, inputs), "tiled": sharded_run(attend, inputs)} | ({"torch": theirs} if theirs else {})
        row = {"length": shape.length, "width": shape.width, "gradient": gradient, "devices": jax.device_count()}
        for name, clock in (("elapsed", time.perf_counter), ("cpu", time.process_time)):
            spent = medians(runs, options, clock)
            row |= {
                f"one_device_{name}_s": spent["alone"],
                f"tiled_{name}_s": spent["tiled"],
                f"torch_{name}_s": spent.get("torch"),
            }
            row |= {f"tiled_over_torch_{name}": ratio(spent["tiled"], spent.get("torch"))}
        rows.append(row)
    return rows


def memory(options: Options) -> list[Any]:
    """Bytes that XLA keeps beside inputs and outputs, at the longest length and at half of it; nothing runs."""
    rows, longest = [], max(options["lengths"])
    for gradient in (False, True):
        for length in (longest // 2, longest):
            shape = Shape(HEADS, length, 64)
            attend = with_gradient(tiled(shape)) if gradient else tiled(shape)
            inputs = [jnp.asarray(x) for x in tensors(shape, 4 if gradient else 3)]
            held = compiled(attend, inputs).memory_analysis().temp_size_in_bytes
            row = {"length": length, "width": 64, "gradient": gradient, "temporary_bytes": held}
            rows.append(row | {"over_one_tensor": held / inputs[0].nbytes})
    return rows


def first_call(options: Options) -> list[Any]:
    """Elapsed seconds of the first call of a fresh program: tracing, compiling and running it."""
    rows = []
    for gradient in (False, True):
        shape = Shape(HEADS, 512, 64)
        inputs = [jnp.asarray(x) for x in tensors(shape, 4 if gradient else 3)]
        before = time.perf_counter()
        jax.block_until_ready(jax.jit(with_gradient(tiled(shape)) if gradient else tiled(shape))(*inputs))
        rows.append({"length": shape.length, "width": 64, "gradient": gradient, "first_call_s": time.perf_counter() - before})
    return rows


PARTS = {part.__name__: part for part in (forward, both, halves, causal, threads, memory, first_call)}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](json.loads(sys.argv[2]))))

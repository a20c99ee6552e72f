"""Do 32 streams for 32 heads beat one launch? The articles give each AI core a stream; a launch is split over the cores anyway.

``python experiments/streams_and_cores/run.py [--json FILE|-]``
"""

import json
from dataclasses import replace
from typing import TextIO

import click

from ascend_jax import Attention, evaluate, load_chip
from ascend_jax.proposal import propose
from ascend_jax.runtime.context import Context
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.system import System

CHIP = "910b3"
WORK = Attention(batch=1, q_heads=32, kv_heads=32, q_len=4096, kv_len=4096, head_dim=128, mask="causal", dtype="float16")


def attention_task(work: Attention, name: str) -> Task:
    """One launch of ``work``: its time by the model, and the cores that it can fill."""
    chip = load_chip(CHIP)
    tiling = propose(chip, work).tiling
    blocks = int(work.batch * work.q_heads * -(-int(work.q_len) // int(tiling.block_q)))
    cores = min(blocks, int(chip.cube_cores))
    seconds = float(evaluate(chip, work, tiling).seconds)
    return Task(name=name, kind="kernel", op_type="FlashAttentionScore", duration_s=seconds, block_dim=cores, core="mix")


def seconds_of(context: Context, tasks: list[Task], streams: int) -> float:
    """Virtual seconds until all tasks, dealt out to ``streams`` streams, have ended."""
    context.synchronize()
    began = context.system.host_now_s
    lanes = [context.create_stream() for _ in range(streams)]
    for number, task in enumerate(tasks):
        lanes[number % streams].submit(task)
    context.synchronize()
    for lane in lanes:
        context.destroy_stream(lane)
    return context.system.host_now_s - began


@click.command()
@click.option("--json", "json_file", type=click.File("w", lazy=True, atomic=True), help="File for the JSON, or - for stdout.")
def main(json_file: TextIO | None) -> None:
    """One launch of 32 heads, 32 launches of one head on 1 and on 32 streams, and short kernels that leave cores free."""
    short = replace(WORK, q_len=128, kv_len=4096)
    with System([CHIP]) as system:
        context = system.set_device(0)
        found = {}
        for name, work in (("4096 rows", WORK), ("128 rows", short)):
            head = replace(work, q_heads=1, kv_heads=1)
            found[name] = {
                "one launch": seconds_of(context, [attention_task(work, name)], 1),
                "32 launches, 1 stream": seconds_of(context, [attention_task(head, name) for _ in range(32)], 1),
                "32 launches, 32 streams": seconds_of(context, [attention_task(head, name) for _ in range(32)], 32),
            }
    if json_file is not None:
        json.dump(found, json_file, indent=1)
        return
    for name, rows in found.items():
        for how, seconds in rows.items():
            click.echo(f"{name:10} {how:24} {seconds * 1e6:9.1f} us")


if __name__ == "__main__":
    main()

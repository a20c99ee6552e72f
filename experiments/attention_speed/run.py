"""How fast is the tiled attention on a CPU, beside torch's and jax's own?

``python experiments/attention_speed/run.py [--json FILE|-] [--part NAME]… [--length S]… [--width D]… [--repeats N]``
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import click

PARTS = ("forward", "both", "halves", "causal", "threads", "memory", "first_call")
THREADS = {"threads": 2}
"""Threads of a part; one where none are given."""


def figures(part: str, options: dict[str, Any]) -> Any:
    """A part in a process of its own that has only as many cores as it may use threads."""
    count = THREADS.get(part, 1)
    limits = f"--xla_force_host_platform_device_count={count}" + ("" if count > 1 else " --xla_cpu_multi_thread_eigen=false")
    number = str(count)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": limits, "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
    command = [sys.executable, str(Path(__file__).with_name("parts.py")), part, json.dumps(options)]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[-count:])
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        os.sched_setaffinity(0, allowed)
    return json.loads(done.stdout.splitlines()[-1])


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="One part; may be given again [all].")
@click.option("--length", "lengths", type=click.IntRange(min=1), multiple=True, default=(512, 2048, 4096, 8192), help="S.")
@click.option("--width", "widths", type=click.IntRange(min=1), multiple=True, default=(64, 128), help="D.")
@click.option("--middle", type=click.IntRange(min=1), default=2048, help="S of the parts that take one length [2048].")
@click.option("--repeats", type=click.IntRange(min=1), default=9, help="Timed rounds; medians count [9].")
@click.option("--seconds", type=float, default=5.0, help="No further run of a side that has taken this long in all [5].")
def main(  # noqa: PLR0917 - click's options
    target: TextIO,
    parts: tuple[str, ...],
    lengths: tuple[int, ...],
    widths: tuple[int, ...],
    middle: int,
    repeats: int,
    seconds: float,
) -> None:
    """Print the figures as JSON."""
    options = {"lengths": lengths, "widths": widths, "length": middle, "repeats": repeats, "seconds": seconds}
    target.write(json.dumps({part: figures(part, options) for part in parts or PARTS}, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""What should a next chip for Llama-3 have? Sensitivities of 910B3 for prefill, decode and both, and a grid of designs.

``python experiments/codesign/run.py [--json FILE|-] [--plot FILE.svg|png|pdf] [--chip NAME] [--quick]``
"""

from pathlib import Path
from typing import TextIO

import click

from ascend_jax import load_chip, load_preset
from tiling_search.codesign.grid import Cost
from tiling_search.codesign.latency import Task
from tiling_search.codesign.study import study
from tiling_search.codesign.tornado import tornado_plot
from tiling_search.jsonfile import Json, dumps, write_atomically

PREFILL, DECODE = "llama3-8b-prefill-8k", "llama3-8b-decode-8k"
SETS = {"prefill": (PREFILL,), "decode": (DECODE,), "both": (PREFILL, DECODE)}
FACTORS = {
    "vector_cores_per_cube": (0.5, 1.0, 1.5),
    "cube_cores": (0.8, 1.0, 1.2),
    "gm_bytes_per_s": (1.0, 1.25, 1.5),
    "l2_bytes_per_s": (1.0, 1.25),
}
WEIGHTS = {"cube_cores": 0.45, "vector_cores_per_cube": 0.15, "gm_bytes_per_s": 0.2, "l2_bytes_per_s": 0.1}
"""Shares of the chip's cost. Made up: nobody publishes them; give your own and run again."""


def tasks(names: tuple[str, ...]) -> list[Task]:
    """A task of weight 1 for each preset."""
    return [Task(name, load_preset(name)) for name in names]


def run(chip: str, *, quick: bool) -> Json:
    """One study a set of workloads; the grid belongs to the one of both."""
    spec = load_chip(chip)
    names = ("gm_bytes_per_s", "vector_clock_hz", "cube_clock_hz", "ub_bytes") if quick else ()
    grid = {"cost": Cost(WEIGHTS, 1.15), "factors": {} if quick else FACTORS}
    return {name: study(spec, tasks(some), names=names, **(grid if name == "both" else {})) for name, some in SETS.items()}


@click.command()
@click.option("--chip", default="Ascend910B3", help="A chip of the catalogue [Ascend910B3].")
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="FILE.svg|png|pdf for the tornado of both.")
@click.option("--quick", is_flag=True, help="Four numbers of the chip and no grid.")
def main(chip: str, target: TextIO, plot: Path | None, quick: bool) -> None:
    """Print the studies as JSON, and draw the tornado of both where asked for."""
    result = run(chip, quick=quick)
    target.write(dumps(result))
    if plot:
        write_atomically(plot, tornado_plot(result["both"], plot.suffix[1:]))


if __name__ == "__main__":
    main()

"""``tiling-search codesign``. Nothing heavy is imported before the command runs."""

from pathlib import Path
from typing import Any

import click

from tiling_search.options import KERNELS, SCHEDULES, STDOUT, ChipName, Fields, JsonTarget, PlotTarget


class Assignments(click.ParamType):
    """``NAME=NUMBER[,NUMBER…]`` as a name and a tuple of positive numbers."""

    name = "NAME=X[,X...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, tuple[float, ...]]:
        """The name, and the numbers after it."""
        if not isinstance(value, str):
            return value
        name, equals, numbers = value.partition("=")
        try:
            found = tuple(float(part) for part in numbers.split(","))
        except ValueError:
            found = ()
        if not (equals and name and found and all(0 < number < float("inf") for number in found)):
            self.fail(f"{value!r} must be a number of the chip, =, and factors above 0: ub_bytes=0.5,1,2.", param, ctx)
        return name.strip(), found


KERNEL_HELP = f"Dataflow: {', '.join(KERNELS)}; or a schedule such as {SCHEDULES[0]} [auto: the chip's own]."


@click.command("codesign")
@click.argument("workloads", metavar="PRESET[=WEIGHT]...", nargs=-1, required=True)
@click.option("--chip", type=ChipName(), required=True, help="The chip to start from: a name, or a TOML file of your own.")
@click.option("--kernel", type=click.Choice((*KERNELS, *SCHEDULES)), default="auto", metavar="NAME", help=KERNEL_HELP)
@click.option("--parameters", type=Fields(), default=(), help="Numbers of the chip to look at [all].")
@click.option(
    "--swing", type=click.FloatRange(1, min_open=True), default=1.25, metavar="X", help="Factor of the bars' ends [1.25]."
)
@click.option("--vary", type=Assignments(), multiple=True, help="Multiply a number by each of these; several make a grid.")
@click.option("--cost", type=Assignments(), multiple=True, help="Share of the chip's area or price that a number takes.")
@click.option("--budget", type=float, default=float("inf"), metavar="X", help="Most a design may cost, of the chip's [any].")
@click.option("--json", "target", type=JsonTarget(), help="Write JSON to a file, or with - to stdout and nothing else.")
@click.option("--plot", type=PlotTarget(), help='Draw a tornado plot (needs "ascend-jax[plot]").')
def command(*, workloads: tuple[str, ...], chip: str, target: str | None, plot: str | None, **asked: Any) -> None:
    """Say what a next chip should have for a set of workloads, each with its best tiling.

    \b
    tiling-search codesign llama3-8b-prefill-8k llama3-8b-decode-8k=2 --chip 910b3 --plot tornado.png
    tiling-search codesign llama3-8b-decode-8k --chip 910b3 --vary cube_cores=0.8,1,1.25 \\
        --vary gm_bytes_per_s=1,1.5 --cost cube_cores=0.5 --cost gm_bytes_per_s=0.2 --budget 1.1

    A sensitivity is d log latency / d log parameter, exact through the best tilings; of counts and buffer sizes, which have no
    slope, it is the difference between the bar's ends. Latencies at the ends have every tiling chosen anew.
    """
    from tiling_search.compile_cache import use_compile_cache  # noqa: PLC0415 — before jax

    use_compile_cache()
    from ascend_jax import kernel_for, load_chip, load_preset  # noqa: PLC0415
    from tiling_search.codesign.grid import Cost  # noqa: PLC0415
    from tiling_search.codesign.latency import Task  # noqa: PLC0415
    from tiling_search.codesign.study import study  # noqa: PLC0415
    from tiling_search.progress import SearchProgress  # noqa: PLC0415

    try:
        spec = load_chip(chip)
        kernel_for(spec, asked["kernel"])
        tasks = [Task(name, load_preset(name), weight) for name, weight in map(_weighted, workloads)]
        factors, weights = dict(asked["vary"]), {name: shares[0] for name, shares in asked["cost"]}
        how = {
            "kernel": asked["kernel"],
            "names": asked["parameters"],
            "swing": asked["swing"],
            "cost": Cost(weights, asked["budget"]),
        }
        with SearchProgress(doing="retuning") as progress:
            data = study(spec, tasks, factors=factors, progress=progress, **how)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    if plot is not None:
        from tiling_search.codesign.tornado import tornado_plot  # noqa: PLC0415

        _write(plot, tornado_plot(data, Path(plot).suffix[1:].lower()), "--plot")
    _deliver(data, target)


def _weighted(text: str) -> tuple[str, float]:
    """``PRESET=WEIGHT`` or ``PRESET`` as a name and a weight."""
    name, equals, number = text.partition("=")
    try:
        weight = float(number) if equals else 1.0
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ValueError(f"{text!r} must be a preset, or a preset, = and a weight above 0")
    return name, weight


def _deliver(data: Any, target: str | None) -> None:
    from tiling_search.jsonfile import dumps  # noqa: PLC0415

    if target == STDOUT:
        click.echo(dumps(data), nl=False)
        return
    if target is not None:
        _write(target, dumps(data), "--json")
    from tiling_search.codesign.views import show_codesign  # noqa: PLC0415
    from tiling_search.render import Page  # noqa: PLC0415

    show_codesign(Page(), data)


def _write(target: str, content: str | bytes, option: str) -> None:
    from tiling_search.jsonfile import write_atomically  # noqa: PLC0415

    try:
        write_atomically(Path(target), content)
    except OSError as error:
        message = f"cannot write {target!r} ({error.strerror}): choose another file for {option}"
        raise click.UsageError(message, click.get_current_context()) from error

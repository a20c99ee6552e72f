"""The command ``tiling-search``. Nothing heavy is imported before a command runs, so that help comes at once."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tiling_search.codesign.command import command as codesign
from tiling_search.options import (
    STDOUT,
    JsonTarget,
    PlotTarget,
    calibrate_options,
    chip_options,
    effort_options,
    list_json,
    model_options,
    simulate_options,
    workload_options,
)
from tiling_search.session.command import ask, best, status, tell
from tiling_search.store.command import choose, store, store_option
from tiling_search.sweep.command import sweep

NOTHING_FITS, CANNOT_WRITE, INTERRUPTED, BROKEN_PIPE = 1, 74, 130, 141


class _Group(click.Group):
    """Ctrl-C ends with 130 and a closed pipe with 141, as a shell expects; what cannot be written ends with 74."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter trips over it once more
            if isinstance(error, BrokenPipeError):
                ctx.exit(BROKEN_PIPE)
            click.echo(f"Error: cannot write: {error}", err=True)
            ctx.exit(CANNOT_WRITE)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ascend-jax")
def main() -> None:
    """The best tiling of an attention workload on an Ascend NPU, and how long any tiling takes.

    \b
    tiling-search tune llama3-8b-prefill-8k --chip 910b3
    tiling-search evaluate llama3-8b-prefill-8k --chip 910b3 --tiling block_q=128,block_kv=256

    Exit status: 0 found, 1 nothing fits, 2 wrong usage, 130 interrupted.

    What jax compiled is kept in the user's cache folder. TILING_SEARCH_CACHE_DIR names another folder,
    TILING_SEARCH_DISABLE_CACHE=1 keeps nothing. What was evaluated and measured is kept in a store: see tiling-search store.
    """


for _command in (choose, ask, tell, status, best, store, sweep, codesign):
    main.add_command(_command)


@main.command()
@list_json
def chips(*, target: str | None) -> None:
    """List the chips that the package describes.

    A chip of your own is a TOML file: base = "910b3", and what differs from it.
    """
    from ascend_jax import chip_names, load_chip
    from tiling_search.jsonout import chip_dict

    _deliver([chip_dict(load_chip(name)) for name in chip_names()], target, "show_chips")


@main.command()
@list_json
def workloads(*, target: str | None) -> None:
    """List the presets: attention of published models."""
    from dataclasses import asdict

    from ascend_jax.workload.preset_table import preset_table

    _deliver([asdict(row) for row in preset_table().values()], target, "show_workloads")


@main.command()
@workload_options
@model_options
@effort_options
@store_option
@click.option(
    "--space",
    type=click.Choice(("usual", "wide")),
    default="usual",
    help="wide: up to 4 slots of every buffer, L0 included, and every split of the keys [usual].",
)
@click.option("--top", type=click.IntRange(min=1), default=10, metavar="K", help="How many of the fastest to list [10].")
def tune(  # noqa: PLR0913 (the command's options)
    *,
    preset: str | None,
    chip: str,
    kernel: str,
    overlap: str,
    target: str | None,
    place: Path | None,
    space: str,
    top: int,
    effort: str,
    max_evals: int | None,
    budget_s: float | None,
    log: str | None,
    **flags: Any,
) -> None:
    """Find the fastest tiling of a workload that fits a chip.

    The workload is a PRESET (tiling-search workloads lists them), or --q-heads, --q-len, --head-dim and further flags.
    With both, each flag replaces that one field of the preset and no other: --q-len leaves kv-len as it is.
    Ctrl-C ends the search with the best so far, and exit status 130; a second one ends it at once.
    """
    from tiling_search.compile_cache import usable_folder

    folder = usable_folder()
    from ascend_jax import kernel_for, load_chip
    from tiling_search.asked import workload_from
    from tiling_search.effort import Log, interruptible, limited
    from tiling_search.jsonout import tuning_dict
    from tiling_search.progress import SearchProgress
    from tiling_search.tuner import tune

    with _usage_errors():
        spec = load_chip(chip)
        name, work = workload_from(preset, flags)
        kernel_for(spec, kernel)
        note = Log(Path(log) if log else None)
        note("tune", chip=spec.name, workload=name)
    with SearchProgress() as progress, interruptible() as interrupted:
        watch = note.watching(progress.watch)
        within = limited(effort, max_evals=max_evals, budget_s=budget_s, stop=interrupted, watch=watch)
        asked = {"kernel": kernel, "overlap": overlap, "top": top, "space": space, "effort": within}
        result = tune(spec, work, name=name, progress=progress, programs=folder, **asked)
    data = tuning_dict(result)
    note("end", exact=data["exact"], interrupted=interrupted.pressed, best=data["best"] and data["best"]["tiling"])
    _deliver(data, target, "show_tuning")
    from tiling_search.store.keep import keep, search_key

    _warn(keep(place, search_key(spec, work, kernel, overlap, space), result=result))
    if interrupted.pressed:
        click.get_current_context().exit(INTERRUPTED)
    if result.best is None:
        _end_unfit(data["message"], target)


@main.command()
@workload_options
@model_options
@store_option
@click.option("--tiling", required=True, metavar="FIELD=N,...", help="block_q=N,block_kv=N and other fields of Tiling.")
def evaluate(
    *,
    preset: str | None,
    chip: str,
    kernel: str,
    overlap: str,
    target: str | None,
    place: Path | None,
    tiling: str,
    **flags: Any,
) -> None:
    """Say how long one tiling takes, what bounds it, and whether it fits.

    The workload is a PRESET (tiling-search workloads lists them), or --q-heads, --q-len, --head-dim and further flags.
    With both, each flag replaces that one field of the preset and no other: --q-len leaves kv-len as it is.
    """
    from tiling_search.compile_cache import use_compile_cache

    use_compile_cache()
    import jax

    from ascend_jax import evaluate, kernel_for, load_chip
    from tiling_search.asked import tiling_from, workload_from
    from tiling_search.jsonout import evaluation_dict, workload_dict
    from tiling_search.result import Candidate

    with _usage_errors():
        spec = load_chip(chip)
        name, work = workload_from(preset, flags)
        dataflow, cut = kernel_for(spec, kernel), tiling_from(tiling)
    with jax.enable_x64(True):  # whole bytes and blocks
        report = jax.device_get(evaluate(spec, work, cut, kernel=dataflow, overlap=overlap))
    found = Candidate(cut, report)
    data = evaluation_dict(spec.name, workload_dict(name, work), dataflow.name, overlap, found)
    _deliver(data, target, "show_evaluation")
    from tiling_search.store.keep import keep, record_of
    from tiling_search.store.key import key_of

    _warn(keep(place, key_of(spec, work, kernel=dataflow, overlap=overlap), [record_of(found, "evaluate")]))
    if data["verdict"] != "FITS":
        _end_unfit(data["message"], target)


@main.command()
@workload_options
@chip_options
@click.option("--tiling", required=True, metavar="FIELD=N,...", help="block_q=N,block_kv=N and other fields of Tiling.")
@simulate_options
def simulate(*, preset: str | None, chip: str, kernel: str, target: str | None, tiling: str, **flags: Any) -> None:
    """Run one tiling event by event, and write what happens when.

    The workload is a PRESET (tiling-search workloads lists them), or --q-heads, --q-len, --head-dim and further flags.
    The trace opens in MindStudio Insight (call it trace.json), chrome://tracing and Perfetto: a process for each core, a thread
    for each pipe, an arrow for each flag between cores. Files hold cube core 0 unless --cores says otherwise. A long run makes
    a large trace: some 200 bytes for each stage of each tile; --tasks and --arrows make it smaller.
    """
    from tiling_search.compile_cache import use_compile_cache

    folder = use_compile_cache(at_once=False)
    from ascend_jax import kernel_for, load_chip
    from tiling_search.asked import tiling_from, workload_from
    from tiling_search.simulate import Wanted, simulation

    paths = {name: flags.pop(name) for name in ("trace", "csv", "series")}
    extent = {
        "cores": flags.pop("cores"),
        "tasks": flags.pop("tasks"),
        "ids": flags.pop("ids"),
        "arrow_every": flags.pop("arrows"),
    }
    with _usage_errors():
        wanted = Wanted(**{name: Path(path) if path else None for name, path in paths.items()}, **extent)
        wanted.check()
        spec = load_chip(chip)
        name, work = workload_from(preset, flags)
        data = simulation(spec, name, work, tiling_from(tiling), kernel_for(spec, kernel), wanted, programs=folder)
    _deliver(data, target, "show_simulation", "simulation_views")
    if data["verdict"] != "FITS":
        _end_unfit(data["message"], target)


@main.command()
@click.argument("rows", metavar="ROWS.json", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "target", type=JsonTarget(), help="Write JSON to a file, or with - to stdout and nothing else.")
@click.option("--plot", type=PlotTarget(), help='Draw measured against predicted times (needs "ascend-jax[plot]").')
def validate(*, rows: str, target: str | None, plot: str | None) -> None:
    """Compare the model with measured rows: every prediction, its error, and totals by chip, kernel and grade.

    ROWS.json is a list of objects with id, value and unit, and what was measured: catalog_chip, op, category, dtype, layout,
    batch, q_heads, kv_heads, q_seq, kv_seq, head_dim, causal, tiling, quality. A row that cannot be read or modelled is listed
    with the reason and stops no other. Rows of grade C are shown, and count only under their grade.
    """
    from tiling_search.compile_cache import use_compile_cache

    folder = use_compile_cache()
    from ascend_jax.calibration.rows import Refused, read_entries
    from tiling_search.predictor import EveryRow
    from tiling_search.progress import SearchProgress
    from tiling_search.validate import validate

    with _usage_errors():
        entries = read_entries(rows)
        reasons = [entry.reason for entry in entries if isinstance(entry, Refused)]
        if len(reasons) == len(entries):
            raise ValueError(f"{rows} holds no row that can be read; {reasons[0]}")
    with SearchProgress(doing="preparing") as progress:
        data = validate(entries, predictor=EveryRow(folder), progress=progress)
    if plot is not None:
        from tiling_search.parity_plot import parity_plot

        _write(plot, parity_plot(data, Path(plot).suffix[1:].lower()), "--plot")
    _deliver(data, target, "show_validation", "validation_views")


@main.command()
@click.argument("source", metavar="ROWS.json|PROFILE.csv", type=click.Path(exists=True, dir_okay=False))
@calibrate_options
def calibrate(
    *, source: str, chip: str, out: str, target: str | None, fields: tuple[str, ...], cross_validate: bool, **hints: Any
) -> None:
    """Fit what no document says of a chip to measurements of your own, and write the chip as a TOML file.

    \b
    tiling-search calibrate op_summary_20260101.csv --chip 910b3 --out mine.toml
    tiling-search tune llama3-8b-prefill-8k --chip mine.toml

    PROFILE.csv is the profiler's op_summary_*.csv or kernel_details.csv; it is taken to come from the chip. ROWS.json is as of
    tiling-search validate; rows of other chips and of grade C take no part, and where some are marked core_validation, only
    those do. Each constant gets a standard error; what the rows cannot determine stays as it is. Needs three rows a constant.
    """
    from tiling_search.compile_cache import use_compile_cache

    folder = use_compile_cache()
    from ascend_jax.calibration.call_shapes import Hints
    from tiling_search.calibrate import calibrate, read_source, the_model
    from tiling_search.calibration_json import calibration_dict
    from tiling_search.progress import SearchProgress

    with _usage_errors(), SearchProgress(doing="fitting") as progress:
        rows = read_source(Path(source), chip, Hints(**hints))
        model = the_model(folder)
        done = calibrate(
            rows, chip=chip, model=model, out=Path(out), fields=fields, cross_validate=cross_validate, progress=progress
        )
    _write(out, done.text, "--out")
    _deliver(calibration_dict(done) | {"out": out}, target, "show_calibration", "calibration_views")


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What the library says about a person's values, as wrong usage (exit status 2)."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise click.UsageError(str(error), click.get_current_context()) from error


def _deliver(data: Any, target: str | None, view: str, views: str = "views") -> None:
    """JSON to where it was asked for, and the table unless stdout is the JSON's."""
    from tiling_search.jsonfile import dumps

    if target == STDOUT:
        click.echo(dumps(data), nl=False)
        return
    if target is not None:
        _write(target, dumps(data), "--json")
    from tiling_search.render import Page

    getattr(import_module(f"tiling_search.{views}"), view)(Page(), data)


def _warn(problem: str | None) -> None:
    """What went wrong beside the answer, on stderr."""
    if problem:
        click.echo(f"Warning: {problem}", err=True)


def _write(target: str, content: str | bytes, option: str) -> None:
    """A file at one stroke; where it cannot be written, wrong usage of ``option``."""
    from tiling_search.jsonfile import write_atomically

    try:
        write_atomically(Path(target), content)
    except OSError as error:
        message = f"cannot write {target!r} ({error.strerror}): choose another file for {option}"
        raise click.UsageError(message, click.get_current_context()) from error


def _end_unfit(message: str, target: str | None) -> None:
    """End with status 1, and say why on stderr where stdout holds only JSON."""
    if target == STDOUT:
        click.echo(message, err=True)
    click.get_current_context().exit(NOTHING_FITS)

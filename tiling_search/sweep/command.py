"""``tiling-search sweep``. Nothing heavy is imported before it runs."""

# ruff: noqa: PLC0415 — see above
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from tiling_search.options import STDOUT, list_json
from tiling_search.store.command import store_option

INTERRUPTED = 130


@click.command()
@click.argument("source", metavar="SPEC.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@click.option("--devices", type=click.IntRange(min=1), metavar="N", help="Devices to use [all: a power of two of them].")
@click.option("--processes", type=click.IntRange(min=1), default=1, metavar="N", help="Processes to share the cells [1].")
@click.option("--part", type=(int, int), hidden=True, help="Which of how many processes this one is.")
@list_json
def sweep(
    *, source: Path, place: Path | None, devices: int | None, processes: int, part: tuple[int, int] | None, target: str | None
) -> None:
    """Find the fastest tiling of every workload on every chip that a file lists.

    \b
    chips = ["910b3", "310p3"]
    models = ["llama3-8b", "qwen2.5-7b"]
    phases = ["prefill"]
    lengths = [1024, 8192]

    Each result goes into the store at once, and what is there already is not searched again: a sweep that was killed goes on
    where it was. Ctrl-C ends it with exit status 130.
    """
    from tiling_search.compile_cache import use_compile_cache
    from tiling_search.store.environment import store_path

    path = store_path(place)
    if path is None:
        raise click.UsageError("a sweep needs a store: name one with --store", click.get_current_context())
    if processes > 1:
        _in_processes(source, path, devices, processes)
    use_compile_cache()
    import jax

    from tiling_search.effort import Effort, interruptible
    from tiling_search.progress import SearchProgress
    from tiling_search.store.store import Store
    from tiling_search.sweep.run import part_of, sweep
    from tiling_search.sweep.sharded import OnDevices
    from tiling_search.sweep.spec import read_sweep

    try:
        cells = part_of(read_sweep(source), *(part or (0, 1)))
        count = devices or 2 ** (len(jax.devices()).bit_length() - 1)
        evaluators = OnDevices(jax.devices()[:count])
        with Store(path) as store, SearchProgress(doing="sweeping") as progress, interruptible() as interrupted:
            rows = list(sweep(cells, store, evaluators, progress=progress, effort=Effort(stop=interrupted)))
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    _deliver([_row(one) for one in rows], target)
    if interrupted.pressed:
        click.get_current_context().exit(INTERRUPTED)


def _in_processes(source: Path, path: Path, devices: int | None, processes: int) -> None:
    """Run the sweep's parts side by side; this process then finds all of it in the store, or does what one left."""
    flags = ["--devices", str(devices)] if devices else []
    command = [sys.executable, "-m", "tiling_search", "sweep", str(source), "--store", str(path), *flags]
    running = [
        subprocess.Popen([*command, "--part", str(part), str(processes)], stdout=subprocess.DEVNULL)
        for part in range(processes)
    ]
    failed = [part for part, process in enumerate(running) if process.wait() != 0]
    if failed:
        click.echo(f"Warning: processes {', '.join(map(str, failed))} ended early; their part is done here", err=True)


def _row(one: Any) -> dict[str, Any]:
    from tiling_search.result import tiling_dict

    return one._asdict() | {"tiling": tiling_dict(one.tiling) if one.tiling else None}


def _deliver(rows: list[dict[str, Any]], target: str | None) -> None:
    from tiling_search.jsonfile import write_atomically

    text = json.dumps(rows, indent=2, allow_nan=False) + "\n"
    if target == STDOUT:
        click.echo(text, nl=False)
        return
    if target is not None:
        write_atomically(Path(target), text)
    from tiling_search.render import Page, assignments, seconds_text

    columns = ["chip<", "workload<", "latency", "from<", "tiling<"]
    table = [
        [
            row["chip"],
            row["workload"],
            seconds_text(row["seconds"]),
            "store" if row["stored"] else "search",
            assignments(row["tiling"]) if row["tiling"] else "nothing fits",
        ]
        for row in rows
    ]
    Page().table(columns, table)

"""``tiling-search sweep``. Nothing heavy is imported before it runs."""

# ruff: noqa: PLC0415 — see above
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tiling_search.options import STDOUT, list_json
from tiling_search.store.command import store_option

FAILED, INTERRUPTED = 1, 130
CELLS, BLOCKS = "cells", "blocks"


@dataclass(frozen=True)
class _Way:
    """How the sweep is shared: by what, among how many processes, which one this is (None: start them), where they meet."""

    share: str
    processes: int
    process_id: int | None
    coordinator: str | None
    devices: int | None

    def check(self) -> None:
        """Raise click.UsageError where the options do not go together."""
        wrong = None
        if self.process_id is not None and self.process_id >= self.processes:
            wrong = f"--process-id {self.process_id} must be below --processes {self.processes}"
        elif self.coordinator and (self.share == CELLS or self.process_id is None):
            wrong = "--coordinator goes with --share blocks and --process-id: without them, no process listens there"
        elif self.process_id is not None and self.share == BLOCKS and not self.coordinator:
            wrong = "--process-id with --share blocks needs --coordinator HOST:PORT, where process 0 listens"
        elif self.coordinator and not self.coordinator.rpartition(":")[2].isdigit():
            wrong = f"--coordinator {self.coordinator} must be HOST:PORT"
        if wrong:
            raise click.UsageError(wrong, click.get_current_context())


@click.command()
@click.argument("source", metavar="SPEC.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@click.option("--devices", type=click.IntRange(min=1), metavar="N", help="Devices of each process to use [all].")
@click.option("--processes", type=click.IntRange(min=1), default=1, metavar="N", help="Processes that share the sweep [1].")
@click.option("--share", type=click.Choice((CELLS, BLOCKS)), default=CELLS, help="What processes share; see above [cells].")
@click.option("--process-id", type=click.IntRange(min=0), metavar="I", help="Be process I of N; start the others yourself.")
@click.option("--coordinator", metavar="HOST:PORT", help="Where process 0 listens, with --share blocks and --process-id.")
@click.option("--worker", is_flag=True, hidden=True, help="Write rows to stdout as they come, for the process that started it.")
@list_json
def sweep(*, source: Path, place: Path | None, worker: bool, target: str | None, **way: Any) -> None:
    """Find the fastest tiling of every workload on every chip that a file lists.

    \b
    chips = ["910b3", "310p3"]
    models = ["llama3-8b", "mine"]
    phases = ["prefill"]
    lengths = [1024, 8192]
    [model.mine]
    q_heads = 32
    kv_heads = 8
    head_dim = 64
    mask = "causal"
    prefill = ["4k"]

    Each result goes into the store at once, and what is there already is not searched again: a sweep that was killed goes on
    where it was. Ctrl-C ends it with exit status 130; a process that ends early, with 1 (75 where it was started by hand).

    --processes N starts N processes here. With --share cells each searches cells of its own; they meet in the store only.
    That is the faster way for many cells. With --share blocks all work on one cell at a time, as one jax.distributed
    computation over the devices of all. That is for few cells with large spaces, and for machines without a common disk, since
    process 0 alone writes to the store. On several machines, start one process on each:

    \b
    tiling-search sweep SPEC.toml --share blocks --processes 2 --coordinator HOST:1234 --process-id 0
    tiling-search sweep SPEC.toml --share blocks --processes 2 --coordinator HOST:1234 --process-id 1

    --share cells with --process-id does one part by itself; `tiling-search store merge` puts the parts' stores together.
    """
    from tiling_search.store.environment import store_path

    found = _Way(**way)
    found.check()
    path = store_path(place)
    if path is None:
        raise click.UsageError("a sweep needs a store: name one with --store", click.get_current_context())
    with _usage_errors():
        if found.processes > 1 and found.process_id is None:
            rows, interrupted = _in_workers(source, path, found)
        else:
            rows, interrupted = _here(source, path, found, worker)
    if rows is not None:
        _deliver(rows, target)
    if interrupted:
        click.get_current_context().exit(INTERRUPTED)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error


def _in_workers(source: Path, path: Path, way: _Way) -> tuple[list[dict[str, Any]], bool]:
    """Start the processes and gather their rows, in the order of the file; and whether Ctrl-C was pressed."""
    from tiling_search.compile_cache import usable_folder

    usable_folder()  # it quiets XLA, which the workers inherit; jax would have XLA say more than is wanted
    from tiling_search.effort import interruptible
    from tiling_search.sweep.progress import SweepProgress
    from tiling_search.sweep.spec import read_sweep
    from tiling_search.sweep.workers import WorkerError, free_port, rows_of

    total = len(read_sweep(source))
    command = [sys.executable, "-m", "tiling_search", "sweep", str(source), "--store", str(path), "--worker"]
    command += ["--processes", str(way.processes), "--share", way.share]
    command += ["--devices", str(way.devices)] if way.devices else []
    command += ["--coordinator", f"127.0.0.1:{free_port()}"] if way.share == BLOCKS else []
    commands = [[*command, "--process-id", str(number)] for number in range(way.processes)]
    rows: dict[int, dict[str, Any]] = {}
    try:
        with SweepProgress(total) as progress, interruptible() as interrupted:
            for row in rows_of(commands, interrupted):
                rows[row.pop("cell")] = row
                progress.cell(row["evaluated"], row["stored"])
    except WorkerError as error:
        kept = f"{len(rows)} of {total} cells are done and kept in {path}; the same command goes on from there"
        click.echo(f"Error: {error}\nThe other processes were stopped. {kept}", err=True)
        click.get_current_context().exit(FAILED)
    return [rows[cell] for cell in sorted(rows)], interrupted.pressed


def _here(source: Path, path: Path, way: _Way, worker: bool) -> tuple[list[dict[str, Any]] | None, bool]:
    """Do this process's part; its rows unless another process has them, and whether Ctrl-C was pressed."""
    from tiling_search.compile_cache import start_compile_cache, use_compile_cache

    folder = use_compile_cache(at_once=False)
    import jax

    from tiling_search.effort import Effort, interruptible
    from tiling_search.store.store import Store
    from tiling_search.sweep.progress import SweepProgress
    from tiling_search.sweep.run import part_of, sweep
    from tiling_search.sweep.sharded import OnDevices
    from tiling_search.sweep.spec import read_sweep
    from tiling_search.sweep.together import joined

    number = way.process_id or 0
    together = way.share == BLOCKS and way.processes > 1
    writes = number == 0 or not together
    with ExitStack() as stack:
        stdout = stack.enter_context(joined(way.coordinator or "", way.processes, number)) if together else sys.stdout
        cells = read_sweep(source)
        mine = list(range(len(cells))) if together else part_of(len(cells), number, way.processes)
        devices = _devices(jax, way.devices)
        if folder and len(devices) > 1:
            start_compile_cache(folder)
        found = {"evaluators": OnDevices(devices) if len(devices) > 1 else None, "programs": folder}
        store = stack.enter_context(Store(path)) if writes else None
        progress = stack.enter_context(SweepProgress(len(mine)))
        interrupted = stack.enter_context(interruptible())
        rows = []
        for one in sweep([cells[cell] for cell in mine], store, effort=Effort(stop=interrupted), **found):
            if worker and writes:
                click.echo(json.dumps({"cell": mine[len(rows)]} | _row(one), allow_nan=False), file=stdout)
            elif writes:
                progress.cell(one.evaluated, one.stored)
            rows.append(_row(one))
    return rows if writes and not worker else None, interrupted.pressed


def _devices(jax: Any, each: int | None) -> list[Any]:
    """The devices of all processes, the first ``each`` of every one."""
    of = [[one for one in jax.devices() if one.process_index == number] for number in range(jax.process_count())]
    few = min(map(len, of))
    if each and each > few:
        raise ValueError(f"--devices {each} is more than there are: {few}")
    return [one for own in of for one in own[:each]]


def _row(one: Any) -> dict[str, Any]:
    from tiling_search.result import tiling_dict

    return one._asdict() | {"tiling": tiling_dict(one.tiling) if one.tiling else None}


def _deliver(rows: list[dict[str, Any]], target: str | None) -> None:
    from tiling_search.jsonfile import dumps, write_atomically

    if target == STDOUT:
        click.echo(dumps(rows), nl=False)
        return
    if target is not None:
        write_atomically(Path(target), dumps(rows))
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

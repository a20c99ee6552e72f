"""``tiling-search store`` and ``choose``: look into the store, share it, ask it. Nothing heavy is imported before they run."""

# ruff: noqa: PLC0415 — see the docstring
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from tiling_search.options import STDOUT, JsonTarget, list_json, model_options, workload_options

Command = TypeVar("Command", bound=Callable[..., Any])
MISSED = 1
ANY_FILE = click.Path(dir_okay=False, path_type=Path)


def store_option(command: Command) -> Command:
    """Add ``--store``."""
    return click.option(
        "--store", "place", type=ANY_FILE, metavar="FILE", help="The store [TILING_SEARCH_STORE, or in the user's data folder]."
    )(command)


@click.group()
def store() -> None:
    """Results that last: every configuration that was evaluated or measured, in one file that processes share.

    \b
    tiling-search store export results.json
    tiling-search store import results.json --store other.sqlite
    tiling-search store merge colleague.sqlite

    TILING_SEARCH_STORE names the file or its folder, TILING_SEARCH_DISABLE_STORE=1 does without one.
    """


@store.command()
@store_option
@list_json
def info(*, place: Path | None, target: str | None) -> None:
    """Say where the store is and what is in it."""
    with _opened(place, make=False) as found:
        data = {"path": str(found.path)} | found.counts()
        chips = sorted({key.chip for key in found.keys()})  # noqa: SIM118
        data |= {"chips": chips, "models": sorted({key.model for key in found.keys()})}  # noqa: SIM118
    if target is not None:
        _write_json(target, data)
        return
    click.echo(f"{data['path']}\n{data['keys']} keys, {data['searches']} searches; chips: {', '.join(chips) or 'none'}")
    for name, count in data["results"].items():
        click.echo(f"  {count:>9,}  {name}")


@store.command()
@click.argument("target", type=JsonTarget(), default=STDOUT)
@store_option
def export(*, target: str, place: Path | None) -> None:
    """Write everything as JSON that Kernel Tuner and its kin read (schema T4), to a file or to stdout."""
    from tiling_search.store.t4 import export

    with _opened(place, make=False) as found:
        _write_json(target, export(found))


@store.command(name="import")
@click.argument("source", metavar="FILE.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@workload_options
@click.option("--chip", metavar="NAME|FILE.toml", help="The chip of results that name none.")
@click.option("--kernel", default="auto", metavar="NAME", help="Their dataflow [auto: the chip's own].")
@store_option
def load(*, source: Path, preset: str | None, chip: str | None, kernel: str, place: Path | None, **flags: Any) -> None:
    """Add the results of a T4 file. What is there already is not added again.

    Results of another tuner do not say what they are of: give the workload (PRESET or flags) and --chip.
    """
    from tiling_search.store.t4 import load

    foreign = _foreign_key(preset, chip, kernel, flags)
    try:
        document = json.loads(source.read_text("utf-8"))
        with _opened(place) as found:
            click.echo(f"{load(found, document, foreign=foreign, origin=source.name):,} new rows in {found.path}")
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{source}: {error}", click.get_current_context()) from error


@store.command()
@click.argument("others", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False))
@store_option
def merge(*, others: tuple[str, ...], place: Path | None) -> None:
    """Add everything of other stores, which stay as they are."""
    with _opened(place) as found:
        for other in others:
            click.echo(f"{found.merge(other):,} new rows from {other}")


@click.command()
@workload_options
@model_options
@store_option
@click.option("--tiling", metavar="FIELD=N,...", help="A tiling of your own, which wins.")
@click.option("--tune/--no-tune", "may_tune", default=True, help="Search where nothing is stored [yes].")
def choose(
    *,
    preset: str | None,
    chip: str,
    kernel: str,
    overlap: str,
    target: str | None,
    place: Path | None,
    tiling: str | None,
    may_tune: bool,
    **flags: Any,
) -> None:
    """Say which tiling a program should use, and where that comes from.

    The first that has an answer: --tiling, measured times in the store, a finished search in the store, a search now, a rule.
    With TILING_SEARCH_ASSERT_HIT=1 the last two are an error (exit status 1) that says what came closest.
    """
    from tiling_search.compile_cache import use_compile_cache

    use_compile_cache()
    from ascend_jax import load_chip
    from tiling_search.asked import tiling_from, workload_from
    from tiling_search.render import assignments
    from tiling_search.result import tiling_dict
    from tiling_search.store.choose import StoreMiss, choose

    try:
        work = workload_from(preset, flags)[1]
        own = tiling_from(tiling) if tiling else None
        found = choose(load_chip(chip), work, tiling=own, kernel=kernel, overlap=overlap, store=place, may_tune=may_tune)
    except StoreMiss as error:
        click.echo(str(error), err=True)
        click.get_current_context().exit(MISSED)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    numbers = tiling_dict(found.tiling)
    if target is not None:
        _write_json(target, {"source": found.source, "tiling": numbers, "latency_s": found.seconds})
    if target != STDOUT:
        click.echo(f"{found.source}: {assignments(numbers)}")


def _foreign_key(preset: str | None, chip: str | None, kernel: str, flags: dict[str, Any]) -> Any:
    """The key of what names none; None where neither a workload nor a chip is given."""
    given = preset is not None or any(value is not None for value in flags.values())
    if not given and chip is None:
        return None
    if not (given and chip):
        raise click.UsageError("give both the workload and --chip, or neither", click.get_current_context())
    from ascend_jax import load_chip
    from tiling_search.asked import workload_from
    from tiling_search.store.key import key_of

    try:
        return key_of(load_chip(chip), workload_from(preset, flags)[1], kernel=kernel)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error


@contextmanager
def _opened(place: Path | None, *, make: bool = True) -> Iterator[Any]:
    """The store, or wrong usage where there is none."""
    from tiling_search.store.database import StoreError
    from tiling_search.store.environment import DISABLE, store_path
    from tiling_search.store.store import Store

    path = store_path(place)
    if path is None:
        raise click.UsageError(f"{DISABLE} is set: unset it, or name a store with --store", click.get_current_context())
    if not make and not path.exists():
        raise click.UsageError(f"{path} does not exist: nothing is stored yet", click.get_current_context())
    try:
        with Store(path) as found:
            yield found
    except (StoreError, sqlite3.Error) as error:
        raise click.UsageError(str(error), click.get_current_context()) from error


def _write_json(target: str, data: Any) -> None:
    from tiling_search.jsonfile import dumps, write_atomically

    if target == STDOUT:
        click.echo(dumps(data), nl=False)
    else:
        write_atomically(Path(target), dumps(data))

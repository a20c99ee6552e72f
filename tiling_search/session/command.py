"""``ask``, ``tell``, ``status`` and ``best``: a search by measurement whose state is one file. Imports nothing heavy."""

# ruff: noqa: PLC0415 — see above
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tiling_search.options import STDOUT, list_json, workload_options
from tiling_search.store.command import store_option

Command = TypeVar("Command", bound=Callable[..., Any])
NOTHING = 1
FORMATS = ("table", "triton-ascend", "tilelang", "c")


def _session_option(*, exists: bool) -> Callable[[Command], Command]:
    kind = click.Path(exists=exists, dir_okay=False, path_type=Path)
    return click.option("--session", "path", type=kind, required=True, metavar="FILE", help="The session's file.")


@click.command()
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@workload_options
@_session_option(exists=False)
@click.option("--chip", metavar="NAME|FILE.toml", help="The chip, where the session begins.")
@click.option("--kernel", default="auto", metavar="NAME", help="Its dataflow [auto: the chip's own].")
@click.option("--seed", type=int, help="Of the intervals' draws [TILING_SEARCH_SEED, or 0].")
@click.option("--as", "shape", type=click.Choice(FORMATS), default="table", help="A table, or code [table].")
@list_json
def ask(
    *,
    count: int,
    path: Path,
    preset: str | None,
    chip: str | None,
    kernel: str,
    seed: int | None,
    shape: str,
    target: str | None,
    **flags: Any,
) -> None:
    """Say which N tilings to measure next.

    \b
    tiling-search ask 4 llama3-8b-prefill-8k --chip 910b3 --session mine.json
    tiling-search ask 4 --session mine.json --as c > tilings.h
    tiling-search tell times.csv --session mine.json

    The first ask begins the session and needs the workload and the chip; the file holds all after that, and FILE.log what
    happened when. What was asked for and never told is asked for again.
    """
    from tiling_search.session.session import load_session, locked, save_session

    note = _log(path)
    given = {name: value for name, value in flags.items() if value is not None}
    with locked(path), _Usage():
        if path.exists():
            if preset or chip or given:
                raise ValueError(f"{path} has its workload and chip: leave them out, or name another file")
            session = load_session(path)
        else:
            session = _begun(preset, chip, kernel, seed, flags)
            note("begin", workload=session.name, chip=session.key["chip"], pool=len(session.tilings))
        session, places = session.ask(count)
        save_session(path, session)
        note("ask", places=list(places))
    if not places:
        click.echo(f"nothing is left to ask for: all {len(session.tilings)} tilings were told", err=True)
        click.get_current_context().exit(NOTHING)
    from tiling_search.session.views import asked_dict

    if shape != "table":
        from tiling_search.session.code import LANGUAGES

        click.echo(LANGUAGES[shape]([session.tilings[place] for place in places]))
    else:
        _deliver(asked_dict(session, places), target, "show_asked")


@click.command()
@click.argument("source", metavar="CSV|JSON|-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_session_option(exists=True)
@store_option
def tell(*, source: str, path: Path, place: Path | None) -> None:
    """Take measured times or failures, from a file or from stdin.

    A row has place (or block_q, block_kv and what else the tiling says), and seconds; or invalidity (timeout, compile, runtime,
    correctness, constraints) or error. CSV has them as columns, JSON is a list of objects. Several rows of one tiling are
    repeats. All rows are taken, or, where one is wrong, none.
    """
    from tiling_search.session.begin import records_of
    from tiling_search.session.session import load_session, locked, save_session, told_from
    from tiling_search.store.keep import keep

    with _Usage(), locked(path):
        rows = _rows(source)
        before = load_session(path)
        session = before.tell(told_from(before, rows))
        save_session(path, session)
    key, records = records_of(session, list(session.told[len(before.told) :]))
    _log(path)("tell", rows=[one._asdict() for one in session.told[len(before.told) :]])
    if problem := keep(place, key, records):
        click.echo(f"Warning: {problem}", err=True)
    failures = sum(record.seconds is None for record in records)
    click.echo(f"{len(records)} rows taken, {failures} of them failures")


@click.command()
@_session_option(exists=True)
@list_json
def status(*, path: Path, target: str | None) -> None:
    """Say how far a session is, and how far off the model was."""
    from tiling_search.session.session import load_session
    from tiling_search.session.views import status_dict

    with _Usage():
        session = load_session(path)
    _deliver(status_dict(session), target, "show_status")


@click.command()
@_session_option(exists=True)
@click.option("--top", type=click.IntRange(min=1), default=3, metavar="K", help="How many of the fastest [3].")
@list_json
def best(*, path: Path, top: int, target: str | None) -> None:
    """Say which tilings were measured to be the fastest (exit status 1: none was)."""
    from tiling_search.session.session import load_session
    from tiling_search.session.views import best_dict

    with _Usage():
        session = load_session(path)
    found = best_dict(session, top)
    _deliver(found, target, "show_best")
    if not found:
        click.echo("nothing was measured yet", err=True)
        click.get_current_context().exit(NOTHING)


def _log(path: Path) -> Any:
    """The session's log: its file's name and ``.log``, a JSON object a line."""
    from tiling_search.effort import Log

    return Log(path.with_name(f"{path.name}.log"))


class _Usage:
    """What the library says about a person's values, as wrong usage (exit status 2)."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            raise click.UsageError(str(error), click.get_current_context()) from error


def _begun(preset: str | None, chip: str | None, kernel: str, seed: int | None, flags: dict[str, Any]) -> Any:
    from tiling_search.compile_cache import usable_folder

    if chip is None:
        raise ValueError("the session begins: give the workload (PRESET or flags) and --chip")
    folder = usable_folder()
    from ascend_jax import load_chip
    from tiling_search.asked import workload_from
    from tiling_search.session.begin import begin

    name, work = workload_from(preset, flags)
    return begin(load_chip(chip), work, name=name, kernel=kernel, seed=seed, programs=folder)


def _rows(source: str) -> list[dict[str, Any]]:
    """A JSON list of objects, or CSV with a header."""
    try:
        text = sys.stdin.read() if source == STDOUT else Path(source).read_text("utf-8")
        if text.lstrip().startswith(("[", "{")):
            data = json.loads(text)
            return data if isinstance(data, list) else [data]
    except ValueError as error:
        raise ValueError(
            f"{source} is neither JSON nor CSV ({error}): give a list of objects, or columns with a header"
        ) from error
    return [dict(row) for row in csv.DictReader(text.splitlines())]


def _deliver(data: Any, target: str | None, view: str) -> None:
    from tiling_search.jsonfile import dumps, write_atomically

    if target == STDOUT:
        click.echo(dumps(data), nl=False)
        return
    if target is not None:
        write_atomically(Path(target), dumps(data))
    from tiling_search.render import Page
    from tiling_search.session import views

    getattr(views, view)(Page(), data)

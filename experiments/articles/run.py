"""The programs of the three articles in our API: what the text says, what comes out, and why where the two differ.

``python experiments/articles/run.py [PROGRAM …|--all] [--list] [--folder FOLDER] [--json FILE|-]``
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

import click

sys.path.insert(0, str(Path(__file__).parents[2]))

from ascend_jax.runtime.log import logging_as
from experiments.articles import calls, memory, order, tiles, watch
from experiments.articles.left_out import LEFT_OUT
from experiments.articles.page import Page, Program

PROGRAMS: dict[str, Program] = {
    one.name: one
    for one in (
        calls.minimal_call,
        calls.two_phases,
        calls.registry_miss,
        calls.call_stack,
        tiles.tiling_table,
        tiles.ub_allocation,
        tiles.on_chip_tiles,
        tiles.oom_example,
        tiles.fallback,
        order.dma_cube_log,
        order.streams_and_events,
        order.multi_stream,
        order.multi_device,
        memory.device_and_context,
        memory.device_memory,
        memory.memory_pool,
        memory.caching_allocator,
        watch.profiling,
        watch.error_codes,
    )
}
MOST_LINES = 48
"""Lines of output that a page shows to people."""


def run_all(names: list[str], folder: Path) -> list[Page]:
    """These programs, in this order; the runtime's log is silent but where a program asks for it."""
    with logging_as({"ASCEND_GLOBAL_LOG_LEVEL": "4"}):
        return [PROGRAMS[name].run(folder) for name in names]


def text_of(value: Any) -> str:
    """A value on one line: lists and tables without quotes."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text_of(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(text_of, value)) or "none"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def write_page(page: Page) -> None:
    """A page for people."""
    click.secho(f"\n{page.name}", bold=True)
    click.echo(f"from {page.article}")
    for what, said in page.says.items():
        same = said == page.ours[what]
        click.echo(f"\n  {what}{': as said' if same else ''}")
        if not same and said is not None:
            click.echo(f"    text  {text_of(said)}")
        click.echo(f"    ours  {text_of(page.ours[what])}")
        if page.why[what]:
            click.echo(f"    why   {page.why[what]}")
    if page.output:
        click.echo("\n  output")
    for line in page.output[:MOST_LINES]:
        click.echo(f"    {line}")
    if len(page.output) > MOST_LINES:
        click.echo(f"    … {len(page.output) - MOST_LINES} lines more in the JSON")


def write_list() -> None:
    """The programs, and what is none."""
    for one in PROGRAMS.values():
        click.echo(f"{one.name:20} {one.article}")
    click.echo("\nNo programs:")
    for what, why in LEFT_OUT.items():
        click.echo(f"  {what}\n    {why}")


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM]...", type=click.Choice(list(PROGRAMS)))
@click.option("--all", "everything", is_flag=True, help="All programs.")
@click.option("--list", "listing", is_flag=True, help="Names and where they stand, and what is no program.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where files are written, instead of nowhere.")
@click.option("--json", "target", type=click.File("w", lazy=True, atomic=True), help="File for the JSON, or - for stdout.")
def main(names: tuple[str, ...], everything: bool, listing: bool, folder: Path | None, target: TextIO | None) -> None:
    """Run programs of the articles by name, or all of them."""
    if listing:
        write_list()
        return
    if not names and not everything:
        raise click.UsageError("name a program, or give --all; --list shows the names")
    chosen = list(PROGRAMS) if everything else list(names)
    with tempfile.TemporaryDirectory() as temporary:
        pages = run_all(chosen, folder or Path(temporary))
    if target is not None:
        found = {"programs": [page.as_json() for page in pages], "no_programs": LEFT_OUT}
        target.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        return
    for page in pages:
        write_page(page)


if __name__ == "__main__":
    main()

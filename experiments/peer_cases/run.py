"""The peers' own test cases against our operators: what is accepted, and the numbers beside plain softmax in float64.

``python experiments/peer_cases/run.py FILE [--json FILE|-] [--limit N] [--no-numbers]``
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.peer_cases.numerics import Numbers, Runner
from experiments.peer_cases.verdicts import verdict

LIMIT = 2**24
FAST = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
"""Compiling takes longer than computing: this halves it."""
COLUMNS = ("n", "agree", "disagree", "unsupported", "internal", "agreement", "numbers_run", "numbers_within", "by_rounding")
FAILED = "numbers failed:"
WIDTH = 132
"""Columns of a table that does not go to a terminal."""
Row = dict[str, Any]


def judged(case: dict[str, Any], runner: Runner | None) -> Row:
    """One case: what was expected, what came, and the numbers where both say it is legal."""
    found, numbers = verdict(case), Numbers()
    if runner is not None and found.got == case["expect"] == "ok":
        numbers = _numbers(case, found, runner)
    why = "; ".join(part for part in (found.why, numbers.why) if part)
    return {
        "id": case["id"],
        "op": case["op"],
        "group": case["group"],
        "expected": case["expect"],
        "got": found.got,
        "internal": found.internal or numbers.why.startswith(FAILED),
        "max_error": numbers.max_error,
        "tolerance": numbers.tolerance,
        "within": numbers.within,
        "by_rounding": numbers.by_rounding,
        "why": why,
    }


def _numbers(case: dict[str, Any], found: Any, runner: Runner) -> Numbers:
    try:
        return runner(case, found.function, found.call)
    except Exception as broken:  # an operator, a golden or this runner is wrong: reported, not hidden
        return Numbers(why=f"{FAILED} {type(broken).__name__}: {str(broken)[:200]}")


def totals(rows: list[Row]) -> dict[str, Any]:
    """Counts of some rows. ``agreement`` is the share of those that could be put to an operator; None without any."""
    known = [row for row in rows if row["got"] != "unsupported"]
    agree = sum(row["got"] == row["expected"] and not row["why"].startswith("internal") for row in known)
    return {
        "n": len(rows),
        "agree": agree,
        "disagree": len(known) - agree,
        "unsupported": len(rows) - len(known),
        "internal": sum(row["internal"] for row in rows),
        "agreement": round(agree / len(known), 4) if known else None,
        "numbers_run": sum(row["within"] is not None for row in rows),
        "numbers_within": sum(bool(row["within"]) for row in rows),
        "by_rounding": sum(bool(row["by_rounding"]) for row in rows),
    }


def report(rows: list[Row]) -> dict[str, Any]:
    """Everything: each case, totals by group and in all."""
    groups = sorted({row["group"] for row in rows})
    by_group = {group: totals([row for row in rows if row["group"] == group]) for group in groups}
    return {"cases": rows, "groups": by_group, "overall": totals(rows)}


def shown(data: dict[str, Any], console: Console) -> None:
    """The table of groups, then every case that disagrees, then numbers that are not within tolerance."""
    table = Table(Column("group", no_wrap=True), *(Column(name.replace("_", "\n"), justify="right") for name in COLUMNS))
    for group, one in [*data["groups"].items(), ("all", data["overall"])]:
        table.add_row(group, *("" if one[name] is None else str(one[name]) for name in COLUMNS))
    console.print(table)
    wrong = [row for row in data["cases"] if row["internal"] or row["got"] not in ("unsupported", row["expected"])]
    _list(console, "Disagreements", (f"{row['id']}: {row['expected']} → {row['got']} {row['why']}" for row in wrong))
    beyond = [row for row in data["cases"] if row["within"] is False]
    unexplained = [row for row in beyond if not row["by_rounding"]]
    console.print(f"Numbers beyond tolerance: {len(beyond)}; of these as far as P rounded: {len(beyond) - len(unexplained)}")
    _list(console, "Farther", (f"{row['id']}: {row['max_error']:.3g}; {row['tolerance']}" for row in unexplained))


def _list(console: Console, title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    console.print(f"{title}: {len(lines)}", style="bold")
    for line in lines:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def every(cases: list[dict[str, Any]], runner: Runner | None, console: Console) -> Iterator[Row]:
    """Each case in turn, with a bar of progress."""
    for case in track(cases, "cases", console=console, transient=True):
        yield judged(case, runner)


@click.command()
@click.argument("file", type=click.File())
@click.option("--json", "target", type=click.File("w", atomic=True), help="File for the JSON, or - for stdout.")
@click.option("--limit", default=LIMIT, show_default=True, help="Scores, B·N1·S1·S2, of a call that is computed.")
@click.option("--numbers/--no-numbers", default=True, show_default=True, help="Compute what is accepted.")
@click.option(
    "--round-probs", is_flag=True, help="Round P as the Cube does; the peers' tolerances mostly do not allow for that."
)
@click.option("--only", default="", help="Part of the ids of the cases to run.")
def main(file: TextIO, target: TextIO | None, limit: int, numbers: bool, round_probs: bool, only: str) -> None:
    """Put every case of FILE to the operators; print totals and everything that differs."""
    os.environ.setdefault("XLA_FLAGS", FAST)
    cases = [case for case in json.load(file) if only in case["id"]]
    console = Console(stderr=True)
    data = report(list(every(cases, Runner(limit, round_probs=round_probs) if numbers else None, console)))
    if target is not None:
        target.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    to_stdout = target is not None and target.name in ("-", "<stdout>")
    shown(data, Console(stderr=to_stdout, width=max(console.width, WIDTH)))


if __name__ == "__main__":
    main()

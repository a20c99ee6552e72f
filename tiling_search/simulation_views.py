"""What ``simulate`` shows, written from the dictionary that ``--json`` writes."""

from tiling_search.jsonfile import Json
from tiling_search.render import Page, number_text, seconds_text, share_text
from tiling_search.views import show_evaluation

MOST_CORES = 4


def show_simulation(page: Page, result: Json) -> None:
    """The report, how busy the pipes of the cores are that were looked at, and what was written."""
    show_evaluation(page, result)
    timeline = result["timeline"]
    if timeline is None:
        return
    cut = f", first {timeline['tasks']} tasks" if timeline["tasks"] else ""
    cores = timeline["cores"]
    shown = [row for row in timeline["pipes"] if row["core"] in cores[:MOST_CORES]]
    page.heading(
        f"Timeline of {len(cores)} of {result['timeline']['active_cores']} cube cores{cut}: {timeline['events']:,} events"
    )
    page.table(
        ["core", "pipe<", "busy", "of its time", ""],
        [
            [str(row["core"]), row["pipe"], seconds_text(row["busy_s"]), share_text(row["share"]), page.bar(row["share"])]
            for row in shown
        ],
    )
    if len(cores) > MOST_CORES:
        page.line(f"  and {len(cores) - MOST_CORES} more cores")
    for kind, one in timeline["written"].items():
        page.line(f"  {kind}: {one['file']} ({_amounts(one)})", "green")
    if timeline["note"]:
        page.line(f"  {timeline['note']}", "yellow")


def _amounts(one: Json) -> str:
    return ", ".join(f"{number_text(value, 0)} {name}" for name, value in one.items() if isinstance(value, int))

"""What ``tiling-search validate`` shows, written from its JSON: totals last, where a terminal ends."""

from collections.abc import Mapping

from rich.text import Text

from tiling_search.jsonfile import Json
from tiling_search.render import Page, number_text, seconds_text, share_text

FAR = 0.2
"""An error beyond this is shown in red."""
TITLES = {
    "chip": "By chip",
    "kernel": "By kernel",
    "chip_kernel": "By chip and kernel",
    "grade": "By grade",
    "core_chip": "By chip, core_validation rows",
    "core_kernel": "By kernel, core_validation rows",
    "core_chip_kernel": "By chip and kernel, core_validation rows",
}


def show_validation(page: Page, result: Json) -> None:
    """Every modelled row, why the others are not, and the totals."""
    _rows(page, [row for row in result["rows"] if row["skipped"] is None])
    _skipped(page, [row for row in result["rows"] if row["skipped"] is not None])
    for name, title in TITLES.items():
        if result["groups"][name]:
            _totals(page, title, result["groups"][name])
    overall = result["overall"]
    sets = {"all": overall, "core_validation": overall["core_validation"], **overall["category"]}
    _totals(page, "Overall", sets)
    page.line()
    said = f"{overall['modelled']} of {overall['rows']} rows modelled, {overall['skipped']} skipped"
    page.line(f"{said}; not counted but under their grade: {overall['not_counted']}", "bold")


def _rows(page: Page, rows: list[Json]) -> None:
    if not rows:
        return
    page.heading("Rows")
    columns = ["id<", "chip<", "op<", "grade<", "kernel<", "block", "measured", "predicted", "error", "bound by<"]
    page.table(columns, [_row(page, row) for row in rows])


def _row(page: Page, row: Json) -> list[str | Text]:
    tiling, times = row["tiling"], "×" if page.blocks else "x"
    grade = f"{row['quality'] or '?'}{'' if row['counted'] else ' (not counted)'}"
    return [
        row["id"],
        row["chip"] or "?",
        row["op"] or "?",
        grade,
        row["kernel"],
        times.join(str(tiling.get(name, "?")) for name in ("block_q", "block_kv")) if tiling else "",
        seconds_text(row["measured_s"]),
        seconds_text(row["predicted_s"]),
        signed(row["error"]),
        row["bound_by"],
    ]


def signed(error: float | None) -> Text:
    """A signed share in percent, red beyond ``FAR``."""
    if error is None:
        return Text("n/a")
    return Text(f"{error * 100:+,.1f} %", "red" if abs(error) > FAR else "")


def _skipped(page: Page, rows: list[Json]) -> None:
    """Reasons, most frequent first, each with the rows that it is about."""
    members: dict[str, list[str]] = {}
    for row in rows:
        members.setdefault(row["skipped"], []).append(row["id"] or "?")
    if members:
        page.heading("Skipped")
        most = sorted(members.items(), key=lambda one: -len(one[1]))
        page.table(["rows", "reason<", "ids<"], [[str(len(ids)), reason, " ".join(ids)] for reason, ids in most])


def _totals(page: Page, title: str, sets: Mapping[str, Json]) -> None:
    page.heading(title)
    columns = ["set<", "n", "mean", "median", "p90", "signed mean", "rank correlation"]
    rows = [
        [
            name,
            number_text(one["n"], 0),
            *(share_text(one[f"{key}_abs_error"]) for key in ("mean", "median", "p90")),
            signed(one["mean_error"]),
            number_text(one["rank_correlation"], 3),
        ]
        for name, one in sets.items()
    ]
    page.table(columns, rows)

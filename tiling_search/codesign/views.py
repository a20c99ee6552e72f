"""What ``tiling-search codesign`` shows, written from its JSON."""

from tiling_search.jsonfile import Json
from tiling_search.render import Page, assignments, number_text, seconds_text

SHOWN = 24
"""Rows of sensitivities; the JSON has all."""


def show_codesign(page: Page, result: Json) -> None:
    """The workloads with their tilings, what matters, and the designs that none beats."""
    page.line(f"{result['chip']}: geometric mean {seconds_text(result['geomean_s'])}", "bold")
    rows = [
        [row["name"], f"{row['weight']:g}", seconds_text(row["seconds"]), assignments(row["tiling"] or {})]
        for row in result["workloads"]
    ]
    page.table(["workload<", "weight", "time", "best tiling<"], rows)
    page.heading("Sensitivities (d log latency / d log parameter)")
    columns = ["parameter<", "value", "elasticity", "low", "latency", "high", "latency"]
    page.table(columns, [_row(row) for row in result["sensitivities"][:SHOWN]])
    if len(result["sensitivities"]) > SHOWN:
        page.line(f"  and {len(result['sensitivities']) - SHOWN} that matter less")
    if result["designs"]:
        page.heading(f"Designs that no other of {len(result['designs'])} beats in cost and time")
        page.table(["cost", "time", "speed-up", "numbers<"], [_design(result["designs"][at]) for at in result["pareto"]])


def _row(row: Json) -> list[str]:
    low, high = (f"{row[end]:.5g}" for end in ("low", "high"))
    return [
        row["parameter"],
        f"{row['value']:.5g}",
        number_text(row["elasticity"], 4),
        low,
        _change(row["at_low"]),
        high,
        _change(row["at_high"]),
    ]


def _change(ratio: float | None) -> str:
    return "nothing fits" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def _design(design: Json) -> list[str]:
    numbers = {name: f"{value:.5g}" for name, value in design["parameters"].items()}
    return [f"{design['cost']:.3f}", seconds_text(design["seconds"]), f"{design['speedup']:.3f}x", assignments(numbers)]

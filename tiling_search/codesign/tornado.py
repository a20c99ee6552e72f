"""A tornado plot: for each number of the chip a bar from the latency where it is smaller to that where it is larger."""

import io

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tiling_search.jsonfile import Json

WIDE_INCHES, ROW_INCHES, DOTS_PER_INCH = 8.0, 0.28, 150
MOST_BARS = 20
SMALLER, LARGER = "#d95f02", "#1b9e77"


def tornado_plot(result: Json, kind: str) -> bytes:
    """The plot of a co-design as a file's content; the widest bar on top, at most ``MOST_BARS``.

    Args:
      result: what :func:`tiling_search.codesign.study.study` returned.
      kind: ``png``, ``svg`` or ``pdf``.
    """
    rows = [row for row in result["sensitivities"] if row["swing"] > 0][:MOST_BARS]
    figure = Figure(figsize=(WIDE_INCHES, 1.5 + ROW_INCHES * max(len(rows), 1)), dpi=DOTS_PER_INCH, layout="compressed")
    axes = figure.add_subplot()
    for place, row in enumerate(reversed(rows)):
        for end, colour in (("low", SMALLER), ("high", LARGER)):
            change = _percent(row[f"at_{end}"])
            axes.barh(place, change or 0.0, color=colour, height=0.7)
    axes.set_yticks(range(len(rows)), [_label(row) for row in reversed(rows)])
    axes.axvline(0, color="black", linewidth=0.8)
    names = ", ".join(row["name"] for row in result["workloads"])
    axes.set(xlabel="change of latency, tilings chosen anew [%]", title=f"{result['chip']}: {names}")
    ends = [Patch(color=SMALLER, label="smaller"), Patch(color=LARGER, label="larger")]
    axes.legend(handles=ends, fontsize="small", loc="lower right")
    axes.grid(True, axis="x", alpha=0.3)
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _label(row: Json) -> str:
    missing = [end for end in ("low", "high") if row[f"at_{end}"] is None]
    return row["parameter"] + ("".join(f" ({end}: nothing fits)" for end in missing))

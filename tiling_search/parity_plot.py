"""Measured against predicted time of every modelled row, both axes logarithmic: a colour a kernel, a marker a chip."""

import io
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tiling_search.jsonfile import Json

MARKERS = "osD^vP*X<>hp"
BAND = 0.2
"""Share of the measured time on each side of equality that the dashed lines mark."""
WIDE_INCHES, HIGH_INCHES, DOTS_PER_INCH = 9.0, 7.0, 150


def parity_plot(result: Json, kind: str) -> bytes:
    """The plot of a validation as a file's content.

    Args:
      result: what :func:`tiling_search.validate.validate` returned.
      kind: ``png``, ``svg`` or ``pdf``.
    """
    rows = [row for row in result["rows"] if row["error"] is not None]
    figure = Figure(figsize=(WIDE_INCHES, HIGH_INCHES), dpi=DOTS_PER_INCH, layout="compressed")
    axes = figure.add_subplot()
    _frame(axes, rows)
    paired = colormaps["tab20"]
    strong_first = [paired(at) for at in (*range(0, 20, 2), *range(1, 20, 2))]
    colours = _assigned(sorted({row["group"] for row in rows}), strong_first)
    markers = _assigned(sorted({row["chip"] or "unknown" for row in rows}), list(MARKERS))
    for row in rows:
        marker, colour = markers[row["chip"] or "unknown"], colours[row["group"]]
        face = colour if row["counted"] else "none"
        place = (row["measured_s"], row["predicted_s"])
        axes.plot(*place, marker=marker, color=colour, markerfacecolor=face, markersize=5, alpha=0.8)
    _legends(figure, colours, markers)
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


def _frame(axes: Axes, rows: list[Json]) -> None:
    """Axes of equal range, the line of equality and the band around it."""
    times = [row[name] for row in rows for name in ("measured_s", "predicted_s")] or [1e-6, 1.0]
    low, high = min(times) / 1.5, max(times) * 1.5
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="measured [s]", ylabel="predicted [s]", title=f"{len(rows)} rows; dashed: ±{BAND:.0%}")
    for factor, style in ((1.0, "-"), (1 - BAND, "--"), (1 + BAND, "--")):
        axes.plot([low, high], [low * factor, high * factor], style, color="grey", linewidth=0.8, zorder=0)
    axes.grid(True, which="major", alpha=0.3)


def _assigned(names: list[str], looks: list[Any]) -> dict[str, Any]:
    """A look for each name, over again where there are more names than looks."""
    return {name: looks[at % len(looks)] for at, name in enumerate(names)}


def _legends(figure: Figure, colours: dict[str, Any], markers: dict[str, Any]) -> None:
    kernels = [Line2D([], [], color=look, marker="o", linestyle="none", label=name) for name, look in colours.items()]
    chips = [Line2D([], [], color="black", marker=look, linestyle="none", label=name) for name, look in markers.items()]
    if kernels:
        figure.legend(handles=kernels, title="kernel", loc="outside right upper", fontsize="small")
        figure.legend(handles=chips, title="chip", loc="outside right lower", fontsize="small")

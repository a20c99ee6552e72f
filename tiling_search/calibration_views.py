"""What ``tiling-search calibrate`` shows, written from its JSON."""

from collections.abc import Sequence

from rich.text import Text

from ascend_jax.calibration.chip_toml import uncertainty_text
from tiling_search.jsonfile import Json
from tiling_search.render import Page, number_text, share_text
from tiling_search.validation_views import signed

FAR_ROWS = 10
SHOWN_IDS = 8


def show_calibration(page: Page, result: Json) -> None:
    """The constants before and after, what is unsure about them, the errors, and what did not take part."""
    page.line(f"{result['chip']}, calibrated to {len(result['rows'])} rows of {result['source']}", "bold")
    state = "converged" if result["converged"] else "did not converge"
    scale = share_text(result["residual_scale"])
    page.line(f"  {result['method']} {state} after {result['steps']} steps; the residuals' robust deviation is {scale}")
    page.heading("Fitted")
    fitted = [constant for constant in result["constants"] if constant["fitted"]]
    page.table(["constant<", "field<", "before", "after", "", "remark<"], [_fitted(constant) for constant in fitted])
    if kept := [constant for constant in result["constants"] if not constant["fitted"]]:
        page.heading("Not fitted")
        columns = ["constant<", "field<", "stays", "reason<"]
        page.table(columns, [[each["name"], each["field"], _number(each["value"]), each["notes"][0]] for each in kept])
    _errors(page, result)
    _farthest(page, result["rows"])
    _skipped(page, result["skipped"])
    if "out" in result:
        page.line()
        page.line(f"Chip file written: {result['out']}", "green")


def _fitted(constant: Json) -> list[str | Text]:
    remark = f"weakly identified: {', '.join(constant['notes'])}" if constant["weakly_identified"] else ""
    unsure = uncertainty_text(constant["log_standard_error"])
    numbers = (_number(constant["start"]), _number(constant["value"]))
    return [constant["name"], constant["field"], *numbers, unsure, Text(remark, "yellow")]


def _number(value: float) -> str:
    """In base units, as the field says."""
    return f"{value:.5g}"


def _errors(page: Page, result: Json) -> None:
    sets = {"before": result["errors"]["before"], "after": result["errors"]["after"]}
    without = result["cross_validation"]
    if without:
        sets |= {f"{group}, fitted without it": errors for group, errors in without["groups"].items()}
        sets["all, each fitted without its group"] = without["overall"]
    page.heading("Absolute errors")
    rows = [
        [name, number_text(errors["rows"], 0), *(share_text(errors[kind]) for kind in ("mean", "median", "p90"))]
        for name, errors in sets.items()
    ]
    page.table(["rows<", "n", "mean", "median", "p90"], rows)
    if without is None:
        page.line("  not cross-validated: that takes rows of at least two groups of kernels")
    for group, reason in (without["skipped"] if without else {}).items():
        page.line(f"  {group} could not be left out: {reason}")


def _farthest(page: Page, rows: Sequence[Json]) -> None:
    far = sorted(rows, key=lambda row: -abs(row["error"]))[:FAR_ROWS]
    page.heading("Farthest off")
    columns = ["id<", "group<", "weight", "before", "after", "left out"]
    shown = [
        [row["id"], row["group"], f"{row['weight']:g}", *(signed(row[f"error{kind}"]) for kind in ("_before", "", "_left_out"))]
        for row in far
    ]
    page.table(columns, shown)


def _skipped(page: Page, skipped: Sequence[Json]) -> None:
    """Reasons, most frequent first, each with the first rows that it is about."""
    members: dict[str, list[str]] = {}
    for row in skipped:
        members.setdefault(row["reason"], []).append(row["id"])
    if members:
        page.heading("Took no part")
        most = sorted(members.items(), key=lambda entry: -len(entry[1]))
        lines = [
            [str(len(ids)), reason, " ".join(ids[:SHOWN_IDS]) + (" ..." if len(ids) > SHOWN_IDS else "")]
            for reason, ids in most
        ]
        page.table(["rows", "reason<", "ids<"], lines)

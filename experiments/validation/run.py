"""How far the model is from every published measurement: a result, a table of every row and a parity plot.

``python experiments/validation/run.py [--rows FILE] [--out FOLDER]``
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import click

from ascend_jax.calibration.rows import Refused, Row, read_entries
from tiling_search.error_stats import totals
from tiling_search.jsonfile import Json, dumps, write_atomically
from tiling_search.parity_plot import parity_plot
from tiling_search.predictor import EveryRow
from tiling_search.render import number_text, seconds_text, share_text
from tiling_search.validate import Predictor, validate
from tiling_search.validation_views import TITLES

HERE = Path(__file__).parent
COLUMNS = ("id", "chip", "op", "shape", "grade", "measured", "predicted", "error", "kernel and tiling", "bound by", "fitted")
PARTS = {"fitted": True, "not_fitted": False}
TOTALS = ("n", "mean", "median", "p90", "signed mean", "rank correlation")


def fitted_rows() -> set[str]:
    """Ids of the rows that the constants of the chips were fitted to; none where nothing was fitted."""
    file = files("ascend_jax.calibration") / "fitted_rows.json"
    return set(json.loads(file.read_text("utf-8"))) if file.is_file() else set()


def compare(entries: Sequence[Row | Refused], fitted: set[str], predictor: Predictor) -> Json:
    """The validation, with what was fitted: a flag a row, and totals of fitted rows and of the others."""
    data = validate(entries, predictor=predictor)
    rows = [row | {"fitted": row["id"] in fitted} for row in data["rows"]]
    counted = [row for row in rows if row["counted"]]
    parts = {name: totals([row for row in counted if row["fitted"] is flag]) for name, flag in PARTS.items()}
    return data | {"rows": rows, "overall": data["overall"] | parts}


def table(data: Json, entries: Sequence[Row | Refused]) -> str:
    """Everything as Markdown: totals first, then every row."""
    overall, fitted = data["overall"], sum(row["fitted"] for row in data["rows"])
    sets = {"all": overall, "core_validation": overall["core_validation"], **overall["category"]}
    sets |= {name.replace("_", " "): overall[name] for name in PARTS}
    sections = [
        "# Every published measurement against the model",
        f"{overall['modelled']} of {overall['rows']} rows modelled, {overall['skipped']} not (the reason stands in the row). "
        f"{fitted or 'No'} rows took part in fitting. Errors are (predicted − measured) / measured; "
        f"not counted but under their grade: {overall['not_counted']}.",
        "## Overall",
        _totals(sets),
    ]
    for name, title in TITLES.items():
        sections += [f"## {title}", _totals(data["groups"][name])]
    pairs = sorted(zip(data["rows"], entries, strict=True), key=lambda pair: _order(pair[0]))
    sections += ["## Rows", _markdown(COLUMNS, (_row(row, entry) for row, entry in pairs))]
    return "\n\n".join(sections) + "\n"


def _order(row: Json) -> tuple[bool, str, str, str, str]:
    """Modelled rows first, then by chip and kernel."""
    return (row["skipped"] is not None, row["chip"] or "", row["group"] or "", row["op"] or "", row["id"] or "")


def _totals(sets: Mapping[str, Json]) -> str:
    lines = [
        [
            name,
            str(one["n"]),
            *(share_text(one[f"{key}_abs_error"]) for key in ("mean", "median", "p90")),
            _signed(one["mean_error"]),
            number_text(one["rank_correlation"], 3),
        ]
        for name, one in sets.items()
    ]
    return _markdown(("set", *TOTALS), lines)


def _row(row: Json, entry: Row | Refused) -> list[str]:
    skipped = row["skipped"] is not None
    measured = seconds_text(row["measured_s"]) if row["measured_s"] is not None else _as_published(entry)
    return [
        row["id"] or "?",
        row["chip"] or "?",
        row["op"] or "?",
        _shape(entry),
        row["quality"] or "?",
        measured,
        "" if skipped else seconds_text(row["predicted_s"]),
        "" if skipped else _signed(row["error"]),
        "" if skipped else _assumed(row),
        f"not modelled: {row['skipped']}" if skipped else row["bound_by"],
        "yes" if row["fitted"] else "no",
    ]


def _as_published(entry: Row | Refused) -> str:
    return f"{entry.value:g} {entry.unit}" if isinstance(entry, Row) else ""


def _shape(entry: Row | Refused) -> str:
    """Batch, heads, rows, head dim and mask of attention; else the inputs' sizes."""
    if isinstance(entry, Refused):
        return ""
    if entry.q_seq is None:
        return ", ".join("×".join(map(str, shape)) for shape in entry.input_shape)
    heads, rows = f"N{entry.q_heads}/{entry.kv_heads}", f"S{entry.q_seq}/{entry.kv_seq}"
    return f"B{entry.batch} {heads} {rows} D{entry.head_dim}{' causal' if entry.causal else ''} {entry.dtype or ''}".rstrip()


def _assumed(row: Json) -> str:
    """The kernel, its blocks, and the depths that differ from 1; of an operator without a tiling its name."""
    if row["tiling"] is None:
        return row["kernel"]
    tiling = dict(row["tiling"])
    blocks = f"{tiling.pop('block_q')}×{tiling.pop('block_kv')}"
    rest = " ".join(f"{name}={value}" for name, value in tiling.items() if value != 1)
    return f"{row['kernel']} {blocks} {rest}".rstrip()


def _signed(error: float | None) -> str:
    return "n/a" if error is None else f"{error * 100:+.1f} %"


def _markdown(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def write(folder: Path, entries: Sequence[Row | Refused], predictor: Predictor, fitted: set[str]) -> Json:
    """``result.json``, ``table.md`` and ``parity.png`` in ``folder``."""
    data = compare(entries, fitted, predictor)
    write_atomically(folder / "result.json", dumps(data))
    write_atomically(folder / "table.md", table(data, entries))
    write_atomically(folder / "parity.png", parity_plot(data, "png"))
    return data


@click.command()
@click.option("--rows", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=HERE / "rows.json")
@click.option("--out", type=click.Path(exists=True, file_okay=False, path_type=Path), default=HERE, help="Folder to write to.")
def main(rows: Path, out: Path) -> None:
    """Write result.json, table.md and parity.png, and print the totals."""
    data = write(out, read_entries(rows), EveryRow(), fitted_rows())
    click.echo(dumps(data["overall"]), nl=False)


if __name__ == "__main__":
    main()

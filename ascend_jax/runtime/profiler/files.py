"""Writing a profile: each file appears whole or not at all, tables are cut after a million rows, names are those of CANN."""

import csv
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TextIO

from ascend_jax.runtime.profiler.kinds import DataType
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.tables import MSPROF, TORCH, TableText
from ascend_jax.runtime.profiler.trace import write_trace

Style = Literal["msprof", "torch"]
MOST_ROWS = 1_000_000
"""Rows of one table (docs/zh/user_guide/profile_data_file_references.md of Ascend/msprof)."""
NEEDS = {
    "memory_record": DataType.TASK_MEMORY,
    "operator_memory": DataType.TASK_MEMORY,
    "communication_statistic": DataType.HCCL_TRACE,
    "api_statistic": DataType.ACL_API | DataType.RUNTIME_API | DataType.GE_API_L0,
}
"""Tables that there are only where their data was asked for."""


def write_profile(
    profile: Profile, folder: str | Path, *, style: Style = "msprof", stamp: str | None = None, most_rows: int = MOST_ROWS
) -> list[Path]:
    """Write the tables and the timeline below ``folder``; the paths.

    Args:
      profile: what was recorded.
      folder: where the results of this and other recordings go.
      style: ``msprof`` (``PROF_…/mindstudio_profiler_output/op_summary_<stamp>.csv``, ``msprof_<stamp>.json``) or ``torch``
        (``…_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv``, ``trace_view.json``).
      stamp: date and time in the names; None: now.
      most_rows: of one table.
    """
    stamp = stamp or datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:15]
    place = _place(Path(folder), style, stamp)
    tables = MSPROF if style == "msprof" else TORCH
    ending = f"_{stamp}" if style == "msprof" else ""
    written = []
    for name, make in tables.items():
        if name not in NEEDS or profile.data & NEEDS[name]:
            written += _write_table(place, name, ending, make(profile), most_rows)
    timeline = place / (f"msprof{ending}.json" if style == "msprof" else "trace_view.json")
    with replaced(timeline) as file:
        write_trace(profile, file)
    return [*written, timeline]


def _place(folder: Path, style: Style, stamp: str) -> Path:
    """A folder of its own for the recording."""
    number = 1
    while True:
        name = f"PROF_{number:06}_{stamp}" if style == "msprof" else f"{os.uname().nodename}_{number}_{stamp}_ascend_pt"
        place = folder / name / ("mindstudio_profiler_output" if style == "msprof" else "ASCEND_PROFILER_OUTPUT")
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return place


def _write_table(place: Path, name: str, ending: str, table: TableText, most_rows: int) -> list[Path]:
    """One file, or numbered slices of at most ``most_rows`` rows each."""
    rows = iter(table.rows)
    written, number = [], 0
    ahead = list(islice(rows, 1))
    while ahead or not number:
        block = chain(ahead, islice(rows, most_rows - len(ahead)))
        path = place / f"{name}_slice_{number}{ending}.csv"
        with replaced(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.header)
            writer.writerows(block)
        written.append(path)
        ahead, number = list(islice(rows, 1)), number + 1
    if number > 1:
        return written
    whole = place / f"{name}{ending}.csv"
    return [written[0].rename(whole)]


@contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """A file that is there under its name only when it is complete."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            yield file  # pyright: ignore[reportReturnType] (a wrapper of a text file)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            file.close()
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise

"""A bar on the terminal for a search that takes long enough to want one."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tiling_search.render import seconds_text

PATIENCE_S = 1.0


class SearchProgress:
    """Called with the candidates done and their total; shows a bar on stderr once a second has passed and work is left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, doing: str = "searching") -> None:
        self._clock, self._doing = clock, doing
        self._start_s = clock()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar[0].stop()

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and done < total and self._clock() - self._start_s >= PATIENCE_S and sys.stderr.isatty():
            self._bar = _bar(self._doing)
        if self._bar:
            progress, task = self._bar
            progress.update(task, completed=done, total=total)

    def watch(self, evaluated: int, best_s: float | None) -> None:
        """Say how many evaluations a second, and the best so far, beside the bar."""
        if self._bar:
            rate = evaluated / max(self._clock() - self._start_s, 1e-9)
            progress, task = self._bar
            progress.update(task, description=f"{self._doing}, {rate:,.0f}/s, best {seconds_text(best_s)}")


def _bar(doing: str) -> tuple[Progress, TaskID]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress, progress.add_task(doing, total=None)

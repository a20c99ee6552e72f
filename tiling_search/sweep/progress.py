"""How far a sweep is: a bar on a terminal; elsewhere a line now and then, for the log of a job."""

import sys
import time
from collections.abc import Callable

import click

from tiling_search.progress import SearchProgress

LINE_EVERY_S = 30.0


class SweepProgress(SearchProgress):
    """Told of each cell that is done (:meth:`cell`); says how many of ``total`` are, and how long the rest will take.

    Cells from the store take no time: the estimate is of those that were searched.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock, doing="sweeping")
        self._total, self._done, self._searched = total, 0, 0
        self._evaluated, self._began_s, self._said_s = 0, clock(), clock()

    def cell(self, evaluated: int, stored: bool) -> None:
        """One more is done, after so many evaluations."""
        self._done, self._searched, self._evaluated = self._done + 1, self._searched + (not stored), self._evaluated + evaluated
        self(self._done, self._total)
        if not sys.stderr.isatty() and self._clock() - self._said_s >= LINE_EVERY_S:
            self._said_s = self._clock()
            click.echo(self.line(), err=True)

    def line(self) -> str:
        """Where the sweep is, as a sentence."""
        spent_s = self._clock() - self._began_s
        rest = (
            f"about {spent_s / self._searched * (self._total - self._done):,.0f} s to go" if self._searched else "no estimate"
        )
        evaluations = f"{self._evaluated:,} evaluations in {spent_s:,.0f} s"
        return f"{self._done:,} of {self._total:,} cells, {evaluations}, {rest}"

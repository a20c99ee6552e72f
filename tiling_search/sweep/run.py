"""``sweep``: search cell after cell, and keep each in the store as soon as it is done; what is there is not done again."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ascend_jax.tiling.tiling import Tiling
from tiling_search.effort import FULL, Effort
from tiling_search.exhaustive import ALONE, Evaluator
from tiling_search.result import TuningResult
from tiling_search.store.keep import keep_search, search_key
from tiling_search.store.store import Store
from tiling_search.sweep.sharded import OnDevices
from tiling_search.sweep.spec import Cell
from tiling_search.tuner import tune

TOP = 3
"""Runners-up that are kept of each cell, the best included."""


class Swept(NamedTuple):
    """One cell's outcome: the best tiling and its seconds (None where nothing fits), and whether it was in the store."""

    chip: str
    workload: str
    tiling: Tiling | None
    seconds: float | None
    evaluated: int
    stored: bool


def part_of(count: int, part: int, parts: int) -> list[int]:
    """Which of ``count`` cells are those of one of several processes: no two do the same, and each has some of every length.

    >>> part_of(6, 0, 2), part_of(6, 1, 2)
    ([0, 3, 4], [1, 2, 5])
    """
    there_and_back = [*range(parts), *reversed(range(parts))]
    return [place for place in range(count) if there_and_back[place % (2 * parts)] == part]


def sweep(
    cells: Sequence[Cell],
    store: Store | None,
    *,
    evaluators: OnDevices | None = None,
    programs: Path | None = None,
    progress: Callable[[Swept], None] | None = None,
    effort: Effort = FULL,
) -> Iterator[Swept]:
    """Search ``cells`` in order and yield each as it is done; ``effort.stop`` ends the sweep; what it cuts short is lost.

    Args:
      cells: what to search; where several processes search together, the same in each.
      store: read and written by one process; None in the others.
      evaluators: the devices to search on; None for the process's own one.
      programs: as in :func:`tiling_search.tune`.
      progress: told of each cell.
      effort: when to stop.
    """
    share = evaluators or ALONE
    for cell in cells:
        said = share.gather((effort.stop(), _stored(store, cell) if store else None))
        if any(stop for stop, _ in said):
            return
        found = said[0][1] or _searched(store, cell, evaluators or Evaluator.build, programs, effort)
        if found is None:
            return
        if progress:
            progress(found)
        yield found


def _stored(store: Store, cell: Cell) -> Swept | None:
    key = search_key(cell.spec, cell.work, cell.kernel)
    ended = [search for search in store.searches(key) if search.exact]
    if not ended:
        return None
    best = ended[-1].outcome["best"]
    tiling = Tiling(**best["tiling"]) if best else None
    return Swept(cell.spec.name, cell.name, tiling, best and best["latency_s"], 0, True)


def _searched(
    store: Store | None, cell: Cell, evaluators: Callable[..., Evaluator], programs: Path | None, effort: Effort
) -> Swept | None:
    """The outcome, once it is in the store; None if the search was cut short."""
    asked = {"kernel": cell.kernel, "top": TOP, "programs": programs, "effort": effort, "evaluators": evaluators}
    result = tune(cell.spec, cell.work, name=cell.name, **asked)
    if not result.exact:
        return None
    if store:
        keep_search(store, search_key(cell.spec, cell.work, cell.kernel), result, origin="sweep")
    return _outcome(cell, result)


def _outcome(cell: Cell, result: TuningResult) -> Swept:
    best = result.best
    seconds = float(best.report.seconds) if best else None
    return Swept(cell.spec.name, cell.name, best.tiling if best else None, seconds, result.evaluated, False)

"""``sweep``: search cell after cell, and keep each in the store as soon as it is done; what is there is not done again."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ascend_jax.tiling.tiling import Tiling
from tiling_search.effort import FULL, Effort
from tiling_search.store.keep import keep_search, search_key
from tiling_search.store.store import Store
from tiling_search.sweep.sharded import OnDevices
from tiling_search.sweep.spec import Cell
from tiling_search.tuner import tune

Progress = Callable[[int, int], None]


class Swept(NamedTuple):
    """One cell's outcome: the best tiling and its seconds (None where nothing fits), and whether it was in the store."""

    chip: str
    workload: str
    tiling: Tiling | None
    seconds: float | None
    evaluated: int
    stored: bool


def part_of(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """The cells of one of several processes: every ``parts``-th, so that no two do the same."""
    return list(cells[part::parts])


def sweep(
    cells: Sequence[Cell], store: Store, evaluators: OnDevices, *, progress: Progress | None = None, effort: Effort = FULL
) -> Iterator[Swept]:
    """Search ``cells`` in order and yield each as it is done; ``effort.stop`` ends the sweep between two of them."""
    for done, cell in enumerate(cells):
        if effort.stop():
            return
        yield _stored(store, cell) or _searched(store, cell, evaluators, effort)
        if progress:
            progress(done + 1, len(cells))


def _stored(store: Store, cell: Cell) -> Swept | None:
    key = search_key(cell.spec, cell.work, cell.kernel)
    ended = [search for search in store.searches(key) if search.exact]
    if not ended:
        return None
    best = ended[-1].outcome["best"]
    tiling = Tiling(**best["tiling"]) if best else None
    return Swept(cell.spec.name, cell.name, tiling, best and best["latency_s"], 0, True)


def _searched(store: Store, cell: Cell, evaluators: OnDevices, effort: Effort) -> Swept:
    key = search_key(cell.spec, cell.work, cell.kernel)
    result = tune(cell.spec, cell.work, name=cell.name, kernel=cell.kernel, top=3, effort=effort, evaluators=evaluators)
    keep_search(store, key, result, origin="sweep")
    best = result.best
    seconds = float(best.report.seconds) if best else None
    return Swept(cell.spec.name, cell.name, best.tiling if best else None, seconds, result.evaluated, False)

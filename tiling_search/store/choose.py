"""``choose``: which tiling a program should use, and where that comes from. The first of these that has an answer:

1. ``explicit``: the caller's own tiling;
2. ``overlay``: a result laid over this block of code with :func:`overlay`, the innermost first;
3. ``measured``: of the store, the least median of seconds measured for this workload, chip and kernel;
4. ``stored``: of the store, the optimum of a finished search by this very model over this very space;
5. ``tuned``: a search now, whose result goes into the store;
6. ``rule``: :func:`ascend_jax.proposal.propose`, which takes no search.

With ``TILING_SEARCH_ASSERT_HIT=1`` the last two are an error, which says which stored key came closest and where it differs.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.proposal import propose
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from tiling_search.result import TuningResult
from tiling_search.store.database import StoreError
from tiling_search.store.environment import must_hit, store_path
from tiling_search.store.keep import keep, search_key
from tiling_search.store.key import Key
from tiling_search.store.store import Fastest, Store
from tiling_search.tuner import tune

_OVERLAYS: ContextVar[tuple[TuningResult, ...]] = ContextVar("overlays", default=())
TILING_FIELDS = {item.name for item in fields(Tiling)}


class Choice(NamedTuple):
    """A tiling, where it comes from, and its seconds where that source knows them."""

    tiling: Tiling
    source: str
    seconds: float | None


class StoreMiss(LookupError):
    """The store had to answer and cannot; the message says what came closest."""


@contextmanager
def overlay(*results: TuningResult) -> Iterator[None]:
    """Within the block, :func:`choose` answers from ``results`` first, by workload, chip name and kernel.

    >>> from ascend_jax.hardware import load_chip
    >>> from ascend_jax.workload.presets import load_preset
    >>> chip, work = load_chip("310P3"), load_preset("gpt2-prefill-1k")
    >>> with overlay(tune(chip, work, top=1)):
    ...     choose(chip, work).source
    'overlay'
    """
    token = _OVERLAYS.set((*results, *_OVERLAYS.get()))
    try:
        yield
    finally:
        _OVERLAYS.reset(token)


def choose(
    spec: NpuSpec,
    work: Attention,
    *,
    tiling: Tiling | None = None,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    store: Path | str | None = None,
    may_tune: bool = True,
) -> Choice:
    """The tiling of the first source that has one; see the top of this file for their order.

    Args:
      spec, work, kernel, overlap: as :func:`tiling_search.tune`.
      tiling: the caller's own, which always wins.
      store: the store's file; the user's if None.
      may_tune: whether a miss may start a search.

    Raises:
      StoreMiss: see TILING_SEARCH_ASSERT_HIT above.
      ValueError: no such kernel or overlap, or a store that cannot be used.
    """
    if tiling is not None:
        return Choice(tiling, "explicit", None)
    dataflow, overlapping = chosen(spec, kernel, overlap)
    if laid := _overlaid(spec, work, dataflow.name):
        return laid
    place = store_path(store)
    key = search_key(spec, work, dataflow, overlapping)
    if place and place.exists() and (found := _stored(place, key)):
        return found
    if must_hit():
        raise StoreMiss(f"TILING_SEARCH_ASSERT_HIT: no tiling stored for this workload: {_why(place, key)}")
    if may_tune:
        result = tune(spec, work, kernel=dataflow, overlap=overlapping, top=1)
        if place:
            keep(place, key, result=result)
        if result.best:
            return Choice(result.best.tiling, "tuned", float(result.best.report.seconds))
    return Choice(propose(spec, work, kernel=dataflow).tiling, "rule", None)


def _overlaid(spec: NpuSpec, work: Attention, kernel: str) -> Choice | None:
    for result in _OVERLAYS.get():
        if (result.chip, result.workload, result.kernel) == (spec.name or spec.architecture, work, kernel) and result.best:
            return Choice(result.best.tiling, "overlay", float(result.best.report.seconds))
    return None


def _stored(place: Path, key: Key) -> Choice | None:
    try:
        with Store(place) as store:
            measured, predicted = store.fastest_measured(key), store.fastest(key)
    except sqlite3.Error as error:
        raise StoreError(f"{place} cannot be read ({error}): TILING_SEARCH_DISABLE_STORE=1 does without") from error
    for found, source in ((measured, "measured"), (predicted, "stored")):
        if found and {"block_q", "block_kv"} <= set(found.configuration) <= TILING_FIELDS:
            return _choice(found, source)
    return None


def _choice(found: Fastest, source: str) -> Choice:
    values: dict[str, Any] = found.configuration
    return Choice(Tiling(**values), source, found.seconds)


def _why(place: Path | None, key: Key) -> str:
    if place is None:
        return "stores are disabled by TILING_SEARCH_DISABLE_STORE"
    if not place.exists():
        return f"{place} does not exist"
    with Store(place) as store:
        return store.why_missed(key)

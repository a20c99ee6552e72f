"""Searches and evaluations of this package as rows of a store, and the way from the command line there."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from tiling_search.jsonout import tuning_dict
from tiling_search.result import Candidate, TuningResult, tiling_dict
from tiling_search.space import SPACES
from tiling_search.store.database import StoreError
from tiling_search.store.environment import store_path
from tiling_search.store.key import Key, key_of
from tiling_search.store.record import Record
from tiling_search.store.store import Search, Store


def record_of(candidate: Candidate, origin: str) -> Record:
    """A prediction; one that does not fit is a failure by constraints, whose reason begins with the verdict's name."""
    fits = candidate.verdict is Verdict.FITS
    return Record(
        configuration=tiling_dict(candidate.tiling),
        seconds=float(candidate.report.seconds) if fits else None,
        invalidity="correct" if fits else "constraints",
        reason="" if fits else f"{candidate.verdict.name}: {candidate.message}",
        origin=origin,
    )


def search_key(
    spec: NpuSpec,
    work: Attention,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    space: str = "usual",
) -> Key:
    """The key of the search that ``tune`` would make."""
    dataflow, _ = chosen(spec, kernel, overlap)
    return key_of(spec, work, kernel=dataflow, overlap=overlap, space=SPACES[space](spec, work, dataflow))


def keep_search(store: Store, key: Key, result: TuningResult, origin: str = "tune") -> int:
    """Add a search: what it found in whole, and a row each for the fastest, the Pareto front and the nearest that fails."""
    named = [*result.top, *result.pareto, *([result.nearest] if result.nearest else [])]
    rows = {tuple(tiling_dict(one.tiling).items()): record_of(one, origin) for one in named}
    outcome = tuning_dict(result)
    del outcome["evaluations_per_s"]  # how busy the machine was is no part of what was found
    return store.add(key, rows.values(), [Search(result.exact, outcome)])


def keep(path: Path | None, key: Key, records: Iterable[Record] = (), result: TuningResult | None = None) -> str | None:
    """Add to the store at ``path`` (None: the user's, unless stores are disabled); why it cannot be done, as a sentence.

    A command has its answer by then, and does not fail because the disk is full.
    """
    place = store_path(path)
    if place is None:
        return None
    try:
        with Store(place) as store:
            store.add(key, records)
            if result:
                keep_search(store, key, result)
    except (StoreError, sqlite3.Error, OSError) as error:
        return f"not stored: {error}"
    return None

"""A session's beginning, and its measurements as rows of a store."""

from dataclasses import asdict
from pathlib import Path

from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.workload.attention import Attention
from tiling_search.result import tiling_dict
from tiling_search.session.pool import MOST, make_pool
from tiling_search.session.session import Session, Told
from tiling_search.store.environment import seed as seed_of
from tiling_search.store.keep import search_key
from tiling_search.store.key import Key
from tiling_search.store.record import Record


def begin(
    spec: NpuSpec,
    work: Attention,
    *,
    name: str = "",
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    most: int = MOST,
    seed: int | None = None,
    programs: Path | None = None,
) -> Session:
    """A session for ``work`` on ``spec`` in which nothing was asked yet.

    Args:
      spec, work, name, kernel, overlap, programs: as :func:`tiling_search.tune`.
      most: size of the pool.
      seed: of the draws of confidence intervals; else TILING_SEARCH_SEED, else 0.

    Raises:
      ValueError: nothing fits; no such kernel or overlap.
    """
    pool = make_pool(spec, work, kernel=kernel, overlap=overlap, most=most, programs=programs)
    return Session(
        key=asdict(search_key(spec, work, kernel, overlap)),
        name=name,
        tilings=pool.tilings,
        model_s=tuple(float(seconds) for seconds in pool.seconds),
        seed=seed_of(seed),
    )


def records_of(session: Session, told: list[Told]) -> tuple[Key, list[Record]]:
    """Measurements as rows of a store, and their key."""
    rows = [
        Record(
            configuration=tiling_dict(session.tilings[one.place]),
            kind="measured",
            seconds=one.seconds,
            invalidity=one.invalidity,
            reason=one.reason,
            origin="session",
            at=one.at,
            uid=one.uid,
        )
        for one in told
    ]
    return Key(**session.key), rows

"""``Constants``: α, β, γ of one generation of chips, and what its HCCL supports, from ``constants.toml`` or a file like it."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ascend_jax._toml import read_toml
from ascend_jax.runtime.hccl.kinds import Collective, DataType, ReduceOp

GIB = 2**30
US = 1e-6


@dataclass(frozen=True, kw_only=True)
class Link:
    """One way between chips.

    Attributes:
      small_alpha_s, large_alpha_s: fixed part of one step, up to and above ``threshold_bytes`` that it moves.
      beta_s_per_byte: seconds per byte moved.
      gamma_s_per_byte: seconds per byte reduced.
      transport: as the profiler names it.
    """

    small_alpha_s: float
    large_alpha_s: float
    threshold_bytes: float
    beta_s_per_byte: float
    gamma_s_per_byte: float
    transport: str

    def alpha_s(self, step_bytes: float) -> float:
        """Fixed part of a step that moves so many bytes."""
        return self.small_alpha_s if step_bytes <= self.threshold_bytes else self.large_alpha_s


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the times of one generation of chips are made of; vary one with :func:`dataclasses.replace`.

    Attributes:
      label: what kind of numbers these are.
      level0: algorithm within a server (``mesh``, ``ring``, ``double_ring``, ``star``).
      level1: how the algorithm between servers is chosen: ``cheapest``, ``nhr`` or ``rhd_or_ring``.
      server_ranks: chips of a server, where nothing else is said.
      intra, inter: the ways inside a server and between servers.
      notify_wait_s: a wait in the profile.
      choice_alpha_s, choice_bytes_per_s: with which the cheapest algorithm is chosen.
      buffer_bytes: of each of the two buffers that a communicator keeps on its device (``HCCL_BUFFSIZE``).
      pipeline_bytes, pipeline_all_reduce_bytes: share of one rank from which it is the pipeline.
      reduced, moved: types that reductions take and that the other operators take.
      not_reduced: types of ``reduced`` that one reduction does not take.
      supports: algorithm between servers → primitives that it does.
    """

    label: str
    generation: str
    level0: str
    level1: str
    server_ranks: int
    intra: Link
    inter: Link
    notify_wait_s: float
    choice_alpha_s: float
    choice_bytes_per_s: float
    buffer_bytes: int
    pipeline_bytes: int
    pipeline_all_reduce_bytes: int
    reduced: frozenset[DataType]
    moved: frozenset[DataType]
    not_reduced: dict[ReduceOp, frozenset[DataType]]
    supports: dict[str, frozenset[str]]

    def takes(self, collective: Collective, dtype: DataType, op: ReduceOp | None) -> bool:
        """Whether the operator takes this type with this reduction."""
        if not collective.reduces or op is None:
            return dtype in self.moved
        return dtype in self.reduced and dtype not in self.not_reduced.get(op, frozenset())


def load_constants(chip: str, path: str | Path | None = None) -> Constants:
    """The constants of a chip by its name (``Ascend910B3``), from ``path`` or from the file of the package.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no TOML, or no generation of it has such a chip.

    >>> constants = load_constants("Ascend910B3")
    >>> constants.generation, constants.level0, round(1e-9 / constants.intra.beta_s_per_byte, 2)
    ('910b', 'mesh', 19.65)
    """
    table = _packaged() if path is None else read_toml(Path(path))
    found = {
        name: key for key, entry in table["chips"].items() for name in entry["names"] if chip.lower().startswith(name.lower())
    }
    if not found:
        known = ", ".join(name for entry in table["chips"].values() for name in entry["names"])
        raise ValueError(f"chip {chip!r} has no constants for collectives; known are {known}; give CommConfig(constants=…)")
    return _constants(table, found[max(found, key=len)])


@cache
def _packaged() -> dict[str, Any]:
    return read_toml(files("ascend_jax.runtime.hccl") / "constants.toml")


def _constants(table: dict[str, Any], key: str) -> Constants:
    chip, task, choice = table["chips"][key], table["task"], table["selection"]
    notify_s = (task["notify_record_us"] + task["notify_wait_us"]) * US
    gamma = 1 / (task["reduce_gb_per_s"] * 1e9)
    return Constants(
        label=table["label"],
        generation=key,
        level0=chip["level0"],
        level1=chip["level1"],
        server_ranks=chip["server_ranks"],
        intra=Link(
            small_alpha_s=task["sdma_small_us"] * US + notify_s,
            large_alpha_s=task["sdma_large_us"] * US + notify_s,
            threshold_bytes=task["sdma_threshold_bytes"],
            beta_s_per_byte=1 / (chip["intra_gib_per_s"] * GIB),
            gamma_s_per_byte=gamma,
            transport="SDMA",
        ),
        inter=Link(
            small_alpha_s=task["rdma_us"] * US + notify_s,
            large_alpha_s=task["rdma_us"] * US + notify_s,
            threshold_bytes=0,
            beta_s_per_byte=1 / (chip["inter_gib_per_s"] * GIB),
            gamma_s_per_byte=gamma,
            transport="RDMA",
        ),
        notify_wait_s=task["notify_wait_us"] * US,
        choice_alpha_s=choice["latency_us"] * US,
        choice_bytes_per_s=chip["inter_gib_per_s"] * GIB,
        buffer_bytes=choice["buffer_mib"] * 2**20,
        pipeline_bytes=choice["pipeline_bytes"],
        pipeline_all_reduce_bytes=choice["pipeline_all_reduce_bytes"],
        reduced=_types(table["reduce_types"][key]),
        moved=_types(table["moved_types"][key]),
        not_reduced={ReduceOp[name]: _types(types) for name, types in table["not_reduced"][key].items()},
        supports={name: frozenset(what) for name, what in table["supports"].items()},
    )


def _types(names: list[str]) -> frozenset[DataType]:
    return frozenset(DataType[name] for name in names)

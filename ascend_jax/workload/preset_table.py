"""The presets as plain rows: names, shapes and masks of published models. Imports no jax, so that listing them is quick."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from ascend_jax._toml import read_toml

PHASES = ("prefill", "decode", "encode")
DECODE_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One row of the table: the fields of :class:`~ascend_jax.workload.attention.Attention`, with the mask as text.

    ``model`` and ``phase`` (``prefill``, ``decode``, ``encode``) are for people; lengths are tokens, dims columns per head.
    """

    name: str
    model: str
    phase: str
    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int
    mask: str
    dtype: str
    layout: str
    latent: bool = False


@cache
def preset_table() -> dict[str, Preset]:
    """Every preset by name, in the order of ``presets.toml`` (which gives the source of each model)."""
    table = read_toml(resources.files("ascend_jax.workload") / "presets.toml")
    return {row.name: row for model, entry in table.items() for row in preset_rows(model, entry)}


def preset_names() -> tuple[str, ...]:
    """Names of all presets, ``<model>-<phase>-<length>``."""
    return tuple(preset_table())


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
      ValueError: there is none; the message lists near names.
    """
    table = preset_table()
    if name in table:
        return table[name]
    near = get_close_matches(name, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"presets are named like {next(iter(table))}"
    raise ValueError(f"no preset {name!r}: {hint} (`tiling-search workloads` or preset_names() lists all {len(table)})")


def preset_rows(model: str, entry: dict[str, Any]) -> Iterator[Preset]:
    """The presets of one model's table, written as in ``presets.toml``.

    Raises:
      TypeError, KeyError: it has a word that a preset lacks, or lacks one that a preset needs.
    """
    shared = {key: value for key, value in entry.items() if key not in PHASES}
    for phase in PHASES:
        given = entry.get(phase, [])
        own = dict(given) if isinstance(given, dict) else {"lengths": given}
        for length in own.pop("lengths"):
            yield _row(model, phase, length, shared | own)


def _row(model: str, phase: str, length: str, shape: dict[str, Any]) -> Preset:
    tokens = int(length.removesuffix("k")) * (1024 if length.endswith("k") else 1)
    decode = phase == "decode"
    defaults = {"value_dim": shape["head_dim"], "dtype": "bfloat16", "layout": "BSND", "batch": DECODE_BATCH if decode else 1}
    identity = {"name": f"{model}-{phase}-{length}", "model": model, "phase": phase}
    return Preset(**identity, q_len=1 if decode else tokens, kv_len=tokens, **(defaults | shape))

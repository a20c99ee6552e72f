"""``SPEC.toml``: which workloads on which chips. The pairs are in a fixed order, so that processes can share them out.

chips = ["910b3", "mine.toml"]
presets = ["gpt2-prefill-1k"]     # by name
models = ["llama3-8b"]            # and all presets of these models,
phases = ["prefill"]              #   of these phases [all],
lengths = [1024, 8192]            #   at these key lengths instead of the model's own (q_len follows, except in decode)
masks = ["causal", "none"]        # each instead of the preset's own mask
kernel = "auto"
"""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ascend_jax.hardware.catalog import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.preset_table import PHASES, Preset, find_preset, preset_table
from ascend_jax.workload.presets import load_preset

FIELDS = {
    **dict.fromkeys(("chips", "presets", "models", "phases", "masks"), str),
    "lengths": int,
}


class Cell(NamedTuple):
    """One search of a sweep."""

    spec: NpuSpec
    name: str
    work: Attention
    kernel: str


def read_sweep(path: Path) -> list[Cell]:
    """The searches that a file asks for.

    Raises:
      OSError: it cannot be read.
      ValueError: it is no TOML, has a field that does not exist or is of another type, or names what there is not.
    """
    data = tomllib.loads(path.read_text("utf-8"))
    _check(data)
    chips = [load_chip(_chip(name, path.parent)) for name in data["chips"]]
    kernel = data.get("kernel", "auto")
    works = list(dict.fromkeys(_works(data)))
    if not works:
        raise ValueError(f"{path} asks for no workload: give presets, or models")
    return [Cell(spec, name, work, kernel) for spec in chips for name, work in works]


def _check(data: dict[str, Any]) -> None:
    for name, value in data.items():
        if name == "kernel" and isinstance(value, str):
            continue
        if name not in FIELDS:
            raise ValueError(f"{name!r} is no field of a sweep: there are {', '.join(FIELDS)} and kernel")
        if not isinstance(value, list) or not all(type(one) is FIELDS[name] for one in value):
            raise ValueError(f"{name} must be a list of {'whole numbers' if FIELDS[name] is int else 'texts'}")
    if not data.get("chips"):
        raise ValueError('chips are missing: give at least one, such as chips = ["910b3"]')
    if unknown := set(data.get("phases", [])) - set(PHASES):
        raise ValueError(f"phase {min(unknown)!r} must be one of {', '.join(PHASES)}")


def _chip(name: str, folder: Path) -> str:
    """Files are named as seen from the sweep's own."""
    return str(folder / name) if name.endswith(".toml") else name


def _works(data: dict[str, Any]) -> Iterator[tuple[str, Attention]]:
    masks = [Mask.parse(text) for text in data.get("masks", [])] or [None]
    for name, work in _lengthened(data):
        for mask in masks:
            yield (name, work) if mask is None else (f"{name} with mask={mask}", replace(work, mask=mask))


def _lengthened(data: dict[str, Any]) -> Iterator[tuple[str, Attention]]:
    for name in data.get("presets", []):
        yield name, load_preset(find_preset(name).name)
    table = preset_table().values()
    for model in data.get("models", []):
        rows = [row for row in table if row.model == model]
        if not rows:
            raise ValueError(f"model {model!r} is not among {', '.join(dict.fromkeys(row.model for row in table))}")
        rows = [row for row in rows if row.phase in data.get("phases", PHASES)]
        if not data.get("lengths"):
            yield from ((row.name, load_preset(row.name)) for row in rows)
            continue
        for row in {row.phase: row for row in rows}.values():
            yield from (_at_length(row, length) for length in data["lengths"])


def _at_length(row: Preset, length: int) -> tuple[str, Attention]:
    q_len = row.q_len if row.phase == "decode" else length
    return f"{row.model}-{row.phase}-{length}", replace(load_preset(row.name), q_len=q_len, kv_len=length)

"""``SPEC.toml``: which workloads on which chips. The pairs are in a fixed order, so that processes can share them out.

chips = ["910b3", "mine.toml"]
presets = ["gpt2-prefill-1k"]     # by name
models = ["llama3-8b"]            # and all presets of these models,
phases = ["prefill"]              #   of these phases [all],
lengths = [1024, 8192]            #   at these key lengths instead of the model's own (q_len follows, except in decode)
masks = ["causal", "none"]        # each instead of the preset's own mask
kernel = "auto"
[model.mine]                      # a model of one's own, for ``models``, in the words of presets.toml
q_heads = 32
kv_heads = 8
head_dim = 64
mask = "causal"
prefill = ["4k"]                  # its phases, each with a length of its own
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ascend_jax._toml import read_toml
from ascend_jax.hardware.catalog import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.preset_table import PHASES, Preset, find_preset, preset_rows, preset_table
from ascend_jax.workload.presets import load_preset, preset_workload

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
    data = read_toml(path)
    _check(data)
    chips = [load_chip(_chip(name, path.parent)) for name in data["chips"]]
    kernel = data.get("kernel", "auto")
    works = list(dict.fromkeys(_works(data)))
    if not works:
        raise ValueError(f"{path} asks for no workload: give presets, or models")
    return [Cell(spec, name, work, kernel) for spec in chips for name, work in works]


def _check(data: dict[str, Any]) -> None:
    for name, value in data.items():
        if (name == "kernel" and isinstance(value, str)) or (name == "model" and isinstance(value, dict)):
            continue
        if name not in FIELDS:
            raise ValueError(f"{name!r} is no field of a sweep: there are {', '.join(FIELDS)}, kernel and [model.NAME]")
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
    table = [*(row for own in data.get("model", {}).items() for row in _own_rows(*own)), *preset_table().values()]
    for model in data.get("models", []):
        rows = [row for row in table if row.model == model]
        if not rows:
            raise ValueError(f"model {model!r} is not among {', '.join(dict.fromkeys(row.model for row in table))}")
        rows = [row for row in rows if row.phase in data.get("phases", PHASES)]
        if not data.get("lengths"):
            yield from ((row.name, preset_workload(row)) for row in rows)
            continue
        for row in {row.phase: row for row in rows}.values():
            yield from (_at_length(row, length) for length in data["lengths"])


def _own_rows(model: str, entry: Any) -> list[Preset]:
    """The rows of a model of one's own."""
    if any(row.model == model for row in preset_table().values()):
        raise ValueError(f"[model.{model}] has the name of a preset's model: give it another")
    try:
        rows = list(preset_rows(model, entry))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"[model.{model}] must be written as a model of presets.toml is: {error}") from error
    if not rows:
        raise ValueError(f'[model.{model}] has no phase: give at least one, such as prefill = ["4k"]')
    return rows


def _at_length(row: Preset, length: int) -> tuple[str, Attention]:
    q_len = row.q_len if row.phase == "decode" else length
    return f"{row.model}-{row.phase}-{length}", replace(preset_workload(row), q_len=q_len, kv_len=length)

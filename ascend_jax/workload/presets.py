"""Workloads of published models by name."""

from dataclasses import asdict
from typing import Any

from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.preset_table import Preset, find_preset, preset_names

__all__ = ["load_preset", "preset_names"]


def load_preset(name: str) -> Attention:
    """The workload of that name, such as ``llama3-8b-prefill-8k``; ``presets.toml`` says what the phases mean.

    Raises:
      ValueError: there is no such preset; the message lists near names.

    >>> work = load_preset("llama3-8b-prefill-8k")
    >>> work.q_heads, work.kv_heads, work.q_len, work.head_dim, str(work.mask), work.dtype
    (32, 8, 8192, 128, 'causal', 'bfloat16')
    """
    return preset_workload(find_preset(name))


def preset_workload(row: Preset) -> Attention:
    """The workload of a row of the table, or of one of a person's own."""
    fields: dict[str, Any] = {key: value for key, value in asdict(row).items() if key not in ("name", "model", "phase")}
    fields["mask"] = Mask.parse(row.mask)
    return Attention(**fields)

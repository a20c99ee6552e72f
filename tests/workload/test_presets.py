"""Presets: every row is a valid workload, names are found or nearly so, and listing them needs no jax."""

import subprocess
import sys
from dataclasses import fields

import pytest

from ascend_jax.workload.attention import Attention
from ascend_jax.workload.preset_table import Preset, preset_table
from ascend_jax.workload.presets import load_preset, preset_names


def test_every_preset_is_a_valid_workload() -> None:
    for name, row in preset_table().items():
        work = load_preset(name)
        for field in fields(Attention):
            asked = getattr(work, field.name)
            assert (str(asked) if field.name == "mask" else asked) == getattr(row, field.name), (name, field.name)


def test_rows_hold_what_attention_takes() -> None:
    assert {field.name for field in fields(Preset)} == {field.name for field in fields(Attention)} | {"name", "model", "phase"}


@pytest.mark.parametrize(
    ("name", "shape"),  # batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim, mask, dtype
    [
        ("llama3-8b-prefill-8k", (1, 32, 8, 8192, 8192, 128, 128, "causal", "bfloat16")),
        ("llama3-70b-prefill-128k", (1, 64, 8, 131072, 131072, 128, 128, "causal", "bfloat16")),
        ("qwen2.5-7b-decode-32k", (8, 28, 4, 1, 32768, 128, 128, "causal", "bfloat16")),
        ("qwen2.5-72b-prefill-1k", (1, 64, 8, 1024, 1024, 128, 128, "causal", "bfloat16")),
        ("mistral-7b-prefill-32k", (1, 32, 8, 32768, 32768, 128, 128, "band:4095,0", "bfloat16")),
        ("deepseek-v3-mla-prefill-4k", (1, 128, 128, 4096, 4096, 192, 128, "causal", "bfloat16")),
        ("deepseek-v3-mla-decode-4k", (8, 128, 1, 1, 4096, 576, 512, "causal", "bfloat16")),
        ("gpt2-prefill-1k", (1, 12, 12, 1024, 1024, 64, 64, "causal", "float16")),
        ("bert-large-encode-512", (1, 16, 16, 512, 512, 64, 64, "none", "float16")),
    ],
)
def test_published_shapes(name: str, shape: tuple) -> None:
    work = load_preset(name)
    lengths = work.q_len, work.kv_len
    assert (
        work.batch,
        work.q_heads,
        work.kv_heads,
        *lengths,
        work.head_dim,
        work.value_dim,
        str(work.mask),
        work.dtype,
    ) == shape


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama3-8b-prefil-8k", "no preset 'llama3-8b-prefil-8k': did you mean llama3-8b-prefill-8k"),
        ("gpt2-prefill-8k", "did you mean gpt2-prefill-1k"),
        ("???", r"presets are named like llama3-8b-prefill-1k \(`tiling-search workloads` or preset_names\(\) lists all"),
    ],
)
def test_a_miss_names_what_is_near(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_preset(name)


def test_listing_imports_no_jax() -> None:
    code = "import sys; from ascend_jax.workload import preset_table as t; print(len(t.preset_names()), 'jax' in sys.modules)"
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == [str(len(preset_names())), "False"]

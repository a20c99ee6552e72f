"""From flags to a workload and from text to a tiling."""

from typing import Any

import pytest

from ascend_jax import Attention, Mask, load_preset
from tiling_search.asked import MOST, tiling_from, workload_from

LEAST = {"q_heads": 8, "q_len": 512, "head_dim": 64}


def test_what_is_left_out_follows_from_what_is_given() -> None:
    name, work = workload_from(None, LEAST | {"mask": None, "dtype": None})
    assert name == "custom"
    assert work == Attention(batch=1, q_heads=8, kv_heads=8, q_len=512, kv_len=512, head_dim=64, value_dim=64)
    assert (work.dtype, work.layout, str(work.mask)) == ("float16", "BNSD", "none")


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ({"batch": 3}, "batch", 3),
        ({"kv_heads": 2}, "kv_heads", 2),
        ({"kv_len": 64}, "kv_len", 64),
        ({"value_dim": 32}, "value_dim", 32),
        ({"dtype": "bf16"}, "dtype", "bfloat16"),
        ({"mask": "prefix:9"}, "mask", Mask(kind="prefix", prefix=9)),
        ({"layout": "bsh"}, "layout", "BSH"),
    ],
)
def test_each_flag_sets_its_field(flag: dict[str, Any], field: str, value: object) -> None:
    _, work = workload_from(None, LEAST | flag)
    assert getattr(work, field) == value


def test_a_flag_replaces_one_field_of_a_preset() -> None:
    preset = load_preset("llama3-8b-prefill-8k")
    name, work = workload_from("llama3-8b-prefill-8k", {"q_len": 64, "mask": None})
    assert (work.q_len, work.kv_len, work.q_heads, work.layout) == (64, preset.kv_len, preset.q_heads, preset.layout)
    assert name == "llama3-8b-prefill-8k with q_len=64"
    assert workload_from("llama3-8b-prefill-8k", {"q_len": None}) == ("llama3-8b-prefill-8k", preset)


def test_lists_of_lengths_are_tnd_unless_another_layout_is_asked_for() -> None:
    _, work = workload_from(None, LEAST | {"q_len": (100, 200)})
    assert (work.q_len, work.kv_len, work.layout) == ((100, 200), (100, 200), "TND")
    _, work = workload_from("gpt2-prefill-1k", {"q_len": (1, 2), "kv_len": (3, 4)})
    assert work.layout == "TND"
    with pytest.raises(ValueError, match=r"layout='BNSD'.*use TND"):
        workload_from(None, LEAST | {"q_len": (100, 200), "layout": "BNSD"})


@pytest.mark.parametrize("missing", ["q_heads", "q_len", "head_dim"])
def test_what_is_missing_is_named(missing: str) -> None:
    flags = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(ValueError, match=f"^--{missing.replace('_', '-')} missing"):
        workload_from(None, flags)


@pytest.mark.parametrize("flags", [{"q_len": MOST + 1}, {"mask": f"band:{MOST + 1},0"}, {"q_len": (1, MOST + 1)}])
def test_numbers_that_no_formula_counts_exactly_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="beyond 2\\^53"):
        workload_from(None, LEAST | flags)


def test_a_tiling_as_text() -> None:
    tiling = tiling_from("block_q=128, block_kv = 512,preload=0")
    assert (tiling.block_q, tiling.block_kv, tiling.preload, tiling.kv_depth) == (128, 512, 0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be field=number"),
        ("block_q", "must be field=number"),
        ("block_q=1,", "'' must be field=number"),
        ("block_q=16", "block_kv missing"),
        ("preload=1", "block_q, block_kv missing"),
        ("block_q=16,block_kv=sixteen", "block_kv=sixteen must be a whole number"),
        ("block_q=16,block_kv=16,kvdepth=1", "'kvdepth': did you mean kv_depth"),
        ("block_q=16,block_kv=16,zzz=1", "'zzz': there are block_q, block_kv, vector_rows"),
        (f"block_q={MOST + 1},block_kv=16", "beyond 2\\^53"),
    ],
)
def test_what_is_wrong_with_a_tiling_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiling_from(text)

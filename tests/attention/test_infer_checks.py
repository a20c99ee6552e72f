"""What npu_fused_infer_attention_score refuses, with which first line, and what it takes: shapes only, nothing is computed."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ascend_jax.attention.errors import ParamInvalidError, ParamNullptrError, TilingError
from ascend_jax.attention.infer import npu_fused_infer_attention_score

Shape = jax.ShapeDtypeStruct
Calls = dict[str, Any]


def f16(*shape: int) -> Shape:
    return Shape(shape, jnp.float16)


def bf16(*shape: int) -> Shape:
    return Shape(shape, jnp.bfloat16)


def i8(*shape: int) -> Shape:
    return Shape(shape, jnp.int8)


MASK = i8(2048, 2048)
ONE = Shape((1,), jnp.int64)
DENSE: Calls = {"query": f16(2, 8, 64, 128), "key": f16(2, 2, 256, 128), "value": f16(2, 2, 256, 128)}
DENSE |= {"num_heads": 8, "num_key_value_heads": 2, "input_layout": "BNSD"}
DECODE: Calls = DENSE | {"query": f16(2, 8, 1, 128)}
PACKED: Calls = DENSE | {"query": f16(100, 8, 128), "key": f16(90, 2, 128), "value": f16(90, 2, 128), "input_layout": "TND"}
PACKED |= {"actual_seq_lengths": (60, 100), "actual_seq_lengths_kv": (30, 90)}
PAGES: Calls = {"block_table": Shape((2, 4), jnp.int32), "block_size": 128, "actual_seq_lengths_kv": (400, 512)}
PAGED: Calls = DENSE | PAGES | {"key": f16(9, 2, 128, 128), "value": f16(9, 2, 128, 128)}
MLA: Calls = {"query": f16(2, 16, 1, 512), "key": f16(2, 1, 256, 512), "value": f16(2, 1, 256, 512), "input_layout": "BNSD"}
MLA |= {"query_rope": f16(2, 16, 1, 64), "key_rope": f16(2, 1, 256, 64), "num_heads": 16, "num_key_value_heads": 1}
PREFIX: Calls = {"key_shared_prefix": f16(1, 2, 32, 128), "value_shared_prefix": f16(1, 2, 32, 128)}
ONLY_950: Calls = {"chip": "950"}


def f32(*shape: int) -> Shape:
    return Shape(shape, jnp.float32)


def fp8(*shape: int) -> Shape:
    return Shape(shape, jnp.float8_e4m3fn)


def e8m0(*shape: int) -> Shape:
    return Shape(shape, jnp.float8_e8m0fnu)


SCALES: Calls = {"key_antiquant_scale": f16(1), "value_antiquant_scale": f16(1)}
ANTI: Calls = DECODE | ONLY_950 | SCALES | {"key": i8(2, 2, 256, 128), "value": i8(2, 2, 256, 128)}
PER_TOKEN: Calls = {"key_antiquant_mode": 1, "value_antiquant_mode": 1}
PER_TOKEN |= {"key_antiquant_scale": f32(2, 256), "value_antiquant_scale": f32(2, 256)}
INT8: Calls = DENSE | ONLY_950 | {"query": i8(2, 8, 64, 128), "key": i8(2, 2, 256, 128), "value": i8(2, 2, 256, 128)}
INT8 |= {"quant_scale1": f32(1), "dequant_scale1": f32(1), "dequant_scale2": f32(1)}
FP8_MLA: Calls = MLA | ONLY_950 | {"query": fp8(2, 16, 1, 512), "key": fp8(2, 1, 256, 512), "value": fp8(2, 1, 256, 512)}
FP8_MLA |= {"query_rope": bf16(2, 16, 1, 64), "key_rope": bf16(2, 1, 256, 64), "query_quant_mode": 3}
FP8_MLA |= {"dequant_scale_query": f32(2, 16, 1), "key_antiquant_scale": f32(1), "value_antiquant_scale": f32(1)}
MX: Calls = PACKED | ONLY_950 | {"query": fp8(100, 8, 128), "key": fp8(90, 2, 128), "value": fp8(90, 2, 128)}
MX |= {"query_quant_mode": 6, "key_antiquant_mode": 6, "value_antiquant_mode": 8, "dequant_scale_query": e8m0(100, 8, 2, 2)}
MX |= {"key_antiquant_scale": e8m0(90, 2, 2, 2), "value_antiquant_scale": e8m0(2, 2, 128, 2)}


def shapes_of(call: Calls) -> Any:
    """Shapes and types of the results."""
    is_tensor = lambda x: isinstance(x, Shape) or (isinstance(x, list) and isinstance(x[0], Shape))  # noqa: E731
    tensors = {name: x for name, x in call.items() if is_tensor(x)}
    rest = {name: x for name, x in call.items() if name not in tensors}
    return jax.eval_shape(lambda given: npu_fused_infer_attention_score(**given, **rest), tensors)


REFUSED = {
    "layouts": [
        (DENSE, {"input_layout": "SBH"}, "input_layout='SBH': must be one of BSH"),
        (DENSE, {"input_layout": "BNSD_NBSD"}, "input_layout='BNSD_NBSD': must be one of BSH, BSND"),
        (DENSE, {"input_layout": "BSH"}, "query of shape (2, 8, 64, 128): must have 3 dimensions in layout BSH"),
        (PACKED, {"input_layout": "BNSD"}, "query of shape (100, 8, 128): must have 4 dimensions in layout BNSD"),
        (MLA, {"input_layout": "BNSD_BSND"}, "input_layout='BNSD_BSND': must be one of BSH, BSND, BNSD, TND, BNSD_NBSD"),
    ],
    "heads": [
        (DENSE, {"num_heads": 0}, "num_heads=0: must be greater than 0"),
        (DENSE, {"num_heads": 4}, "query with N=8: must be num_heads=4"),
        (DENSE, {"num_key_value_heads": 3}, "num_heads=8: must be a multiple of num_key_value_heads=3"),
        (DENSE, {"num_key_value_heads": 4}, "key with N=2: must be num_key_value_heads=4"),
        (MLA, {"num_key_value_heads": 2}, "num_heads=16, num_key_value_heads=2: with D=512 and a rope"),
    ],
    "shapes": [
        (DENSE, {"key": f16(2, 2, 256, 64)}, "value of shape (2, 2, 256, 128): must match key of shape (2, 2, 256, 64)"),
        (DENSE, {"key": f16(3, 2, 256, 128), "value": f16(3, 2, 256, 128)}, "key of batch 3: must be the batch of query, 2"),
        (DENSE, {"value": f16(2, 2, 256, 136)}, "D=128 of query: must be at least D=136 of value"),
        (
            DENSE | ONLY_950,
            {"value": f16(2, 2, 256, 136)},
            "D=136 of value: must be at most 128 where D of query and value differ",
        ),
        (
            DENSE,
            {"query": f16(2, 8, 64, 528), "key": f16(2, 2, 9, 528), "value": f16(2, 2, 9, 528)},
            "D=528 of query: must be at most 512",
        ),
        (
            DENSE,
            {"query": f16(2, 8, 64, 72), "key": f16(2, 2, 9, 72), "value": f16(2, 2, 9, 72)},
            "D=72 of value in layout BNSD: must be a multiple of 16",
        ),
        (
            DENSE,
            {"key": [f16(1, 2, 9, 128)] * 3, "value": [f16(1, 2, 9, 128)] * 3},
            "3 keys: must be one per batch of query, 2",
        ),
        (
            DENSE,
            {"key": [f16(1, 2, 9, 128), f16(1, 2, 8, 128)], "value": [f16(1, 2, 9, 128)] * 2},
            "key and value of shapes (1, 2, 8, 128), (1, 2, 9, 128): must differ from the first in S only",
        ),
        (DENSE, {"key": [f16(1, 2, 9, 128)] * 2}, "2 key and 1 value tensors: must be as many keys as values"),
    ],
    "types": [
        (
            DENSE,
            {"query": Shape((2, 8, 64, 128), jnp.float32)},
            "key of float16 with query of float32, without key_antiquant_scale, value_antiquant_scale: must be given",
        ),
        (DENSE, {"value": bf16(2, 2, 256, 128)}, "value of bfloat16: must have the type of key, float16"),
        (DENSE, {"inner_precise": 5}, "inner_precise=5: must be 0 to 4"),
    ],
    "masks": [
        (DENSE, {"atten_mask": f16(1, 64, 256)}, "atten_mask of float16: must be bool, int8 or uint8"),
        (DENSE, {"sparse_mode": 5, "atten_mask": MASK}, "sparse_mode=5: must be 0 to 4, or 9"),
        (DENSE, {"sparse_mode": 3}, "sparse_mode=3 without atten_mask: every mode but 0 needs its mask"),
        (
            DENSE,
            {"sparse_mode": 3, "atten_mask": i8(64, 256)},
            "atten_mask of shape (64, 256): must be [2048, 2048] with sparse_mode 3",
        ),
        (
            DENSE,
            {"atten_mask": i8(3, 64, 256)},
            "atten_mask of shape (3, 64, 256): must be [2 or 1, at least 64, at least 256]",
        ),
        (
            DENSE,
            {"atten_mask": i8(1, 64, 255)},
            "atten_mask of shape (1, 64, 255): must be [2 or 1, at least 64, at least 256]",
        ),
        (DENSE, {"atten_mask": i8(1, 1, 1, 256)}, "atten_mask of shape (1, 1, 1, 256): must be [2 or 1, at least 64"),
        (DENSE | ONLY_950, {"atten_mask": i8(64, 256)}, "atten_mask of shape (64, 256): must have a batch axis"),
        (
            DENSE,
            {"sparse_mode": 4, "atten_mask": MASK, "pre_tokens": 3, "next_tokens": -4},
            "pre_tokens=3, next_tokens=-4: the band must not be empty",
        ),
        (
            DENSE,
            {"sparse_mode": 9, "atten_mask": i8(2, 64, 64)},
            "sparse_mode=9 without query_rope: the tree mask needs a rope",
        ),
        (MLA | ONLY_950, {"sparse_mode": 9, "atten_mask": i8(2, 1, 1)}, "sparse_mode=9: the 950 has no tree mask"),
        (MLA, {"sparse_mode": 2, "atten_mask": MASK}, "sparse_mode=2: must be in (0, 3, 4, 9)"),
    ],
    "lengths": [
        (
            DENSE | {"query": f16(3, 8, 64, 128)},
            {"key": f16(3, 2, 9, 128), "value": f16(3, 2, 9, 128), "actual_seq_lengths_kv": (9, 9)},
            "actual_seq_lengths_kv of 2 numbers: must be 1 or at least 3",
        ),
        (DENSE, {"actual_seq_lengths": (64, 65)}, "actual_seq_lengths[1]=65: must be 0 to 64"),
        (DENSE, {"actual_seq_lengths_kv": (-1,)}, "actual_seq_lengths_kv[0]=-1: must be 0 to 256"),
        (PACKED, {"actual_seq_lengths": None}, "actual_seq_lengths=None in layout TND: must be given in layouts with T"),
        (PACKED, {"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv=None in layout TND: must be given"),
        (PACKED, {"actual_seq_lengths": (60, 99)}, "query of 100 tokens: must end with the last sequence, at 99"),
        (PACKED | ONLY_950, {"actual_seq_lengths": (60, 99)}, "actual_seq_lengths[-1]=99: must be the 100 tokens of query"),
        (PACKED | ONLY_950, {"actual_seq_lengths": (101, 100)}, "actual_seq_lengths[1]=100: must not be negative, nor less"),
        (
            PACKED | ONLY_950,
            {"actual_seq_lengths_kv": (30, 60, 90)},
            "actual_seq_lengths_kv of 3 numbers: must be 2, one per sequence",
        ),
    ],
    "pages": [
        (PAGED, {"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv=None with pages: must be given"),
        (PAGED, {"block_table": Shape((2, 4), jnp.int64)}, "block_table of int64: must be int32"),
        (PAGED, {"block_table": Shape((2, 3), jnp.int32)}, "block_table of shape (2, 3): must be [2, at least 4]"),
        (PAGED, {"block_size": 0}, "block_size=0: must be greater than 0 with block_table"),
        (PAGED, {"block_size": 120}, "block_size=120 with D=128 and 64 rows: must be a multiple of 16 up to 1024"),
        (PAGED, {"block_size": 256}, "key pages of shape (9, 2, 128, 128): must be [blocks, 2, 256, 128]"),
        (PAGED, {"key": f16(9, 128, 256)}, "value of shape (9, 2, 128, 128): must have 3 dimensions in layout BnBsH"),
        (PAGED, {"key": f16(9, 128), "value": f16(9, 128)}, "key of 2 dimensions with block_table"),
        (PAGED, PREFIX, "key_shared_prefix with block_table: does not go with pages"),
    ],
    "ropes": [
        (MLA, {"key_rope": None}, "only one of query_rope and key_rope: both or neither must be given"),
        (MLA, {"query_rope": f16(2, 16, 1, 32)}, "D=32 of query_rope: must be that of key_rope, 64"),
        (MLA, {"query_rope": bf16(2, 16, 1, 64)}, "query_rope of bfloat16: must be float16 as query"),
        (MLA, {"key_rope": f16(2, 1, 255, 64)}, "key_rope of shape (2, 1, 255, 64): must match key of shape (2, 1, 256, 512)"),
        (
            DENSE,
            {"query": f16(2, 8, 64, 192), "key": f16(2, 2, 9, 192)} | {"value": f16(2, 2, 9, 64)},
            "D=192 of query and D=64 of value: must be 192 and 128",
        ),
    ],
    "quantised keys": [
        (ANTI, {"key_antiquant_mode": 7}, "key_antiquant_mode=7, value_antiquant_mode=0: must be equal and 0 to 6"),
        (ANTI, {"value_antiquant_scale": None}, "key of int8 with query of float16, without value_antiquant_scale"),
        (ANTI, {"key_antiquant_scale": f32(1)}, "key_antiquant_scale of float32: must be float16 in mode (0, 0)"),
        (ANTI, {"key_antiquant_scale": f16(2, 1)}, "key_antiquant_scale of shape (2, 1): must fit N=2, D=128"),
        (ANTI, {"query": f16(2, 8, 2, 128)}, "2 rows over dense keys of int8 in mode 0: only up to 16 rows of bfloat16"),
        (ANTI, {"key": fp8(2, 2, 256, 128), "value": fp8(2, 2, 256, 128)}, "key of float8_e4m3fn in mode (0, 0): must be int8"),
        (ANTI | PER_TOKEN, {"key_antiquant_scale": f32(2, 255)}, "key_antiquant_scale of shape (2, 255)"),
        (ANTI, {"key_antiquant_offset": f16(1)}, "only one of key_antiquant_offset and value_antiquant_offset"),
        (ANTI, {"antiquant_mode": 1}, "antiquant_mode=1, or antiquant_scale or antiquant_offset"),
    ],
    "quantised queries": [
        (INT8, {"dequant_scale1": None}, "query of int8 without dequant_scale1: must be given"),
        (INT8, {"dequant_scale1": f32(2)}, "dequant_scale1 of another shape than (1,)"),
        (INT8, {"query_quant_mode": 3}, "query_quant_mode, key_antiquant_mode, value_antiquant_mode = (3, 0, 0)"),
        (INT8, {"query": i8(2, 8, 1, 128)}, "int8 query with 1 rows"),
        (FP8_MLA, {"dequant_scale_query": f32(2, 16)}, "dequant_scale_query of shape (2, 16): must be (2, 16, 1)"),
        (FP8_MLA, {"query_rope": f16(2, 16, 1, 64)}, "ropes of float16, bfloat16: must be bfloat16"),
        (FP8_MLA, {"quant_scale1": f32(1)}, "query of float8_e4m3fn with quant_scale1: does not go together"),
        (MX, {"dequant_scale_query": f32(100, 8, 2, 2)}, "dequant_scale_query of another type than float8_e8m0fnu"),
        (
            MX,
            {"value_antiquant_scale": e8m0(1, 2, 128, 2)},
            "value_antiquant_scale of shape (1, 2, 128, 2): must be (2, 2, 128, 2)",
        ),
        (MX, {"inner_precise": 2}, "inner_precise=2 in groups: must be 0 or 1"),
    ],
    "features": [
        (
            DENSE,
            {"pse_shift": f16(2, 8, 64, 255)},
            "pse_shift of shape (2, 8, 64, 255): must be [2 or 1, 8, 64 or 1, at least 256]",
        ),
        (DENSE, {"pse_shift": bf16(2, 8, 64, 256)}, "pse_shift of bfloat16: must be float16"),
        (DENSE, {"query_padding_size": ONE}, "left padding with actual_seq_lengths=None: must be given"),
        (DENSE, {"key_shared_prefix": PREFIX["key_shared_prefix"]}, "only one of key_shared_prefix and value_shared_prefix"),
        (DENSE, PREFIX | {"actual_shared_prefix_len": (33,)}, "actual_shared_prefix_len=33: must be 0 to 32"),
        (
            DENSE,
            PREFIX | {"value_shared_prefix": f16(1, 2, 31, 128)},
            "key_shared_prefix of shape (1, 2, 32, 128), value_shared_prefix",
        ),
        (DENSE, {"learnable_sink": f16(8)}, "learnable_sink of float16: must be bfloat16"),
        (DENSE | ONLY_950, {"learnable_sink": bf16(8)}, "learnable_sink of bfloat16: must be float16 or bfloat16, as query"),
        (DENSE | ONLY_950, {"learnable_sink": f16(7)}, "learnable_sink of shape (7,): must be (8,)"),
        (DENSE | ONLY_950, {"learnable_sink": f16(8), "inner_precise": 1}, "inner_precise=1 with learnable_sink: must be 0"),
        (DENSE, {"quant_scale2": f16(1)}, "quant_scale2 of float16: must be float32 or bfloat16"),
        (
            DENSE | ONLY_950,
            {"dequant_scale1": f16(1)},
            "dequant_scale1 with float16 inputs: scales go with quantised inputs only",
        ),
    ],
}


@pytest.mark.parametrize(
    ("call", "change", "line"),
    [pytest.param(*row, id=f"{kind}-{place}") for kind, rows in REFUSED.items() for place, row in enumerate(rows)],
)
def test_refused(call: Calls, change: Calls, line: str) -> None:
    with pytest.raises(TilingError) as refused:
        shapes_of(call | change)
    assert refused.value.code == 561002
    assert str(refused.value).startswith(line)


TAKEN = [
    (DENSE, {}, (2, 8, 64, 128)),
    (DENSE, {"input_layout": "BNSD_BSND"}, (2, 64, 8, 128)),
    (DENSE, {"atten_mask": i8(64, 256)}, (2, 8, 64, 128)),
    (DENSE | ONLY_950, {"atten_mask": i8(1, 64, 300)}, (2, 8, 64, 128)),
    (DENSE | ONLY_950, {"value": f16(2, 2, 256, 64)}, (2, 8, 64, 64)),
    (DENSE, {"query": f16(2, 8, 1, 72), "key": f16(2, 2, 9, 72), "value": f16(2, 2, 9, 72)}, (2, 8, 1, 72)),
    (DENSE, {"query": f16(2, 8, 64, 192), "key": f16(2, 2, 256, 192)}, (2, 8, 64, 128)),
    (DENSE, {"actual_seq_lengths": (64, 3, 9), "actual_seq_lengths_kv": (7,)}, (2, 8, 64, 128)),
    (DECODE, {"sparse_mode": 3, "actual_seq_lengths": (5,)}, (2, 8, 1, 128)),
    (DECODE, {"atten_mask": i8(2, 256)}, (2, 8, 1, 128)),
    (PACKED, {}, (100, 8, 128)),
    (PACKED, {"input_layout": "TND", "sparse_mode": 3, "atten_mask": MASK}, (100, 8, 128)),
    (PAGED, {}, (2, 8, 64, 128)),
    (PAGED, {"block_size": 1024, "key": f16(9, 1024, 256), "value": f16(9, 1024, 256)}, (2, 8, 64, 128)),
    (MLA, {}, (2, 16, 1, 512)),
    (MLA, {"input_layout": "BNSD_NBSD"}, (16, 2, 1, 512)),
    (DENSE, PREFIX | {"actual_shared_prefix_len": (32,)}, (2, 8, 64, 128)),
    (DENSE, {"key": [f16(1, 2, 9, 128), f16(1, 2, 8, 128)], "value": [f16(1, 2, 9, 128), f16(1, 2, 8, 128)]}, (2, 8, 64, 128)),
    (DENSE, {"query": f16(2, 8, 0, 128)}, (2, 8, 0, 128)),
]


@pytest.mark.parametrize(("call", "change", "shape"), TAKEN)
def test_taken(call: Calls, change: Calls, shape: tuple[int, ...]) -> None:
    out, lse = shapes_of(call | change)
    assert (out.shape, out.dtype) == (shape, jnp.float16)
    assert (lse.shape, lse.dtype) == ((1,), jnp.float32)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [(ANTI, jnp.float16), (ANTI | PER_TOKEN, jnp.float16), (INT8, jnp.float16), (FP8_MLA, jnp.bfloat16), (MX, jnp.float16)],
)
def test_taken_quantised(call: Calls, dtype: Any) -> None:
    out, _ = shapes_of(call)
    assert (out.shape, out.dtype) == (call["query"].shape, dtype)


def test_shape_of_the_log_sum_exp() -> None:
    assert shapes_of(DENSE | {"softmax_lse_flag": True})[1].shape == (2, 8, 64, 1)
    assert shapes_of(PACKED | {"softmax_lse_flag": True})[1].shape == (100, 8, 1)


def test_required_tensors_and_kinds_of_lengths() -> None:
    with pytest.raises(ParamNullptrError, match="key=None: is a required input"):
        shapes_of(DENSE | {"key": None})
    with pytest.raises(ParamInvalidError, match=r"actual_seq_lengths=.*must be one whole number per batch"):
        shapes_of(DENSE | {"actual_seq_lengths": (1.5, 2.0)})


def test_a_refusal_names_status_and_remedy() -> None:
    with pytest.raises(TilingError) as refused:
        shapes_of(DENSE | {"num_heads": 4})
    first, status, remedy = str(refused.value).splitlines()
    assert first == "query with N=8: must be num_heads=4"
    assert status == "EZ9999 ACLNN_ERR_INNER_TILING_ERROR (561002)"
    assert remedy == "Remedy: pass num_heads=8"

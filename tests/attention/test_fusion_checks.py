"""What npu_fusion_attention accepts and refuses, by shapes and types alone."""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ascend_jax.attention.errors import AclnnError, NullptrError, ParamInvalidError, ParamNullptrError, TilingError
from ascend_jax.attention.fusion.ops import FusionAttention, npu_flash_attention, npu_fusion_attention

B, N, S1, S2, D = 2, 4, 24, 40, 16
DIMS = {"B": B, "N": N, "D": D, "H": N * D}
MLA = {"query_rope": (48, N, 64), "key_rope": (80, N, 64)}
LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")


def tensor(*shape: int, dtype: Any = jnp.float16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def sides(layout: str, d: int = D, d_value: int | None = None, lens: tuple[int, int] = (S1, S2)) -> dict[str, Any]:
    """Q, K and V of a layout, and what else it needs. Packed: two sequences of the lengths of the batch."""
    found = {}
    for name, length, width in (("query", lens[0], d), ("key", lens[1], d), ("value", lens[1], d_value or d)):
        sizes = DIMS | {"S": length, "D": width, "H": N * width, "T": B * length}
        found[name] = tensor(*(sizes[axis] for axis in layout))
    ends = {"actual_seq_qlen": (lens[0], 2 * lens[0]), "actual_seq_kvlen": (lens[1], 2 * lens[1])}
    return found | {"head_num": N, "input_layout": layout} | (ends if layout == "TND" else {})


def cast(given: dict[str, Any], dtype: Any) -> dict[str, Any]:
    """The tensors of ``given`` in another type."""
    return {name: tensor(*x.shape, dtype=dtype) for name, x in given.items() if hasattr(x, "shape")}


def call(layout: str = "BNSD", **changes: Any) -> FusionAttention:
    given = sides(layout) | changes
    static = {name: value for name, value in given.items() if not isinstance(value, jax.ShapeDtypeStruct)}
    return jax.eval_shape(partial(npu_fusion_attention, **static), **{n: v for n, v in given.items() if n not in static})


def refused(code: type[AclnnError], text: str, layout: str = "BNSD", **changes: Any) -> None:
    with pytest.raises(code) as raised:
        call(layout, **changes)
    assert text in str(raised.value).splitlines()[0], str(raised.value)


# The mask matrix.

GOOD_MASKS = [(B, N, S1, S2), (B, 1, S1, S2), (1, 1, S1, S2), (S1, S2)]
BAD_MASKS = [
    (B, 1, 1, S2),
    (B, S2),
    (1, N, S1, S2),
    (B, 1, S1, S2 + 1),
    (B, S1, S2),
    (S2, S1),
    (B, 2, S1, S2),
    (S1,),
    (2048, 2048),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_of_every_size_that_a_layout_takes(layout: str) -> None:
    for shape in GOOD_MASKS:
        for dtype in (jnp.bool_, jnp.uint8):
            assert call(layout, atten_mask=tensor(*shape, dtype=dtype), sparse_mode=1).attention_out.dtype == jnp.float16
    if layout == "TND":
        call(layout, atten_mask=tensor(B * S1, B * S2, dtype=jnp.bool_), sparse_mode=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_are_never_broadcast(layout: str) -> None:
    for shape in BAD_MASKS:
        for mode in (0, 1):
            refused(
                NullptrError,
                f"atten_mask of shape {list(shape)}",
                layout,
                atten_mask=tensor(*shape, dtype=jnp.bool_),
                sparse_mode=mode,
            )
    if layout != "TND":
        refused(NullptrError, "atten_mask", layout, atten_mask=tensor(B * S1, B * S2, dtype=jnp.bool_))


@pytest.mark.parametrize("mode", [2, 3, 4, 6, 7, 8])
def test_compressed_modes_take_their_fixed_mask_alone(mode: int) -> None:
    layout = "TND" if mode >= 7 else "BSH"
    size = (3072, 2048) if mode == 6 else (2048, 2048)
    tokens = {"pre_tockens": 2048, "next_tockens": 0, "prefix": (S2, S2)}
    call(layout, atten_mask=tensor(*size, dtype=jnp.bool_), sparse_mode=mode, **tokens)
    for wrong in ((S1, S2), (B, 1, S1, S2), (1, 1, *size), (1024, 2048), (2048, 3072)):
        refused(
            NullptrError, "atten_mask of shape", layout, atten_mask=tensor(*wrong, dtype=jnp.bool_), sparse_mode=mode, **tokens
        )


def test_a_float_mask_is_not_taken_for_a_mask() -> None:
    refused(NullptrError, "atten_mask of type float16", atten_mask=tensor(S1, S2, dtype=jnp.float16))


def test_without_a_mask_modes_and_tokens_do_not_count() -> None:
    call(sparse_mode=4, pre_tockens=-900, next_tockens=-900)
    call(sparse_mode=6)
    call("TND", sparse_mode=3)


@pytest.mark.parametrize(
    ("shape", "mask"), [((16, 20, 1500), (16, 1, 1, 1500)), ((1, 12, 6902), (1, 6902)), ((2, 4, 7200), (2, 1, 28800, 28800))]
)
def test_masks_of_field_reports_are_refused_before_anything_is_allocated(shape: tuple[int, ...], mask: tuple[int, ...]) -> None:
    """vllm-ascend#6573, vllm-omni#845 and Open-Sora-Plan#360: 561103 on the device."""
    x = tensor(shape[0], shape[1], shape[2], 64)
    refused(NullptrError, "atten_mask", query=x, key=x, value=x, head_num=shape[1], atten_mask=tensor(*mask, dtype=jnp.bool_))


# Wrapper and front end.


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("head_num=0", {"head_num": 0}),
        ("query of shape [2, 3]", {"query": tensor(2, 3)}),
        ("keep_prob=0.0", {"keep_prob": 0.0}),
        ("keep_prob=1.2", {"keep_prob": 1.2}),
        ("input_layout=''", {"input_layout": ""}),
        ("input_layout='BND'", {"input_layout": "BND"}),
        ("softmax_layout='NTD'", {"softmax_layout": "NTD"}),
        ('softmax_layout="TND" with', {"softmax_layout": "TND"}),
        ("sparse_mode=7", {"sparse_mode": 7}),
        ("sparse_mode=-1", {"sparse_mode": -1}),
        ("query, key and value of types", {"key": tensor(B, N, S2, D, dtype=jnp.bfloat16)}),
        ("D=16 of query and D=17 of key", {"key": tensor(B, N, S2, 17)}),
        ("D=32 of value", {"value": tensor(B, N, S2, 32)}),
        ("pse of type float32", {"pse": tensor(B, N, S1, S2, dtype=jnp.float32)}),
        ("pse=None with pse_type=2", {"pse_type": 2}),
        ("sink of type float16", {"sink": tensor(N)}),
        ("chip='310p'", {"chip": "310p"}),
    ],
)
def test_what_wrapper_and_front_end_refuse(text: str, changes: dict[str, Any]) -> None:
    refused(ParamInvalidError, text, **changes)


def test_packed_calls_need_lists_of_one_length() -> None:
    refused(ParamInvalidError, "actual_seq_qlen of 1", "TND", actual_seq_qlen=(S1,))
    refused(ParamInvalidError, "actual_seq_qlen of 0", "TND", actual_seq_qlen=None)
    refused(ParamInvalidError, "sparse_mode=5", "TND", sparse_mode=5)
    refused(ParamInvalidError, "sparse_mode=7", "TND", input_layout="tnd", sparse_mode=7)  # compared as it is written
    refused(ParamNullptrError, "key=None", key=None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_head_sizes_up_to_768(layout: str) -> None:
    for d in (1, 16, 59, 72, 80, 88, 96, 126, 177, 200, 768):
        assert call(layout, **sides(layout, d=d)).softmax_max.shape[-1] == 8
    call(layout, **sides(layout, d=192, d_value=128))
    refused(ParamInvalidError, "D=769", layout, **sides(layout, d=769))


def test_float64_and_8_bit_types_are_refused() -> None:
    for dtype in (jnp.float64, jnp.int8, jnp.float8_e4m3fn):
        wrong: dict[str, Any] = {
            name: tensor(*shape.shape, dtype=dtype) for name, shape in sides("BNSD").items() if hasattr(shape, "shape")
        }
        refused(ParamInvalidError, "query of type", **wrong)
        refused(NullptrError, "query of type", chip="950", **wrong)


# The host tiling.


@pytest.mark.parametrize(
    ("text", "layout", "changes"),
    [
        ("head_num=3", "BSND", {"head_num": 3}),
        ("head_num=3", "TND", {"head_num": 3}),
        ("head_num=48", "BSH", {"head_num": 48}),
        ("N1=4 heads of query", "BNSD", {"key": tensor(B, 3, S2, D), "value": tensor(B, 3, S2, D)}),
        ("B=2 of query and B=3 of key", "BNSD", {"key": tensor(3, N, S2, D), "value": tensor(3, N, S2, D)}),
        ("key of shape", "BNSD", {"value": tensor(B, N, S2 + 1, D)}),
        ("pse of shape", "BNSD", {"pse": tensor(B, N, 10, S2)}),
        ("pse of shape", "BNSD", {"pse": tensor(B, 1, S1, S2)}),
        ("pse of shape", "BNSD", {"pse": tensor(S1, S2)}),
        ("pse of shape", "TND", {"pse": tensor(10)}),
        ("pse of shape", "BNSD", {"pse": tensor(3, N, dtype=jnp.float32), "pse_type": 2}),
        ("pse_type=4", "BNSD", {"pse": tensor(B, N, S1, S2), "pse_type": 4}),
        ("pse_type=3 with S1=24", "BNSD", {"pse": tensor(N, dtype=jnp.float32), "pse_type": 3}),
        ("pse=None with pse_type=0", "BNSD", {"pse_type": 0}),
        ("dropout_mask of 479 bytes", "BNSD", {"dropout_mask": tensor(479, dtype=jnp.uint8), "keep_prob": 0.9}),
        ("dropout_mask of type bool", "BNSD", {"dropout_mask": tensor(960, dtype=jnp.bool_), "keep_prob": 0.9}),
        ("sink of shape", "BNSD", {"sink": tensor(N + 1, dtype=jnp.float32)}),
    ],
)
def test_what_the_tiling_refuses(text: str, layout: str, changes: dict[str, Any]) -> None:
    refused(NullptrError, text, layout, **changes)


def test_the_user_sees_561103_and_the_cause_is_561002() -> None:
    with pytest.raises(NullptrError) as raised:
        call(atten_mask=tensor(B, S2, dtype=jnp.bool_))
    cause = raised.value.__cause__
    assert (raised.value.code, isinstance(cause, TilingError) and cause.code) == (561103, 561002)
    assert "[2, 4, 24, 40] or [2, 1, 24, 40] or [1, 1, 24, 40] or [24, 40]" in str(raised.value)


def test_the_generations_differ_where_their_host_code_differs() -> None:
    slopes: dict[str, Any] = {"pse": tensor(N, dtype=jnp.float32), "pse_type": 2}
    refused(NullptrError, "needs S1 = S2", **slopes)
    call(chip="950", **slopes)
    bits: dict[str, Any] = {"dropout_mask": tensor(960, dtype=jnp.uint8)}
    call(**bits)
    refused(NullptrError, "dropout_mask with keep_prob=1.0", chip="950", **bits)
    call(chip="950", pse_type=0)
    floats: dict[str, Any] = {
        name: tensor(*x.shape, dtype=jnp.float32) for name, x in sides("BNSD").items() if hasattr(x, "shape")
    }
    call(sink=tensor(N, dtype=jnp.float32), **floats)
    refused(NullptrError, "query of type float32", chip="950", sink=tensor(N, dtype=jnp.float32), **floats)
    spare: dict[str, Any] = {"query": tensor(60, N, D), "key": tensor(90, N, D), "value": tensor(90, N, D)}
    refused(NullptrError, "must end with 0", "TND", **spare)
    call("TND", chip="950", **spare)


@pytest.mark.parametrize("chip", ["910b", "950"])
def test_rope_belongs_to_packed_bfloat16_on_the_910b_and_to_192_columns_on_the_950(chip: str) -> None:
    rope: dict[str, Any] = {name: tensor(*shape, dtype=jnp.bfloat16) for name, shape in MLA.items()}
    wide: dict[str, Any] = {
        name: tensor(*x.shape, dtype=jnp.bfloat16) for name, x in sides("TND", d=128).items() if hasattr(x, "shape")
    }
    mask = {"atten_mask": tensor(2048, 2048, dtype=jnp.bool_), "sparse_mode": 3}
    call("TND", chip=chip, **wide, **rope, **mask)
    if chip == "950":
        narrow: dict[str, Any] = {name: tensor(*x.shape[:-1], 64, dtype=jnp.bfloat16) for name, x in wide.items()}
        refused(NullptrError, "D=64 with rope of D=64", "TND", chip=chip, **narrow, **rope)
        return
    refused(ParamNullptrError, "query_rope without key_rope", "TND", **wide, **mask, query_rope=rope["query_rope"])
    refused(ParamNullptrError, "atten_mask=None", "TND", **wide, **rope)
    refused(ParamNullptrError, "keep_prob=0.9", "TND", **wide, **rope, **mask, keep_prob=0.9)


# Shapes of the results, empty tensors, and speed.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_seven_results(layout: str) -> None:
    found = call(layout, **sides(layout, d=32, d_value=D), seed=7, offset=16)
    assert isinstance(found, tuple) and len(found) == 7
    assert found.attention_out.shape == sides(layout)["query"].shape
    rows = (B * S1, N, 8) if layout == "TND" else (B, N, S1, 8)
    assert [(x.shape, x.dtype) for x in found[1:3]] == [(rows, jnp.float32)] * 2
    assert found.softmax_out.shape == (0,)
    assert found[4:] == (7, 16, B * N * S1 * S2)


def test_the_alias_gives_the_output_alone() -> None:
    x = jnp.ones((1, 2, 4, 16), jnp.float16)
    assert npu_flash_attention(x, x, x, 2, "BNSD").shape == x.shape
    assert "npu_fusion_attention" in (npu_flash_attention.__doc__ or "")


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5, 16), (2, 3, 0, 5, 16), (2, 3, 4, 0, 16), (2, 3, 4, 5, 0), (2, 0, 4, 5, 16)])
def test_empty_tensors_are_no_error(sizes: tuple[int, ...]) -> None:
    batch, heads, rows, keys, d = sizes
    q, k = jnp.ones((batch, heads, rows, d), jnp.float16), jnp.ones((batch, heads, keys, d), jnp.float16)
    found = npu_fusion_attention(q, k, k, max(heads, 1), "BNSD", atten_mask=jnp.ones((3, 3), jnp.bool_))
    assert found.attention_out.shape == q.shape and not found.attention_out.any()
    assert found.softmax_max.shape == (batch, heads, rows, 8) and not found.softmax_sum.any()


def test_huge_shapes_are_judged_without_their_data() -> None:
    x = tensor(1, 24, 28_800, 128, dtype=jnp.bfloat16)
    start = time.perf_counter()
    mask = tensor(1, 1, 28_800, 28_800, dtype=jnp.bool_)
    found = call(
        query=x,
        key=x,
        value=x,
        head_num=24,
        atten_mask=mask,
        next_tockens=0,
        pse=tensor(1, 24, 1024, 28_800, dtype=jnp.bfloat16),
    )
    assert found.numels == 24 * 28_800**2
    assert time.perf_counter() - start < 5

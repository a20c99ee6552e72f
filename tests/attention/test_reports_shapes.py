"""Tensors and lists that do not belong together: each operator says which, before the numerics would fail on them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax import attention
from ascend_jax.attention.errors import AclnnError, NullptrError, ParamNullptrError, TilingError

MASK = jax.ShapeDtypeStruct((2048, 2048), jnp.bool_)


def tensor(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def shapes_of(operator: Any, **call: Any) -> Any:
    """What the operator gives, by shapes alone; keywords that are no tensors are fixed."""
    tensors = {name: x for name, x in call.items() if isinstance(x, jax.ShapeDtypeStruct)}
    fixed = {name: x for name, x in call.items() if name not in tensors}
    return jax.eval_shape(lambda **given: operator(**fixed, **given), **tensors)


def refused(kind: type[AclnnError], text: str, operator: Any, **call: Any) -> None:
    with pytest.raises(kind) as caught:
        shapes_of(operator, **call)
    assert text in str(caught.value).splitlines()[0], str(caught.value)


TOKENS, HEADS = 24, 4
PACKED = {name: tensor(TOKENS, HEADS, 128) for name in ("query", "key", "value")}
ENDS = {"actual_seq_qlen": (10, TOKENS), "actual_seq_kvlen": (12, TOKENS)}
ROPED = PACKED | ENDS | {"head_num": HEADS, "input_layout": "TND", "atten_mask": MASK, "sparse_mode": 2}
ROPES = {"query_rope": tensor(TOKENS, HEADS, 64), "key_rope": tensor(TOKENS, HEADS, 64)}


@pytest.mark.parametrize(("chip", "kind"), [("910b", ParamNullptrError), ("950", NullptrError)])
@pytest.mark.parametrize(
    ("ropes", "text"),
    [
        ({"query_rope": tensor(TOKENS - 1, HEADS, 64)}, "query_rope of shape [23, 4, 64]"),
        ({"query_rope": tensor(TOKENS, HEADS - 1, 64)}, "query_rope of shape [24, 3, 64]"),
        ({"key_rope": tensor(TOKENS, 2, 64)}, "key_rope of shape [24, 2, 64]"),
        ({"key_rope": tensor(TOKENS, 64)}, "key_rope of shape [24, 64]"),
        ({"query_rope": tensor()}, "query_rope of shape []"),
        ({"key_rope": tensor(TOKENS, HEADS, 32)}, "ropes of D=64 and D=32"),
        ({"query_rope": tensor(TOKENS, HEADS, 0), "key_rope": tensor(TOKENS, HEADS, 0)}, "query_rope of shape [24, 4, 0]"),
    ],
)
def test_ropes_are_further_parts_of_query_and_key(chip: str, kind: type[AclnnError], ropes: dict[str, Any], text: str) -> None:
    shapes_of(attention.npu_fusion_attention, **ROPED, **ROPES, chip=chip)
    refused(kind, text, attention.npu_fusion_attention, **ROPED, **(ROPES | ropes), chip=chip)


def test_ropes_of_a_batch_have_its_heads_side_by_side() -> None:
    call: dict[str, Any] = {name: tensor(2, 8, HEADS * 128) for name in ("query", "key", "value")}
    call |= {"head_num": HEADS, "input_layout": "BSH", "chip": "950", "query_rope": tensor(2, 8, HEADS * 64)}
    shapes_of(attention.npu_fusion_attention, **call, key_rope=tensor(2, 8, HEADS * 64))
    refused(NullptrError, "ropes of D=64 and D=32", attention.npu_fusion_attention, **call, key_rope=tensor(2, 8, HEADS * 32))


SEQUENCES = {"actual_seq_lengths": (10, TOKENS), "actual_seq_lengths_kv": (12, TOKENS)}
INFERENCE = PACKED | SEQUENCES | {"num_heads": HEADS, "input_layout": "TND"}
PADDING = tensor(1, dtype=jnp.int32)


@pytest.mark.parametrize("chip", ["910b", "950"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"actual_seq_lengths_kv": (TOKENS,)}, "actual_seq_lengths_kv of 1 numbers"),
        ({"actual_seq_lengths": (20, 15, TOKENS), "actual_seq_lengths_kv": (1, 2, TOKENS)}, "actual_seq_lengths[1]=15"),
        ({"actual_seq_lengths": (1, 2, TOKENS), "actual_seq_lengths_kv": (20, 15, TOKENS)}, "actual_seq_lengths_kv[1]=15"),
        ({"actual_seq_lengths": (-3, TOKENS)}, "actual_seq_lengths[0]=-3"),
        ({"num_heads": 8}, "query with N=4"),
        ({"key": tensor(TOKENS, 2, 128), "value": tensor(TOKENS, 2, 128)}, "key with N=2"),
        ({"query_padding_size": PADDING}, "in layout TND"),
        ({"kv_padding_size": PADDING}, "in layout TND"),
        ({"key_shared_prefix": tensor(1, 5, HEADS, 128), "value_shared_prefix": tensor(1, 5, HEADS, 128)}, "shared"),
    ],
)
def test_packed_inference_reads_nothing_past_its_tensors(chip: str, changes: dict[str, Any], text: str) -> None:
    operator = attention.npu_fused_infer_attention_score
    shapes_of(operator, **INFERENCE, chip=chip)
    refused(TilingError, text, operator, **(INFERENCE | changes), chip=chip)


def test_lengths_of_keys_beyond_the_sequences_of_query_do_not_count() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((TOKENS, HEADS, 128)), jnp.float16)
    call: dict[str, Any] = {"num_heads": HEADS, "input_layout": "TND", "scale": 0.1, "actual_seq_lengths": (10, TOKENS)}
    operator = attention.npu_fused_infer_attention_score
    more, _ = operator(x, x, x, **call, actual_seq_lengths_kv=(5, 12, TOKENS))
    plain, _ = operator(x, x[:12], x[:12], **call, actual_seq_lengths_kv=(5, 12))
    np.testing.assert_array_equal(more, plain)


EMPTY = [((4, 4), (8, 24)), ((4, 12), (8, 8)), ((4, 12, 0), (8, 24, 0))]


@pytest.mark.parametrize(("q_ends", "kv_ends"), EMPTY)
@pytest.mark.parametrize("gradient", [False, True])
def test_pse_goes_only_with_packed_sequences_that_have_rows_and_keys(
    q_ends: tuple[int, ...], kv_ends: tuple[int, ...], gradient: bool
) -> None:
    q, kv = max(q_ends), max(kv_ends)
    call: dict[str, Any] = {"query": tensor(q, 2, 16), "key": tensor(kv, 2, 16), "value": tensor(kv, 2, 16), "head_num": 2}
    call |= {"input_layout": "TND", "actual_seq_qlen": q_ends, "actual_seq_kvlen": kv_ends}
    operator: Any = attention.npu_fusion_attention
    if gradient:
        statistics = tensor(q, 2, 8, dtype=jnp.float32)
        call |= {"dy": call["query"], "attention_in": call["query"], "softmax_max": statistics, "softmax_sum": statistics}
        operator = attention.npu_fusion_attention_grad
    shapes_of(operator, **call)
    for pse_type in (0, 1):
        refused(NullptrError, "pse with actual_seq_", operator, **call, pse=tensor(2 * kv), pse_type=pse_type)


def test_slopes_go_with_empty_packed_sequences_too() -> None:
    call: dict[str, Any] = {"query": tensor(12, 2, 16), "key": tensor(8, 2, 16), "value": tensor(8, 2, 16), "head_num": 2}
    call |= {"input_layout": "TND", "actual_seq_qlen": (8, 12), "actual_seq_kvlen": (8, 8)}
    shapes_of(attention.npu_fusion_attention, **call, pse=tensor(2, dtype=jnp.float32), pse_type=3)


@pytest.mark.parametrize(
    ("outs", "lses", "text"),
    [
        ([(2, 4, 8), (2, 4, 9)], [(2, 4, 1)] * 2, r"outs\[1\] of shape \(2, 4, 9\)"),
        ([(2, 4, 8)], [(2, 4)], r"lses\[0\] of shape \(2, 4\)"),
        ([(4, 8)], [(8, 1)], r"lses\[0\] of shape \(8, 1\)"),
    ],
)
def test_parts_to_merge_have_one_shape(outs: list[Any], lses: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        attention.merge_partials([jnp.zeros(shape) for shape in outs], [jnp.zeros(shape) for shape in lses])

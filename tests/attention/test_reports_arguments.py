"""Arguments as people pass them by mistake: each operator names the argument and what it must be, before all else fails."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax import attention
from ascend_jax.attention.errors import NullptrError, ParamInvalidError, ParamNullptrError

HALF = np.ones((1, 2, 16, 64), np.float16)
TRIANGLE = np.triu(np.ones((2048, 2048), bool), 1)


def training(**changes: Any) -> Any:
    call: dict[str, Any] = {"query": HALF, "key": HALF, "value": HALF, "head_num": 2, "input_layout": "BNSD"}
    return attention.npu_fusion_attention(**call | changes)


def inference(**changes: Any) -> Any:
    call: dict[str, Any] = {"query": HALF, "key": HALF, "value": HALF, "num_heads": 2, "input_layout": "BNSD"}
    return attention.npu_fused_infer_attention_score(**call | changes)


def unified(**changes: Any) -> Any:
    call: dict[str, Any] = {name: HALF for name in "qkv"}
    call |= {"layout_q": "BNSD", "layout_kv": "BNSD", "layout_out": "BNSD", "metadata": np.zeros(8, np.int32)}
    return attention.flash_attn(**call | changes)


def metadata(**changes: Any) -> Any:
    call: dict[str, Any] = {"num_heads_q": 2, "num_heads_kv": 2, "head_dim": 64, "mask_mode": 0, "batch_size": 1}
    call |= {"max_seqlen_q": 16, "max_seqlen_kv": 16}
    return attention.flash_attn_metadata(**call | changes)


WRONG = [
    (training, {"query": HALF.tolist()}, "query of type list: must be a tensor"),
    (training, {"atten_mask": [[True]]}, "atten_mask of type list: must be a tensor"),
    (training, {"sink": [0.0, 1.0]}, "sink of type list: must be a tensor"),
    (training, {"input_layout": None}, "input_layout=None: must be one of"),
    (training, {"head_num": None}, "head_num=None: must be a whole number"),
    (training, {"head_num": 2.5}, "head_num=2.5: must be a whole number"),
    (training, {"sparse_mode": "2", "atten_mask": TRIANGLE}, "sparse_mode='2': must be a whole number"),
    (training, {"pse_type": None}, "pse_type=None: must be a whole number"),
    (training, {"pre_tockens": None}, "pre_tockens=None: must be a whole number"),
    (training, {"scale": None}, "scale=None: must be a number"),
    (training, {"keep_prob": "most"}, "keep_prob='most': must be a number"),
    (training, {"prefix": ["3"]}, "prefix=['3']: must be whole numbers"),
    (training, {"actual_seq_qlen": [4.7, 16]}, "actual_seq_qlen=[4.7, 16]: must be whole numbers"),
    (training, {"actual_seq_qlen": [[4], [5, 6]]}, "actual_seq_qlen=[[4], [5, 6]]: must be whole numbers"),
    (
        training,
        {"input_layout": np.ones((3, 3))},
        "input_layout=array([[1., 1., 1.], [1., 1., 1.], [1., 1., 1.]]): must be one of",
    ),
    (training, {"softmax_layout": np.array([1, 2])}, "softmax_layout=array([1, 2]): must be a string"),
    (training, {"chip": np.array([1, 2])}, "chip=array([1, 2]): must be a string"),
    (training, {"pre_tockens": 2**63}, "pre_tockens=9223372036854775808: must be a whole number of 64 bits"),
    (training, {"seed": -(2**63) - 1}, "seed=-9223372036854775809: must be a whole number of 64 bits"),
    (training, {"scale": 10**400}, "scale=1000"),
    (training, {"q_start_idx": [2**40]}, "q_start_idx=[1099511627776]: must lie within ±536870912"),
    (training, {"round_probs": [1]}, "round_probs=[1]: must be a whole number"),
    (training, {"round_probs": 2}, "round_probs=2: must be True or False"),
    (training, {"tiling": (16, 16)}, "tiling=(16, 16): must be a Tiling"),
    (inference, {"query": HALF.tolist()}, "query of type list: must be a tensor"),
    (inference, {"key": HALF.tolist(), "value": HALF.tolist()}, "key of type list: must be a tensor"),
    (inference, {"block_table": [[0, 1]]}, "block_table of type list: must be a tensor"),
    (inference, {"num_heads": "2"}, "num_heads='2': must be a whole number"),
    (inference, {"inner_precise": None}, "inner_precise=None: must be a whole number"),
    (inference, {"scale": None}, "scale=None: must be a number"),
    (inference, {"chip": "910a"}, "chip='910a': must be one of 910b, 950"),
    (inference, {"chip": np.array([1, 2])}, "chip=array([1, 2]): must be a string"),
    (inference, {"input_layout": ["BNSD"]}, "input_layout=['BNSD']: must be a string"),
    (inference, {"softmax_lse_flag": np.array([1, 0])}, "softmax_lse_flag=array([1, 0]): must be a whole number"),
    (inference, {"softmax_lse_flag": "no"}, "softmax_lse_flag='no': must be a whole number"),
    (inference, {"actual_seq_lengths_kv": [[1, 2], [3]]}, "actual_seq_lengths_kv=[[1, 2], [3]]: must be one whole number per"),
    (unified, {"layout_q": ["BNSD"]}, "layout_q=['BNSD']: must be a string"),
    (unified, {"layout_kv": np.array([1])}, "layout_kv=array([1]): must be a string"),
    (metadata, {"num_heads_q": None}, "num_heads_q=None: must be a whole number"),
    (metadata, {"mask_mode": "3"}, "mask_mode='3': must be a whole number"),
    (metadata, {"layout_out": 3}, "layout_out=3: must be a string"),
    (unified, {"q": HALF.tolist()}, "q of type list: must be a tensor"),
    (unified, {"softmax_scale": None}, "softmax_scale=None: must be a number"),
    (unified, {"win_left": None}, "win_left=None: must be a whole number"),
    (unified, {"seqused_kv": [7.5]}, "seqused_kv=[7.5]: must be whole numbers"),
]


@pytest.mark.parametrize(("call", "changes", "first_line"), WRONG)
def test_names_the_argument(call: Callable[..., Any], changes: dict[str, Any], first_line: str) -> None:
    with pytest.raises(ParamInvalidError) as caught:
        call(**changes)
    assert str(caught.value).startswith(first_line)


def test_flags_are_bools_of_any_kind() -> None:
    for on in (True, 1, np.True_, np.int64(1)):
        assert inference(softmax_lse_flag=on)[1].shape == (1, 2, 16, 1)
    assert inference(softmax_lse_flag=np.False_)[1].shape == (1,)


def test_metadata_of_an_unknown_batch_is_as_long_as_the_lengths_say() -> None:
    used = {f"seqused_{side}": np.full(3, 16, np.int32) for side in ("q", "kv")}
    assert metadata(batch_size=-1, **used).shape == metadata(batch_size=3, **used).shape


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_list_of_keys_holds_at_least_one(name: str) -> None:
    with pytest.raises(ParamNullptrError, match=f"{name}=None"):
        inference(**{name: []})


@pytest.mark.parametrize("name", ["seed", "pre_tockens"])
def test_attributes_are_known_when_the_call_is_traced(name: str) -> None:
    with pytest.raises(ParamInvalidError, match="known when the call is traced"):
        jax.jit(lambda x: training(**{name: x}).attention_out)(1)


def test_lengths_of_packed_sequences_are_known_when_the_call_is_traced() -> None:
    packed = jnp.ones((16, 2, 64), jnp.float16)
    tensors = {"query": packed, "key": packed, "value": packed, "input_layout": "TND"}
    with pytest.raises(ParamInvalidError, match="must be whole numbers that are known when the call is traced"):
        jax.jit(lambda x: training(**tensors, actual_seq_qlen=x, actual_seq_kvlen=x).attention_out)(jnp.array([5, 16]))


@pytest.mark.parametrize(
    ("key", "value", "wrong"), [(33, 33, "H=33 of key"), (32, 33, "H=33 of value"), (33, 32, "H=33 of key")]
)
def test_h_of_keys_and_values_is_cut_into_heads_without_a_rest(key: int, value: int, wrong: str) -> None:
    query, key_tensor, value_tensor = (np.ones((2, 20, width), np.float32) for width in (32, key, value))
    with pytest.raises(NullptrError) as caught:
        training(query=query, key=key_tensor, value=value_tensor, input_layout="BSH")
    assert str(caught.value).startswith(f"{wrong} in layout BSH: must be a multiple of the N2=2 heads")


def test_ropes_of_numpy_are_refused_as_those_of_jax_are() -> None:
    for as_array in (np.asarray, jnp.asarray):
        rope = as_array(HALF)
        with pytest.raises(ParamNullptrError, match="query_rope in layout BNSD"):
            training(query_rope=rope, key_rope=rope)


def test_tokens_as_large_as_the_operator_takes_are_open() -> None:
    most = 2**63 - 1
    options = {"atten_mask": TRIANGLE, "sparse_mode": 4, "next_tockens": 0, "key": HALF[:, :, :9], "value": HALF[:, :, :9]}
    found, wanted = (training(**options, pre_tockens=pre).attention_out for pre in (most, 100))
    np.testing.assert_array_equal(found, wanted)


def largest(jaxpr: Any) -> int:
    """Elements of the largest array that a program makes, those of its loops included."""
    sizes = [int(np.prod(variable.aval.shape)) for eqn in jaxpr.eqns for variable in eqn.outvars]
    inner = [
        getattr(x, "jaxpr", x) for eqn in jaxpr.eqns for x in eqn.params.values() if hasattr(getattr(x, "jaxpr", x), "eqns")
    ]
    return max([0, *sizes, *map(largest, inner)])


def test_dropout_of_many_packed_sequences_makes_no_mask_of_them() -> None:
    sequences, length, heads = 256, 128, 2
    ends = list(range(length, sequences * length + 1, length))
    query = jax.ShapeDtypeStruct((sequences * length, heads, 16), jnp.bfloat16)

    def call(x: jax.Array) -> jax.Array:
        tensors = {"query": x, "key": x, "value": x, "input_layout": "TND"}
        return training(**tensors, keep_prob=0.9, actual_seq_qlen=ends, actual_seq_kvlen=ends).attention_out

    program = jax.make_jaxpr(call)(query)
    assert largest(program.jaxpr) <= (sequences + 1) * length * heads * 16  # tokens, and a block that fills them up
    assert sum(1 for _ in program.jaxpr.eqns) < 100  # sequences are not prepared one by one

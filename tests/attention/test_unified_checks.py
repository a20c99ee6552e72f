"""What flash_attn refuses, with which status and which first line, and what it takes: shapes only, nothing is computed."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ascend_jax.attention.errors import AclnnRuntimeError, ParamNullptrError, TilingError
from ascend_jax.attention.unified.metadata import flash_attn_metadata
from ascend_jax.attention.unified.ops import flash_attn

Shape = jax.ShapeDtypeStruct


def f16(*shape: int) -> Shape:
    return Shape(shape, jnp.float16)


def i32(*shape: int) -> Shape:
    return Shape(shape, jnp.int32)


MASK = Shape((2048, 2048), jnp.int8)
DENSE = {"q": f16(2, 64, 8, 128), "k": f16(2, 256, 2, 128), "v": f16(2, 256, 2, 128), "metadata": i32(4096)}
PACKED = {"q": f16(100, 8, 64), "k": f16(90, 2, 64), "v": f16(90, 2, 64), "metadata": i32(4096)}
PACKED |= {
    "layout_q": "TND",
    "layout_kv": "TND",
    "layout_out": "TND",
    "cu_seqlens_q": (0, 60, 100),
    "cu_seqlens_kv": (0, 30, 90),
}
PAGED = DENSE | {"k": f16(9, 32, 2, 128), "v": f16(9, 32, 2, 128), "layout_kv": "PA_BBND"}
PAGED |= {"block_table": i32(2, 4), "seqused_kv": i32(2)}


def shapes_of(call: dict[str, Any]) -> Any:
    """The results' shapes and types."""
    tensors = {name: x for name, x in call.items() if isinstance(x, Shape)}
    rest = {name: x for name, x in call.items() if name not in tensors}
    return jax.eval_shape(functools.partial(flash_attn, **rest), **tensors)


def refusal(call: dict[str, Any]) -> str:
    """The first line of why the call is refused."""
    with pytest.raises(TilingError) as refused:
        shapes_of(call)
    assert refused.value.code == 561002
    return str(refused.value).splitlines()[0]


REFUSED = {
    "layouts": [
        (DENSE, {"layout_q": "BSH"}, "layout_q='BSH': must be one of BSND"),
        (DENSE, {"layout_q": "bsnd"}, "layout_q='bsnd'"),
        (DENSE, {"layout_q": "PA_BBND"}, "layout_q='PA_BBND': has no batch axis"),
        (DENSE, {"layout_out": "PA_NZ"}, "layout_out='PA_NZ': must be BNSD, BSND or TND"),
        (DENSE, {"layout_out": "BNSD"}, "layout_out='BNSD': layout_q BSND goes with BSND"),
        (DENSE, {"layout_kv": "BNSD"}, "N1=8 of q, N2=256 of k"),
        (
            DENSE,
            {"k": f16(2, 2, 256, 128), "v": f16(2, 2, 256, 128), "layout_kv": "BNSD"},
            "layout_kv='BNSD': layout_q BSND goes",
        ),
        (DENSE, {"q": f16(2, 64, 1024)}, "q float16[2, 64, 1024]: layout BSND has 4 axes"),
    ],
    "shapes": [
        (DENSE, {"q": f16(2, 0, 8, 128)}, "q float16[2, 0, 8, 128]: no axis may be 0"),
        (DENSE, {"k": f16(2, 256, 3, 128), "v": f16(2, 256, 3, 128)}, "N1=8 of q, N2=3 of k: N1 must be a multiple"),
        (DENSE, {"q": f16(2, 64, 1, 128)}, "N1=1 of q, N2=2 of k"),
        (DENSE, {"v": f16(2, 128, 2, 128)}, "v float16[2, 128, 2, 128]: must be [2, 256, 2, 128]"),
        (DENSE, {"q": f16(3, 64, 8, 128)}, "k float16[2, 256, 2, 128]: must be [3, 256, 2, 128]"),
        (DENSE, {"k": f16(2, 256, 2, 64)}, "k float16[2, 256, 2, 64]: must be [2, 256, 2, 128]"),
        (DENSE, {"v": f16(2, 256, 2, 64)}, "D=128 of q and k, D=64 of v: must be equal"),
        (DENSE, {"q": f16(2, 64, 8, 96), "k": f16(2, 256, 2, 96), "v": f16(2, 256, 2, 96)}, "D=96 of q and k: must be 64"),
        (DENSE, {x: f16(65536, 1, 1, 64) for x in "qkv"}, "B=65536: must be below 65536"),
    ],
    "types": [
        (DENSE, {"q": Shape((2, 64, 8, 128), jnp.float32)}, "q float32[2, 64, 8, 128]: must be float16 or bfloat16"),
        (DENSE, {"k": Shape((2, 256, 2, 128), jnp.bfloat16)}, "k bfloat16[2, 256, 2, 128]: must be float16 as q is"),
        (DENSE, {"seqused_q": Shape((2,), jnp.int16)}, "seqused_q int16[2]: must be int32"),
        (DENSE, {"metadata": Shape((8,), jnp.int8)}, "metadata int8[8]: must be int32"),
    ],
    "masks": [
        (DENSE, {"mask_mode": 2}, "mask_mode=2: must be 0, 3 or 4"),
        (DENSE, {"mask_mode": 3}, "attn_mask=None: mask_mode=3 needs it"),
        (DENSE, {"attn_mask": MASK}, "attn_mask given: mask_mode=0 takes no mask"),
        (DENSE, {"mask_mode": 3, "attn_mask": Shape((2048, 2048), jnp.bool_)}, "attn_mask bool[2048, 2048]: must be int8"),
        (DENSE, {"mask_mode": 3, "attn_mask": Shape((64, 256), jnp.int8)}, "attn_mask int8[64, 256]: must be [2048, 2048]"),
        (DENSE, {"mask_mode": 3, "attn_mask": MASK, "win_left": 4}, "win_left=4: mask_mode=3 takes only -1"),
        (DENSE, {"win_right": 0}, "win_right=0: mask_mode=0 takes only -1"),
        (DENSE, {"mask_mode": 4, "attn_mask": MASK, "win_left": -2}, "win_left=-2: must be -1 or more"),
    ],
    "lengths": [
        (DENSE, {"seqused_q": i32(3)}, "seqused_q int32[3]: must hold B = 2 numbers"),
        (DENSE, {"seqused_kv": i32(2, 1)}, "seqused_kv int32[2, 1]: must have one axis"),
        (DENSE, {"max_seqlen_q": -2}, "max_seqlen_q=-2: must be -1 or more"),
        (DENSE, {"cu_seqlens_q": (0, 64, 128)}, "cu_seqlens_q given: layout_q is BSND"),
        (DENSE, {"cu_seqlens_kv": (0, 64, 128)}, "cu_seqlens_kv given: layout_kv is BSND"),
        (PACKED, {"cu_seqlens_q": None}, "cu_seqlens_q=None: layout_q TND needs it"),
        (PACKED, {"cu_seqlens_kv": None}, "cu_seqlens_kv=None: layout_kv TND needs it"),
        (PACKED, {"cu_seqlens_q": (0,)}, "cu_seqlens_q int32[1]: must hold more than 1"),
        (PACKED, {"cu_seqlens_kv": (0, 90)}, "cu_seqlens_kv int32[2]: must hold B + 1 = 3 numbers"),
    ],
    "pages": [
        (PAGED, {"block_table": None}, "block_table=None: layout_kv PA_BBND needs it"),
        (PAGED, {"seqused_kv": None}, "seqused_kv=None: pages need it"),
        (PAGED, {"block_table": i32(3, 4)}, "block_table int32[3, 4]: its first axis must be B=2"),
        (PAGED, {"block_table": i32(8)}, "block_table int32[8]: must have two axes"),
        (PAGED, {"k": f16(9, 24, 2, 128)}, "block_size=24: must be a multiple of 16"),
        (PAGED, {"k": f16(9, 1040, 2, 128)}, "block_size=1040: must be 16 to 1024"),
        (PAGED, {"v": f16(8, 32, 2, 128)}, "v float16[8, 32, 2, 128]: must be [9, 32, 2, 128]"),
        (DENSE, {"block_table": i32(2, 4)}, "block_table given: layout_kv is BSND, which has no pages"),
    ],
    "others": [
        (DENSE, {"sinks": Shape((8,), jnp.float32)}, "sinks float32[8]: the operator has no sinks yet"),
        (DENSE, {"metadata": None}, "metadata=None: is required"),
        (DENSE, {"metadata": i32(2, 8)}, "metadata int32[2, 8]: must be one row"),
        (DENSE, {"return_softmax_lse": 2}, "return_softmax_lse=2: must be 0 or 1"),
    ],
}


@pytest.mark.parametrize(("call", "change", "first_line"), [case for cases in REFUSED.values() for case in cases])
def test_what_is_refused_says_why(call: dict[str, Any], change: dict[str, Any], first_line: str) -> None:
    shapes_of(call)  # only the change is at fault
    assert refusal(call | change).startswith(first_line)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_a_missing_tensor_is_a_null_pointer(name: str) -> None:
    with pytest.raises(ParamNullptrError, match=f"{name}=None: is required") as refused:
        shapes_of(DENSE | {name: None})
    assert refused.value.code == 161001


def test_the_first_broken_rule_speaks() -> None:
    """Axes are read first; single arguments come before missing ones, and these before shapes."""
    wrong = DENSE | {"v": f16(2, 128, 2, 128), "attn_mask": MASK, "mask_mode": 2, "q": f16(2, 64, 3, 128)}
    assert refusal(wrong).startswith("N1=3")
    assert refusal(wrong | {"q": DENSE["q"]}).startswith("mask_mode=2")
    assert refusal(wrong | {"q": DENSE["q"], "mask_mode": 0}).startswith("attn_mask given")
    assert refusal(wrong | {"q": DENSE["q"], "mask_mode": 3}).startswith("v float16")


@pytest.mark.parametrize(
    ("call", "change", "out", "log_sum"),
    [
        (DENSE, {}, (2, 64, 8, 128), (0,)),
        (DENSE, {"return_softmax_lse": True}, (2, 64, 8, 128), (2, 8, 64)),
        (DENSE, {"sinks": Shape((0,), jnp.float32)}, (2, 64, 8, 128), (0,)),
        (DENSE, {"layout_q": "BNSD", "layout_kv": "BNSD", "q": f16(2, 256, 64, 128)}, (2, 64, 256, 128), (0,)),
        (DENSE, {"seqused_q": i32(2), "seqused_kv": i32(2), "softmax_scale": -0.125}, (2, 64, 8, 128), (0,)),
        (DENSE, {"mask_mode": 4, "attn_mask": MASK, "win_left": 10**9}, (2, 64, 8, 128), (0,)),
        (PACKED, {"return_softmax_lse": True, "max_seqlen_q": 60}, (100, 8, 64), (8, 100)),
        (PAGED, {}, (2, 64, 8, 128), (0,)),
        (PAGED, {"layout_kv": "PA_BNBD", "k": f16(9, 2, 16, 128), "v": f16(9, 2, 16, 128)}, (2, 64, 8, 128), (0,)),
        (PAGED, {"layout_kv": "PA_NZ", "k": f16(9, 2, 8, 16, 16), "v": f16(9, 2, 8, 16, 16)}, (2, 64, 8, 128), (0,)),
    ],
)
def test_what_is_taken(call: dict[str, Any], change: dict[str, Any], out: tuple[int, ...], log_sum: tuple[int, ...]) -> None:
    found = shapes_of(call | change)
    assert (found[0].shape, found[0].dtype) == (out, jnp.float16)
    assert (found[1].shape, found[1].dtype) == (log_sum, jnp.float32)


def test_a_bnsd_query_may_give_a_bsnd_output() -> None:
    rows = {
        "q": f16(2, 8, 64, 128),
        "k": f16(2, 2, 256, 128),
        "v": f16(2, 2, 256, 128),
        "layout_q": "BNSD",
        "layout_kv": "BNSD",
    }
    assert shapes_of(DENSE | rows | {"layout_out": "BNSD"})[0].shape == (2, 8, 64, 128)
    assert shapes_of(DENSE | rows)[0].shape == (2, 64, 8, 128)


def test_a_huge_call_is_only_looked_at() -> None:
    """A million keys, masked: 2 TiB of scores per head that nobody makes."""
    start = time.process_time()
    tensors = {name: f16(1, 1_000_000, heads, 128) for name, heads in (("q", 64), ("k", 8), ("v", 8))}
    found = shapes_of(DENSE | tensors | {"mask_mode": 3, "attn_mask": MASK})
    assert found[0].shape == (1, 1_000_000, 64, 128)
    assert time.process_time() - start < 5


def test_metadata_has_the_device_s_length() -> None:
    found = flash_attn_metadata(8, 2, 128, batch_size=3, max_seqlen_q=64, max_seqlen_kv=256, mask_mode=0)
    assert (found.dtype, found.shape) == (jnp.int32, (12288,))  # (108·3·2 + 1)·16 words, in steps of 4096
    packed: dict[str, Any] = {"cu_seqlens_q": (0, 60, 100), "cu_seqlens_kv": (0, 30, 90), "layout_q": "TND", "layout_kv": "TND"}
    assert flash_attn_metadata(8, 2, 64, **packed, layout_out="TND", mask_mode=3).shape == (8192,)


@pytest.mark.parametrize(
    ("change", "first_line"),
    [
        ({"mask_mode": None}, "mask_mode=1: must be 0, 3 or 4"),
        ({"batch_size": 0}, "batch_size=0: must be -1 or above 0"),
        ({"max_seqlen_q": None}, "max_seqlen_q=-1, seqused_q=None: layout BSND needs"),
        ({"cu_seqlens_kv": (0, 9)}, "cu_seqlens_kv given: layout BSND does not take it"),
        ({"layout_kv": "TND"}, "cu_seqlens_kv = None: layout TND needs it"),
        ({"layout_q": "PA_NZ"}, "layout_q='PA_NZ': must be one of BNSD, BSND, TND"),
        ({"seqused_q": (1, 2)}, "seqused_q int32[2]: must hold 3 numbers"),
        ({"num_heads_kv": 3}, "num_heads_q=8: must be a multiple of num_heads_kv=3"),
        ({"num_heads_kv": 0}, "num_heads_kv=0: must be above 0"),
        ({"head_dim": 96}, "head_dim=96: must be 64, 128 or 256"),
        ({"win_left": -2}, "win_left=-2: must be -1 or more"),
    ],
)
def test_what_metadata_refuses(change: dict[str, Any], first_line: str) -> None:
    call: dict[str, Any] = {"num_heads_q": 8, "num_heads_kv": 2, "head_dim": 128, "mask_mode": 0}
    call |= {"batch_size": 3, "max_seqlen_q": 64, "max_seqlen_kv": 256}
    with pytest.raises(AclnnRuntimeError) as refused:
        flash_attn_metadata(**(call | change))
    assert refused.value.code == 361001
    assert str(refused.value).startswith(first_line)

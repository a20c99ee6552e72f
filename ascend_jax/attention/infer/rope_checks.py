"""Ropes in tensors of their own (``checkers/rope_checker.cpp``)."""

from typing import Any

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, refuse
from ascend_jax.attention.infer.common_checks import POWERS
from ascend_jax.attention.infer.facts import Facts

ROPE_D = 64


def single(f: Facts) -> None:
    """Types and width of the ropes."""
    if f.rope != "split":
        return
    for name, tensor in (("query_rope", f.call.query_rope), ("key_rope", f.call.key_rope)):
        dtype = jnp.dtype(tensor.dtype)
        refuse(dtype not in FLOATS, f"{name} of {dtype}", "must be float16 or bfloat16", f"cast {name} to float16")
    refuse(f.d_rope != ROPE_D, f"D={f.d_rope} of the ropes", f"must be {ROPE_D}", f"pass ropes with D={ROPE_D}")


def existence(f: Facts) -> None:
    """Split ropes are there by definition."""


def feature(f: Facts) -> None:
    """What does not go with ropes."""
    if f.rope != "split":
        return
    refuse(f.prefix, "a shared prefix with query_rope", "does not go together", "leave the prefix out")
    refuse(f.pse, "pse_shift with query_rope", "does not go together", "leave pse_shift out")
    decode = f.mla == "d512"
    padded = f.q_padded or f.kv_padded
    refuse(padded and (f.is_910b or decode), "left padding with query_rope", "does not go together", "leave the padding out")
    refuse(
        f.storage == "list" and (f.is_910b or decode),
        f"{len(f.call.key)} key tensors with query_rope",
        "does not go together",
        "pass one key and one value",
    )
    refuse(f.is_910b and f.out_quantised, "quant_scale2 with query_rope", "does not go together", "leave quant_scale2 out")
    if decode:
        _decode(f)
    refuse(f.quant == "anti", f"key of {f.kv_dtype} with query_rope", "must have the type of query", "quantise both or neither")


def _decode(f: Facts) -> None:
    most = 16
    refuse(
        not f.device_lengths and (f.s1 < 1 or (f.quant == "full" and f.s1 > most)),
        f"S={f.s1} of query with D=512",
        f"must be at least 1, and at most {most} where the query is quantised",
        "split the query",
    )
    refuse(
        f.n1 not in POWERS or f.call.num_key_value_heads != 1,
        f"num_heads={f.n1}, num_key_value_heads={f.call.num_key_value_heads}",
        "with D=512, N of query is a power of 2 up to 128 and N of key is given as 1",
        "pass num_key_value_heads=1",
    )


def consistency(f: Facts) -> None:
    """The ropes against query and key."""
    one = (f.call.query_rope is None) != (f.call.key_rope is None)
    refuse(one, "only one of query_rope and key_rope", "both or neither must be given", "pass both ropes")
    if f.rope != "split":
        return
    group = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode) == (6, 6, 8)
    accepted = (64, 128) if f.quant == "full" and group else (128, 512)
    refuse(f.d not in accepted, f"D={f.d} of query with query_rope", f"must be in {accepted}", "pass D=128 or D=512")
    _as_long(f, "query", f.call.query, f.call.query_rope)
    if f.storage == "dense":
        _as_long(f, "key", f.call.key[0], f.call.key_rope)
    elif f.storage == "paged":
        _same_pages(f)
    else:
        _same_list(f)
    if f.quant == "none":
        for name, rope, dtype in (("query", f.call.query_rope, f.q_dtype), ("key", f.call.key_rope, f.kv_dtype)):
            given = jnp.dtype(rope.dtype)
            refuse(given != dtype, f"{name}_rope of {given}", f"must be {dtype} as {name}", f"cast {name}_rope to {dtype}")


def _as_long(f: Facts, name: str, tensor: Any, rope: Any) -> None:
    shape, wanted = tuple(rope.shape), tuple(tensor.shape)
    wrong = shape[:-1] != wanted[:-1]
    if f.q_layout == "BSH" and not wrong:
        wrong = wanted[-1] // f.d != shape[-1] // f.d_rope
    refuse(
        wrong,
        f"{name}_rope of shape {shape}",
        f"must match {name} of shape {wanted} in all but D",
        f"pass a {name}_rope as long as {name}, with its heads",
    )


def _same_pages(f: Facts) -> None:
    key, rope = list(f.call.key[0].shape), list(f.call.key_rope.shape)
    wrong = len(key) != len(rope)
    if not wrong and f.kv_layout == "BnBsH":
        wrong = key[:2] != rope[:2] or key[2] // f.d != rope[2] // f.d_rope
    elif not wrong:
        places = (0, 1, 2) if f.kv_layout == "BnNBsD" else (0, 1, 3)
        wrong = any(key[place] != rope[place] for place in places)
    refuse(wrong, f"key_rope pages of shape {rope}", f"must match key pages of shape {key}", "use the same pages for both")


def _same_list(f: Facts) -> None:
    rope, layout = f.call.key_rope.shape, f.call.input_layout
    tokens, heads = (2, 1) if layout in ("BNSD", "BNSD_BSND") else (1, 2)
    for key in f.call.key:
        if layout not in ("BNSD", "BNSD_BSND", "BSH", "BSND"):
            return
        n = key.shape[2] // f.d if layout == "BSH" else key.shape[heads]
        n_rope = rope[2] // f.d_rope if layout == "BSH" else rope[heads]
        refuse(
            rope[0] != len(f.call.key) or key.shape[tokens] != rope[tokens] or n != n_rope,
            f"key_rope of shape {tuple(rope)}",
            f"must match key of shape {tuple(key.shape)}, one per tensor",
            "pass a key_rope with the batch, S and N of the keys",
        )

"""pse_shift, left padding, the shared prefix and the sink.

Of ``checkers/``: ``pse_checker``, ``left_padding_checker``, ``system_prefix_checker``, ``learnable_sink_checker``.
"""

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, known, refuse, size
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.layouts import axis

TRANSPOSED = ("BSH_BNSD", "BSND_BNSD")
PACKED = ("TND", "NTD", "NTD_TND", "TND_NTD")


def single(f: Facts) -> None:
    """Padding and sink on their own."""
    named = (
        ("query_padding_size", f.call.query_padding_size, f.q_padded),
        ("kv_padding_size", f.call.kv_padding_size, f.kv_padded),
    )
    for name, tensor, used in named:
        wrong = used and f.quant == "none" and tuple(tensor.shape) != (1,)
        refuse(wrong, f"{name} of shape {tuple(getattr(tensor, 'shape', ()))}", "must be (1,)", f"pass {name} of one number")
    if f.call.learnable_sink is not None:
        _sink(f)


def _sink(f: Facts) -> None:
    sink = f.call.learnable_sink
    dtype, accepted = jnp.dtype(sink.dtype), FLOATS[1:] if f.is_910b else (f.q_dtype,)
    refuse(
        dtype not in accepted or dtype not in FLOATS,
        f"learnable_sink of {dtype}",
        "must be bfloat16" if f.is_910b else "must be float16 or bfloat16, as query",
        f"cast learnable_sink to {accepted[0]}",
    )
    shape = tuple(sink.shape)
    refuse(shape != (f.n1,), f"learnable_sink of shape {shape}", f"must be ({f.n1},)", "pass one number per query head")


def existence(f: Facts) -> None:
    """Nothing of its own: prefixes that come alone are refused with their shapes."""


def feature(f: Facts) -> None:
    """What does not go together."""
    if f.pse:
        _pse(f)
    if f.q_padded or f.kv_padded:
        _padding(f)
    if f.prefix:
        _prefix(f)
    if f.call.learnable_sink is not None and not f.is_910b:
        _sink_950(f)


def _pse(f: Facts) -> None:
    refuse(f.uneven, f"pse_shift with D={f.d} and {f.dv}", "D of query and value must be equal", "leave pse_shift out")
    refuse(f.mla != "none" and not f.device_lengths, "pse_shift with a rope", "does not go together", "leave pse_shift out")
    refuse(
        f.call.input_layout in (*TRANSPOSED, *PACKED) and not f.device_lengths,
        f"pse_shift in layout {f.call.input_layout}",
        "works in BSH, BSND, BNSD and BNSD_BSND",
        "leave pse_shift out",
    )


def _padding(f: Facts) -> None:
    layout = f.call.input_layout
    for used, given, name in (
        (f.q_padded, f.lengths_q, "actual_seq_lengths"),
        (f.kv_padded, f.call.lengths_kv, "actual_seq_lengths_kv"),
    ):
        missing = used and not f.device_lengths and not given
        refuse(missing, f"left padding with {name}={given}", "must be given", f"pass {name}")
    wrong = layout in (*TRANSPOSED, *PACKED)
    refuse(wrong, f"left padding in layout {layout}", "works in BSH, BSND, BNSD and BNSD_BSND", "pad at the right")
    refuse(f.storage == "paged", "left padding with block_table", "does not go together", "pad at the right")
    refuse(
        f.quant == "anti" and f.s1 > 1 and f.kv_dtype == jnp.int8 and f.call.key_antiquant_mode in (0, 1),
        f"left padding with {f.s1} rows over int8 keys",
        "does not go together",
        "pad at the right",
    )
    refuse(
        f.uneven and f.rope == "none",
        f"left padding with D={f.d} of query and D={f.dv} of value",
        "must be equal",
        "pad at the right",
    )


def _prefix(f: Facts) -> None:
    layout = f.call.input_layout
    refuse(f.storage == "paged", "a shared prefix with block_table", "does not go together", "leave the prefix out")
    refuse(
        f.storage == "list" and (f.s1 > 1 or not f.is_910b),
        f"a shared prefix with {len(f.call.key)} key tensors",
        "does not go together",
        "pass one key and one value",
    )
    refuse(f.q_padded or f.kv_padded, "a shared prefix with left padding", "does not go together", "pad at the right")
    wrong = layout in (*TRANSPOSED, *PACKED)
    refuse(wrong, f"a shared prefix in layout {layout}", "works in BSH, BSND, BNSD and BNSD_BSND", "leave the prefix out")
    refuse(f.mla != "none", "a shared prefix with a rope", "does not go together", "leave the prefix out")
    refuse(f.quant == "full", f"a shared prefix with query of {f.q_dtype}", "does not go together", "leave the prefix out")
    out = jnp.dtype(f.call.out_dtype)
    refuse(f.out_quantised and out != jnp.int8, f"a shared prefix with output of {out}", "must be int8", "leave the prefix out")


def _sink_950(f: Facts) -> None:
    wrong = f.q_padded or f.kv_padded or f.prefix or f.pse or f.out_quantised
    refuse(
        wrong,
        "learnable_sink with padding, prefix, pse_shift or quant_scale2",
        "does not go together",
        "leave learnable_sink out",
    )
    precise = f.call.inner_precise
    refuse(precise != 0, f"inner_precise={precise} with learnable_sink", "must be 0", "pass inner_precise=0")
    refuse(
        f.quant != "none" or f.mla == "d512",
        "learnable_sink with quantised inputs or D=512",
        "does not go together",
        "leave learnable_sink out",
    )
    refuse(
        f.d not in (64, 128, 192) or f.dv not in (64, 128),
        f"learnable_sink with D={f.d} of query and D={f.dv} of value",
        "D of query must be 64, 128 or 192, D of value 64 or 128",
        "pad D to 128",
    )


def consistency(f: Facts) -> None:
    """pse_shift and the prefix against query and key."""
    if f.pse:
        _pse_type(f)
    if f.call.pse_shift is not None:
        _pse_shape(f)
    if f.prefix:
        _prefix_shape(f)
        _prefix_len(f)
    one = (f.call.key_shared_prefix is None) != (f.call.value_shared_prefix is None)
    refuse(one, "only one of key_shared_prefix and value_shared_prefix", "both or neither must be given", "pass both")


def _pse_type(f: Facts) -> None:
    given = jnp.dtype(f.call.pse_shift.dtype)
    wanted = FLOATS[1] if f.q_dtype == FLOATS[1] else FLOATS[0]
    wrong = given != wanted and f.q_dtype in (*FLOATS, jnp.int8)
    refuse(wrong, f"pse_shift of {given}", f"must be {wanted}", f"cast pse_shift to {wanted}")


def _pse_shape(f: Facts) -> None:
    shape, keys = tuple(f.call.pse_shift.shape), f.s2
    if known(f.call.prefix_len):
        keys += f.call.prefix_len[0]
    wrong = len(shape) != 4 or shape[0] not in (1, f.b) or shape[1] != f.n1 or shape[3] < keys
    wrong = wrong or (shape[2] < f.s1 if shape[2] > 1 else shape[2] != 1)
    refuse(
        wrong,
        f"pse_shift of shape {shape}",
        f"must be [{f.b} or 1, {f.n1}, {f.s1} or 1, at least {keys}]",
        "pass one bias per head, row and key",
    )


def _prefix_shape(f: Facts) -> None:
    key, value = (list(x.shape) for x in (f.call.key_shared_prefix, f.call.value_shared_prefix))
    of_key = list(f.call.key[0].shape)
    tokens = 2 if f.kv_layout == "BNSD" else 1
    wrong = len(key) != len(of_key) or key != value or key[0] != 1
    wrong = wrong or any(key[place] != of_key[place] for place in range(1, len(key)) if place != tokens)
    refuse(
        wrong,
        f"key_shared_prefix of shape {tuple(key)}, value_shared_prefix of shape {tuple(value)}",
        f"must be alike, batch 1, and match key of shape {tuple(of_key)} in N and D",
        "pass prefixes of batch 1 with the heads of key",
    )
    types = tuple(jnp.dtype(x.dtype) for x in (f.call.key_shared_prefix, f.call.value_shared_prefix))
    refuse(
        types != (f.kv_dtype, f.kv_dtype),
        f"shared prefixes of {types[0]} and {types[1]}",
        f"must be {f.kv_dtype} as key",
        f"cast the prefixes to {f.kv_dtype}",
    )


def _prefix_len(f: Facts) -> None:
    whole = axis("key_shared_prefix", f.call.key_shared_prefix, f.kv_layout, "S")
    wrong = known(f.call.prefix_len) and size(f.call.key_shared_prefix) > 0 and not 0 <= f.prefix_len <= whole
    refuse(
        wrong,
        f"actual_shared_prefix_len={f.prefix_len}",
        f"must be 0 to {whole}, the length of the prefix",
        f"pass actual_shared_prefix_len=[{whole}]",
    )

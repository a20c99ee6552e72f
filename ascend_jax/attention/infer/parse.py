"""From a call to its facts, in the order of the operator's info parser."""

from dataclasses import dataclass
from typing import Any

from ascend_jax.attention.infer.call import INT_MAX, Call, known, refuse, size
from ascend_jax.attention.infer.facts import (
    Facts,
    differences,
    is_empty,
    kv_layout_of,
    layouts_of,
    longest_actual,
    quant_of,
    shared_prefix_len,
    storage_of,
)
from ascend_jax.attention.infer.layouts import PACKED, axis


@dataclass(frozen=True)
class Rows:
    """What is known before the keys are looked at."""

    b: int
    s1: int
    d: int
    dv: int
    one_row: bool
    device_lengths: bool
    lengths_q: Any
    seen: tuple[int, ...]


def parse(call: Call) -> Facts:
    """The facts of ``call``; raises ``TilingError`` (561002) where the operator cannot make sense of it."""
    refuse(
        len(call.key) != len(call.value),
        f"{len(call.key)} key and {len(call.value)} value tensors",
        "must be as many keys as values",
        "pass one value per key",
    )
    q_layout, out_layout = layouts_of(call)
    kv_layout = kv_layout_of(call, q_layout)
    n1, n2 = _heads(call)
    rows = _rows(call, q_layout, kv_layout, n1, n2)
    facts = {
        **{"call": call, "q_layout": q_layout, "kv_layout": kv_layout, "out_layout": out_layout},
        **{"storage": storage_of(call), "quant": quant_of(call), "empty": is_empty(call)},
        **{"n1": n1, "n2": n2, "b": rows.b, "s1": rows.s1, "d": rows.d, "dv": rows.dv, "q_seen": rows.seen},
        **{"one_row": rows.one_row, "device_lengths": rows.device_lengths, "lengths_q": rows.lengths_q},
    }
    keys = {} if is_empty(call) else _keys(call, Facts(**facts))
    return Facts(**facts, **keys, **_features(call, Facts(**facts, **keys)))


def _heads(call: Call) -> tuple[int, int]:
    refuse(call.num_heads <= 0, f"num_heads={call.num_heads}", "must be greater than 0", "pass the number of heads of query")
    refuse(
        call.num_key_value_heads < 0,
        f"num_key_value_heads={call.num_key_value_heads}",
        "must not be negative",
        "pass the number of heads of key, or 0 for num_heads",
    )
    return call.num_heads, call.num_key_value_heads or call.num_heads


def _rows(call: Call, q_layout: str, kv_layout: str, n1: int, n2: int) -> Rows:
    d = axis("query", call.query, q_layout, "D", n1)
    dv = axis("value", call.value[0], kv_layout, "D", n2)
    plain = call.input_layout in ("BSH", "BSND", "BNSD")
    one_row = plain and d == dv and call.query_rope is None and call.key_rope is None
    one_row = one_row and axis("query", call.query, q_layout, "S") == 1
    lengths_q = None if one_row and call.chip == "910b" else call.lengths_q
    on_device = any(x is not None and not known(x) for x in (lengths_q, call.lengths_kv))
    if q_layout not in PACKED:
        s1 = axis("query", call.query, q_layout, "S")
        return Rows(axis("query", call.query, q_layout, "B"), s1, d, dv, one_row, on_device, lengths_q, (s1,))
    if on_device:
        tokens = axis("query", call.query, q_layout, "T")
        return Rows(1, tokens, d, dv, one_row, on_device, lengths_q, (tokens,))
    ends: tuple[int, ...] = lengths_q or ()
    refuse(
        not ends,
        f"actual_seq_lengths={lengths_q} in layout {call.input_layout}",
        "must be given in layouts with T",
        "pass the tokens at which each sequence of query ends",
    )
    seen = differences(ends)
    return Rows(len(ends), max(0, *seen), d, dv, one_row, on_device, lengths_q, seen)


def _keys(call: Call, f: Facts) -> dict[str, Any]:
    refuse(
        f.n1 % f.n2 != 0,
        f"num_heads={f.n1}",
        f"must be a multiple of num_key_value_heads={f.n2}",
        f"pass num_heads a multiple of {f.n2}",
    )
    s2, seen = _kv_length(call, f)
    keys: dict[str, Any] = {"s2": s2, "kv_seen": seen}
    split = call.query_rope is not None and call.key_rope is not None
    if f.is_910b:
        refuse(f.d < f.dv, f"D={f.d} of query", f"must be at least D={f.dv} of value", f"pad query and key to D={f.dv}")
        refuse(
            f.d > f.dv and split,
            f"query_rope with D={f.d} of query and D={f.dv} of value",
            "query and value must be as wide where the rope is given",
            "leave query_rope out, or pass a value as wide as the query",
        )
    combined = f.d > f.dv if f.is_910b else (f.d, f.dv) == (192, 128)
    if not split:
        return {**keys, "rope": "combined", "mla": "combined", "d_rope": f.d - f.dv} if combined else keys
    q_rope = axis("query_rope", call.query_rope, f.q_layout, "D", f.n1)
    k_rope = axis("key_rope", call.key_rope, f.kv_layout, "D", f.n2)
    refuse(
        q_rope != k_rope,
        f"D={q_rope} of query_rope",
        f"must be that of key_rope, {k_rope}",
        "pass ropes as wide as one another",
    )
    mla = {512: "d512", 128: "d128"}.get(f.d, "none")
    return {**keys, "rope": "split", "mla": mla, "d_rope": q_rope}


def _kv_length(call: Call, f: Facts) -> tuple[int, tuple[int, ...]]:
    if f.storage == "paged":
        return _paged_length(call, f), ()
    if f.kv_layout in PACKED:
        if call.lengths_kv is None or not known(call.lengths_kv):
            return 0 if call.lengths_kv is None else axis("key", call.key[0], f.kv_layout, "T"), (0,)
        seen = differences(call.lengths_kv[: f.b])
        return max(0, *seen) if seen else 0, seen
    tokens = [axis("key", x, f.kv_layout, "S") if i == 0 else x.shape[_place(f.kv_layout)] for i, x in enumerate(call.key)]
    return max(tokens), (tokens[0],) if f.storage == "dense" else ()


def _place(layout: str) -> int:
    return 2 if layout == "BNSD" else 1


def _paged_length(call: Call, f: Facts) -> int:
    refuse(
        call.block_size <= 0, f"block_size={call.block_size}", "must be greater than 0 with block_table", "pass block_size=128"
    )
    dims = len(call.block_table.shape)
    refuse(dims != 2, f"block_table of {dims} dimensions", "must be [B, blocks]", "pass a block_table of 2 dimensions")
    if f.device_lengths or f.quant == "anti":
        return call.block_table.shape[1] * call.block_size
    return blocks_needed(call, f.b) * call.block_size


def blocks_needed(call: Call, b: int) -> int:
    """Pages that the longest sequence needs; 0 where the host does not know the lengths."""
    if call.lengths_kv is None or not known(call.lengths_kv):
        return 0
    return max((-(-length // call.block_size) for length in call.lengths_kv[:b]), default=0)


def _features(call: Call, f: Facts) -> dict[str, Any]:
    masked = call.atten_mask is not None and size(call.atten_mask) != 0
    plain = f.one_row and f.is_910b
    q_padded = not plain and call.query_padding_size is not None and not (f.quant == "anti" and f.s1 == 1)
    kv_padded = call.kv_padding_size is not None
    if f.one_row:
        kv_padded = kv_padded and size(call.kv_padding_size) > 0 and f.storage == "dense" and call.lengths_kv is not None
    mode = 0 if plain else call.sparse_mode
    refuse(
        masked and mode == 9 and not f.is_910b,
        "sparse_mode=9",
        "the 950 has no tree mask",
        "pass sparse_mode 0 with the whole mask",
    )
    prefix = call.key_shared_prefix is not None and call.value_shared_prefix is not None
    prefix_len = shared_prefix_len(call, f.kv_layout) if prefix else 0
    singles = f.storage == "dense" and f.kv_layout not in PACKED
    longest = f.s2 if f.device_lengths else longest_actual(call, f.s2, f.packed, f.b, singles)
    _no_block_modes(call, f)
    return {
        **{"sparse_mode": mode, "masked": masked, "q_padded": q_padded, "kv_padded": kv_padded, "longest_kv": longest},
        **dict(zip(("pre_tokens", "next_tokens"), _tokens(call, f, mode, masked, q_padded, kv_padded), strict=True)),
        **{"prefix": prefix, "prefix_len": prefix_len, "pse": call.pse_shift is not None and size(call.pse_shift) != 0},
    }


def _tokens(call: Call, f: Facts, mode: int, masked: bool, q_padded: bool, kv_padded: bool) -> tuple[int, int]:
    """``pre_tokens`` and ``next_tokens`` as the mode leaves them."""
    if f.quant == "anti" and f.s1 == 1:
        return INT_MAX, INT_MAX
    if mode in (2, 3, 9):
        return INT_MAX, 0
    open_sides = mode == 1 or (f.one_row and f.is_910b)
    if open_sides or (mode == 0 and (not masked or q_padded or kv_padded)):
        return INT_MAX, INT_MAX
    return max(-INT_MAX, min(INT_MAX, call.pre_tokens)), max(-INT_MAX, min(INT_MAX, call.next_tokens))


def _no_block_modes(call: Call, f: Facts) -> None:
    modes = (call.query_quant_mode, call.key_antiquant_mode, call.value_antiquant_mode)
    refuse(
        f.quant == "full" and modes == (7, 7, 7),
        "query_quant_mode=key_antiquant_mode=value_antiquant_mode=7",
        "quantisation per block is not supported",
        "quantise per tensor, per head or per group (modes 0, 3, 6)",
    )

"""The same call with fewer sequences and heads.

Lengths are never changed: they decide which blocks a mask leaves.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import jax

from experiments.peer_cases.sizes import Sizes, sizes_of

MOST_SEQUENCES = 8
"""Packed sequences that a smaller call keeps at most: the program grows with each."""
PAIR = 2
"""Sequences of a batch, and heads of K and V, that a smaller call keeps: enough to see one taken for the other."""
AMPLE = 8
"""A call with more than one head has at most the limit divided by this: the limit itself is for long sequences."""
OWN_MASK = (0, 1, 5)
"""The sparse modes whose mask has the lengths of the call."""
CUT_AT_THE_START = 7
"""The sparse mode whose window depends on the last sequence."""


class TooLargeError(Exception):
    """Lengths alone need more scores than the limit."""


def smaller(function: Callable[..., Any], call: dict[str, Any], limit: int) -> tuple[dict[str, Any], str]:
    """The call with at most ``limit`` scores, and what was taken away. Raises ``TooLargeError``."""
    old = sizes_of(function, call)
    kept, heads, kv_heads = (_packed_part if old.packed else _dense_part)(old, limit, call)
    if (len(kept), heads, kv_heads) == (old.batch, old.heads, old.kv_heads):
        return call, ""
    rows, keys = (tuple(side[index] for index in kept) for side in (old.rows, old.keys))
    new = Sizes(heads, kv_heads, rows, keys, old.packed, sum(rows), sum(keys))
    changes = {"B": (old.batch, new.batch), "N1": (old.heads, heads), "N2": (old.kv_heads, kv_heads)}
    note = ", ".join(f"{name} {before} → {after}" for name, (before, after) in changes.items() if before != after)
    return OPERATORS[function.__name__](call, old, new, kept), note


def _dense_part(old: Sizes, limit: int, _: Any) -> tuple[range, int, int]:
    each = max(old.rows, default=0) * max(old.keys, default=0)
    if each > limit:
        raise TooLargeError(f"lengths alone need {each:.3g} elements")
    batch, kv_heads = min(old.batch, PAIR), min(old.kv_heads, PAIR)
    group = old.heads // max(1, old.kv_heads)
    if each * batch * kv_heads * group > limit // AMPLE:
        kv_heads = min(kv_heads, 1)
    if each * batch * kv_heads * group > limit // AMPLE:
        batch = min(batch, 1)
    if each * batch * group > limit // AMPLE:
        group = max(1, min(group, limit // AMPLE // each))
    return range(batch), kv_heads * group, kv_heads


def _packed_part(old: Sizes, limit: int, call: dict[str, Any]) -> tuple[range, int, int]:
    """Sequences from the start, or from the end in the mode whose window belongs to the last one."""
    each = [rows * keys for rows, keys in zip(old.rows, old.keys, strict=True)]
    last = call.get("sparse_mode") == CUT_AT_THE_START
    order = each[::-1] if last else each
    group = old.heads // max(1, old.kv_heads)
    if order and order[0] > limit:
        raise TooLargeError(f"the lengths of one sequence alone need {order[0]:.3g} elements")
    if order and order[0] * group > limit // AMPLE:
        group = max(1, min(group, limit // AMPLE // order[0]))
    count = min(1, len(order))
    while count < min(len(order), MOST_SEQUENCES) and sum(order[: count + 1]) * group <= limit // AMPLE:
        count += 1
    kv_heads = min(old.kv_heads, PAIR)
    if sum(order[:count]) * group * kv_heads > limit // AMPLE:
        kv_heads = min(kv_heads, 1)
    kept = range(len(order) - count, len(order)) if last else range(count)
    return kept, kv_heads * group, kv_heads


def resized(x: Any, axes: str, old: Sizes, new: Sizes) -> Any:
    """A tensor with new sizes along its axes.

    Args:
      axes: a letter for each: B; N and K, heads of Q, and of K and V, or a multiple of them; T and U, their tokens; a small one
        where 1 stays 1; anything else stays.
    """
    before = {"B": old.batch, "N": old.heads, "K": old.kv_heads, "T": old.q_tokens, "U": old.kv_tokens}
    after = {"B": new.batch, "N": new.heads, "K": new.kv_heads, "T": new.q_tokens, "U": new.kv_tokens}
    shape = list(x.shape)
    for place, axis in enumerate(axes[: len(shape)]):
        name = axis.upper()
        if name in before and before[name] and not (axis.islower() and shape[place] == 1):
            shape[place] = shape[place] // before[name] * after[name]
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _fewer_pages(found: dict[str, Any], names: tuple[str, ...]) -> None:
    """No more pages than the table has entries."""
    most = prod(found["block_table"].shape)
    one = lambda x: jax.ShapeDtypeStruct((min(x.shape[0], most), *x.shape[1:]), x.dtype)  # noqa: E731
    for name in names:
        if found.get(name) is not None:
            found[name] = [one(x) for x in found[name]] if isinstance(found[name], list) else one(found[name])


def _all_resized(call: dict[str, Any], names: dict[str, str], old: Sizes, new: Sizes) -> dict[str, Any]:
    """``call`` with every tensor named in ``names`` resized along its axes there."""
    several = {name: x for name, x in call.items() if name in names and x is not None}
    one = lambda x, axes: resized(x, axes, old, new)  # noqa: E731
    return call | {
        name: [one(part, names[name]) for part in x] if isinstance(x, list) else one(x, names[name])
        for name, x in several.items()
    }


def _ends(lens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(lens[: index + 1]) for index in range(len(lens)))


def _axes(layout: str, heads: str, tokens: str) -> str:
    """Axes for :func:`resized`: H is a multiple of the heads."""
    return layout.replace("H", "N").replace("N", heads).replace("T", tokens)


def _smaller_fusion(call: dict[str, Any], old: Sizes, new: Sizes, kept: range) -> dict[str, Any]:
    layout = call["input_layout"].upper()
    q, kv = _axes(layout, "N", "T"), _axes(layout, "K", "U")
    statistics = "TN." if old.packed else "BN.."
    names = dict.fromkeys(("query", "query_rope", "dy", "attention_in"), q) | dict.fromkeys(("key", "key_rope", "value"), kv)
    names |= {"softmax_max": statistics, "softmax_sum": statistics, "sink": "N"}
    found = _all_resized(call, names, old, new) | {"head_num": new.heads}
    for name in ("pse", "atten_mask", "dropout_mask"):
        if call.get(name) is not None:
            found[name] = _smaller_optional(name, call, old, new)
    if call.get("prefix"):
        found["prefix"] = tuple(call["prefix"][index] for index in kept if index < len(call["prefix"]))
    if old.packed:
        found |= {"actual_seq_qlen": _ends(new.rows), "actual_seq_kvlen": _ends(new.keys)}
    return found


def _smaller_optional(name: str, call: dict[str, Any], old: Sizes, new: Sizes) -> Any:
    """pse, mask and dropout's mask, whose shapes have several forms."""
    x, shape = call[name], call[name].shape
    if name == "dropout_mask":
        return jax.ShapeDtypeStruct((-(-new.scores // 128) * 16,), x.dtype)
    if name == "atten_mask":
        return _smaller_mask(x, old, new) if call.get("sparse_mode", 0) in OWN_MASK else x
    if len(shape) == 1 and shape[0] != old.heads:
        by_row = prod(shape) == old.scores
        return jax.ShapeDtypeStruct((new.scores if by_row else new.heads * sum(new.keys),), x.dtype)
    return resized(x, {1: "N", 2: "bN"}.get(len(shape), "bn.."), old, new)


def _smaller_mask(x: Any, old: Sizes, new: Sizes) -> Any:
    if len(x.shape) == 4:
        return resized(x, "bn..", old, new)
    if old.packed and x.shape == (max(old.rows), max(old.keys)):
        return jax.ShapeDtypeStruct((max(new.rows), max(new.keys)), x.dtype)
    return resized(x, "TU", old, new) if old.packed else x


def _smaller_infer(call: dict[str, Any], old: Sizes, new: Sizes, kept: range) -> dict[str, Any]:
    layout = call["input_layout"].split("_")[0]
    q, kv = _axes(layout, "N", "T"), _axes(layout, "K", "U")
    paged = "block_table" in call
    if paged:
        kv = {3: "..K", 4: ".K.."}.get(len(call["key"][0].shape), ".K...")
    elif len(call["key"]) > 1:
        kv = kv.replace("B", ".")
        call = call | {name: call[name][: new.batch] for name in ("key", "value")}
    prefixes = dict.fromkeys(("key_shared_prefix", "value_shared_prefix"), _axes(layout, "K", "U").replace("B", "."))
    mask = call.get("atten_mask")
    decode = mask is not None and len(mask.shape) == 2 and max(old.rows) == 1 and mask.shape[0] == old.batch
    names = {"query": q, "query_rope": q, "key": kv, "value": kv, "key_rope": kv, "pse_shift": "bn..", "block_table": "B."}
    names |= {"learnable_sink": "N", "atten_mask": "B." if decode else "b..." if mask is not None and mask.ndim > 2 else ".."}
    found = _all_resized(call, names | prefixes, old, new) | {"num_heads": new.heads}
    found["num_key_value_heads"] = new.kv_heads if call["num_key_value_heads"] else 0
    for name, lens in (("actual_seq_lengths", new.rows), ("actual_seq_lengths_kv", new.keys)):
        if call.get(name) is None:
            continue
        if not old.packed:
            found[name] = call[name][: max(1, new.batch)]
        else:
            found[name] = lens if paged and name.endswith("kv") else _ends(lens)
    if paged:
        _fewer_pages(found, ("key", "value", "key_rope"))
    if mask is not None and len(mask.shape) == 1:
        found["atten_mask"] = jax.ShapeDtypeStruct((sum(rows**2 for rows in new.rows),), mask.dtype)
    return found


def _smaller_unified(call: dict[str, Any], old: Sizes, new: Sizes, kept: range) -> dict[str, Any]:
    layout, kv_layout = call.get("layout_q", "BSND"), call.get("layout_kv", "BSND")
    kv = {"PA_BBND": "..K.", "PA_BNBD": ".K..", "PA_NZ": ".K..."}.get(kv_layout) or _axes(kv_layout, "K", "U")
    names = {"q": _axes(layout, "N", "T"), "k": kv, "v": kv, "block_table": "B.", "sinks": "N"}
    found = _all_resized(call, names, old, new)
    for name in ("seqused_q", "seqused_kv"):
        if isinstance(call.get(name), jax.ShapeDtypeStruct):
            found[name] = resized(call[name], "B", old, new)
        elif call.get(name) is not None:
            found[name] = tuple(call[name][index] for index in kept)
    if old.packed:
        found["cu_seqlens_q"] = (0, *_ends(new.rows))
        if kv_layout == "TND":
            found["cu_seqlens_kv"] = (0, *_ends(new.keys))
    if kv_layout.startswith("PA_"):
        _fewer_pages(found, ("k", "v"))
    return found


OPERATORS: dict[str, Callable[..., dict[str, Any]]] = {
    "npu_fusion_attention": _smaller_fusion,
    "npu_fusion_attention_grad": _smaller_fusion,
    "npu_fused_infer_attention_score": _smaller_infer,
    "flash_attn": _smaller_unified,
}
"""How to make an operator's call smaller."""

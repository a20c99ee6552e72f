"""What the front end of the operator refuses (``aclnnFlashAttention…GetWorkspaceSize``): types, ranks, head sizes.

Source: attention/flash_attention_score/op_api/aclnn_flash_attention_score.cpp of ops-transformer.
"""

from typing import Any

import jax.numpy as jnp

from ascend_jax.attention.arguments import traced
from ascend_jax.attention.errors import ParamInvalidError, ParamNullptrError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call, shape_of

LARGEST_D = 768
"""Of the documented ranges the one that the operator checks. It lets pass N above 256, S or T above 1M and B above 2M, and only
logs a warning at more than 20,000 packed sequences; so do we, without the warning."""
FLOATS = ("float16", "bfloat16", "float32")


def name_of(tensor: Any) -> str:
    """The name of a tensor's type."""
    return jnp.dtype(tensor.dtype).name


def check_types(call: Call) -> None:
    """Types of Q, K and V, of pse and of the sink; raises ParamInvalidError."""
    query, key, value = (name_of(x) for x in (call.query, call.key, call.value))
    if not query == key == value:
        wrong = f"query, key and value of types {query}, {key} and {value}"
        raise ParamInvalidError(wrong, "must have one type", "cast them")
    if call.old and query not in FLOATS:
        raise ParamInvalidError(f"query of type {query}", f"must be one of {', '.join(FLOATS)}", "cast query, key and value")
    if call.pse_type in (2, 3):
        if call.pse is None:
            raise ParamInvalidError(f"pse=None with pse_type={call.pse_type}", "needs the slopes", "pass pse [N1] or [B, N1]")
        if name_of(call.pse) != "float32":
            wrong = f"pse of type {name_of(call.pse)} with pse_type={call.pse_type}"
            raise ParamInvalidError(wrong, "slopes must be float32", "cast pse to float32")
        return
    if call.pse is not None and name_of(call.pse) != query:
        wrong = f"pse of type {name_of(call.pse)}"
        raise ParamInvalidError(wrong, f"must have the type of the output, {query}", f"cast pse to {query}")
    if call.sink is not None and name_of(call.sink) != "float32":
        raise ParamInvalidError(f"sink of type {name_of(call.sink)}", "must be float32", "cast sink to float32")


def check_head_sizes(axes: Axes) -> None:
    """D of Q and K equal, no less than that of V, at most 768; raises ParamInvalidError."""
    if axes.d != axes.d_key:
        raise ParamInvalidError(f"D={axes.d} of query and D={axes.d_key} of key", "must be equal", "pad the smaller one")
    if axes.d < axes.d_value:
        raise ParamInvalidError(f"D={axes.d_value} of value", f"must not exceed D={axes.d} of key", "pad query and key")
    if axes.d > LARGEST_D:
        raise ParamInvalidError(f"D={axes.d}", f"must lie in 1…{LARGEST_D}", "split the heads")


def check_rope(call: Call, axes: Axes) -> None:
    """The further part of Q and K that carries rotary embeddings, as the 910B takes it.

    Raises:
      ParamNullptrError: whatever is wrong: the front end reports all of it as a null pointer.
    """
    if call.query_rope is None and call.key_rope is None:
        return
    wrong = next((wrong for holds, wrong in _rope_rules(call, axes) if holds), None)
    if wrong is not None:
        raise ParamNullptrError(*wrong)


def _rope_rules(call: Call, axes: Axes) -> list[tuple[bool, tuple[str, str, str]]]:
    """(what must not hold, the message), in the order of the front end."""
    ropes = (call.query_rope, call.key_rope)
    if any(rope is None for rope in ropes):
        return [(True, ("query_rope without key_rope", "come together", "pass both or none"))]
    sizes, misfit = [(0, *shape_of(rope))[-1] for rope in ropes], rope_misfit(call, axes)
    types = {name_of(x) for x in (call.query, *ropes)}
    no_mask = call.atten_mask is None
    lone, dropout = "go without it", traced(call.keep_prob) or call.keep_prob < 1
    return [
        (not call.packed, (f"query_rope in layout {call.layout}", "needs layout TND", "pass packed sequences")),
        *([(True, misfit)] if misfit else []),
        (max(sizes) > axes.d, (f"rope of D={max(sizes)}", f"must not exceed D={axes.d}", "pad query and key")),
        (types != {"bfloat16"}, (f"types {sorted(types)} with query_rope", "must all be bfloat16", "cast them")),
        (call.sparse_mode == 6, ("sparse_mode=6 with query_rope", lone, "pass another sparse_mode")),
        (no_mask, ("atten_mask=None with query_rope", "needs a mask", "pass atten_mask")),
        (call.pse is not None, ("pse with query_rope", lone, "pass pse=None")),
        (call.dropout_mask is not None, ("dropout_mask with query_rope", lone, "pass dropout_mask=None")),
        (dropout, (f"keep_prob={call.keep_prob} with query_rope", "must be 1", "pass keep_prob=1.0")),
        (_padded(call, axes), (f"D={axes.d} with query_rope", "must need no padding", "pass a multiple of 128")),
    ]


def rope_misfit(call: Call, axes: Axes) -> tuple[str, str, str] | None:
    """What is wrong with the shapes of both ropes: those of Q and K but for their own D, which is the same in both."""
    widths = []
    for name, heads in (("query", axes.n1), ("key", axes.n2)):
        own, rope = shape_of(getattr(call, name)), shape_of(getattr(call, f"{name}_rope"))
        if len(rope) != len(own) or rope[:-1] != own[:-1] or rope[-1] == 0:
            rule = f"must have the shape of {name}, {list(own)}, but for the last dimension"
            return f"{name}_rope of shape {list(rope)}", rule, f"pass the other part of {name}"
        widths.append(rope[-1] // heads if "H" in call.layout else rope[-1])
    if widths[0] != widths[1]:
        return f"ropes of D={widths[0]} and D={widths[1]}", "must be equally wide", "pad the smaller one"
    return None


def _padded(call: Call, axes: Axes) -> bool:
    """Whether the front end pads D of packed sequences: to 16 below 196 and at 448, to 128 otherwise."""
    unit = 16 if axes.d < 196 or axes.d == 448 else 128
    uneven = axes.d != axes.d_value and axes.d in (64, 80, 88)
    if axes.d % unit == 0 and axes.d_value % unit == 0 and not uneven:
        return False
    short = axes.d < 96 and 0 < axes.s2 <= 1024 and 0 < max(call.q_ends, default=0) < 160 * 1024
    return not short

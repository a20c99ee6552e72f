"""What ``flash_attn`` computes: its call put into the terms of the tiled attention, and its results put back.

Every row that sees no key gives 0, with ``+inf`` as its logarithm: masks of this operator always come with the repair of such
rows, and rows that do not exist (past ``seqused_q``, or of no sequence) start as 0 and ``+inf`` (op_kernel/arch35).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ascend_jax.attention.layouts import heads_first, laid_out
from ascend_jax.attention.options import FAR, How, Packed, Settings, Used, Window
from ascend_jax.attention.tiled import Attended, tiled_attention
from ascend_jax.attention.unified.call import Call
from ascend_jax.attention.unified.single import CAUSAL, NO_MASK
from ascend_jax.attention.unified.sizes import Sizes

BLOCK = 128
"""Rows of Q and of K/V of one block on the 950."""


class Lengths(NamedTuple):
    """What exists, as the tiled attention takes it, and the rows and keys of each sequence."""

    given: Packed | Used
    q: Any
    kv: Any


def attend(call: Call, sizes: Sizes, how: How) -> tuple[Array, Array]:
    """``attention_out`` in ``layout_out`` and the logarithm of the softmax's sum, for a call that was checked."""
    query = heads_first(call.q, call.layout_q, sizes.q_heads)
    key, value = (_keys(x, call, sizes.kv_heads) for x in (call.k, call.v))
    if call.layout_q == "TND":
        lengths = _packed_lengths(call, sizes)
        if call.paged:  # one sequence's pages behind the other's
            key, value = (jnp.moveaxis(x, 0, 1).reshape(1, sizes.kv_heads, -1, x.shape[3]) for x in (key, value))
    else:
        lengths = _used_lengths(call, sizes)
    settings = Settings(call.softmax_scale, **how._asdict(), zero_empty_rows=True)
    result = tiled_attention(query, key, value, _window(call, lengths), settings, lengths=lengths.given)
    return laid_out(result.out, call.layout_out), _log_sum(result, call)


def _keys(x: Array, call: Call, heads: int) -> Array:
    """Keys or values ``[B, N2, S2, D]``; pages are gathered by the table."""
    x = heads_first(x, call.layout_kv, heads)
    if not call.paged:
        return x
    pages = jnp.take(x, jnp.asarray(call.block_table), axis=0, mode="clip")  # [B, pages, N2, page, D]
    return jnp.moveaxis(pages, 1, 2).reshape(pages.shape[0], x.shape[1], -1, x.shape[3])


def _used_lengths(call: Call, sizes: Sizes) -> Lengths:
    q, kv = (_within(x, most) for x, most in ((call.seqused_q, sizes.q_len), (call.seqused_kv, sizes.kv_len)))
    return Lengths(Used(q, kv), sizes.q_len if q is None else q, sizes.kv_len if kv is None else kv)


def _within(x: Any, most: int) -> Array | None:
    return None if x is None else jnp.clip(jnp.asarray(x), 0, most)


def _packed_lengths(call: Call, sizes: Sizes) -> Lengths:
    q_starts, q_lens = _pieces("q", call.cu_seqlens_q, call.seqused_q, sizes.q_len)
    if call.paged:
        kv_starts = sizes.kv_len * np.arange(sizes.batch)
        kv_lens = np.clip(_concrete("seqused_kv", call.seqused_kv), 0, sizes.kv_len)
    else:
        kv_starts, kv_lens = _pieces("kv", call.cu_seqlens_kv, call.seqused_kv, sizes.kv_len)
    packed = Packed(*(tuple(x.tolist()) for x in (q_starts, q_lens, kv_starts, kv_lens)))
    return Lengths(packed, q_lens.astype(np.int32), kv_lens.astype(np.int32))


def _pieces(side: str, ends: Any, used: Any, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """First token and length of each sequence; values outside the tokens are cut to them."""
    cuts = np.clip(_concrete(f"cu_seqlens_{side}", ends), 0, tokens)
    lens = np.maximum(np.diff(cuts), 0)
    if used is not None:
        lens = np.clip(_concrete(f"seqused_{side}", used), 0, tokens - cuts[:-1])
    return cuts[:-1], lens


def _concrete(name: str, x: Any) -> np.ndarray:
    """The values of ``x``. Raises ``TypeError`` where they are not known while the call is traced."""
    if isinstance(x, Tracer):
        raise TypeError(f"{name} of packed sequences must be known when the call is traced: pass numbers or a numpy array")
    return np.asarray(x, np.int64)


def _window(call: Call, lengths: Lengths) -> Window:
    """Rows and keys are aligned at their ends."""
    if call.mask_mode == NO_MASK:
        return Window.full()
    shift = lengths.kv - lengths.q
    if call.mask_mode == CAUSAL:
        return Window(upper=shift)
    lower, upper = (FAR if side == -1 else min(side, FAR) for side in (call.win_left, call.win_right))
    return Window(shift - lower, shift + upper)


def _log_sum(result: Attended, call: Call) -> Array:
    """``log(sum) + max``, float32 ``[B, N1, S1]`` or ``[N1, T1]``; ``[0]`` if it is not wanted."""
    if not call.return_softmax_lse:
        return jnp.zeros(0, jnp.float32)
    top, total = result.softmax_max, result.softmax_sum
    seen = (total > 0) & (top > jnp.finfo(top.dtype).min)
    log_sum = jnp.where(seen, jnp.log(jnp.where(seen, total, jnp.ones_like(total))) + top, jnp.full_like(top, jnp.inf))
    return log_sum[0] if call.layout_q == "TND" else log_sum

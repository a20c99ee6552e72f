"""``flash_attn``, as torch_npu's extension cann_ops_transformer offers it on the 950.

Source: torch_extension/cann_ops_transformer/{ops,docs} of ops-transformer.
"""

from collections.abc import Sequence

from jax import Array
from jax.typing import ArrayLike

from ascend_jax.attention.options import How
from ascend_jax.attention.unified.call import Call, as_int32
from ascend_jax.attention.unified.joint import check
from ascend_jax.attention.unified.numerics import BLOCK, attend
from ascend_jax.tiling.tiling import Tiling

Ints = ArrayLike | Sequence[int]


def flash_attn(  # noqa: PLR0913, PLR0917 (the operator's own signature)
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    block_table: ArrayLike | None = None,
    cu_seqlens_q: Ints | None = None,
    cu_seqlens_kv: Ints | None = None,
    seqused_q: Ints | None = None,
    seqused_kv: Ints | None = None,
    sinks: ArrayLike | None = None,
    attn_mask: ArrayLike | None = None,
    metadata: ArrayLike | None = None,
    softmax_scale: float | Array = 1.0,
    mask_mode: int = 0,
    win_left: int = -1,
    win_right: int = -1,
    max_seqlen_q: int = -1,
    max_seqlen_kv: int = -1,
    layout_q: str = "BSND",
    layout_kv: str = "BSND",
    layout_out: str = "BSND",
    return_softmax_lse: bool = False,
    *,
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> tuple[Array, Array]:
    """Attention with grouped heads over dense, packed or paged keys and values.

    Layouts: q and the output BSND ``[B, S1, N1, D]``, BNSD ``[B, N1, S1, D]`` or TND ``[T1, N1, D]``; k and v the same with N2,
    or pages: PA_BBND ``[pages, page, N2, D]``, PA_BNBD ``[pages, N2, page, D]``, PA_NZ ``[pages, N2, D/16, page, 16]``.

    Args:
      q, k, v: float16 or bfloat16, all the same; D 64, 128 or 256; N1 a multiple of N2.
      block_table: int32 ``[B, pages per sequence]``, with pages only; ``seqused_kv`` is then required.
      cu_seqlens_q, cu_seqlens_kv: ``[B + 1]`` ends of packed sequences, the first 0. Required by TND, refused by others; their
        values, and those of ``seqused_*`` beside them, must be known when the call is traced.
      seqused_q, seqused_kv: ``[B]`` rows and keys that count.
      sinks: refused, as the operator refuses them.
      attn_mask: int8 ``[2048, 2048]``, 1 above the diagonal: required by mask_mode 3 and 4. Its values are not read.
      metadata: what ``flash_attn_metadata`` returns. Its values are not read.
      softmax_scale: multiplies the scores; the default is 1.
      mask_mode: 0 all keys; 3 causal, the last row aligned with the last key; 4 a band around that diagonal.
      win_left, win_right: keys of the band before and behind the diagonal; -1: no limit.
      max_seqlen_q, max_seqlen_kv: -1 or more; not used.
      return_softmax_lse: also return ``log Σ exp``.
      tiling: blocks of the computation; None: 128 × 128, as on the 950.
      round_probs: round P to the inputs' type before P·V, as the Cube takes it. Without it results are within the tolerances of
        the operators' own tests, which compare with a softmax that rounds nothing.

    Returns:
      ``attention_out`` in ``layout_out`` and q's type, and ``softmax_lse`` float32 ``[B, N1, S1]``, ``[N1, T1]`` for TND, or
      ``[0]`` if it is not wanted. Rows that see no key are 0 with ``+inf``.

    Raises:
      ParamInvalidError: what is no tensor or no number where one belongs.
      ParamNullptrError, TilingError: the operator refuses the call; the message says why.
      TypeError: lengths of packed sequences are traced.
    """
    call = Call(
        q=q,
        k=k,
        v=v,
        block_table=as_int32("block_table", block_table),
        cu_seqlens_q=as_int32("cu_seqlens_q", cu_seqlens_q),
        cu_seqlens_kv=as_int32("cu_seqlens_kv", cu_seqlens_kv),
        seqused_q=as_int32("seqused_q", seqused_q),
        seqused_kv=as_int32("seqused_kv", seqused_kv),
        sinks=sinks,
        attn_mask=attn_mask,
        metadata=metadata,
        softmax_scale=softmax_scale,
        mask_mode=mask_mode,
        win_left=win_left,
        win_right=win_right,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        layout_q=layout_q,
        layout_kv=layout_kv,
        layout_out=layout_out,
        return_softmax_lse=return_softmax_lse,
    )
    sizes = check(call)
    return attend(call, sizes, How.of(tiling, (BLOCK, BLOCK), round_probs))

"""What the host tiling of the gradient asks of atten_mask and pse, which is less and more than the forward call asks.

Source: CheckAttenMaskShape, ProcessPseInfo and ProcessPseNormal of op_host/arch22 and op_host/arch35 of
flash_attention_score_grad.
"""

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import GradCall, shape_of
from ascend_jax.attention.fusion.front_end import name_of
from ascend_jax.attention.fusion.grad_tokens import grad_tokens
from ascend_jax.attention.fusion.optional_checks import ALIBI_ROWS, check_none_empty
from ascend_jax.attention.fusion.tokens import COMPRESSED_MODES


def check_grad_mask(call: GradCall, axes: Axes) -> None:
    """Type and shape of atten_mask; raises TilingError.

    [B, N1, …], [B, 1, …], [1, 1, …] or nothing before the last two, which are S1 × S2 (the longest of packed sequences),
    2048 × 2048 in modes 2, 3, 4, 7 and 8, and 3072 × 2048 in mode 6.
    """
    if call.atten_mask is None:
        return
    if name_of(call.atten_mask) not in ("bool", "uint8"):
        wrong = f"atten_mask of type {name_of(call.atten_mask)}"
        raise TilingError(wrong, "must be bool or uint8", "an additive mask belongs into pse")
    shape = shape_of(call.atten_mask)
    leads = ((), (axes.batch, axes.n1), (axes.batch, 1), (1, 1))
    if call.sparse_mode in COMPRESSED_MODES:
        size = (3072, 2048) if call.sparse_mode == 6 else (2048, 2048)
    else:
        size = (axes.s1, axes.s2)
    if shape not in [(*lead, *size) for lead in leads]:
        rule = f"must be {list(size)}, alone or behind [B, N1], [B, 1] or [1, 1]; nothing is broadcast"
        raise TilingError(f"atten_mask of shape {list(shape)} when sparse_mode is {call.sparse_mode}", rule, "expand it")


def check_grad_pse(call: GradCall, axes: Axes) -> None:
    """Type and shape of pse; raises TilingError.

    Types 0 and 1: [B, N1, S1 or 1, S2] or [1, N1, S1, S2]; the last 1024 rows only under a causal mask; a flat one of packed
    sequences. Types 2 and 3: [N1] or [B, N1].
    """
    if not 0 <= call.pse_type <= 3:
        raise TilingError(f"pse_type={call.pse_type}", "must lie in 0…3", "pass pse_type=1")
    if call.pse is None:
        if call.old and call.pse_type != 1:
            raise TilingError(f"pse=None with pse_type={call.pse_type}", "needs a pse", "pass pse_type=1")
        return
    slopes = call.pse_type in (2, 3)
    kind = "float32" if slopes else name_of(call.query)
    if name_of(call.pse) != kind:
        raise TilingError(f"pse of type {name_of(call.pse)} with pse_type={call.pse_type}", f"must be {kind}", "cast pse")
    allowed = [(axes.n1,), (axes.batch, axes.n1)] if slopes else _pse_shapes(call, axes)
    if shape_of(call.pse) not in allowed:
        rule = " or ".join(str(list(one)) for one in allowed) or "absent"
        raise TilingError(f"pse of shape {list(shape_of(call.pse))}", f"must be {rule}", "expand it")
    if call.packed and slopes:
        _check_slopes(call, axes)
    elif call.packed:
        check_none_empty(axes)


def _pse_shapes(call: GradCall, axes: Axes) -> list[tuple[int, ...]]:
    pre, after = grad_tokens(call, axes)
    causal = axes.s1 <= pre and after == 0
    alibi = [(batch, axes.n1, ALIBI_ROWS, axes.s2) for batch in (1, axes.batch)]
    if call.packed:
        keys = sum(axes.kv_lens) if call.old else axes.t2
        return [
            (axes.n1 * keys,),
            (axes.n1 * sum(q * kv for q, kv in zip(axes.q_lens, axes.kv_lens, strict=True)),),
            *(alibi if causal else []),
        ]
    whole = [(axes.batch, axes.n1, axes.s1, axes.s2), (axes.batch, axes.n1, 1, axes.s2), (1, axes.n1, axes.s1, axes.s2)]
    return [*whole, *(alibi if causal and axes.s1 == axes.s2 >= ALIBI_ROWS else [])]


def _check_slopes(call: GradCall, axes: Axes) -> None:
    wrong = f"pse_type={call.pse_type} with sparse_mode={call.sparse_mode}"
    if call.sparse_mode == 7:
        raise TilingError(wrong, "does not go with slopes", "pass another sparse_mode")
    if call.sparse_mode != 8:
        return
    if axes.q_lens[0] - axes.kv_lens[0] + call.q_start - call.kv_start or axes.q_lens[1:] != axes.kv_lens[1:]:
        rule = "needs S1 + q_start_idx = S2 + kv_start_idx in the first sequence and S1 = S2 in the others"
        raise TilingError(wrong, rule, "pass the start of the part of Q, and equal lengths")

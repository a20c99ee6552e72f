"""Sparse modes of the gradient: which tokens its host tiling refuses, and which keys rows meet.

Source: CheckTokens and ProcessTokensInfo of op_host/arch22 and op_host/arch35 of flash_attention_score_grad.
"""

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import OPEN, GradCall
from ascend_jax.attention.fusion.packed_tokens import band_sequence, packed_sparse
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.attention.fusion.tokens import dense_sparse


def grad_tokens(call: GradCall, axes: Axes) -> tuple[int, int]:
    """pre_tockens and next_tockens as the host corrects them: open without a mask, and counted from the top left."""
    if call.sparse_mode == 1 or call.atten_mask is None:
        return OPEN, OPEN
    pre, after = (OPEN, 0) if call.sparse_mode in (2, 3) else (call.pre_tokens, call.next_tokens)
    shift = axes.s2 - axes.s1 if call.sparse_mode in (3, 4) and not call.packed else 0
    return pre - shift, after + shift


def check_grad_tokens(call: GradCall, axes: Axes) -> None:
    """Tokens of modes 0, 4, 7 and 8 that leave no key to any row; raises TilingError.

    The 910B looks at them with or without a mask; a band of packed sequences must be wider than nothing.
    """
    if call.sparse_mode not in (0, 4, 7, 8):
        return
    if call.old:
        for rows, keys in _lengths(call, axes):
            _check(call, (call.pre_tokens, call.next_tokens), _limits(call, rows, keys), least=0)
    pre, after = grad_tokens(call, axes)
    if not call.packed:
        _check(call, (pre, after), (axes.s2, axes.s1), least=0)
        return
    for rows, keys in _lengths(call, axes):
        if call.old or call.sparse_mode >= 7 or (rows and keys):
            _check(call, (pre, after), _limits(call, rows, keys), least=1)


def _lengths(call: GradCall, axes: Axes) -> list[tuple[int, int]]:
    if not call.packed:
        return [(axes.s1, axes.s2)]
    pairs = list(zip(axes.q_lens, axes.kv_lens, strict=True))
    if call.sparse_mode >= 7:
        return [pairs[band_sequence(axes, last=call.sparse_mode == 7)]]
    # Sequences at the end whose entries are 0 in both lists are not looked at.
    while pairs and call.q_ends[len(pairs) - 1] == 0 and call.kv_ends[len(pairs) - 1] == 0:
        pairs.pop()
    return pairs


def _limits(call: GradCall, rows: int, keys: int) -> tuple[int, int]:
    """How far below 0 the tokens may go: mode 0 counts from the top left, the others from the bottom right."""
    return (keys, rows) if call.sparse_mode == 0 else (rows, keys)


def _check(call: GradCall, tokens: tuple[int, int], limits: tuple[int, int], least: int) -> None:
    pre, after = tokens
    if -pre > limits[0] or -after > limits[1] or pre + after < least:
        wrong = f"pre_tockens={call.pre_tokens} and next_tockens={call.next_tokens} when sparse_mode is {call.sparse_mode}"
        rule = f"must add up to at least {least} and be at least {-limits[0]} and {-limits[1]}"
        raise TilingError(wrong, rule, "widen the band")


def grad_sparse(call: GradCall, axes: Axes) -> Sparse:
    """The keys that rows meet: those of the forward call, whose own checks the gradient does not repeat.

    Raises:
      TilingError: sparse_mode 6 without a prefix for each sequence.
    """
    if call.sparse_mode == 6 and call.atten_mask is not None and len(call.prefix) != axes.batch:
        rule = f"must have one for each of the {axes.batch} sequences when sparse_mode is 6"
        raise TilingError(f"prefix of {len(call.prefix)} entries", rule, "pass as many as sequences")
    try:
        return packed_sparse(call, axes) if call.packed else dense_sparse(call, axes)
    except TilingError:
        return _unchecked(call)


def _unchecked(call: GradCall) -> Sparse:
    """The keys of a call that the forward operator would refuse."""
    kinds = {0: Kind.BAND, 3: Kind.CAUSAL_RIGHT, 4: Kind.BAND_RIGHT, 6: Kind.PREFIX, 7: Kind.BAND_LAST, 8: Kind.BAND_FIRST}
    kind = kinds.get(call.sparse_mode, Kind.ALL)
    return Sparse(kind, call.pre_tokens, call.next_tokens, call.prefix, compressed=call.sparse_mode != 0)

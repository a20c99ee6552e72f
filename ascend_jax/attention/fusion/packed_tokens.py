"""Sparse modes of packed sequences (TND): which keys each row meets, and what the host tiling refuses.

Every rule is the documented one. On the 910B the host counts sequences of one length with D = Dv = 128 as a batch, which lets
modes 3 and 4 pass with S1 above S2 against the documentation; that is not followed here. Source: CheckPretokenAndNexttoken,
SparseNoMaskModeCheck and VarLenGetPrefixNList of flash_attention_score's host code in ops-transformer.
"""

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.attention.fusion.tokens import all_keys, causal


def packed_sparse(call: Call, axes: Axes) -> Sparse:
    """The keys that rows of packed sequences meet. Without a mask: all keys of their sequence.

    Raises:
      TilingError: a mode that packed sequences do not have, tokens that leave a row without a key, a prefix out of range.
    """
    mode = call.sparse_mode
    if (not call.old or call.atten_mask is not None) and (mode == 5 or mode > 8):
        raise TilingError(
            f"sparse_mode={mode}", "must lie in 0…8 and not be 5 in layout TND", "pass sparse_mode=6 for a prefix"
        )
    if call.atten_mask is None:
        return Sparse()
    return MODES[mode](call, axes)


def band_sequence(axes: Axes, last: bool) -> int:
    """Number of the sequence that is a band in modes 7 (the last one with rows) and 8 (the first one)."""
    with_rows = [index for index, length in enumerate(axes.q_lens) if length]
    if not with_rows:
        return axes.batch - 1 if last else 0
    return with_rows[-1] if last else with_rows[0]


def _causal_right(call: Call, axes: Axes) -> Sparse:
    del call
    _check_no_longer(axes, range(axes.batch), slack=0)
    return Sparse(Kind.CAUSAL_RIGHT, compressed=True)


def _default(call: Call, axes: Axes) -> Sparse:
    pre, after = call.pre_tokens, call.next_tokens
    if pre >= axes.s1 and after == 0:
        return Sparse(Kind.CAUSAL)
    if pre >= axes.s1 and after >= axes.s2:
        return Sparse()
    if after < 0:
        raise TilingError(
            f"next_tockens={after}", "must be at least 0 when sparse_mode is 0 in layout TND", "pass next_tockens=0"
        )
    for index, (rows, keys) in _filled(axes):
        if keys + pre < rows:
            rule = f"leaves rows of sequence {index} without a key: S2={keys} + pre_tockens must reach S1={rows}"
            raise TilingError(f"pre_tockens={pre}", rule, f"pass at least {rows - keys}")
    if pre < 0 and after < -pre:
        raise TilingError(f"pre_tockens={pre} and next_tockens={after}", "must not add up to less than 0", "raise next_tockens")
    return Sparse(Kind.BAND, pre, after)


def _band(call: Call, axes: Axes) -> Sparse:
    pre, after = call.pre_tokens, call.next_tokens
    if pre < 0 or (after < 0 and pre + after < 0):
        wrong = f"pre_tockens={pre} and next_tockens={after}"
        raise TilingError(wrong, "pre_tockens and pre_tockens + next_tockens must be at least 0", "raise pre_tockens")
    _check_no_longer(axes, range(axes.batch), slack=after)
    if pre >= axes.s2 and after == 0:
        return Sparse(Kind.CAUSAL_RIGHT, compressed=True)
    return Sparse(Kind.BAND_RIGHT, pre, after, compressed=True)


def _band_last(call: Call, axes: Axes) -> Sparse:
    pre, after, band = call.pre_tokens, call.next_tokens, band_sequence(axes, last=True)
    if pre < axes.kv_lens[band] or after > 0:
        wrong = f"pre_tockens={pre} and next_tockens={after} when sparse_mode is 7"
        rule = f"must be at least S2={axes.kv_lens[band]} of the last sequence, and at most 0"
        raise TilingError(wrong, rule, f"pass pre_tockens={axes.kv_lens[band]}, next_tockens=0")
    _check_no_longer(axes, range(axes.batch), slack=0)
    _check_no_longer(axes, [band], slack=after)
    return Sparse(Kind.BAND_LAST, pre, after, compressed=True)


def _band_first(call: Call, axes: Axes) -> Sparse:
    pre, after, band = call.pre_tokens, call.next_tokens, band_sequence(axes, last=False)
    rows, keys = axes.q_lens[band], axes.kv_lens[band]
    if rows - after > keys:
        wrong = f"next_tockens={after} when sparse_mode is 8"
        raise TilingError(wrong, f"must be at least S1={rows} - S2={keys} of the first sequence", f"pass {rows - keys}")
    if pre < keys:
        wrong = f"pre_tockens={pre} when sparse_mode is 8"
        raise TilingError(wrong, f"must be at least S2={keys} of the first sequence", f"pass {keys}")
    return Sparse(Kind.BAND_FIRST, pre, after, compressed=True)


def _prefix(call: Call, axes: Axes) -> Sparse:
    if len(call.prefix) != axes.batch:
        rule = f"must have one for each of the {axes.batch} sequences"
        raise TilingError(f"prefix of {len(call.prefix)} entries", rule, "pass as many as sequences")
    for index, (prefix, rows, keys) in enumerate(zip(call.prefix, axes.q_lens, axes.kv_lens, strict=True)):
        least = max(0, keys - rows)
        if not least <= prefix <= keys:
            raise TilingError(f"prefix[{index}]={prefix}", f"must lie in [{least}, {keys}]", f"pass at least {least}")
    lens = zip(call.prefix, axes.q_lens, axes.kv_lens, strict=True)
    empty = any(rows > keys and not prefix for prefix, rows, keys in lens)
    return Sparse(Kind.PREFIX, prefix=call.prefix, compressed=True, empty_rows=empty)


def _filled(axes: Axes) -> list[tuple[int, tuple[int, int]]]:
    """(number, (S1, S2)) of the sequences that have both rows and keys."""
    return [(index, pair) for index, pair in enumerate(zip(axes.q_lens, axes.kv_lens, strict=True)) if all(pair)]


def _check_no_longer(axes: Axes, which: range | list[int], slack: int) -> None:
    """Every row must see a key: S1 - slack ≤ S2."""
    for index, (rows, keys) in _filled(axes):
        if index in which and rows - slack > keys:
            wrong = f"sequence {index} of S1={rows} and S2={keys}"
            raise TilingError(wrong, f"has rows without a key: S1 - {slack} must not exceed S2", "use sparse_mode 2 or 6")


MODES = {
    0: _default,
    1: all_keys,
    2: causal,
    3: _causal_right,
    4: _band,
    6: _prefix,
    7: _band_last,
    8: _band_first,
}

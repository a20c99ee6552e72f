"""Sparse modes of a batch: which keys each row meets, and the tokens, prefixes and modes that the host tiling refuses.

Source: SparseModeProcess, PretokenAndNexttokenAdjustment, SparseBandModeCheck and GetPrefixNList of op_host/arch22 and
op_host/arch35 of flash_attention_score in ops-transformer, which agree.
"""

from dataclasses import replace

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call
from ascend_jax.attention.fusion.plan import Kind, Sparse

COMPRESSED_MODES = (2, 3, 4, 6, 7, 8)
"""Modes whose mask is a fixed small triangle that the kernel shifts along."""


def dense_sparse(call: Call, axes: Axes) -> Sparse:
    """The keys that rows of a batch meet. Without a mask: all of them, whatever else is asked.

    Raises:
      TilingError: a mode above 6, tokens that leave no key, a prefix out of range.
    """
    if call.atten_mask is None:
        return Sparse()
    mode = call.sparse_mode
    if not 0 <= mode <= 6:
        raise TilingError(f"sparse_mode={mode} in layout {call.layout}", "must lie in 0…6", "modes 7 and 8 need layout TND")
    return (_default, all_keys, causal, _causal_right, _band_right, _prefix, _prefix)[mode](call, axes)


def all_keys(call: Call, axes: Axes) -> Sparse:
    """Mode 1: what the mask leaves."""
    del call, axes
    return Sparse()


def causal(call: Call, axes: Axes) -> Sparse:
    """Mode 2: from the top left."""
    del call, axes
    return Sparse(Kind.CAUSAL, compressed=True)


def _causal_right(call: Call, axes: Axes) -> Sparse:
    """Rows that come before the first key see nothing: the host counts this as a band whose upper side is below 0."""
    del call
    return Sparse(Kind.CAUSAL_RIGHT, compressed=True, empty_rows=axes.s1 > axes.s2)


def _band_right(call: Call, axes: Axes) -> Sparse:
    """Tokens count from the bottom right, where the last row meets the last key."""
    shift = axes.s2 - axes.s1
    return replace(_band(call.pre_tokens - shift, call.next_tokens + shift, axes), compressed=True)


def _default(call: Call, axes: Axes) -> Sparse:
    """Mode 0: the host trusts that the mask is the band that the tokens declare, counted from the top left."""
    if call.pre_tokens >= axes.s1 and call.next_tokens == 0:
        return Sparse(Kind.CAUSAL)
    if call.pre_tokens >= axes.s1 and call.next_tokens >= axes.s2:
        return Sparse()
    return _band(call.pre_tokens, call.next_tokens, axes)


def _band(pre: int, after: int, axes: Axes) -> Sparse:
    """A band ``-pre ≤ j - i ≤ after`` from the top left."""
    if pre >= axes.s1 and after >= axes.s2:
        return Sparse()
    wrong = f"pre_tockens={pre} and next_tockens={after} counted from the top left, S1={axes.s1}, S2={axes.s2}"
    if pre < 0 and after < 0:
        raise TilingError(wrong, "one of them must be at least 0", "see sparse_mode and the tokens it takes")
    if pre < 0 and not -pre <= min(after, axes.s2 - 1):
        raise TilingError(wrong, "a negative pre_tockens needs |pre| ≤ next and |pre| < S2", "raise pre_tockens")
    if after < 0 and not -after <= min(pre, axes.s1 - 1):
        raise TilingError(wrong, "a negative next_tockens needs |next| ≤ pre and |next| < S1", "raise next_tockens")
    return Sparse(Kind.BAND, pre, after, empty_rows=pre < axes.s1 - axes.s2 or after < 0)


def _prefix(call: Call, axes: Axes) -> Sparse:
    """Modes 5 and 6. Mode 5 with a prefix that does not fit becomes full attention under the mask, without a word."""
    compressed = call.sparse_mode == 6
    wrong = _wrong_prefix(call, axes)
    if wrong is not None:
        if compressed:
            raise TilingError(*wrong)
        return Sparse()
    dims = [int(size) for size in call.atten_mask.shape]
    if not compressed and axes.batch != 1 and (len(dims) != 4 or dims[0] != axes.batch):
        rule = "must be [B, N1, S1, S2] or [B, 1, S1, S2] when sparse_mode is 5"
        raise TilingError(f"atten_mask of shape {dims}", rule, "give each sequence its own mask")
    empty = axes.s1 > axes.s2 and 0 in call.prefix
    return Sparse(Kind.PREFIX, prefix=call.prefix, compressed=compressed, empty_rows=empty)


def _wrong_prefix(call: Call, axes: Axes) -> tuple[str, str, str] | None:
    if len(call.prefix) != axes.batch:
        wrong = f"prefix of {len(call.prefix)} entries"
        return wrong, f"must have one for each of the B={axes.batch} sequences", "pass as many as sequences"
    least = max(0, axes.s2 - axes.s1)
    for index, prefix in enumerate(call.prefix):
        if not least <= prefix <= axes.s2:
            return f"prefix[{index}]={prefix}", f"must lie in [{least}, {axes.s2}]", f"pass at least {least}"
    return None

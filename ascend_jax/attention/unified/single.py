"""What must hold of each argument on its own, and which arguments must be there: the first two rounds of checks.

Source of the rules and of their order: attention/flash_attn/op_host/checkers/*.cpp of ops-transformer.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.unified.call import Call, shown
from ascend_jax.attention.unified.sizes import Sizes

DENSE = ("BNSD", "BSND", "TND")
NO_MASK, CAUSAL, BAND = 0, 3, 4
MASK_SIDE = 2048
"""Side of the one mask that every masked call passes: 1 above the diagonal."""
PAGE_STEP, PAGE_MOST = 16, 1024


def check_each(call: Call, sizes: Sizes) -> None:
    """Each argument on its own. Raises ``TilingError``."""
    for name in ("layout_q", "layout_out"):
        if getattr(call, name) not in DENSE:
            raise TilingError(f"{name}={getattr(call, name)!r}", "must be BNSD, BSND or TND", 'pass "BSND"')
    for name, count, text in _lengths(call, sizes):
        _check_int_row(name, getattr(call, name), count, text)
    for name in ("max_seqlen_q", "max_seqlen_kv"):
        _check_least(name, getattr(call, name))
    if call.paged:
        _check_pages(call, sizes)
    _check_mask(call)
    if call.sinks is not None and tuple(call.sinks.shape) != (0,):
        raise TilingError(shown("sinks", call.sinks), "the operator has no sinks yet", "pass None, or use npu_fusion_attention")
    _check_metadata(call.metadata)
    if call.return_softmax_lse not in (0, 1):
        raise TilingError(f"return_softmax_lse={call.return_softmax_lse}", "must be 0 or 1", "pass True or False")


def check_there(call: Call) -> None:
    """Which arguments must be there, and which must not. Raises ``TilingError``."""
    if call.paged and call.seqused_kv is None:
        raise TilingError("seqused_kv=None", "pages need it", "pass the keys of each sequence, int32 [B]")
    for side, layout in (("q", call.layout_q), ("kv", call.layout_kv)):
        name = f"cu_seqlens_{side}"
        given = getattr(call, name) is not None
        if layout == "TND" and not given:
            raise TilingError(f"{name}=None", f"layout_{side} TND needs it", "pass int32 [B + 1]")
        if layout != "TND" and given:
            raise TilingError(f"{name} given", f"layout_{side} is {layout}, only TND takes it", f"pass {name}=None")
    if not call.paged and call.block_table is not None:
        raise TilingError("block_table given", f"layout_kv is {call.layout_kv}, which has no pages", "pass block_table=None")
    if call.mask_mode == NO_MASK and call.attn_mask is not None:
        raise TilingError("attn_mask given", "mask_mode=0 takes no mask", "pass attn_mask=None, or mask_mode 3 or 4")
    if call.mask_mode != NO_MASK and call.attn_mask is None:
        raise TilingError(
            "attn_mask=None", f"mask_mode={call.mask_mode} needs it", "pass int8 [2048, 2048], 1 above the diagonal"
        )
    for name in ("win_left", "win_right"):
        if call.mask_mode != BAND and getattr(call, name) != -1:
            raise TilingError(
                f"{name}={getattr(call, name)}", f"mask_mode={call.mask_mode} takes only -1", "pass -1, or mask_mode=4"
            )


def _lengths(call: Call, sizes: Sizes) -> list[tuple[str, int, str]]:
    """The rows of whole numbers that were given: name, how many numbers, and how that is said."""
    used, ends = (sizes.batch, "B"), (sizes.batch + 1, "B + 1")
    rows = [("seqused_q", *used), ("seqused_kv", *used), ("cu_seqlens_q", *ends), ("cu_seqlens_kv", *ends)]
    return [row for row in rows if getattr(call, row[0]) is not None]


def _check_int_row(name: str, x: Any, count: int, text: str) -> None:
    if x.dtype != np.int32:
        raise TilingError(shown(name, x), "must be int32", f"cast {name} to int32")
    if len(x.shape) != 1:
        raise TilingError(shown(name, x), "must have one axis", f"pass {text} numbers")
    if x.shape[0] != count:
        raise TilingError(shown(name, x), f"must hold {text} = {count} numbers", f"pass {count} numbers")


def _check_least(name: str, value: int) -> None:
    if value < -1:
        raise TilingError(f"{name}={value}", "must be -1 or more", f"pass {name}=-1")


def _check_pages(call: Call, sizes: Sizes) -> None:
    if not PAGE_STEP <= sizes.page <= PAGE_MOST:
        raise TilingError(f"block_size={sizes.page}", f"must be {PAGE_STEP} to {PAGE_MOST}", "pass pages of 128 tokens")
    if sizes.page % PAGE_STEP:
        raise TilingError(f"block_size={sizes.page}", f"must be a multiple of {PAGE_STEP}", "pass pages of 128 tokens")
    if call.block_table.dtype != np.int32:
        raise TilingError(shown("block_table", call.block_table), "must be int32", "cast block_table to int32")
    if len(call.block_table.shape) != 2:
        raise TilingError(shown("block_table", call.block_table), "must have two axes", "pass [B, pages per sequence]")


def _check_mask(call: Call) -> None:
    if call.mask_mode not in (NO_MASK, CAUSAL, BAND):
        raise TilingError(f"mask_mode={call.mask_mode}", "must be 0, 3 or 4", "pass mask_mode=3 for causal attention")
    mask = call.attn_mask
    if mask is not None:
        if mask.dtype != np.int8:
            raise TilingError(shown("attn_mask", mask), "must be int8", "pass int8, 1 above the diagonal")
        if tuple(mask.shape) != (MASK_SIDE, MASK_SIDE):
            raise TilingError(shown("attn_mask", mask), "must be [2048, 2048]", "pass that shape whatever the lengths are")
    _check_least("win_left", call.win_left)
    _check_least("win_right", call.win_right)


def _check_metadata(metadata: Any) -> None:
    if metadata is None:
        raise TilingError("metadata=None", "is required", "pass what flash_attn_metadata returns")
    if metadata.dtype != jnp.int32:
        raise TilingError(shown("metadata", metadata), "must be int32", "pass what flash_attn_metadata returns")
    if len(metadata.shape) != 1 or metadata.shape[0] <= 0:
        raise TilingError(shown("metadata", metadata), "must be one row, not empty", "pass what flash_attn_metadata returns")

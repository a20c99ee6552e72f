"""``flash_attn_metadata``: the call before ``flash_attn``, which on the device shares the work out among the cores.

Source: torch_extension/cann_ops_transformer/ops/flash_attn.py and attention/flash_attn_metadata/op_host of ops-transformer.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ascend_jax.attention.arguments import check_text, whole_number
from ascend_jax.attention.errors import AclnnRuntimeError
from ascend_jax.attention.unified.call import PAGED, as_int32, shown
from ascend_jax.attention.unified.joint import HEAD_DIMS
from ascend_jax.attention.unified.single import BAND, CAUSAL, DENSE, NO_MASK

CORES = 36 + 72
"""Cube and vector cores of the largest 950."""
WORDS, ALIGNMENT = 16, 4096

Ints = ArrayLike | Sequence[int]


def flash_attn_metadata(  # noqa: PLR0913 (the operator's own signature)
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    cu_seqlens_q: Ints | None = None,
    cu_seqlens_kv: Ints | None = None,
    seqused_q: Ints | None = None,
    seqused_kv: Ints | None = None,
    batch_size: int | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    mask_mode: int | None = None,
    win_left: int | None = None,
    win_right: int | None = None,
    layout_q: str | None = None,
    layout_kv: str | None = None,
    layout_out: str | None = None,
) -> Array:
    """The tensor that ``flash_attn`` wants as ``metadata``: int32 of the device's length, zeros here (no cores to share among).

    The arguments are those of ``flash_attn``; layouts default to BSND. ``batch_size`` defaults to what the lengths say. Left
    out, ``mask_mode`` counts as 1 as on the device, which is refused: pass the mode of ``flash_attn``.

    Raises:
      ParamInvalidError: what is no number or no name where one belongs.
      AclnnRuntimeError: the operator refuses the call.
    """
    tensors = {
        "cu_seqlens_q": as_int32("cu_seqlens_q", cu_seqlens_q),
        "cu_seqlens_kv": as_int32("cu_seqlens_kv", cu_seqlens_kv),
        "seqused_q": as_int32("seqused_q", seqused_q),
        "seqused_kv": as_int32("seqused_kv", seqused_kv),
    }
    heads = {"num_heads_q": num_heads_q, "num_heads_kv": num_heads_kv, "head_dim": head_dim}
    num_heads_q, num_heads_kv, head_dim = (whole_number(name, given) for name, given in heads.items())
    batch = _or("batch_size", batch_size, _batch(tensors))
    longest = {"q": _or("max_seqlen_q", max_seqlen_q, -1), "kv": _or("max_seqlen_kv", max_seqlen_kv, -1)}
    layouts = {"q": layout_q, "kv": layout_kv, "out": layout_out}
    layouts = {side: "BSND" if layout is None else layout for side, layout in layouts.items()}
    _check_numbers(batch, longest, (num_heads_q, num_heads_kv, head_dim))
    _check_layouts(layouts)
    _check_mask(_or("mask_mode", mask_mode, 1), _or("win_left", win_left, -1), _or("win_right", win_right, -1))
    for side in ("q", "kv"):
        _check_lengths(side, layouts[side], tensors, longest[side])
    _check_counts(batch, tensors, num_heads_q, num_heads_kv)
    words = (CORES * (batch if batch > 0 else _batch(tensors)) * num_heads_kv + 1) * WORDS
    return jnp.zeros(-(-words // ALIGNMENT) * ALIGNMENT, jnp.int32)


def _or(name: str, value: int | None, default: int) -> int:
    return default if value is None else whole_number(name, value)


def _batch(tensors: dict) -> int:
    ends, used = tensors["cu_seqlens_q"], tensors["seqused_q"]
    if ends is not None and 0 not in (ends.shape or (0,)):
        return ends.shape[0] - 1
    return 0 if used is None else (*used.shape, 0)[0]


def _check_numbers(batch: int, longest: dict[str, int], heads: tuple[int, int, int]) -> None:
    numbers = {"batch_size": batch, "max_seqlen_q": longest["q"], "max_seqlen_kv": longest["kv"]}
    for name, value in numbers.items():
        if value != -1 and value <= 0:
            raise AclnnRuntimeError(f"{name}={value}", "must be -1 or above 0", f"pass {name} of the call")
    for name, value in zip(("num_heads_q", "num_heads_kv"), heads[:2], strict=True):
        if value <= 0:
            raise AclnnRuntimeError(f"{name}={value}", "must be above 0", f"pass {name} of the call")
    if heads[2] not in HEAD_DIMS:
        raise AclnnRuntimeError(f"head_dim={heads[2]}", "must be 64, 128 or 256", "pad the heads")


def _check_layouts(layouts: dict[str, str]) -> None:
    for side, layout in layouts.items():
        check_text(f"layout_{side}", layout)
        allowed = (*DENSE, *PAGED) if side == "kv" else DENSE
        if layout not in allowed:
            raise AclnnRuntimeError(f"layout_{side}={layout!r}", f"must be one of {', '.join(allowed)}", 'pass "BSND"')


def _check_mask(mask_mode: int, win_left: int, win_right: int) -> None:
    if mask_mode not in (NO_MASK, CAUSAL, BAND):
        raise AclnnRuntimeError(f"mask_mode={mask_mode}", "must be 0, 3 or 4", "pass the mask_mode of flash_attn")
    for name, value in (("win_left", win_left), ("win_right", win_right)):
        if value < -1:
            raise AclnnRuntimeError(f"{name}={value}", "must be -1 or more", f"pass {name}=-1")


def _check_lengths(side: str, layout: str, tensors: dict, longest: int) -> None:
    ends, used = (tensors[f"{name}_{side}"] is not None for name in ("cu_seqlens", "seqused"))
    if (layout == "TND") != ends:
        rule = "layout TND needs it" if layout == "TND" else f"layout {layout} does not take it"
        raise AclnnRuntimeError(f"cu_seqlens_{side} {'given' if ends else '= None'}", rule, "pass what flash_attn is given")
    if layout != "TND" and longest < 0 and not used:
        rule = f"layout {layout} needs max_seqlen_{side} or seqused_{side}"
        raise AclnnRuntimeError(f"max_seqlen_{side}={longest}, seqused_{side}=None", rule, f"pass max_seqlen_{side}")


def _check_counts(batch: int, tensors: dict, num_heads_q: int, num_heads_kv: int) -> None:
    if batch <= 0:
        return
    for name, x in tensors.items():
        count = batch + name.startswith("cu_")
        if x is not None and tuple(x.shape) != (count,):
            raise AclnnRuntimeError(shown(name, x), f"must hold {count} numbers", f"pass {count} numbers")
    if num_heads_q % num_heads_kv:
        raise AclnnRuntimeError(
            f"num_heads_q={num_heads_q}", f"must be a multiple of num_heads_kv={num_heads_kv}", "pass the heads of q and k"
        )

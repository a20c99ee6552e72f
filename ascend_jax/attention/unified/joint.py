"""What must hold of the arguments together: the last round of checks.

Source of the rules and of their order: attention/flash_attn/op_host/checkers/*.cpp of ops-transformer.
"""

import jax.numpy as jnp

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.unified.call import PAGED, Call, shown, with_numbers
from ascend_jax.attention.unified.single import check_each, check_there
from ascend_jax.attention.unified.sizes import AXES, Sizes, read_sizes

KV_LAYOUTS = {layout: (layout, *PAGED) for layout in ("BNSD", "BSND", "TND")}
OUT_LAYOUTS = {"BNSD": ("BNSD", "BSND"), "BSND": ("BSND",), "TND": ("TND",)}
HEAD_DIMS = (64, 128, 256)
BATCH_LIMIT = 65536
NZ_LAST = 16
"""Elements of 32 bytes in a two-byte type: the last axis of layout PA_NZ."""


def check(call: Call) -> Sizes:
    """Every check of the operator's host code, in its order.

    Returns:
      The call's axes.

    Raises:
      ParamInvalidError: what is no tensor or no number where one belongs.
      ParamNullptrError: q, k or v is missing.
      TilingError: any other rule.
    """
    call = with_numbers(call)
    sizes = read_sizes(call)
    check_each(call, sizes)
    check_there(call)
    _check_layouts(call)
    _check_dtypes(call)
    _check_shapes(call, sizes)
    _check_axes(sizes)
    if call.paged and call.block_table.shape[0] != sizes.batch:
        raise TilingError(
            shown("block_table", call.block_table), f"its first axis must be B={sizes.batch}", "pass one row per sequence"
        )
    return sizes


def _check_layouts(call: Call) -> None:
    if call.layout_kv not in KV_LAYOUTS[call.layout_q]:
        allowed = ", ".join(KV_LAYOUTS[call.layout_q])
        raise TilingError(
            f"layout_kv={call.layout_kv!r}", f"layout_q {call.layout_q} goes with {allowed}", "change one of the two"
        )
    if call.layout_out not in OUT_LAYOUTS[call.layout_q]:
        allowed = ", ".join(OUT_LAYOUTS[call.layout_q])
        raise TilingError(
            f"layout_out={call.layout_out!r}", f"layout_q {call.layout_q} goes with {allowed}", "change one of the two"
        )


def _check_dtypes(call: Call) -> None:
    for name in ("q", "k", "v"):
        if getattr(call, name).dtype not in (jnp.float16, jnp.bfloat16):
            raise TilingError(shown(name, getattr(call, name)), "must be float16 or bfloat16", f"cast {name}")
    for name in ("k", "v"):
        if getattr(call, name).dtype != call.q.dtype:
            raise TilingError(shown(name, getattr(call, name)), f"must be {call.q.dtype} as q is", f"cast {name}")


def _check_shapes(call: Call, sizes: Sizes) -> None:
    """K and V must have the axes of the call: K those of q, V those of K with its own D."""
    for name, width in (("k", sizes.head_dim), ("v", sizes.value_dim)):
        x = getattr(call, name)
        expected = {
            "B": sizes.batch,
            "S": sizes.kv_len,
            "T": sizes.kv_len,
            "N": sizes.kv_heads,
            "D": width,
            "pages": sizes.pages,
            "page": sizes.page,
            "D1": width // NZ_LAST,
            "D0": NZ_LAST,
        }
        shape = [expected[axis] for axis in AXES[call.layout_kv]]
        if list(x.shape) != shape:
            raise TilingError(shown(name, x), f"must be {shape} in layout {call.layout_kv}", f"pass {name} of shape {shape}")


def _check_axes(sizes: Sizes) -> None:
    if sizes.batch >= BATCH_LIMIT:
        raise TilingError(f"B={sizes.batch}", f"must be below {BATCH_LIMIT}", "cut the batch")
    if sizes.kv_len <= 0:
        raise TilingError(f"S2={sizes.kv_len}", "must be above 0", "pass a block_table with columns")
    for name, width in (("q and k", sizes.head_dim), ("v", sizes.value_dim)):
        if width not in HEAD_DIMS:
            raise TilingError(f"D={width} of {name}", "must be 64, 128 or 256", "pad the heads, or use npu_fusion_attention")
    if sizes.head_dim != sizes.value_dim:
        raise TilingError(
            f"D={sizes.head_dim} of q and k, D={sizes.value_dim} of v", "must be equal", "pad V, or use npu_fusion_attention"
        )

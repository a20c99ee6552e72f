"""Masks, sparse modes and the tokens of a band (``checkers/mask_checker.cpp``)."""

import jax.numpy as jnp

from ascend_jax.attention.infer.call import refuse
from ascend_jax.attention.infer.facts import Facts

TYPES = tuple(jnp.dtype(x) for x in (jnp.bool_, jnp.int8, jnp.uint8))
MODES = (0, 1, 2, 3, 4, 9)
FIXED = 2048
"""Rows and columns of the mask that modes 2, 3 and 4 share, whatever the lengths."""


def single(f: Facts) -> None:
    """Type of the mask and the mode."""
    if f.call.atten_mask is not None:
        dtype = jnp.dtype(f.call.atten_mask.dtype)
        refuse(dtype not in TYPES, f"atten_mask of {dtype}", "must be bool, int8 or uint8", "pass a bool mask, True: masked")
    refuse(f.sparse_mode not in MODES, f"sparse_mode={f.sparse_mode}", "must be 0 to 4, or 9", "pass sparse_mode=0")


def existence(f: Facts) -> None:
    """Nothing of its own: a mode without its mask is refused with the mask's shape."""


def feature(f: Facts) -> None:
    """Which modes each form of attention has."""
    if f.quant == "none":
        accepted = (0, 3, 4, 9) if f.mla == "d512" else MODES
        accepted = (0, 2, 3) if f.uneven else accepted
        refuse(f.sparse_mode not in accepted, f"sparse_mode={f.sparse_mode}", f"must be in {accepted}", "pass sparse_mode=0")
        if f.is_910b and f.sparse_mode == 9:
            _tree(f)
    elif f.quant == "anti":
        refuse(f.s1 == 1 and f.sparse_mode != 0, f"sparse_mode={f.sparse_mode}", "must be 0 for one row", "pass sparse_mode=0")
    else:
        _full_quant(f)


def _tree(f: Facts) -> None:
    refuse(f.rope != "split", "sparse_mode=9 without query_rope", "the tree mask needs a rope", "pass query_rope and key_rope")
    refuse(f.q_padded or f.kv_padded, "sparse_mode=9 with padding", "has no left padding", "leave the padding out")
    refuse(f.pse, "sparse_mode=9 with pse_shift", "has no pse_shift", "leave pse_shift out")
    refuse(f.prefix, "sparse_mode=9 with a shared prefix", "has no shared prefix", "leave the prefix out")
    refuse(jnp.dtype(f.call.out_dtype) == jnp.int8, "sparse_mode=9 with an int8 output", "is float only", "drop quant_scale2")
    if f.device_lengths:
        return
    for q_len, kv_len in zip(f.q_seen, f.kv_seen, strict=False):
        refuse(
            kv_len != 0 and q_len > kv_len,
            f"{q_len} rows over {kv_len} keys with sparse_mode=9",
            "the tree of the rows is at the end of the keys",
            "pass at least as many keys as rows",
        )


def _full_quant(f: Facts) -> None:
    modes = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode)
    causal, whole = f.sparse_mode == 3 and f.masked, f.sparse_mode == 0 and not f.masked
    only = f.mla == "d512" or modes in ((6, 6, 8), (3, 3, 2))
    refuse(
        only and not causal and not whole,
        f"sparse_mode={f.sparse_mode} {'with' if f.masked else 'without'} atten_mask",
        "quantised queries have mode 3 with a mask or mode 0 without",
        "pass sparse_mode=3 with the 2048 × 2048 mask",
    )


def consistency(f: Facts) -> None:
    """The band, and the shape of the mask."""
    if not (f.quant == "anti" and f.s1 == 1):
        refuse(
            -f.next_tokens > f.pre_tokens,
            f"pre_tokens={f.pre_tokens}, next_tokens={f.next_tokens}",
            "the band must not be empty: -next_tokens must be at most pre_tokens",
            "pass larger pre_tokens or next_tokens",
        )
    refuse(
        not f.masked and f.sparse_mode != 0,
        f"sparse_mode={f.sparse_mode} without atten_mask",
        "every mode but 0 needs its mask",
        "pass the mask, or sparse_mode=0",
    )
    if not f.masked or (f.device_lengths and (not f.is_910b or f.sparse_mode in (0, 1))):
        return
    if f.sparse_mode == 9:
        _tree_shape(f)
    elif f.sparse_mode in (0, 1):
        _whole_shape(f)
    else:
        _fixed_shape(f)


def _tree_shape(f: Facts) -> None:
    dims = len(f.shape_mask)
    refuse(
        dims not in (1, 3),
        f"atten_mask of shape {f.shape_mask}",
        "must be [B, S, S], or flat in layouts with T, with sparse_mode 9",
        "pass the mask of the tree only",
    )


def _split(f: Facts) -> tuple[int, int, int, int]:
    """Batch, heads, rows and columns of the mask."""
    shape = f.shape_mask
    refuse(
        len(shape) not in (2, 3, 4),
        f"atten_mask of shape {shape}",
        "must have 2, 3 or 4 dimensions",
        "pass atten_mask as [B, 1, S1, S2]",
    )
    lead = {2: (1, 1), 3: (shape[0], 1), 4: shape[:2]}[len(shape)]
    return lead[0], lead[1], shape[-2], shape[-1]


def _fixed_shape(f: Facts) -> None:
    refuse(
        _split(f) != (1, 1, FIXED, FIXED),
        f"atten_mask of shape {f.shape_mask}",
        f"must be [{FIXED}, {FIXED}] with sparse_mode {f.sparse_mode}",
        f"pass the upper triangle of {FIXED} × {FIXED}",
    )


def _whole_shape(f: Facts) -> None:
    batch, heads, rows, columns = _split(f)
    flat = f.is_910b and f.rope == "none" and f.call.input_layout in ("BSH", "BSND", "BNSD", "BNSD_BSND")
    refuse(
        len(f.shape_mask) == 2 and not flat,
        f"atten_mask of shape {f.shape_mask}",
        "must have a batch axis",
        "pass atten_mask as [1, S1, S2]",
    )
    wanted = f.prefix_len + (f.s2 if f.storage == "paged" else f.longest_kv)
    wrong = batch not in (1, f.b) or heads != 1 or rows < f.s1 or columns < wanted
    refuse(
        wrong and not (f.quant == "anti" and f.s1 == 1 and len(f.shape_mask) == 2),
        f"atten_mask of shape {f.shape_mask}",
        f"must be [{f.b} or 1, at least {f.s1}, at least {wanted}]",
        "pass one mask per batch, or one for all",
    )

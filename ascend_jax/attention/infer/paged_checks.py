"""Caches of pages: the table, the size of a page, the shape of the cache (``checkers/paged_attention_checker.cpp``)."""

from typing import Any

import jax.numpy as jnp

from ascend_jax.attention.infer.call import refuse, size
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.parse import blocks_needed

MAX_H = 65535


def single(f: Facts) -> None:
    """The table's type and shape."""
    if f.storage != "paged":
        return
    table = f.call.block_table
    dtype = jnp.dtype(table.dtype)
    refuse(dtype != jnp.int32, f"block_table of {dtype}", "must be int32", "cast block_table to int32")
    refuse(size(table) == 0, f"block_table of shape {tuple(table.shape)}", "must not be empty", "pass [B, blocks]")


def existence(f: Facts) -> None:
    """Pages without a table are no pages."""


def feature(f: Facts) -> None:
    """What does not go with pages."""
    if f.storage != "paged":
        return
    refuse(
        not f.device_lengths and not f.call.lengths_kv,
        "actual_seq_lengths_kv=() with block_table",
        "must be given",
        "pass the length of each sequence of keys",
    )
    if f.quant == "full":
        _quantised_pages(f)
    _mask(f)
    for name in ("query_padding_size", "kv_padding_size", "key_shared_prefix", "value_shared_prefix"):
        refuse(getattr(f.call, name) is not None, f"{name} with block_table", "does not go with pages", f"leave {name} out")
    refuse(
        f.uneven and not f.is_910b,
        f"D={f.d} of query and D={f.dv} of value with block_table",
        "must be equal, or 192 and 128",
        "pass a value as wide as the query",
    )
    refuse(
        f.q_dtype == jnp.int8 and f.rope != "split",
        "query of int8 with block_table",
        "needs a rope",
        "pass query_rope and key_rope",
    )
    if f.quant == "anti":
        _antiquant_pages(f)


def _quantised_pages(f: Facts) -> None:
    dims, layout = len(f.call.key[0].shape), f.call.input_layout
    modes = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode)
    wrong = dims == 4 and layout in ("BSH", "BSND", "BSH_NBSD", "BSND_NBSD")
    wrong = {(6, 6, 8): dims == 3, (3, 3, 2): dims != 4}.get(modes, wrong)
    refuse(wrong, f"key pages of {dims} dimensions", f"not with quantisation {modes} in {layout}", "pass another cache layout")


def _antiquant_pages(f: Facts) -> None:
    refuse(
        f.s1 > 1 and f.kv_dtype == jnp.int8 and f.call.key_antiquant_mode in (0, 1),
        f"S={f.s1} of query over int8 pages with key_antiquant_mode={f.call.key_antiquant_mode}",
        "more than one row needs another mode",
        "pass float pages",
    )
    refuse(
        f.kv_layout == "BnNBsD" and f.q_layout not in ("BNSD", "TND"),
        f"quantised key pages of 4 dimensions in layout {f.call.input_layout}",
        "go with BNSD and TND",
        "pass pages of 3 dimensions",
    )


def _mask(f: Facts) -> None:
    if f.sparse_mode not in (0, 1) or f.call.atten_mask is None or f.call.lengths_kv is None:
        return
    wanted = blocks_needed(f.call, f.b) * f.call.block_size
    refuse(
        len(f.shape_mask) > 0 and f.shape_mask[-1] < wanted,
        f"atten_mask of shape {f.shape_mask}",
        f"must reach over whole pages, {wanted} keys",
        f"pad the mask to {wanted} columns",
    )


def consistency(f: Facts) -> None:
    """Size of a page, and the caches against it."""
    if f.storage != "paged":
        return
    _page_size(f)
    if f.device_lengths:
        return
    wanted, shape = blocks_needed(f.call, f.b), tuple(f.call.block_table.shape)
    refuse(
        shape[0] != f.b or shape[1] < wanted,
        f"block_table of shape {shape}",
        f"must be [{f.b}, at least {wanted}]",
        "give every sequence a row with all its pages",
    )
    _cache(f, "key", f.call.key[0], f.d)
    _cache(f, "value", f.call.value[0], f.dv)
    if f.rope == "split":
        _cache(f, "key_rope", f.call.key_rope, f.d_rope)


def _page_size(f: Facts) -> None:
    step, most = 16, 1024
    if f.quant == "anti":
        bits = 4 if f.kv_dtype.name in ("int4", "float4_e2m1fn") else 8
        step, most = 256 // bits, 512
    elif f.quant == "none" and f.rope == "none" and f.d not in (64, 128):
        step, most = (128, 1024) if f.s1 > 1 else (16, 512)
    elif f.quant == "full":
        sizes = {"d512": (128,)}.get(f.mla, ())
        modes = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode)
        sizes = {(6, 6, 8): (512, 1024), (3, 3, 2): (128,)}.get(modes, sizes)
        wrong = bool(sizes) and f.call.block_size not in sizes
        refuse(wrong, f"block_size={f.call.block_size}", f"must be one of {sizes}", "pass block_size=128")
        return
    refuse(
        not step <= f.call.block_size <= most or f.call.block_size % step != 0,
        f"block_size={f.call.block_size} with D={f.d} and {f.s1} rows",
        f"must be a multiple of {step} up to {most}",
        "pass block_size=128",
    )


def _cache(f: Facts, name: str, tensor: Any, wide: int) -> None:
    """``[blocks, block_size, H]``, ``[blocks, N, block_size, D]`` or ``[blocks, N, D1, block_size, D0]``."""
    shape, block = tuple(tensor.shape), f.call.block_size
    if len(shape) == 3:
        wrong = shape[1:] != (block, f.n2 * wide) or shape[2] > MAX_H
        wanted = f"[blocks, {block}, {f.n2 * wide}], H at most {MAX_H}"
    elif len(shape) == 4:
        wrong, wanted = shape[1:] != (f.n2, block, wide), f"[blocks, {f.n2}, {block}, {wide}]"
    else:
        inner = 16 if f.quant == "anti" or name == "key_rope" else 32 // f.kv_dtype.itemsize
        wrong = shape[1:] != (f.n2, wide // inner, block, inner)
        wanted = f"[blocks, {f.n2}, {wide // inner}, {block}, {inner}]"
    refuse(wrong, f"{name} pages of shape {shape}", f"must be {wanted}", "make block_size, N and D agree with the cache")

"""Keys and values in pages, or one tensor per batch (``checkers/common_checker.cpp``)."""

from ascend_jax.attention.infer.call import refuse
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.layouts import axis

MAX_BATCH = 65536


def from_pages(f: Facts) -> None:
    """Key and value of a cache of pages: alike, and as wide as query and output."""
    key, value = (list(x[0].shape) for x in (f.call.key, f.call.value))
    free = f.mla == "combined"
    refuse(
        len(key) != len(value) or not _alike(f.kv_layout, key, value, free),
        f"value of shape {tuple(value)} in pages",
        f"must match key of shape {tuple(key)}",
        "pass both caches with the same blocks, heads and block_size",
    )
    refuse(
        f.is_910b and f.kv_layout == "NZ" and f.rope == "none" and not {f.d, f.dv} <= {64, 128},
        f"D={f.d} of query and D={f.dv} of value with pages in NZ",
        "must be 64 or 128 without rope",
        "pass pages of 3 or 4 dimensions",
    )
    for name, shape, wide in (("key", key, f.d), ("value", value, f.dv)):
        given = shape[3] if f.kv_layout == "BnNBsD" else shape[2]
        wanted = {"BnBsH": wide * f.n2, "BnNBsD": wide, "NZ": wide // 16}[f.kv_layout]
        if f.kv_layout == "NZ" and f.quant != "none":
            continue
        refuse(
            given != wanted or (f.kv_layout == "NZ" and shape[4] != 16),
            f"{name} pages of shape {tuple(shape)}",
            f"must hold D={wide} for {f.n2} heads",
            f"pass {name} pages with D={wide}",
        )


def _alike(layout: str, key: list[int], value: list[int], free: bool) -> bool:
    """Whether two caches have the same blocks; D counts unless it is ``free``."""
    wide = {"BnBsH": (2,), "BnNBsD": (3,), "NZ": (2, 4)}[layout]
    return all(a == b for place, (a, b) in enumerate(zip(key, value, strict=True)) if not (free and place in wide))


def from_list(f: Facts) -> None:
    """One key and one value per batch: they differ in S only."""
    layout, keys = f.call.input_layout, f.call.key
    refuse(f.call.block_table is not None, "block_table with several keys", "pages are one tensor", "leave block_table out")
    refuse(f.packed, f"several keys in layout {layout}", "works only with a batch axis", "pass one packed key and value")
    refuse(f.b > MAX_BATCH, f"batch of {f.b}", f"must be at most {MAX_BATCH}", "split the batch")
    tokens, heads = (2, 1) if layout in ("BNSD", "BNSD_BSND", "BNSD_NBSD") else (1, 2)
    rope = f.call.key_rope
    refuse(
        rope is not None and rope.shape[0] != len(keys),
        f"key_rope for {len(keys)} keys",
        "must be one per key tensor",
        f"pass a key_rope of batch {len(keys)}",
    )
    for key, value in zip(keys, f.call.value, strict=True):
        _one_of_list(f, list(key.shape), list(value.shape), tokens, heads)
    refuse(f.b != len(keys), f"{len(keys)} keys", f"must be one per batch of query, {f.b}", f"pass {f.b} keys and values")
    d = axis("key", keys[0], f.kv_layout, "D", f.n2)
    refuse(d != f.d, f"D={d} of key", f"must be D={f.d} of query", "pass query and key of one width")


def _one_of_list(f: Facts, key: list[int], value: list[int], tokens: int, heads: int) -> None:
    first_key, first_value, rope = f.call.key[0].shape, f.call.value[0].shape, f.call.key_rope
    shapes = f"key and value of shapes {tuple(key)}, {tuple(value)}"
    refuse(
        len(key) != len(first_key) or len(value) != len(first_value),
        shapes,
        "all tensors of the list must have the same dimensions",
        "pass keys that differ in S only",
    )
    wrong = key[-1] != first_key[-1] or value[-1] != first_value[-1] or key[tokens] != value[tokens]
    if f.call.input_layout != "BSH":
        wrong = wrong or key[heads] != f.n2 or value[heads] != f.n2
    refuse(wrong, shapes, "must differ from the first in S only", "make N, D and S agree")
    refuse(
        rope is not None and key[tokens] != rope.shape[tokens],
        f"key with S={key[tokens]}",
        "must have S of key_rope",
        "pass keys as long as key_rope",
    )

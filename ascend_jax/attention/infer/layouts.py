"""The names of layouts, the axes they stand for, and what an axis of a tensor is."""

from typing import Any

from ascend_jax.attention.infer.call import refuse

LAYOUTS = {
    "BSH": ("BSH", "BSH"),
    "BSND": ("BSND", "BSND"),
    "BNSD": ("BNSD", "BNSD"),
    "TND": ("TND", "TND"),
    "NTD": ("NTD", "NTD"),
    "BSH_NBSD": ("BSH", "NBSD"),
    "BSND_NBSD": ("BSND", "NBSD"),
    "BNSD_NBSD": ("BNSD", "NBSD"),
    "TND_NTD": ("TND", "NTD"),
    "NTD_TND": ("NTD", "TND"),
    "BNSD_BSND": ("BNSD", "BSND"),
    "BSND_BNSD": ("BSND", "BNSD"),
    "BSH_BNSD": ("BSH", "BNSD"),
}
"""``input_layout``: the layout of the query, and that of the output (the operator's info parser)."""

PACKED = ("TND", "NTD")

AXES = {
    "BSH": ("B", "S", "H"),
    "BSND": ("B", "S", "N", "D"),
    "BNSD": ("B", "N", "S", "D"),
    "TND": ("T", "N", "D"),
    "NTD": ("N", "T", "D"),
    "BnBsH": ("Bn", "S", "H"),
    "BnNBsD": ("Bn", "N", "S", "D"),
    "NZ": ("Bn", "N", "D1", "S", "D0"),
}
"""Axes of a tensor. The last three are caches of pages: ``Bn`` pages of ``S`` tokens; NZ cuts D into D1 pieces of D0."""

PAGED = {3: "BnBsH", 4: "BnNBsD", 5: "NZ"}


def axis(name: str, tensor: Any, layout: str, letter: str, heads: int = 0) -> int:
    """The length of one axis; D of a layout with H is ``H / heads``, D of NZ is ``D1 · D0``.

    >>> from jax import ShapeDtypeStruct
    >>> axis("query", ShapeDtypeStruct((2, 7, 64), "float16"), "BSH", "D", heads=4)
    16
    """
    shape, axes = tuple(tensor.shape), AXES[layout]
    refuse(
        len(shape) != len(axes),
        f"{name} of shape {shape}",
        f"must have {len(axes)} dimensions in layout {layout}",
        f"reshape {name} to [{', '.join(axes)}]",
    )
    if letter in axes:
        return shape[axes.index(letter)]
    if letter == "D" and layout == "NZ":
        return shape[2] * shape[4]
    wide = shape[axes.index("H")]
    refuse(
        wide % heads != 0,
        f"{name} with H={wide}",
        f"H must be a multiple of the {heads} heads",
        f"pass H = {heads} · D of {name}",
    )
    return wide // heads

"""Between the layouts of the operators and ``[B, N, S, D]``, in which attention is computed. Packed: ``[1, N, T, D]``."""

from typing import Any

import jax.numpy as jnp
from jax import Array

ORDERS = {
    "BSND": (0, 2, 1, 3),
    "BNSD": (0, 1, 2, 3),
    "NBSD": (1, 0, 2, 3),
    "SBND": (1, 2, 0, 3),
    "TND": (1, 0, 2),
    "NTD": (0, 1, 2),
}
"""Axes of a layout, H split into N and D, that become B, N, S, D."""

CACHES = {"BnBsH": "BSH", "BnNBsD": "BNSD", "PA_BBND": "BSND", "PA_BNBD": "BNSD", "PA_NZ": "NZ"}
"""Layouts of pages, with pages in the place of B and their tokens in that of S."""


def heads_first(x: Any, layout: str, heads: int) -> Array:
    """``[B, N, S, D]`` (``[1, N, T, D]``, ``[pages, N, page, D]``) of a tensor in ``layout``; ``heads`` is N."""
    x, layout = jnp.asarray(x), CACHES.get(layout, layout)
    if layout == "NZ":  # [pages, N, D / 16, page, 16]
        return jnp.moveaxis(x, 2, 3).reshape(*x.shape[:2], x.shape[3], x.shape[2] * x.shape[4])
    if layout.endswith("H"):
        x = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    x = jnp.transpose(x, ORDERS[layout.replace("H", "ND")])
    return x if x.ndim == 4 else x[None]


def laid_out(x: Array, layout: str) -> Array:
    """``[B, N, S, D]`` in ``layout``."""
    order = ORDERS[layout.replace("H", "ND")]
    x = x if len(order) == 4 else x[0]
    x = jnp.transpose(x, [order.index(axis) for axis in range(len(order))])
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3]) if layout.endswith("H") else x

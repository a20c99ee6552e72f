"""What a layout means for DMA: how many rows of one head lie side by side in GM."""

import jax.numpy as jnp
from jax import Array


def contiguous_rows(layout: str, heads: Array, rows: Array) -> Array:
    """Rows of one head that one contiguous burst covers: all in BNSD, one where other heads' rows lie between (rank 0).

    BSH, SBH, BSND and TND interleave the heads (``…, heads, dim``), unless there is only one.
    """
    return rows if layout == "BNSD" else jnp.where(heads > 1, 1.0, rows)

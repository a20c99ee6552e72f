"""Partial results of attention over disjoint sets of keys put together by their log-sum-exp, as ring attention does."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array


def merge_partials(outs: Sequence[Array], lses: Sequence[Array]) -> tuple[Array, Array]:
    """``Σ exp(lse_p - m) · out_p / Σ exp(lse_p - m)`` with m the greatest, and the log-sum-exp of all keys.

    Args:
      outs: one ``[…, D]`` per part.
      lses: one float ``[…, 1]`` per part; ``+inf`` where a row sees none of the part's keys: the part then counts nothing.

    Returns:
      The output in the type of the first part, and the log-sum-exp in that of ``lses``; 0 and ``+inf`` for rows that no part
      has a key for.

    Raises:
      ValueError: no part, or shapes that do not belong together.

    >>> out, lse = merge_partials([jnp.array([[1.0]]), jnp.array([[3.0]])], [jnp.array([[0.0]]), jnp.array([[0.0]])])
    >>> out.tolist(), round(float(lse[0, 0]), 4)
    ([[2.0]], 0.6931)
    """
    outs, lses = [jnp.asarray(out) for out in outs], [jnp.asarray(lse) for lse in lses]
    if not outs or len(outs) != len(lses):
        raise ValueError(f"{len(outs)} outputs and {len(lses)} log-sum-exps: one of each per part, and at least one part")
    for place, (out, lse) in enumerate(zip(outs, lses, strict=True)):
        if out.shape != outs[0].shape or lse.shape != (*out.shape[:-1], 1):
            wrong = f"outs[{place}] of shape {out.shape} and lses[{place}] of shape {lse.shape}"
            raise ValueError(f"{wrong}: must be [..., D] as outs[0] is, {outs[0].shape}, and [..., 1]: pass lse[..., None]")
    parts = jnp.stack(lses)
    absent = jnp.isposinf(parts)
    parts = jnp.where(absent, -jnp.inf, parts)
    top = jnp.max(parts, axis=0, keepdims=True)
    base = jnp.where(jnp.isneginf(top), jnp.zeros_like(top), top)
    weights = jnp.exp(parts - base)
    total = jnp.sum(weights, axis=0, keepdims=True)
    some = jnp.where(total > 0, total, jnp.ones_like(total))
    shares = weights / some
    values = jnp.stack([out.astype(parts.dtype) for out in outs])
    kept = jnp.where(shares > 0, shares * values, jnp.zeros_like(values))
    lse = jnp.where(total > 0, base + jnp.log(some), jnp.inf)[0]
    return jnp.sum(kept, axis=0).astype(outs[0].dtype), lse

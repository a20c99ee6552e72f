"""Plain softmax attention: the oracle of everything else, in a dozen obvious lines and quadratic memory."""

import jax.numpy as jnp
from jax import Array


def reference_attention(  # noqa: PLR0913 (every option of the operators)
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float = 1.0,
    masked: Array | None = None,
    bias: Array | None = None,
    bias_scaled: bool = True,
    keep: Array | None = None,
    keep_prob: float = 1.0,
    sink: Array | None = None,
    zero_empty_rows: bool = False,
    computed: Array | None = None,
) -> tuple[Array, Array, Array]:
    """``softmax(scale · (Q·Kᵀ + bias))·V`` with every option of the operators, computed in the type of ``query``.

    Args:
      query, key, value: ``[B, N1, S1, D]``, ``[B, N2, S2, D]``, ``[B, N2, S2, Dv]``, N1 a multiple of N2. Cast them to float64
        for an oracle.
      masked: bool, broadcasts to ``[B, N1, S1, S2]``; True: the score becomes the lowest finite number.
      bias: broadcasts to ``[B, N1, S1, S2]``; added before the scale, or after it without ``bias_scaled``.
      keep: bool, broadcasts to the same; probabilities that dropout keeps are divided by ``keep_prob``, others are 0.
      sink: ``[N1]``, a further score of every row whose probability goes to no key.
      zero_empty_rows: rows without a key that is not masked give 0, maximum ``-max float``, sum ``max float``.
      computed: bool, broadcasts to the same; False: the key does not take part at all (score ``-inf``).

    Returns:
      ``out [B, N1, S1, Dv]``, and the softmax's maximum and sum ``[B, N1, S1]``. Rows with no key at all give 0, 0, 0.
    """
    dtype, limit = query.dtype, jnp.finfo(query.dtype).max
    shape = (*query.shape[:3], key.shape[2])
    key, value = (jnp.repeat(x.astype(dtype), shape[1] // x.shape[1], axis=1) for x in (key, value))
    plain = jnp.einsum("bnqd,bnkd->bnqk", query, key)
    bias = jnp.zeros(shape, dtype) if bias is None else jnp.broadcast_to(bias, shape).astype(dtype)
    masked, computed = _bools(masked, False, shape), _bools(computed, True, shape)
    scores = scale * (plain + bias) if bias_scaled else scale * plain + bias
    scores = jnp.where(computed, jnp.where(masked, -limit, scores), -jnp.inf)
    sinks = jnp.full(shape[1], -jnp.inf, dtype) if sink is None else sink.astype(dtype)
    top = jnp.maximum(jnp.max(scores, axis=3, initial=-limit), sinks[None, :, None])
    weights = jnp.exp(scores - top[..., None])
    empty = ~jnp.any(computed & ~masked, axis=3)
    if zero_empty_rows:
        weights = jnp.where(empty[..., None], jnp.zeros_like(weights), weights)
    total = jnp.sum(weights, axis=3) + jnp.exp(sinks[None, :, None] - top)
    probs = weights / jnp.where(total > 0, total, jnp.ones_like(total))[..., None]
    probs = jnp.where(_bools(keep, True, shape), probs / keep_prob, jnp.zeros_like(probs))
    out = jnp.einsum("bnqk,bnkd->bnqd", probs, value)
    if zero_empty_rows and sink is None:
        top, total = jnp.where(empty, -limit, top), jnp.where(empty, limit, total)
    keyless = ~jnp.any(computed, axis=3)
    top, total = (jnp.where(keyless, jnp.zeros_like(x), x) for x in (top, total))
    return out, top, total


def _bools(given: Array | None, default: bool, shape: tuple[int, ...]) -> Array:
    return jnp.full(shape, default) if given is None else jnp.broadcast_to(given, shape)

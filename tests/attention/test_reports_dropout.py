"""Dropout drawn tile by tile is the dropout of the mask that holds the same draws, forward and backward."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.dropout import keep_mask
from ascend_jax.attention.fusion.ops import npu_fusion_attention
from ascend_jax.tiling.tiling import Tiling

HEADS, D = 4, 16
SMALL = Tiling(block_q=16, block_kv=16)
SEED, OFFSET = 2**40 + 5, 24


def drawn(lengths: list[tuple[int, int]], heads: int) -> jax.Array:
    """The mask of sequences that draw one behind the other, a bit for each weight."""
    pieces, offset = [], OFFSET
    for rows, keys in lengths:
        pieces.append(np.asarray(keep_mask(SEED, offset, (heads, rows, keys), 0.7)).reshape(-1))
        offset += heads * rows * -(-keys // 16) * 16
    return jnp.asarray(np.packbits(np.concatenate(pieces), bitorder="little"))


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[(21, 35), (0, 7), (40, 17), (5, 0), (16, 16)], [(33, 50)] * 3])
def test_a_seed_and_the_mask_of_its_draws_give_the_same(lengths: list[tuple[int, int]]) -> None:
    packed = len(set(lengths)) > 1
    rows, keys = (sum(side) for side in zip(*lengths, strict=True))
    draw = np.random.default_rng(0)
    shapes = [(rows, HEADS, D), (keys, 2, D), (keys, 2, D)]
    tensors = [jnp.asarray(draw.standard_normal(shape, np.float32)) for shape in shapes]
    options: dict[str, Any] = {"keep_prob": 0.7, "scale": 0.3, "tiling": SMALL}
    if packed:
        ends = (np.cumsum(side) for side in zip(*lengths, strict=True))
        options |= {"input_layout": "TND", **dict(zip(("actual_seq_qlen", "actual_seq_kvlen"), ends, strict=True))}
    else:
        tensors = [x.reshape(len(lengths), -1, *x.shape[1:]) for x in tensors]
        options["input_layout"] = "BSND"

    def loss(*qkv: jax.Array, **dropout: Any) -> jax.Array:
        return jnp.sum(npu_fusion_attention(*qkv, HEADS, **options, **dropout).attention_out ** 2)  # pyright: ignore[reportCallIssue, reportArgumentType]

    by_seed = jax.value_and_grad(lambda *x: loss(*x, seed=SEED, offset=OFFSET), (0, 1, 2))(*tensors)
    by_mask = jax.value_and_grad(lambda *x: loss(*x, dropout_mask=drawn(lengths, HEADS)), (0, 1, 2))(*tensors)
    for one, other in zip(jax.tree.leaves(by_seed), jax.tree.leaves(by_mask), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

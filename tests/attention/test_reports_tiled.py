"""What does not fit the tiled attention is refused by name: unchecked, indices past the end are clamped, numbers wrong."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention import Extras, Packed, Settings, Used, Window, tiled_attention, tiled_backward


def zeros(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.zeros(shape, dtype)


X = zeros(2, 4, 20, 8)
ONE = zeros(1, 4, 20, 8)

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("N1=4 heads and key of N2=3", {"key": zeros(2, 3, 20, 8), "value": zeros(2, 3, 20, 8)}),
    ("must agree in B and D", {"key": ONE, "value": ONE}),
    ("must agree in B and D", {"key": zeros(2, 4, 20, 9)}),
    ("must agree in all but the last dimension", {"value": zeros(2, 4, 21, 8)}),
    ("must be \\[B, N, S, D\\]", {"query": X[0]}),
    ("must be one floating type", {name: zeros(2, 4, 20, 8, dtype=jnp.int32) for name in ("query", "key", "value")}),
    ("must be one floating type", {"query": zeros(2, 4, 20, 8, dtype=jnp.float16)}),
    ("block_q=0", {"settings": Settings(block_q=0)}),
    ("block_q=1.5: must be a whole number", {"settings": Settings(block_q=1.5)}),  # pyright: ignore[reportArgumentType]
    ("scale='small': must be a number", {"settings": Settings(scale="small")}),
    ("alibi_shift=\\[1\\]: must be a number", {"settings": Settings(alibi_shift=[1])}),
    ("settings of type Window", {"settings": Window()}),
    ("window of type tuple", {"window": (None, 0)}),
    ("lengths of type list", {"lengths": [3, 4]}),
    ("bias of type str", {"extras": Extras(bias="none")}),  # pyright: ignore[reportArgumentType]
    ("keep_prob=0.5 with neither", {"settings": Settings(keep_prob=0.5)}),
    ("block_kv=24 with philox", {"settings": Settings(block_kv=24, keep_prob=0.5), "extras": Extras(philox=(1, 2))}),
    ("window.lower=-1.5", {"window": Window(-1.5, 2)}),
    ("window.lower of shape \\[3\\]", {"window": Window(np.array([-3, 4, 5]), 2)}),
    ("bias of shape \\[2, 20, 20\\]", {"extras": Extras(bias=zeros(2, 20, 20))}),
    ("bias of shape \\[2, 4, 20, 7\\]", {"extras": Extras(bias=zeros(2, 4, 20, 7))}),
    ("masked of type float32", {"extras": Extras(masked=zeros(1, 1, 20, 20))}),
    ("sink of shape \\[3\\]", {"extras": Extras(sink=zeros(3))}),
    ("q_lens of shape \\[3\\]", {"lengths": Used(np.array([1, 2, 3]), None)}),
    ("B=2 with packed", {"lengths": Packed((0,), (20,), (0,), (20,))}),
]


@pytest.mark.parametrize(("message", "changes"), WRONG)
def test_what_does_not_fit_is_named(message: str, changes: dict[str, Any]) -> None:
    call: dict[str, Any] = {"query": X, "key": X, "value": X}
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: tiled_attention(**call | changes))


def test_packed_sequences_lie_within_the_tokens() -> None:
    with pytest.raises(ValueError, match=r"q_starts\[1\]=10, q_lens\[1\]=11: must lie in 20 tokens"):
        tiled_attention(ONE, ONE, ONE, lengths=Packed((0, 10), (10, 11), (0, 10), (10, 10)))


def test_packed_sequences_may_be_lists_or_arrays() -> None:
    wanted = Packed((0, 10), (10, 10), (0, 10), (10, 10))
    assert Packed([0, 10], np.array([10, 10]), [0, 10], jnp.array([10, 10])) == wanted  # pyright: ignore[reportArgumentType]


def test_the_saved_rows_are_those_of_the_call() -> None:
    with pytest.raises(ValueError, match=r"softmax_max of shape \[2, 4, 19\]: must be \[2, 4, 20\]"):
        tiled_backward((X, X, X), (X, zeros(2, 4, 19), zeros(2, 4, 20)), X)

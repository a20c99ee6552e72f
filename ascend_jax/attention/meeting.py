"""Which blocks meet which, as both directions read it, and the loop over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.blocks import Ranges, Table
from ascend_jax.attention.options import Extras, Fixed, Numbers, Window

State = TypeVar("State")


@dataclass(frozen=True)
class Static:
    """What both directions know when they are compiled.

    ``block``: rows and keys of a block. ``whole``: S1 and S2, which all sequences of a batch have; None where they are packed.
    ``lower_side``: some row may not see the first key.
    """

    settings: Fixed
    q_heads: int
    kv_heads: int
    block: tuple[int, int]
    whole: tuple[int, int] | None
    lower_side: bool

    @property
    def packed(self) -> bool:
        """Whether other sequences lie before and behind each."""
        return self.whole is None

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.q_heads // self.kv_heads

    def drawn(self, rows: Array, keys: Array) -> tuple[int | Array, int | Array]:
        """Lengths by which dropout numbers the weights of a sequence: its own where packed, else those of the tensors."""
        return (rows, keys) if self.whole is None else self.whole


class Meeting(NamedTuple):
    """The blocks of one side, the window of each block's sequence, the blocks of the other side that each meets, and how many
    blocks there are."""

    table: Table
    window: Window
    ranges: Ranges
    blocks: Array

    def at(self, batch: Array, block: Array) -> tuple[Table, Window, Ranges]:
        """One block: every field an int32 scalar."""
        return jax.tree.map(lambda x: x[batch, block], self[:3])

    def tokens(self, count: int) -> Array:
        """Which of ``count`` tokens are of a sequence, bool ``[X, count]``."""
        begin, end = self.table.token, self.table.token + jnp.maximum(self.table.length - self.table.first, 0)
        x = jnp.arange(begin.shape[0])[:, None]
        steps = jnp.zeros((x.size, count + 1), jnp.int32).at[x, begin].add(1, mode="drop").at[x, end].add(-1, mode="drop")
        return jnp.cumsum(steps, axis=1)[:, :count] > 0


class Context(NamedTuple):
    """Everything beside Q, K, V: the blocks of rows and of keys, the extras, padded to whole tiles, and the numbers."""

    rows: Meeting
    keys: Meeting
    extras: Extras
    numbers: Numbers


def over(ranges: Ranges, edges: tuple[bool, bool], step: Callable[[Array, State, bool], State], state: State) -> State:
    """``step(j, state, edge)`` for every block that is met. Only blocks at the edge of the window need it applied.

    ``edges``: whether any block can be at the edge before the whole ones, and after them.
    """
    before, after = edges
    spans = [
        (ranges.start, ranges.full_start, True) if before else None,
        (ranges.full_start if before else ranges.start, ranges.full_stop if after else ranges.stop, False),
        (ranges.full_stop, ranges.stop, True) if after else None,
    ]
    for start, stop, edge in filter(None, spans):
        state = lax.fori_loop(start, stop, lambda j, now, edge=edge: step(j, now, edge), state)
    return state


def taken(x: Array, at: tuple[Array, Array], block: int) -> Array:
    """The block ``[block, …]`` of ``x [H, T, …]`` that begins at token ``at[1]`` of head ``at[0]``."""
    rest = x.shape[2:]
    return lax.dynamic_slice(x, (*at, *(jnp.int32(0) for _ in rest)), (1, block, *rest))[0]


def put(x: Array, part: Array, at: tuple[Array, Array], left: Array | None) -> Array:
    """``x [H, T, …]`` with ``part`` written there: its first ``left`` tokens, or all of it where that is None."""
    if left is not None:
        exists = jnp.arange(part.shape[0], dtype=jnp.int32) < left
        part = jnp.where(exists.reshape(-1, *(1,) * (part.ndim - 1)), part, taken(x, at, part.shape[0]))
    return lax.dynamic_update_slice(x, part[None], (*at, *(jnp.int32(0) for _ in x.shape[2:])))


def until(x: Array, left: Array) -> Array:
    """``x [block, …]`` with zeros after the first ``left`` tokens."""
    exists = jnp.arange(x.shape[0], dtype=jnp.int32) < left
    return jnp.where(exists.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros((), x.dtype))

"""Which blocks meet which, as both directions read it, and the loop over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
from jax import Array, lax

from ascend_jax.attention.blocks import Ranges, Table
from ascend_jax.attention.options import Extras, Fixed, Numbers, Window

State = TypeVar("State")


@dataclass(frozen=True)
class Static:
    """What both directions know when they are compiled.

    ``whole``: S1 and S2, which all sequences of a batch have; None where they are packed. ``lower_side``: some row may not see
    the first key.
    """

    settings: Fixed
    q_heads: int
    kv_heads: int
    whole: tuple[int, int] | None
    lower_side: bool

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.q_heads // self.kv_heads

    def drawn(self, rows: Array, keys: Array) -> tuple[int | Array, int | Array]:
        """Lengths by which dropout numbers the weights of a sequence: its own where packed, else those of the tensors."""
        return (rows, keys) if self.whole is None else self.whole


class Meeting(NamedTuple):
    """The blocks of one side, the window of each block's sequence, and the blocks of the other side that each meets."""

    table: Table
    window: Window
    ranges: Ranges

    def at(self, batch: Array, block: Array) -> "Meeting":
        """One block: every field an int32 scalar."""
        return jax.tree.map(lambda x: x[batch, block], self)


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

"""Which event of a consumer follows which event of its producer, over chunks of events."""

from typing import NamedTuple

import numpy as np

from ascend_jax.timeline.events import Events, FlowInfo, StageInfo

TILES = 2**32
"""More than any task has tiles: (task, tile) as one number."""


class Pairs(NamedTuple):
    """Hand-offs ``[P]`` in order: the tile, start and end of producer and consumer in whole nanoseconds."""

    tile: np.ndarray
    produce_start: np.ndarray
    produce_end: np.ndarray
    consume_start: np.ndarray
    consume_end: np.ndarray


class Handoffs:
    """The hand-offs of one flow on one core; memory is bounded by how far the producer runs ahead.

    From tile to tile (or task to task) each event has its partner; from a task to tiles it is the first tile, the other way
    the last. Stages that take no time have no events, and then there is no pair.
    """

    def __init__(self, stages: tuple[StageInfo, ...], flow: FlowInfo) -> None:
        names = [stage.name for stage in stages]
        self._producer, self._consumer, self._lag = names.index(flow.producer), names.index(flow.consumer), flow.lag
        self._by_tile = stages[self._producer].per_row == stages[self._consumer].per_row
        self._from_row = stages[self._producer].per_row
        self._produced = np.empty((4, 0), dtype=np.int64)  # key, tile, start, end
        self._consumed = np.empty((4, 0), dtype=np.int64)

    def of(self, events: Events, start: np.ndarray, end: np.ndarray) -> Pairs:
        """The hand-offs that the next chunk of the core completes; ``start`` and ``end`` are its events' nanoseconds."""
        first_only = self._from_row and not self._by_tile
        taken = (events.stage == self._consumer) & (not first_only or events.tile == 0)
        made = self._rows(events, events.stage == self._producer, self._lag, start, end)
        produced = _last_of_each(np.concatenate([self._produced, made], axis=1))
        consumed = np.concatenate([self._consumed, self._rows(events, taken, 0, start, end)], axis=1)
        keys, mine, theirs = np.intersect1d(produced[0], consumed[0], assume_unique=True, return_indices=True)
        pairs = Pairs(consumed[1, theirs], *produced[2:, mine], *consumed[2:, theirs])
        late = start.max(initial=0)  # a consumer that starts no later than that has missed its producer
        self._produced = np.delete(produced, produced[0] <= keys.max(initial=-1), axis=1)
        self._consumed = np.delete(consumed, np.isin(consumed[0], keys) | (consumed[2] < late), axis=1)
        return pairs

    def _rows(self, events: Events, chosen: np.ndarray, lag: int, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        task, tile = events.task[chosen], events.tile[chosen]
        key = task * TILES + tile + 1 + lag if self._by_tile else task
        return np.stack([key, tile, start[chosen], end[chosen]])


def _last_of_each(rows: np.ndarray) -> np.ndarray:
    """``rows [·, R]`` by key (their first line), of each key the last."""
    _, behind = np.unique(rows[0, ::-1], return_index=True)
    return rows[:, rows.shape[1] - 1 - behind]

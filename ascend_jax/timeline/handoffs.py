"""Which event of a consumer follows which event of its producer, over chunks of events."""

from typing import NamedTuple

import numpy as np

from ascend_jax.timeline.events import Events, FlowInfo, StageInfo

_TILES = 2**32
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

    The n-th piece of work of both stages is found by its task and tile, so a stage of tasks never meets a stage of tiles.
    """

    def __init__(self, stages: tuple[StageInfo, ...], flow: FlowInfo) -> None:
        names = [stage.name for stage in stages]
        self._producer, self._consumer = names.index(flow.producer), names.index(flow.consumer)
        self._produced = np.empty((3, 0), dtype=np.int64)  # key, start, end
        self._consumed = np.empty((3, 0), dtype=np.int64)

    def of(self, events: Events, start: np.ndarray, end: np.ndarray) -> Pairs:
        """The hand-offs that the next chunk of the core completes; ``start`` and ``end`` are its events' nanoseconds."""
        key = events.task * _TILES + events.tile + 1
        makes, takes = events.stage == self._producer, events.stage == self._consumer
        produced = np.concatenate([self._produced, np.stack([key[makes], start[makes], end[makes]])], axis=1)
        consumed = np.concatenate([self._consumed, np.stack([key[takes], start[takes], end[takes]])], axis=1)
        both, mine, theirs = np.intersect1d(produced[0], consumed[0], assume_unique=True, return_indices=True)
        pairs = Pairs(both % _TILES - 1, *produced[1:, mine], *consumed[1:, theirs])
        self._produced, self._consumed = np.delete(produced, mine, axis=1), np.delete(consumed, theirs, axis=1)
        return pairs

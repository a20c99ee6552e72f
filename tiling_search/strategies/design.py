"""Where to look first: points at given quantiles of each axis, among the values that agree with the axes before."""

import numpy as np


def at_quantiles(places: np.ndarray, quantiles: np.ndarray) -> int:
    """The rank at quantiles ``[A]`` (from 0, below 1) of the indices ``places`` ``[P, A]`` of all points.

    Each axis in turn takes the quantile of the distinct values that some feasible point has beside the values already taken. So
    (½, …, ½) is a middle of the space that is feasible whatever its shape, and uniform quantiles spread over the values of the
    first axis alike, however many points each has.

    >>> places = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]])
    >>> at_quantiles(places, np.array([0.5, 0.5])), at_quantiles(places, np.array([0.0, 0.9]))
    (3, 2)
    """
    low, high = 0, len(places)
    for axis, quantile in enumerate(quantiles):
        choices = np.unique(places[low:high, axis])
        chosen = choices[int(quantile * len(choices))]
        column = places[low:high, axis]  # in the order of ranks, which is lexical, so that what agrees lies together
        low, high = low + int(np.searchsorted(column, chosen)), low + int(np.searchsorted(column, chosen, "right"))
    return low


def spread_quantiles(count: int, axes: int, draw: np.random.Generator) -> np.ndarray:
    """The middle, then a Latin hypercube of ``count`` − 1: each axis once in each of as many equal parts, ``[count, axes]``."""
    parts = np.array([draw.permutation(count - 1) for _ in range(axes)]).T
    around = (parts + draw.random((count - 1, axes))) / max(count - 1, 1)
    return np.concatenate([np.full((1, axes), 0.5), around.reshape(count - 1, axes)])

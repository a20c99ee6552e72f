"""Which constants a set of rows can tell apart at all: the others stay where they are, with the reason."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ROWS_PER_CONSTANT = 3
SMALLEST_EFFECT = 1e-3
"""0.1 % of root mean square change of the predictions for one deviation of a constant's prior: less is no effect."""


class Selection(NamedTuple):
    """``chosen`` ``[P]`` says which constants are fitted; ``reasons`` why each of the others is not (its place → text)."""

    chosen: np.ndarray
    reasons: dict[int, str]


def select(jacobian: np.ndarray, weights: np.ndarray, prior_log_std: np.ndarray, names: Sequence[str]) -> Selection:
    """The constants worth fitting, by QR with pivoting of what a prior deviation of each does to the rows.

    The constant with the largest effect goes first; from the others goes off what it can imitate, and so on, until there is
    no effect left or the rows are used up (three for each constant).

    Args:
      jacobian: ``[S, R, P]``, the change of the logarithm of each row's prediction by the logarithm of each constant, at S
        points (a constant that is hidden behind a maximum at one of them may show at another).
      weights: ``[R]``, 0 for rows that take no part.
      prior_log_std: ``[P]``.
      names: ``[P]``, for the reasons.
    """
    points, _, count = jacobian.shape
    used = int(np.count_nonzero(weights > 0))
    share = np.sqrt(weights / max(weights.sum(), 1e-300) / points)
    effects = (jacobian * share[None, :, None] * prior_log_std).reshape(-1, count)
    alone = np.linalg.norm(effects, axis=0)
    reasons = {place: "no row depends on it" for place in range(count) if alone[place] < SMALLEST_EFFECT}
    chosen: list[int] = []
    left = effects.copy()
    while rest := [place for place in range(count) if place not in reasons and place not in chosen]:
        best = max(rest, key=lambda place: float(np.linalg.norm(left[:, place])))
        if len(chosen) >= used // ROWS_PER_CONSTANT:
            few = f"{used} rows support {used // ROWS_PER_CONSTANT} constants ({ROWS_PER_CONSTANT} rows each)"
            reasons |= dict.fromkeys(rest, f"{few}; others have more effect")
        elif np.linalg.norm(left[:, best]) < SMALLEST_EFFECT:
            reasons |= {place: f"the rows cannot tell it from {_nearest(effects, place, chosen, names)}" for place in rest}
        else:
            chosen.append(best)
            direction = left[:, best] / np.linalg.norm(left[:, best])
            left = left - np.outer(direction, direction @ left)
    return Selection(np.isin(np.arange(count), chosen), reasons)


def _nearest(effects: np.ndarray, place: int, chosen: list[int], names: Sequence[str]) -> str:
    """The chosen constants that imitate this one: one alone if it does, else those with a share in it."""
    target = effects[:, place]
    amounts = np.linalg.lstsq(effects[:, chosen], target, rcond=None)[0] * np.linalg.norm(effects[:, chosen], axis=0)
    shares = np.abs(amounts) / np.linalg.norm(target)
    return " and ".join(names[other] for other, share in zip(chosen, shares, strict=True) if share > 0.1)

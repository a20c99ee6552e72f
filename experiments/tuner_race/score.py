"""The field's score of a tuner: how far it is ahead of random search, averaged up to the 95 % point.

Willemsen, Schoonhoven, Filipovič, Tørring, van Nieuwpoort, van Werkhoven, "A methodology for comparing optimization algorithms
for auto-tuning", Future Generation Computer Systems 159 (2024): the baseline is random search in closed form, and the budget
ends where the baseline has come 95 % of the way from the space's median to its optimum.
"""

import numpy as np

POINT = 0.95
NEAR = 1.01


def random_baseline(values: np.ndarray, draws: int) -> np.ndarray:
    """Expected best of 1 … ``draws`` distinct points drawn at random, ``[draws]``, in closed form.

    The i-th best of P values (from 0) is the best of k with probability ``C(P − 1 − i, k − 1) / C(P, k)``: the difference of
    two chances ``C(P − i, k) / C(P, k)`` that the i best are all missed, each of which follows from that of k − 1 by a product.

    Raises:
      ValueError: ``draws`` beyond the number of values, or a value that is not finite.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    size = len(ordered)
    if not 1 <= draws <= size:
        raise ValueError(f"draws={draws} must be from 1 to the {size} values")
    if not np.isfinite(ordered).all():
        raise ValueError("a value is not finite: score feasible points only")
    steps = np.diff(ordered)
    missed = np.ones(size - 1)  # that the best i + 1 are all missed in k draws; expected = best + Σ steps · missed
    left = size - np.arange(1, size)
    best = np.empty(draws)
    for draw in range(draws):
        missed = missed * np.maximum(left - draw, 0) / (size - draw)
        best[draw] = ordered[0] + steps @ missed
    return best


def budget_of(values: np.ndarray) -> int:
    """The 95 % point: draws after which the baseline has come 95 % of the way from the median to the optimum."""
    target = np.median(values) - POINT * (np.median(values) - values.min())
    draws = min(64, len(values))
    while (baseline := random_baseline(values, draws))[-1] > target:
        draws = min(2 * draws, len(values))
    return int(np.argmax(baseline <= target)) + 1


def score(values: np.ndarray, best_so_far: np.ndarray) -> float:
    """``(baseline − mean best so far) / (baseline − optimum)``, averaged over the evaluations of ``best_so_far``.

    1 is the optimum from the first evaluation on, 0 is random search, and less is worse than that.

    Args:
      values: of all points.
      best_so_far: of each search after each evaluation, ``[searches, evaluations]``.
    """
    baseline = random_baseline(values, best_so_far.shape[1])
    return float(np.mean((baseline - best_so_far.mean(axis=0)) / (baseline - values.min())))


def to_near(values: np.ndarray, best_so_far: np.ndarray) -> np.ndarray:
    """Evaluations of each search until it is within 1 % of the optimum; one more than there are where it never is."""
    near = best_so_far <= NEAR * values.min()
    return np.where(near.any(axis=1), near.argmax(axis=1), best_so_far.shape[1]) + 1

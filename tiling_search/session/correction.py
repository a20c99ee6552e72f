"""What measurements say about the model: a correction of its logarithmic times that is smooth in the tiling.

``log measured = log model + correction + noise``. The correction is a Gaussian process over the logarithms of the tiling's
fields: a constant (the chip as a whole is slower), a slope along each field (loads are dearer than thought), and a smooth rest.
A dozen measurements say much about the first two and little about the last; how much is told by its deviation.
"""

from collections.abc import Sequence
from dataclasses import fields
from math import erf, pi, sqrt
from typing import NamedTuple

import numpy as np

from ascend_jax.tiling.tiling import Tiling

CONSTANT_STD = 1.0
"""How far off the model may be as a whole: a factor of 2.7."""
SLOPE_STDS = (0.03, 0.1, 0.25)
"""Deviation of the correction along one field, for a field that varies by one deviation of the pool."""
REST_STDS = (0.03, 0.1, 0.2)
REST_LENGTH = 1.5
"""Over how many deviations of a field the smooth rest changes."""
NOISES = (0.01, 0.03)
ALIGNED = 128
"""Rows that a base block of the Cube has in the vendor's kernels; whole ones may run better than their number says."""
FAILURE = 0.7
"""A failure counts as a time twice as long as the worst that was measured, against the model."""
_PHI = np.vectorize(lambda z: 0.5 * (1 + erf(z / sqrt(2))))


class Corrected(NamedTuple):
    """Logarithms of seconds of the whole pool, ``[P]``: what to expect, and how sure that is."""

    mean: np.ndarray
    std: np.ndarray


def features(tilings: Sequence[Tiling]) -> np.ndarray:
    """Logarithms of the fields, and of the power of two (up to ``ALIGNED``) that divides each block, ``[P, D]``.

    Those that vary over the pool, with mean 0 and deviation 1 over it.
    """
    numbers = np.array([[getattr(one, item.name) for item in fields(Tiling)] for one in tilings], np.int64)
    blocks = np.array([[one.block_q, one.block_kv] for one in tilings], np.int64)
    logs = np.concatenate([np.log2(1.0 + numbers), np.log2(np.gcd(blocks, ALIGNED))], axis=1)
    varies = np.ptp(logs, axis=0) > 0
    return (logs - logs.mean(axis=0))[:, varies] / logs.std(axis=0)[varies]


class Correction:
    """Learns the correction of a pool; knows nothing of chips.

    Args:
      found: features ``[P, D]``.
      model_log: the model's logarithms of seconds, ``[P]``.
    """

    def __init__(self, found: np.ndarray, model_log: np.ndarray) -> None:
        self._features, self._model_log = found, model_log

    def fit(self, places: Sequence[int], logs: Sequence[float], failed: Sequence[int] = ()) -> Corrected:
        """The corrected times after measuring the tilings at ``places``, with logarithms ``logs``; others ``failed``."""
        where = np.array([*places, *failed], int)
        residuals = np.asarray(logs, np.float64) - self._model_log[list(places)]
        worst = residuals.max(initial=0.0) + FAILURE
        residuals = np.concatenate([residuals, np.full(len(failed), worst)])
        if not len(where):
            std = np.sqrt(np.diag(self._covariance(np.arange(len(self._model_log)), None, SLOPE_STDS[1], REST_STDS[1])))
            return Corrected(self._model_log, std)
        choices = [(slope, rest, noise) for slope in SLOPE_STDS for rest in REST_STDS for noise in NOISES]
        _, best = max((self._likelihood(where, residuals, *choice), choice) for choice in choices)
        return self._posterior(where, residuals, *best)

    def _covariance(self, rows: np.ndarray, columns: np.ndarray | None, slope: float, rest: float) -> np.ndarray:
        one, other = self._features[rows], self._features[rows if columns is None else columns]
        apart = np.maximum((one**2).sum(1)[:, None] + (other**2).sum(1)[None, :] - 2 * one @ other.T, 0.0)
        smooth = np.exp(-0.5 * apart / REST_LENGTH**2)
        return CONSTANT_STD**2 + slope**2 * one @ other.T + rest**2 * smooth

    def _likelihood(self, where: np.ndarray, residuals: np.ndarray, slope: float, rest: float, noise: float) -> float:
        root = np.linalg.cholesky(self._covariance(where, None, slope, rest) + noise**2 * np.eye(len(where)))
        white = np.linalg.solve(root, residuals)
        return float(-0.5 * white @ white - np.log(np.diag(root)).sum())

    def _posterior(self, where: np.ndarray, residuals: np.ndarray, slope: float, rest: float, noise: float) -> Corrected:
        everywhere = np.arange(len(self._model_log))
        root = np.linalg.cholesky(self._covariance(where, None, slope, rest) + noise**2 * np.eye(len(where)))
        across = np.linalg.solve(root, self._covariance(where, everywhere, slope, rest))
        own = CONSTANT_STD**2 + slope**2 * (self._features**2).sum(1) + rest**2
        mean = self._model_log + across.T @ np.linalg.solve(root, residuals)
        return Corrected(mean, np.sqrt(np.maximum(own - (across**2).sum(0), 1e-12)))


def expected_improvement(corrected: Corrected, best_log: float) -> np.ndarray:
    """By how much each tiling is expected to fall below ``best_log``, ``[P]``."""
    z = (best_log - corrected.mean) / corrected.std
    density = np.exp(-0.5 * z**2) / sqrt(2 * pi)
    return corrected.std * (z * _PHI(z) + density)

"""A Gaussian process that tells axes that matter from axes that do not: Matérn-5/2 with one length an axis, and a linear trend.

``target = trend + smooth rest + noise``; the trend lets a handful of points say where things get better, long before the smooth
part knows. Lengths, the trend's weight and the noise are those of the greatest posterior density (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", sections 4.2 and 5.4.1); the overall variance is estimated in closed form.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.optimize import minimize

LENGTH, TREND, NOISE = (1.0, 2.0), (0.0, 1.0), (-7.0, 1.5)
"""Mean and deviation of the logarithms that are expected of a length (features run from 0 to 1), the trend and the noise."""
BOUNDS = (-3.0, 4.0), (-5.0, 4.0), (-12.0, 0.0)
FLOOR = 1e-9
"""Least variance of a prediction, as a share of the process's."""
_ROOT_5 = np.sqrt(5.0)
_potrf, _potrs, _trtrs = get_lapack_funcs(("potrf", "potrs", "trtrs"), dtype=np.float64)
"""LAPACK itself: the matrices are so small that numpy's and scipy's checks would take longer than the arithmetic."""


class Told(NamedTuple):
    """What the process learns from: features in [0, 1] ``[N, D]``, and targets with mean 0 and deviation 1, ``[N]``."""

    features: np.ndarray
    targets: np.ndarray


def expected_scales(axes: int) -> np.ndarray:
    """Logarithms of ``axes`` lengths, the trend's weight and the noise before anything is known, ``[axes + 2]``."""
    return np.array([*[LENGTH[0]] * axes, TREND[0], NOISE[0]])


def fitted(told: Told, starts: list[np.ndarray], steps: int) -> np.ndarray:
    """The scales (as :func:`expected_scales`) of greatest posterior density: ``steps`` of L-BFGS-B from each of ``starts``."""
    axes = told.features.shape[1]
    bounds = [BOUNDS[0]] * axes + [*BOUNDS[1:]]
    apart = ((told.features[:, None] - told.features[None]) ** 2).reshape(-1, axes)
    found: list[Any] = [
        minimize(loss, start, (told, apart), "L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": steps})
        for start in starts
    ]
    return min(found, key=lambda one: one.fun).x


def loss(scales: np.ndarray, told: Told, apart: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the logarithm of the posterior density of ``scales``, up to a constant, and its gradient.

    Args:
      scales: logarithms, ``[D + 2]``.
      told: what was measured.
      apart: squared differences of its features, ``[N·N, D]``.
    """
    count, axes = told.features.shape
    trend, noise = np.exp(scales[-2:])
    by_length = np.exp(-2 * scales[:axes])
    smooth, slope = _matern((apart @ by_length).reshape(count, count))
    line = _line(told.features, told.features)
    root = _root(smooth + trend * line, noise)
    inverse = _potrs(root, np.eye(count), lower=1)[0]
    weights = inverse @ told.targets
    variance = _variance(told.targets @ weights, count)
    by_covariance = 0.5 * (inverse - count / (count + 1) / variance * np.outer(weights, weights))
    gradient = np.empty_like(scales)
    gradient[:axes] = (by_covariance * slope).ravel() @ apart * by_length
    gradient[-2], gradient[-1] = trend * np.vdot(by_covariance, line), noise * np.trace(by_covariance)
    means, deviations = np.array([*[LENGTH] * axes, TREND, NOISE]).T
    away = (scales - means) / deviations
    value = 0.5 * count * np.log(variance) + np.log(np.diag(root)).sum() + 0.5 * away @ away
    return float(value), gradient + away / deviations


def predicted(told: Told, scales: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the targets of features ``asked`` ``[M, D]``, without noise."""
    count, axes = told.features.shape
    trend, noise = np.exp(scales[-2:])
    lengths = np.exp(scales[:axes])

    def covariance(others: np.ndarray) -> np.ndarray:
        one, other = told.features / lengths, others / lengths
        squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2 * one @ other.T
        return _matern(np.maximum(squares, 0.0))[0] + trend * _line(told.features, others)

    root = _root(covariance(told.features), noise)
    white = _trtrs(root, told.targets, lower=1)[0]
    across = _trtrs(root, covariance(asked), lower=1)[0]
    own = 1 + trend * 2 * ((asked - 0.5) ** 2).sum(axis=1)
    spread = np.maximum(own - np.einsum("nm,nm->m", across, across), FLOOR)
    return across.T @ white, np.sqrt(spread * _variance(white @ white, count))


def _root(covariance: np.ndarray, noise: float) -> np.ndarray:
    """Cholesky's lower factor of ``covariance`` and noise; what is above the diagonal means nothing.

    Raises:
      LinAlgError: not positive definite.
    """
    covariance.flat[:: len(covariance) + 1] += noise
    root, failed = _potrf(covariance.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError(f"the covariance of {len(covariance)} points is not positive definite")
    return root


def _variance(misfit: float, count: int) -> float:
    """The process's variance, with one made-up observation of 1 so that equal targets do not make it 0."""
    return (misfit + 1) / (count + 1)


def _matern(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matérn-5/2 of squared scaled differences, and by what to multiply an axis's for the slope by its logarithmic length."""
    far = _ROOT_5 * np.sqrt(squares)
    fall = np.exp(-far)
    slope = 5 / 3 * (1 + far) * fall
    return fall * (1 + far) + 5 / 3 * squares * fall, slope


def _line(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Covariance of a linear trend about the middle of the features."""
    return 2 * (one - 0.5) @ (other - 0.5).T

"""A chip that anyone can check by eye, for the fit's tests: seconds = launch + bytes / GM rate + repeats · slope / clock."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.calibration.constants import Constant, own_values, with_constants
from ascend_jax.calibration.problem import PredictLog, Problem
from ascend_jax.hardware import NpuSpec, load_chip

CHIP = replace(load_chip("910b3"), gm_bytes_per_s=1.6e12, launch_s=14e-6)  # whatever later fits make of them
GM = Constant(name="GM", field="gm_bytes_per_s", lower=0.4e12, upper=3.2e12, prior=1.6e12, prior_log_std=0.5)
LAUNCH = Constant(name="launch", field="launch_s", lower=1e-6, upper=1e-4, prior=14e-6, prior_log_std=0.7)
SLOPES = Constant(name="slopes", field="vector", lower=0.2, upper=5.0, prior=1.0, prior_log_std=0.5)
ALL = (GM, LAUNCH, SLOPES)
TRUTH = np.array([1.2e12, 20e-6, 1.7])


def seconds(spec: NpuSpec, moved: Any, repeats: Any) -> Array:
    """``[R]`` seconds of rows that move so many bytes and execute so many repeats of exp."""
    return spec.launch_s + moved / spec.gm_bytes_per_s + repeats * spec.vector.exp / spec.vector_clock_hz


def columns(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and repeats of random rows, over four decades."""
    rng = np.random.default_rng(rows)
    return 10 ** rng.uniform(4, 9, rows), 10 ** rng.uniform(2, 6, rows)


@cache
def predict_log(constants: tuple[Constant, ...], rows: int) -> PredictLog:
    """The toy model of these rows; the same function for the same arguments, so that it compiles once."""
    moved, repeats = map(jnp.asarray, columns(rows))
    return lambda values: jnp.log(seconds(with_constants(CHIP, constants, values), moved, repeats))


def problem(constants: Sequence[Constant] = ALL, rows: int = 60, noise: float = 0.05, seed: int = 0) -> Problem:
    """Rows that the toy model made at ``TRUTH`` with log-normal noise, in four groups."""
    exact = np.asarray(seconds(with_constants(CHIP, ALL, TRUTH), *columns(rows)))
    return Problem(
        constants=tuple(constants),
        start=own_values(CHIP, constants),
        predict_log=predict_log(tuple(constants), rows),
        measured_s=exact * np.exp(np.random.default_rng(seed).normal(0, noise, rows)),
        weights=np.ones(rows),
        groups=tuple(f"group {row % 4}" for row in range(rows)),
        ids=tuple(f"m{row:03d}" for row in range(rows)),
    )

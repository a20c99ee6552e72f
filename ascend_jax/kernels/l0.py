"""How a matrix multiplication is cut to fit L0A, L0B and L0C. A small L0 means more steps: a cost, not an error."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.rounding import Rounding

FRACTAL = 16
"""Rows and columns of the Cube's unit of work; its depth is 32 bytes."""
CUBE_BASE = 128
"""Largest step along m and n: the cube base block of the vendor's A2 FlashAttention design and of its 950 example."""


class L0Steps(NamedTuple):
    """Step sizes in elements (padded to the fractal) and how many steps cover the matrix."""

    m: Array
    k: Array
    n: Array
    output_steps: Array
    """Steps over m × n: pieces in which the result leaves L0C."""
    m_steps: Array
    n_steps: Array
    k_steps: Array

    @property
    def steps(self) -> Array:
        """All steps."""
        return self.output_steps * self.k_steps


def l0_steps(
    spec: NpuSpec, dims: tuple[Array, Array, Array], element_bytes: int, l0_depth: Array, rounding: Rounding
) -> L0Steps:
    """Cut ``dims = (m, k, n)`` so that ``l0_depth`` slots of each operand and of the fp32 result fit their buffers.

    m and n take ``CUBE_BASE``, less where the matrix or a buffer is smaller; k takes what L0A and L0B leave. No step is
    smaller than one fractal, so a buffer below one fractal a slot shows in the occupancy.
    """
    depth_k = 32 / element_bytes
    m_all, n_all = rounding.round_up(dims[0], FRACTAL), rounding.round_up(dims[2], FRACTAL)
    k_all = rounding.round_up(dims[1], depth_k)
    left, right, result = (room / l0_depth for room in (spec.l0a_bytes, spec.l0b_bytes, spec.l0c_bytes))
    least = depth_k * element_bytes
    m_room = jnp.minimum(left / least, result / (4 * FRACTAL))
    m = _fitting(m_room, jnp.minimum(m_all, CUBE_BASE), FRACTAL, rounding)
    n_room = jnp.minimum(right / least, result / (4 * m))
    n = _fitting(n_room, jnp.minimum(n_all, CUBE_BASE), FRACTAL, rounding)
    k_room = jnp.minimum(left / m, right / n) / element_bytes
    k = _fitting(k_room, k_all, depth_k, rounding)
    m_steps, n_steps, k_steps = rounding.ceil_div(m_all, m), rounding.ceil_div(n_all, n), rounding.ceil_div(k_all, k)
    return L0Steps(m, k, n, m_steps * n_steps, m_steps, n_steps, k_steps)


def _fitting(room: Array, most: Array, unit: float, rounding: Rounding) -> Array:
    """The largest multiple of ``unit`` within ``room`` and ``most``, at least one."""
    return jnp.maximum(rounding.round_down(jnp.minimum(room, most), unit), unit)

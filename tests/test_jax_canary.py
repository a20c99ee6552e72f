"""The canary: jax 0.10.2 silently miscomputes a vmapped mat-vec followed by a reduction on CPU (jax-ml/jax#39103).

With one row more than 2^14 of float64 or 2^15 of float32, and vectors of 3, the last row gets the value of an earlier one;
so the rows must differ. Larger is not safer to test: at 2^16 rows, or with vectors of 2, 4 or 8, 0.10.2 was right.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def squared_norm(matrix: jax.Array, row: jax.Array) -> jax.Array:
    """``‖matrix @ row‖²`` of one row; the batch comes from vmap."""
    return jnp.sum((matrix @ row) ** 2)


@pytest.mark.parametrize(("dtype", "rows"), [(np.float64, 16_385), (np.float32, 32_769)])
def test_jit_of_vmap_equals_numpy(dtype: type[np.floating], rows: int) -> None:
    matrix = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 10]])
    batch = np.arange(3 * rows).reshape(rows, 3) % 17 + 1  # small whole numbers: every sum is exact in either dtype
    expected = ((batch @ matrix.T) ** 2).sum(axis=1).astype(dtype)

    norms = jax.vmap(squared_norm, in_axes=(None, 0))
    operands = jnp.asarray(matrix, dtype), jnp.asarray(batch, dtype)
    np.testing.assert_array_equal(norms(*operands), expected, err_msg="eager")
    np.testing.assert_array_equal(jax.jit(norms)(*operands), expected, err_msg=f"jit on jax {jax.__version__}")

"""``Problem``: a workload ready for the formulas."""

from dataclasses import replace
from typing import NamedTuple

from ascend_jax._pytree import as_arrays
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import Sequences, sequences


class Problem(NamedTuple):
    """A workload with float leaves, and its lengths apart (rank 0, or ``[U]`` distinct ones).

    ``work`` keeps heads, dimensions and mask; its own batch and lengths are 0 and not to be read.
    """

    work: Attention
    lengths: Sequences


def problem(work: Attention) -> Problem:
    """``work`` with its lengths merged; call it outside jit, since the number of distinct lengths is a shape."""
    return Problem(as_arrays(replace(work, batch=0, q_len=0, kv_len=0)), sequences(work))

"""How long the busiest core works when tasks of different length are dealt to the cores."""

import jax.numpy as jnp
from jax import Array

from ascend_jax.rounding import Rounding


def busiest_core(cores: Array, total: Array, longest: Array, longest_tasks: Array, rounding: Rounding) -> Array:
    """Seconds (or any work) of the busiest of ``cores``: ``max(total / cores, ⌈longest tasks / cores⌉ · longest)``.

    Args:
      cores: cores that share the tasks.
      total: work of all tasks.
      longest, longest_tasks: work of the longest task, and how many tasks are that long.

    No deal can beat either term (the second by the pigeonhole principle). Dealing longest first comes close to both: it is
    exact for equal tasks, and causal rows leave short tasks that fill the gaps. The vendor's kernels search for a balanced
    deal as well (host-side load balancing of FlashAttentionScore).
    """
    even = total / cores
    return jnp.maximum(even, rounding.ceil_div(longest_tasks, cores) * longest)

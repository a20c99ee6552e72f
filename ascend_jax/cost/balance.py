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


def last_round(cores: Array, tasks: Array, mean: Array, longest: Array, rounding: Rounding) -> Array:
    """Seconds (or any work) of a core that has as many tasks as any: ``⌈tasks / cores⌉`` of those that are left when each core
    has had one less, and all of these were the longest.

    Args:
      cores: cores that share the tasks.
      tasks: how many there are.
      mean, longest: work of an average and of the longest task.

    No deal can beat it: with ``r = ⌈tasks / cores⌉ − 1``, some core has ``r + 1`` of the ``r · cores + 1`` longest tasks. The
    shortest of these is no shorter than the average of the tasks after the first ``r · cores``, and that average is least
    where those before are all the longest. It tells where tasks are nearly equal and a core has few; with many, or with
    causal rows, :func:`busiest_core` is larger.
    """
    rounds = jnp.maximum(rounding.ceil_div(tasks, cores), 1.0)
    before = (rounds - 1.0) * cores
    left = jnp.maximum(tasks - before, 1e-9)
    return rounds * jnp.maximum(tasks * mean - before * longest, 0.0) / left

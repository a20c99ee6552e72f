"""Sequences of different lengths in one call."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cost_cases import SENSIBLE, assert_reports_equal, attention

from ascend_jax import Attention, Report, evaluate, load_chip

TILING = SENSIBLE["separated"]


def ragged(pairs: tuple[tuple[int, int], ...], mask: str = "causal", batch: Any = 1) -> Attention:
    q_len, kv_len = zip(*pairs, strict=True)
    return attention(mask, q_len=q_len, kv_len=kv_len, batch=batch, layout="TND")


def run_ragged(work: Attention) -> Report:
    return evaluate(load_chip("910B3"), work, TILING)


def test_equal_lengths_in_a_tuple_are_a_batch() -> None:
    together = run_ragged(attention("causal", batch=3, layout="TND"))
    apart = run_ragged(ragged(((1024, 1024),) * 3))
    shares = [dict(zip(one.limits, one.bounds.tolist(), strict=True)) for one in (apart, together)]
    assert shares[0] == pytest.approx(shares[1], rel=1e-12)
    apart, together = (replace(one, limits=(), bounds=one.seconds) for one in (apart, together))
    assert_reports_equal(apart, together)


def test_counts_and_bytes_of_ragged_sequences_are_the_sums_of_their_parts() -> None:
    """Keys are read once by each sequence, so bytes add up where the whole call has as much room in L2 as its parts."""
    parts = ((1024, 1024), (300, 4000), (1, 777))
    whole = run_ragged(ragged(parts))
    alone = [run_ragged(ragged((part,))) for part in parts]
    for name in ("flops", "blocks_computed", "blocks_partial", "blocks_skipped", "tasks"):
        np.testing.assert_allclose(getattr(whole, name), sum(getattr(one, name) for one in alone), rtol=1e-12, err_msg=name)
    for path in ("gm_to_l1", "ub_to_gm", "l0c_to_gm"):
        total = sum(one.path_bytes[path] for one in alone)
        np.testing.assert_allclose(whole.path_bytes[path], total, rtol=1e-12, err_msg=path)
    np.testing.assert_allclose(whole.occupancy.used_bytes["UB"], alone[0].occupancy.used_bytes["UB"])


def test_a_ragged_call_takes_no_longer_than_its_parts_and_no_less_than_any() -> None:
    parts = ((1024, 1024), (512, 4096), (2048, 2048))
    whole = run_ragged(ragged(parts)).seconds
    alone = [run_ragged(ragged((part,))).seconds for part in parts]
    assert max(alone) <= whole <= sum(alone)


def test_the_order_of_ragged_sequences_does_not_matter() -> None:
    parts = ((1024, 1024), (300, 4000), (1, 777))
    assert_reports_equal(run_ragged(ragged(parts)), run_ragged(ragged(parts[::-1])))

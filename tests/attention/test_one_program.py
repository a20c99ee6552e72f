"""Numbers and lengths are data of a compiled program: another value of them compiles nothing anew."""

from collections.abc import Callable
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention import npu_flash_attention, npu_fused_infer_attention_score
from ascend_jax.attention.dropout import keep_mask
from tests.attention.fusion_oracle import attention, close, oracle, qkv

flash: Any = npu_flash_attention
COMPILED: list[str] = []


def note(event: str, duration_secs: float, **_: Any) -> None:
    del duration_secs
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(note)


def compiled_by(call: Callable[[], Any]) -> int:
    """How many programs XLA compiles during a call, the smallest included."""
    before = len(COMPILED)
    jax.block_until_ready(call())
    return len(COMPILED) - before


def test_a_new_program_is_counted() -> None:
    assert compiled_by(lambda: jax.jit(lambda x: x * 3 + 1)(np.float32(2))) == 1


CALL = qkv((4, 2), (20, 20))
SLOPES = jnp.asarray([0.5, 0.25, 0.125, 0.0625], jnp.float32)


def out(*tensors: Array, **options: Any) -> Array:
    return attention(*(tensors or CALL), 4, "BNSD", **options).attention_out


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, {"scale": (0.1, 0.2, 1)}),
        ({"pse": SLOPES, "pse_type": 2, "kv_start_idx": [0]}, {"q_start_idx": ([0], [3], [7])}),
        ({"seed": 5}, {"keep_prob": (0.5, 0.7, 0.9), "seed": (1, 2, 3)}),
    ],
    ids=["scale", "alibi", "dropout"],
)
def test_another_number_compiles_nothing(options: dict[str, Any], values: dict[str, tuple[Any, ...]]) -> None:
    calls = [options | dict(zip(values, chosen, strict=True)) for chosen in zip(*values.values(), strict=True)]
    found = [out(**calls[0])]
    assert compiled_by(lambda: found.extend(out(**call) for call in calls[1:])) == 0
    assert all(np.any(found[0] != other) for other in found[1:])


def test_a_traced_scale_is_one_program_and_has_a_gradient() -> None:
    run = jax.jit(lambda scale: out(scale=scale))
    close(run(0.3), oracle(*CALL, scale=0.3)[0])
    assert compiled_by(lambda: run(0.7)) == 0
    close(run(0.7), oracle(*CALL, scale=0.7)[0])
    towards = jnp.asarray(np.random.default_rng(1).standard_normal(CALL[0].shape), jnp.float32)
    pse = jnp.asarray(np.random.default_rng(2).standard_normal((1, 4, 1, 20)), jnp.float32)
    slope = jax.grad(lambda scale: jnp.sum(out(scale=scale, pse=pse) * towards))(0.3)
    plain = [np.sum(oracle(*CALL, scale=scale, bias=pse)[0] * np.asarray(towards)) for scale in (0.3 - 1e-5, 0.3 + 1e-5)]
    np.testing.assert_allclose(slope, (plain[1] - plain[0]) / 2e-5, rtol=1e-4)


def test_a_traced_keep_prob_draws_for_what_it_is() -> None:
    run = jax.jit(lambda share: out(keep_prob=share, scale=0.3, seed=7))
    for share in (0.6, 1.0):
        keep = keep_mask(7, 0, (2, 4, 20, 20), share)
        close(run(share), oracle(*CALL, scale=0.3, keep=keep, keep_prob=share)[0])
    with pytest.raises(ValueError, match=r"keep_prob=1.5: must lie in \(0, 1\]"):
        out(keep_prob=1.5)


def test_statistics_are_constants_to_a_gradient() -> None:
    """As in torch_npu: its backward is given the gradient of the output alone."""
    for place in (1, 2):
        number = lambda q, place=place: jnp.sum(attention(q, *CALL[1:], 4, "BNSD", scale=0.3)[place])  # noqa: E731
        assert not np.any(jax.grad(number)(CALL[0]))


def test_the_alias_takes_the_options_by_position() -> None:
    given = (4, "BNSD", None, None, None, 0.3, 0.8)
    found = flash(*CALL, *given, seed=3)
    np.testing.assert_array_equal(found, attention(*CALL, *given, seed=3).attention_out)


PAGE, COLUMNS = 16, 6
PAGES = np.random.default_rng(3).standard_normal((2 * COLUMNS + 1, PAGE, 32)).astype(np.float16)
PAGES[-1] = np.nan
ORDER = np.random.default_rng(4).permutation(2 * COLUMNS).reshape(2, COLUMNS)
ROW = np.random.default_rng(5).standard_normal((2, 1, 32)).astype(np.float16)


def decoded(lens: tuple[int, int]) -> Array:
    """One step over pages; those that the table does not need yet hold NaN."""
    table = np.where(np.arange(COLUMNS) * PAGE < np.asarray(lens)[:, None], ORDER, 2 * COLUMNS)
    given = {"block_table": jnp.asarray(table, jnp.int32), "block_size": PAGE, "actual_seq_lengths_kv": lens}
    options: dict[str, Any] = given | {"num_heads": 2, "num_key_value_heads": 2, "scale": 0.3, "round_probs": False}
    return npu_fused_infer_attention_score(jnp.asarray(ROW), jnp.asarray(PAGES), jnp.asarray(PAGES), **options)[0]


def test_a_loop_of_decoding_compiles_when_its_pages_double() -> None:
    for lengths in (range(1, 17), range(17, 33), range(33, 65, 7), range(65, 97, 8)):
        decoded((lengths[0], 1))
        assert compiled_by(lambda lengths=lengths: [decoded((keys, keys - 1)) for keys in lengths[1:]]) == 0


@pytest.mark.parametrize("keys", [2, 16, 17, 40, 96])
def test_pages_that_are_not_needed_may_be_anything(keys: int) -> None:
    found = decoded((keys, keys - 1))
    split = lambda x: jnp.swapaxes(jnp.asarray(x).reshape(-1, 2, 16), 0, 1)[None]  # noqa: E731
    for batch, length in enumerate((keys, keys - 1)):
        key = split(PAGES[ORDER[batch]].reshape(-1, 32)[:length])
        close(split(found[batch]), oracle(split(ROW[batch]), key, key, scale=0.3)[0], 2**-9)

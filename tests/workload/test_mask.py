"""Masks: text and back, refusals, and bounds that keep what the operator's rule keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import kept

from ascend_jax.workload.mask import Mask

TEXTS = ["none", "causal", "left-up-causal", "band:4096,0", "band:-3,5", "band:5,-3", "prefix:0", "prefix:128"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trip(text: str) -> None:
    assert str(Mask.parse(text)) == text
    assert Mask.parse(str(Mask.parse(text))) == Mask.parse(text)


@pytest.mark.parametrize("text", ["", "Causal", "band", "band:1", "band:1,2,3", "band:1.5,0", "prefix:-1", "prefix:x", "none "])
def test_text_that_is_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match="must be none, causal, left-up-causal, band:PRE,NEXT or prefix:N"):
        Mask.parse(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "sliding"}, "kind='sliding' must be one of none, left_up_causal, causal, band, prefix"),
        ({"kind": "band", "pre": 2, "next": -3}, r"pre=2, next=-3 keeps no key: pre \+ next must be at least 0"),
        ({"kind": "band", "pre": 1.5}, "pre=1.5, next=0 must be whole numbers"),
        ({"kind": "band", "next": float("nan")}, "next=nan must be whole numbers"),
        ({"kind": "prefix", "prefix": -1}, "prefix=-1 must be a whole number of at least 0"),
        ({"kind": "prefix", "prefix": 2.5}, "prefix=2.5 must be a whole number"),
    ],
)
def test_refusals(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mask(**fields)


@pytest.mark.parametrize("kind", ["none", "left_up_causal", "causal", "band", "prefix"])
@given(data=st.data())
def test_bounds_keep_what_the_rule_keeps(kind: str, data: st.DataObject) -> None:
    q_len, kv_len = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    pre = data.draw(st.integers(-15, 15))
    after, prefix = data.draw(st.integers(-pre, 20)), data.draw(st.integers(0, 15))
    mask = Mask(kind=kind, pre=pre, next=after, prefix=prefix)
    lower, upper, columns = map(float, mask.bounds(jnp.asarray(q_len, float), jnp.asarray(kv_len, float)))
    distance = np.arange(kv_len)[None, :] - np.arange(q_len)[:, None]
    kept_by_bounds = (lower <= distance) & (distance <= upper) | (np.arange(kv_len)[None, :] < columns)
    np.testing.assert_array_equal(kept_by_bounds, kept(kind, q_len, kv_len, pre, after, prefix))


def test_bounds_of_an_open_band_stay_near_the_matrix() -> None:
    """2^31 - 1 is the operator's "no limit"; as float32 it is no whole number, so sums with it would be wrong."""
    bounds = Mask(kind="band", pre=2**31 - 1, next=2**31 - 1).bounds(jnp.float32(100), jnp.float32(70))
    assert [float(value) for value in bounds] == [-100, 70, 0]


def test_a_mask_is_rebuilt_with_tracers_under_jit_and_vmap() -> None:
    def upper(mask: Mask) -> jax.Array:
        return mask.bounds(jnp.asarray(10.0), jnp.asarray(30.0)).upper

    masks = Mask(kind="band", pre=jnp.zeros(3), next=jnp.arange(3.0), prefix=jnp.zeros(3))
    np.testing.assert_array_equal(jax.jit(jax.vmap(upper))(masks), [20, 21, 22])

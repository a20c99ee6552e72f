"""The runner over others' cases, on a sample of our own in the same format, and the goldens that it measures with."""

import json
import os
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from ascend_jax.attention.dropout import keep_mask

TRAIN: dict[str, Any] = {
    "B": 3,
    "N1": 4,
    "N2": 2,
    "S1": 24,
    "S2": 40,
    "D": 16,
    "dtype": "FLOAT16",
    "layout": "BNSD",
    "scale": 0.2,
}
MASK = {"atten_mask": "SPARSE", "mask_dtype": "BOOL"}
INFER: dict[str, Any] = {"layout": "BNSD", "q_shape": [3, 4, 20, 64], "k_shape": [3, 2, 40, 64], "v_shape": [3, 2, 40, 64]}
INFER |= {"dtype": "FLOAT16", "kv_dtype": "FLOAT16", "N1": 4, "N2": 2, "scale": 0.1, "pre_tokens": 2**31 - 1, "sparse_mode": 0}
INFER |= {
    "next_tokens": 2**31 - 1,
    "inner_precise": 0,
    "block_size": 0,
    "softmax_lse": 1,
    "source": {"path": "arch22", "case": "x"},
}
UNIFIED: dict[str, Any] = {"N1": 4, "N2": 1, "D": 64, "DV": 64, "dtype": "fp16", "layout": "BSND", "layout_out": "BSND"}
UNIFIED |= {"B": 2, "S1": 12, "S2": 40, "return_softmax_lse": True}
UNIFIED |= {"layout_kv": "PA_BBND", "block_size": 16, "mask_mode": 3, "seqused_kv": [7, 40]}
BENCH = {
    "input_shapes": [[3, 4, 24, 32]] * 3,
    "dtype": "float16",
    "value_range": [[-1, 1]] * 3,
    "tolerance": "MERE<T, MARE<10T",
}
SAMPLE: dict[str, dict[str, Any]] = {
    "band": TRAIN | MASK | {"op": "fusion_attention", "sparse_mode": 4, "pre_tokens": 20, "next_tokens": 3},
    "own mask": TRAIN | {"op": "fusion_attention", "atten_mask": "B_1_S1_S2", "pse": "B_N1_S1_S2", "S1": 40, "dtype": "FLOAT"},
    "packed": TRAIN
    | MASK
    | {"op": "fusion_attention", "layout": "TND", "seq_q_lens": [9, 0, 20], "seq_kv_lens": [9, 5, 30]}
    | {"sparse_mode": 3, "keep_prob": 0.8, "seed": 5, "offset": 17, "dtype": "FLOAT"},
    "gradient": TRAIN | MASK | {"op": "fusion_attention_grad", "layout": "BSH", "sparse_mode": 2, "dtype": "FLOAT"},
    "mask of one row": TRAIN | {"op": "fusion_attention", "atten_mask": [3, 1, 1, 40]},
    "too lenient": TRAIN | {"op": "fusion_attention", "scale": 0.5},
    "decode": INFER | {"op": "fused_infer_attention_score", "q_shape": [3, 4, 1, 64], "seq_kv": [1, 17, 40]},
    "int8 keys": INFER | {"op": "fused_infer_attention_score", "kv_dtype": "INT8"},
    "pages": UNIFIED | {"op": "flash_attn", "tolerance": "fp16: atol 2.5e-5 rtol 5e-3"},
    "local": BENCH | {"op": "bench:local_attention", "attrs": {"window_size": 10}},
    "long": BENCH | {"op": "bench:flash_attention", "attrs": {}, "input_shapes": [[1, 1, 2**13, 64]] * 3},
    "unheard of": BENCH | {"op": "ring_attention", "attrs": {}},
}
REFUSED = ("mask of one row", "too lenient")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    names = ("run", "numerics", "verdicts", "goldens", "smaller", "sizes", "tolerances", "fusion_cases")
    return SimpleNamespace(**{name: import_module(f"experiments.peer_cases.{name}") for name in names})


def cases() -> list[dict[str, Any]]:
    every = {"group": "sample", "pre_tokens": 2**31 - 1, "next_tokens": 2**31 - 1, "sparse_mode": 0}
    return [every | {"id": name, "expect": "error" if name in REFUSED else "ok"} | case for name, case in SAMPLE.items()]


def test_the_sample_end_to_end(peers: SimpleNamespace, tmp_path: Path) -> None:
    given, out = tmp_path / "cases.json", tmp_path / "result.json"
    given.write_text(json.dumps(cases()), "utf-8")
    runner = CliRunner(env={"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")})
    done = runner.invoke(peers.run.main, [str(given), "--json", str(out)], catch_exceptions=False)
    assert "too lenient: error → ok" in done.output
    data = json.loads(out.read_text("utf-8"))
    got = {row["id"]: row["got"] for row in data["cases"]}
    assert {name for name, one in got.items() if one == "unsupported"} == {"int8 keys", "unheard of"}
    assert {name for name, one in got.items() if one == "error"} == {"mask of one row"}
    rows = {row["id"]: row for row in data["cases"]}
    assert rows["mask of one row"]["why"].startswith("561103 ACLNN_ERR_INNER_NULLPTR: ")
    assert "lengths alone need 6.71e+07 elements" in rows["long"]["why"]
    assert "B 3 → 2" in rows["band"]["why"]
    computed = {name for name, row in rows.items() if row["within"] is not None}
    assert computed == {"band", "own mask", "packed", "gradient", "decode", "pages", "local"}
    assert all(rows[name]["within"] or rows[name]["by_rounding"] for name in computed)
    assert all(rows[name]["within"] for name in ("packed", "gradient", "own mask"))  # float32: nothing is rounded
    assert data["overall"] | {"agreement": None} == data["groups"]["sample"] | {"agreement": None}
    counts = {"n": 12, "agree": 9, "disagree": 1, "unsupported": 2, "internal": 0, "agreement": 0.9}
    assert counts | {"numbers_run": 7} == {name: data["overall"][name] for name in (*counts, "numbers_run")}
    assert data["overall"]["numbers_within"] + data["overall"]["by_rounding"] == 7


def test_a_wrong_golden_is_noticed(peers: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    right = peers.numerics.GOLDENS["npu_fusion_attention"]
    wrong = lambda call, rounding=None: right(call | {"next_tockens": call["next_tockens"] + 1}, rounding)  # noqa: E731
    monkeypatch.setitem(peers.numerics.GOLDENS, "npu_fusion_attention", wrong)
    row = peers.run.judged(cases()[0], peers.numerics.Runner(2**20))
    assert (row["got"], row["within"], row["by_rounding"]) == ("ok", False, False)
    assert row["max_error"] > 0.01


def test_what_no_operator_means_to_raise_is_counted_apart(peers: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: dict[str, Any]) -> None:
        raise KeyError(case["id"])

    monkeypatch.setattr(peers.fusion_cases, "arguments", broken)
    row = peers.run.judged(cases()[4], None)
    assert (row["expected"], row["got"], row["internal"]) == ("error", "error", True)
    assert row["why"].startswith("internal: KeyError")
    assert peers.run.totals([row])["agree"] == 0


def test_a_smaller_call_keeps_lengths_and_the_ratio_of_heads(peers: SimpleNamespace) -> None:
    given = {"input_layout": "TND", "head_num": 12, "actual_seq_qlen": (64, 96, 112), "actual_seq_kvlen": (64, 64, 128)}
    shapes = {"query": (112, 12, 16), "key": (128, 4, 16), "value": (128, 4, 16), "pse": (12 * (64 * 64 + 16 * 64),)}
    shapes |= {"atten_mask": (64, 64)}
    given |= {name: jax.ShapeDtypeStruct(shape, np.dtype("float16")) for name, shape in shapes.items()}
    function = SimpleNamespace(__name__="npu_fusion_attention")
    found, note = peers.smaller.smaller(function, given, 8 * 3 * 64 * 64)
    assert (found["head_num"], found["actual_seq_qlen"], found["actual_seq_kvlen"]) == (3, (64, 96), (64, 64))
    assert {name: found[name].shape for name in shapes} == {
        "query": (96, 3, 16), "key": (64, 1, 16), "value": (64, 1, 16), "pse": (3 * 64 * 64,), "atten_mask": (64, 64),
    }  # fmt: skip
    assert note == "B 3 → 2, N1 12 → 3, N2 4 → 1"
    with pytest.raises(peers.smaller.TooLargeError, match="lengths of one sequence"):
        peers.smaller.smaller(function, given, 64 * 64 - 1)


def test_the_golden_of_dropout_draws_what_the_kernel_draws(peers: SimpleNamespace) -> None:
    mine = peers.goldens.philox_keep(2**40 + 3, 77, 2 * 3 * 5, 37, 0.7).reshape(2, 3, 5, 37)
    np.testing.assert_array_equal(mine, np.asarray(keep_mask(2**40 + 3, 77, (2, 3, 5, 37), 0.7)))


def test_golden_gradients_are_those_of_the_golden(peers: SimpleNamespace) -> None:
    rng, goldens = np.random.default_rng(1), peers.goldens
    q, k, v, bias, d_out = (rng.standard_normal(shape) for shape in ((2, 3, 4), (1, 5, 4), (1, 5, 4), (2, 3, 5), (2, 3, 4)))
    keep = rng.random((2, 3, 5)) < 0.7
    options = {"scale": 0.6, "seen": goldens.causal(3, 5, 2)[None], "keep": keep, "keep_prob": 0.7}
    sequence = goldens.Sequence(q, k, v, **options, inner=bias, sink=rng.standard_normal(2))
    found = goldens.gradients(sequence, d_out)
    for name, field in {"dq": "query", "dk": "key", "dv": "value", "dpse": "inner", "dsink": "sink"}.items():
        x = getattr(sequence, field)
        step = 1e-6 * rng.standard_normal(x.shape)
        ends = [(goldens.attention(sequence._replace(**{field: x + side * step}))[0] * d_out).sum() for side in (1, -1)]
        np.testing.assert_allclose((found[name] * step).sum(), (ends[0] - ends[1]) / 2, rtol=1e-5)


def test_the_benchmark_forgives_only_what_a_plain_computation_gets_wrong_near_0(peers: SimpleNamespace) -> None:
    rule = peers.tolerances.bench_rule
    wanted, found = np.array([0.5, 0.25, 1e-4]), np.array([0.5, 0.25, 2e-4])
    many = np.tile(wanted, 4), np.tile(found, 4)
    assert not rule(many[::-1], "float16", lambda: many[0]).within
    assert rule(many[::-1], "float16", lambda: many[1]).within
    assert not rule((found + np.array([0.1, 0, 0]), wanted), "float16", lambda: found).within

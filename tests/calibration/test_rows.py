"""Rows of measurements: what is read, what is refused, and with which words."""

import json
from pathlib import Path
from typing import Any

import pytest

from ascend_jax.calibration.rows import Refused, Row, read_entries, read_rows

FULL = {
    "id": "m1",
    "op": "FusedInferAttentionScore",
    "category": "attention",
    "metric": "latency",
    "value": 257.5,
    "unit": "us",
    "chip": "A2",
    "catalog_chip": "910B2",
    "dtype": "bf16",
    "layout": "BSND",
    "batch": 4,
    "q_heads": 64,
    "kv_heads": 8,
    "q_seq": 512,
    "kv_seq": 1024,
    "head_dim": 128,
    "causal": False,
    "tiling": "block 128x128",
    "quality": "A",
    "core_validation": True,
    "flops_unmasked": 2**40,
    "attrs": {"scaleValue": -1.0},
    "input_shape": [[4, 512, 64, 128], [4, 1024, 8, 128]],
    "source": "a page",
}


def written(folder: Path, data: Any) -> Path:
    file = folder / "rows.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return file


def row(**changes: Any) -> dict[str, Any]:
    given = {"id": "m1", "value": 1.0, "unit": "us"} | changes
    return {name: value for name, value in given.items() if value != "absent"}


def test_every_field_is_read(tmp_path: Path) -> None:
    [read] = read_rows(written(tmp_path, [FULL]))
    for name, value in FULL.items():
        if name != "input_shape":
            assert getattr(read, name) == value
    assert read.input_shape == ((4, 512, 64, 128), (4, 1024, 8, 128))
    assert read.measured_s == pytest.approx(257.5e-6, rel=1e-12)


def test_what_is_absent_or_null_is_none_and_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    [read] = read_rows(written(tmp_path, {"rows": [row(causal=None, head_dim=None, invented=[1, {}])]}))
    assert read == Row(id="m1", value=1.0, unit="us")
    assert (read.causal, read.head_dim, read.tiling, read.op, read.core_validation) == (None, None, None, "", False)


def test_rows_keep_the_order_of_the_file(tmp_path: Path) -> None:
    assert [one.id for one in read_rows(written(tmp_path, [row(id=name) for name in "cab"]))] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("shape", "read"),
    [([12288, 12288], ((12288, 12288),)), ([[2, 3], [4]], ((2, 3), (4,))), ([[2], None], ((2,), ())), ([], ())],
)
def test_shapes_of_one_input_or_of_many(tmp_path: Path, shape: Any, read: Any) -> None:
    assert read_rows(written(tmp_path, [row(input_shape=shape)]))[0].input_shape == read


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"value": 250, "unit": "ns", "metric": "latency"}, 2.5e-7),
        ({"value": 250, "unit": "us", "metric": "latency"}, 2.5e-4),
        ({"value": 250, "unit": "\N{MICRO SIGN}s"}, 2.5e-4),
        ({"value": 250, "unit": "\N{GREEK SMALL LETTER MU}s"}, 2.5e-4),
        ({"value": 250, "unit": "ms", "metric": "latency"}, 0.25),
        ({"value": 250, "unit": "s", "metric": "latency"}, 250.0),
        ({"value": 250, "unit": "cycles", "metric": "latency"}, None),
        ({"value": 250, "unit": "TFLOPS", "metric": "throughput"}, None),
        ({"value": 250, "unit": "TFLOPS", "metric": "throughput", "flops_unmasked": 10**12, "causal": True}, None),
        ({"value": 250, "unit": "TFLOPS", "metric": "throughput", "flops_unmasked": 10**12, "causal": False}, 0.004),
        ({"value": 250, "unit": "GB/s", "metric": "bandwidth"}, None),
    ],
)
def test_seconds_only_of_what_says_seconds(tmp_path: Path, given: dict[str, Any], seconds: float | None) -> None:
    assert read_rows(written(tmp_path, [row(**given)]))[0].measured_s == (seconds and pytest.approx(seconds, rel=1e-12))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("[{", ["rows.json", "not JSON", "list of rows"]),
        ("\udcff", ["rows.json", "not JSON"]),
        ("[" * 100_000, ["rows.json", "not JSON"]),
        ("3", ["rows.json", "int", "list of rows"]),
        ({"row": []}, ["rows.json", "'row'", '{"rows": [...]}']),
        ({"rows": {}}, ["rows.json", "'rows'", '{"rows": [...]}']),
        ([], ["rows.json", "no rows", "at least one"]),
    ],
)
def test_a_file_without_a_list_of_rows_is_an_error(tmp_path: Path, data: Any, words: list[str]) -> None:
    file = tmp_path / "rows.json"
    text = data if isinstance(data, str) else json.dumps(data)
    file.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    for reader in (read_rows, read_entries):
        with pytest.raises(ValueError) as caught:
            reader(file)
        for word in words:
            assert word in str(caught.value)


WRONG = [
    (7, ["row number 2", "7", "not an object"]),
    (row(id="absent"), ["row number 2", "id=None", "no other row has"]),
    (row(id=""), ["row number 2", "id=''", "no other row has"]),
    (row(id=["m1"]), ["row number 2", "id=['m1']"]),
    (row(id="m0"), ["row 'm0'", "taken by an earlier row", "no other row has"]),
    (row(value="absent"), ["row 'm1'", "value is missing", "in unit"]),
    (row(value=None), ["row 'm1'", "value is missing"]),
    (row(value="12"), ["value='12'", "finite number above 0", "leave the row out"]),
    (row(value=True), ["value=True", "finite number above 0"]),
    (row(value=0), ["value=0", "above 0"]),
    (row(value=-3.5), ["value=-3.5", "above 0"]),
    (row(value=float("nan")), ["value=nan", "finite"]),
    (row(value=float("inf")), ["value=inf", "finite"]),
    (row(value=10**400), ["row 'm1'", "too large"]),
    (row(unit=3), ["unit=3", "text", "quotes"]),
    (row(tiling={"block_q": 128}), ["tiling={'block_q': 128}", "text"]),
    (row(batch=0), ["batch=0", "whole number of at least 1"]),
    (row(head_dim=1.5), ["head_dim=1.5", "whole number"]),
    (row(q_seq="4k"), ["q_seq='4k'", "whole number"]),
    (row(kv_seq=True), ["kv_seq=True", "whole number"]),
    (row(q_heads=10**400), ["row 'm1'", "too large"]),
    (row(causal="no"), ["causal='no'", "true or false"]),
    (row(core_validation=1), ["core_validation=1", "true or false"]),
    (row(attrs=[1]), ["attrs=[1]", "object"]),
    (row(input_shape=[[2], 3]), ["input_shape=[[2], 3]", "whole numbers"]),
    (row(input_shape=[[2, "x"]]), ["input_shape=[[2, 'x']]", "whole numbers"]),
    (row(input_shape="2x3"), ["input_shape='2x3'", "whole numbers"]),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG)
def test_a_wrong_row_names_file_row_field_rule_and_remedy(tmp_path: Path, wrong: Any, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        read_rows(written(tmp_path, [row(id="m0"), wrong]))
    for word in ["rows.json", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(("wrong", "words"), WRONG)
def test_one_wrong_row_stands_among_the_others_with_its_reason(tmp_path: Path, wrong: Any, words: list[str]) -> None:
    first, refused, last = read_entries(written(tmp_path, [row(id="m0"), wrong, row(id="m2")]))
    assert isinstance(first, Row) and isinstance(last, Row) and (first.id, last.id) == ("m0", "m2")
    assert isinstance(refused, Refused)
    for word in words:
        assert word in refused.reason


def test_all_wrong_rows_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 more"):
        read_rows(written(tmp_path, [row(value=0), row(value=1), row(value=-1, id="m2")]))


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "none.json")

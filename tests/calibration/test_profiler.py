"""The profiler's tables: what becomes a row, what is refused and why; the files in ``profiles`` are written by hand."""

from pathlib import Path

import pytest

from ascend_jax.calibration.assume import assume
from ascend_jax.calibration.call_shapes import Hints, Tensor, Unclear, read_call
from ascend_jax.calibration.profiler import Profile, read_profile
from ascend_jax.calibration.rows import Row

PROFILES = Path(__file__).parent / "profiles"
OP_SUMMARY = PROFILES / "op_summary_20260101120000.csv"
KERNEL_DETAILS = PROFILES / "kernel_details.csv"
SIZES = ("layout", "dtype", "batch", "q_heads", "kv_heads", "q_seq", "kv_seq", "head_dim", "causal")


def sizes(row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in SIZES)


def reasons(profile: Profile) -> dict[str, int]:
    return {f"{skipped.op}: {skipped.reason}": skipped.count for skipped in profile.skipped}


def test_executions_of_one_call_become_their_median() -> None:
    """Three runs, the first-of-its-kind outlier of 9.8 ms among them."""
    first = read_profile(OP_SUMMARY, chip="910B3").rows[0]
    assert sizes(first) == ("BNSD", "bfloat16", 2, 8, 8, 4096, 4096, 128, True)
    assert (first.value, first.unit, first.measured_s) == (1512.3, "us", pytest.approx(1.5123e-3))
    assert first.attrs == {"runs": 3, "shortest_us": 1500.0, "longest_us": 9800.9}
    assert (first.catalog_chip, first.category, first.op) == ("910B3", "attention", "FlashAttentionScore")
    assert first.source == OP_SUMMARY.name


def test_statistics_of_softmax_tell_heads_and_rows_of_sbh() -> None:
    second = read_profile(OP_SUMMARY, chip="910B3").rows[1]
    assert sizes(second) == ("SBH", "float16", 1, 16, 16, 4096, 4096, 64, False)


def test_what_is_no_row_is_named_with_its_reason_and_count() -> None:
    profile = read_profile(OP_SUMMARY, chip="910B3")
    assert (len(profile.rows), profile.others) == (2, 2)
    found = reasons(profile)
    assert found["FlashAttentionScore: its duration 'N/A' is no time"] == 1
    assert found["FlashAttentionScore: it has no shapes"] == 1
    [grad] = [skipped for skipped in profile.skipped if skipped.op == "FlashAttentionScoreGrad"]
    assert (grad.line, grad.count) == (7, 2)
    assert len(found) == 3


def test_kernel_details_of_torch_npu() -> None:
    profile = read_profile(KERNEL_DETAILS, chip="910B2")
    assert [sizes(row) for row in profile.rows] == [
        ("BNSD", "float16", 16, 32, 8, 1, 2048, 128, False),
        ("BNSD", "float16", 4, 8, 8, 1, 2048, 128, False),
    ]
    assert profile.rows[0].value == pytest.approx((146.06 + 148.06) / 2)
    found = reasons(profile)
    expected = {
        "FusedInferAttentionScore: query 1,4096,4096, key 1,4096,1024: how many heads": 1,
        "FusedInferAttentionScore: could be BNSD (32 heads, 128 rows) or BSND (128 heads, 32 rows)": 1,
        "FusedInferAttentionScore: the key/value cache is paged": 1,
        "FusedInferAttentionScore: lengths of its own for each sequence": 1,
        "FusedInferAttentionScore: data type int8 is not modelled": 1,
        "PromptFlashAttention: what its mask of 512 × 512 hides": 1,
        "PagedAttentionMaskNdKernel: not modelled": 1,
    }
    assert len(found) == len(expected)
    for beginning, count in expected.items():
        assert [number for reason, number in found.items() if reason.startswith(beginning)] == [count]
    assert profile.others == 1


def test_hints_settle_what_the_profile_leaves_open() -> None:
    heads = read_profile(KERNEL_DETAILS, chip="910B2", hints=Hints(q_heads=32, mask="causal"))
    found = {sizes(row) for row in heads.rows}
    assert ("BSH", "bfloat16", 1, 32, 8, 4096, 4096, 128, True) in found
    assert ("BNSD", "bfloat16", 1, 32, 32, 128, 128, 128, False) in found  # 32 heads: not BSND
    layout = read_profile(KERNEL_DETAILS, chip="910B2", hints=Hints(layout="BSND", mask="none"))
    assert ("BSND", "bfloat16", 1, 128, 128, 32, 32, 128, False) in {sizes(row) for row in layout.rows}
    full = read_profile(KERNEL_DETAILS, chip="910B2", hints=Hints(mask="causal"))
    assert ("BNSD", "float16", 4, 8, 8, 512, 512, 128, True) in {sizes(row) for row in full.rows}


@pytest.mark.parametrize("file", [OP_SUMMARY, KERNEL_DETAILS])
def test_every_row_is_a_case_of_the_model_and_has_a_name_of_its_own(file: Path) -> None:
    rows = read_profile(file, chip="910B2").rows
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        case = assume(row)
        work = case.work
        found = (work.batch, work.q_heads, work.kv_heads, work.q_len, work.kv_len, work.head_dim, work.layout)
        assert found == (row.batch, row.q_heads, row.kv_heads, row.q_seq, row.kv_seq, row.head_dim, row.layout)


def tensor(place: int, dtype: str, *shape: int) -> Tensor:
    return Tensor(place=place, dtype=dtype, shape=shape)


def qkv(query: tuple[int, ...], key: tuple[int, ...], dtype: str = "float16") -> list[Tensor]:
    return [tensor(0, dtype, *query), tensor(1, dtype, *key), tensor(2, dtype, *key)]


def test_more_than_256_heads_are_rows() -> None:
    """[2, 8, 512, 64] as BSND would have 512 heads, which no operator takes."""
    call = read_call(qkv((2, 8, 512, 64), (2, 8, 512, 64)), [], Hints())
    assert (call.layout, call.q_heads, call.q_seq) == ("BNSD", 8, 512)
    call = read_call(qkv((2, 512, 8, 64), (2, 1024, 8, 64)), [], Hints())
    assert (call.layout, call.q_heads, call.q_seq, call.kv_seq) == ("BSND", 8, 512, 1024)


def test_groups_of_heads_and_masks_tell_layouts_apart() -> None:
    grouped = read_call(qkv((1, 32, 128, 64), (1, 8, 256, 64)), [], Hints())
    assert (grouped.layout, grouped.q_heads, grouped.kv_heads, grouped.q_seq) == ("BNSD", 32, 8, 128)
    masked = read_call([*qkv((1, 64, 128, 64), (1, 64, 128, 64)), tensor(4, "bool", 1, 1, 128, 128)], [], Hints(mask="causal"))
    assert (masked.layout, masked.q_seq, masked.causal) == ("BNSD", 128, True)


def test_separate_rotary_parts_widen_the_heads() -> None:
    rope = [tensor(24, "float16", 4, 16, 1, 64), tensor(25, "float16", 4, 1, 4096, 64)]
    call = read_call([*qkv((4, 16, 1, 512), (4, 1, 4096, 512)), *rope], [], Hints())
    assert (call.head_dim, call.kv_heads, call.kv_seq) == (576, 1, 4096)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "query, key or value has no shape"),
        (qkv((1, 8, 64), (1, 8, 64))[:2], "query, key or value has no shape"),
        ([*qkv((1, 8, 512, 64), (1, 8, 512, 64)), tensor(3, "float16", 1, 8, 512, 512)], "neither a mask nor a pair"),
        ([*qkv((1, 8, 512, 64), (1, 8, 512, 64)), tensor(7, "float32", 1)], r"input 7 \(float32 1\) is not modelled"),
        (qkv((1, 8, 512, 64), (2, 8, 512, 64)), "no layout reads"),
        (qkv((1, 7, 512, 64), (1, 3, 512, 64)), "no layout reads"),
        (qkv((1, 8, 512, 64), (1, 8, 512, 32)), "no layout reads"),
        (qkv((512, 64), (512, 64)), "no layout reads"),
    ],
)
def test_calls_that_cannot_be_read_say_why(inputs: list[Tensor], message: str) -> None:
    with pytest.raises(Unclear, match=message):
        read_call(inputs, [], Hints())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column OP Type or Type"),
        ("a,b\n1,2\n", "give op_summary_"),
        ("Device_id,OP Type,Task Duration(us)\n0,FlashAttentionScore,5\n", "the shapes were not recorded"),
    ],
)
def test_a_table_without_the_columns_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "op_summary_1.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_profile(file, chip="910B3")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "op_summary_1.csv"
    file.write_bytes(b"\xff\xfe\x00OP Type")
    with pytest.raises(ValueError, match="is no CSV in UTF-8"):
        read_profile(file, chip="910B3")


def test_short_lines_and_nonsense_shapes_stop_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kernel_details.csv"
    header = "Type,Duration(us),Input Shapes,Input Data Types,Input Formats"
    good = 'PromptFlashAttention,10.5,"1,8,512,64;1,8,512,64;1,8,512,64","FLOAT16;FLOAT16;FLOAT16","ND;ND;ND"'
    packed = good.replace("ND;ND;ND", "FRACTAL_NZ;ND;ND")
    file.write_text(f"{header}\nPromptFlashAttention\n{good.replace('512', 'x')}\n\n{packed}\n{good}\n")
    profile = read_profile(file, chip="910B3")
    assert [row.value for row in profile.rows] == [10.5]
    assert sorted(skipped.line for skipped in profile.skipped) == [2, 3, 5]

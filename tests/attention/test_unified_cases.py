"""Cases of others as calls: made-up ones, each with what its origin leaves out."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

from ascend_jax.attention.errors import TilingError


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from experiments.peer_cases import unified_cases  # noqa: PLC0415 (its folder is known only now)

    return unified_cases


def shapes_of(call: tuple[Callable, dict[str, Any]]) -> Any:
    tensors = {name: x for name, x in call[1].items() if isinstance(x, jax.ShapeDtypeStruct)}
    rest = {name: x for name, x in call[1].items() if name not in tensors}
    return jax.eval_shape(functools.partial(call[0], **rest), **tensors)


TEST = {"N1": 4, "N2": 2, "D": 64, "DV": 64, "dtype": "bf16", "layout_out": "BNSD", "mask_mode": 0}
ROW = {"q_shape": [2, 16, 4, 64], "k_shape": [2, 20, 2, 64], "v_shape": [2, 20, 2, 64], "dtype": "FLOAT16", "mask_mode": 0}
ROW |= {"layout": "BSND", "layout_kv": "BSND", "layout_out": "BSND", "win_left": -1, "win_right": -1, "note": "plain"}
PAGES = {"layout_kv": "PA_BBND", "k_shape": [4, 32, 2, 64], "v_shape": [4, 32, 2, 64], "block_table": [2, 2]}


def test_pages_are_dealt_out_where_no_table_is_given(cases: ModuleType) -> None:
    case = TEST | {
        "layout": "BNSD",
        "layout_kv": "PA_NZ",
        "B": 3,
        "S1": 8,
        "S2": 200,
        "block_size": 64,
        "seqused_kv": [1, 64, 130],
    }
    _, call = cases.arguments(case)
    assert call["block_table"].shape == (3, 3)
    assert call["k"].shape == (1 + 1 + 3, 2, 4, 64, 16)
    assert shapes_of(cases.arguments(case))[0].shape == (3, 4, 8, 64)


def test_packed_keys_end_as_the_rows_do_unless_told(cases: ModuleType) -> None:
    case = TEST | {
        "layout": "TND",
        "layout_kv": "TND",
        "layout_out": "TND",
        "cu_seqlens_q": [0, 5, 9],
        "return_softmax_lse": True,
    }
    _, call = cases.arguments(case | {"mask_mode": 4, "win_left": "-1.0", "win_right": 7})
    assert (call["cu_seqlens_kv"], call["win_left"], call["win_right"]) == ((0, 5, 9), -1, 7)
    assert [x.shape for x in shapes_of(cases.arguments(case))] == [(9, 4, 64), (4, 9)]


def test_a_plain_row_is_a_legal_call(cases: ModuleType) -> None:
    assert shapes_of(cases.arguments(ROW))[0].shape == (2, 16, 4, 64)


@pytest.mark.parametrize(
    ("change", "first_line"),
    [
        ({"note": "Dtype_Key_Inconsistent"}, "k bfloat16"),
        ({"note": "DtypeMismatch_kv"}, "v bfloat16"),
        ({"note": "Seqused_dtype_not_INT32"}, "seqused_q float16[2]: must be int32"),
        ({"note": "Seqused_shape_not_B"}, "seqused_q int32[3]: must hold B = 2"),
        ({"note": "Return_softmax_lse_invalid_value"}, "return_softmax_lse=2"),
        ({"note": "PA_no_seqused_kv"} | PAGES, "seqused_kv=None: pages need it"),
        ({"note": "", "sink": [4]}, "sinks float32[4]"),
        ({"note": "", "cu_seqlens_q": [3]}, "cu_seqlens_q given"),
    ],
)
def test_a_row_s_note_is_followed(cases: ModuleType, change: dict[str, Any], first_line: str) -> None:
    with pytest.raises(TilingError) as refused:
        shapes_of(cases.arguments(ROW | change))
    assert str(refused.value).startswith(first_line)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (TEST | {"nc_kv_dims": 0}, "no strides"),
        (ROW | {"note": "lse_dtype_not_FP32"}, "outputs are made"),
        (ROW | {"note": "format_FRACTAL_NZ"}, "no storage format"),
        (ROW | {"q_shape": [2, -1, 4, 64]}, "no array has the shape"),
    ],
)
def test_what_no_call_can_say(cases: ModuleType, case: dict[str, Any], reason: str) -> None:
    with pytest.raises(sys.modules["experiments.peer_cases.not_expressible"].NotExpressible, match=reason):
        cases.arguments(case)

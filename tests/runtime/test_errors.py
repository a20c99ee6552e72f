"""The table of codes, the exceptions made from it, and the last error of each thread."""

import pickle
import threading

import pytest

from ascend_jax.attention import errors as attention_errors
from ascend_jax.attention.errors import AclnnError, ParamInvalidError
from ascend_jax.runtime.errors import (
    AclError,
    OpErrorCode,
    OutOfMemoryError,
    categories,
    error_info,
    error_table,
    get_last_error,
    get_recent_err_msg,
    peek_at_last_error,
    record,
    recorded,
)

PREFIXES = {
    "ACL_ERROR_RT_": (107, 207, 507, 500),
    "ACL_ERROR_GE_": (145, 245, 545, 500),
    "ACL_ERROR_": (100, 107, 148, 200, 207, 500, 507, 145, 245, 545),
    "ACLNN_ERR_": (161, 361, 561),
    "HCCL_E_": (0, 1),
}
"""A name's first letters → the thousands that its code may have (aclError's documentation, op_errno.h, hccl_types.h)."""


def test_every_row_is_complete_and_in_its_range() -> None:
    table = error_table()
    assert len(table) > 150
    assert len({info.name for info in table.values()}) == len(table)
    for code, info in table.items():
        if code:
            prefix = next(prefix for prefix in PREFIXES if info.name.startswith(prefix))
            assert code // 1000 in PREFIXES[prefix], info
            assert info.meaning and info.cause and info.remedy, info
        assert not info.category or info.category in categories()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (100000, "ACL_ERROR_INVALID_PARAM"),
        (107000, "ACL_ERROR_RT_PARAM_INVALID"),
        (107003, "ACL_ERROR_RT_STREAM_CONTEXT"),
        (148049, "ACL_ERROR_INVALID_OPP_PATH"),
        (207001, "ACL_ERROR_RT_MEMORY_ALLOCATION"),
        (507048, "ACL_ERROR_RT_FFTS_PLUS_TIMEOUT"),
        (545601, "ACL_ERROR_GE_MODEL_EXECUTE_TIMEOUT"),
        (561112, "ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND"),
        (9, "HCCL_E_TIMEOUT"),
        (1041, "HCCL_E_IN_STATUS"),
    ],
)
def test_codes_have_canns_names(code: int, name: str) -> None:
    assert error_info(code).name == name


def test_the_operators_own_errors_are_in_the_table_under_the_same_names() -> None:
    family = [kind for kind in vars(attention_errors).values() if isinstance(kind, type) and issubclass(kind, AclnnError)]
    for kind in family:
        if kind is not AclnnError:
            info = error_info(kind.code)
            assert info.name == kind.name
            assert kind is attention_errors.FindKernelError or info.category == kind("a", "b", "c").category


def test_a_message_begins_with_what_is_wrong() -> None:
    error = AclError(107002, "thread 'worker' has no current device", remedy="call set_device(0) in this thread first")
    lines = str(error).splitlines()
    assert lines[0] == "thread 'worker' has no current device"
    assert lines[1] == "EE1001 ACL_ERROR_RT_CONTEXT_NULL (107002)"
    assert lines[2] == f"Cause: {error_info(107002).cause}"
    assert lines[3:] == ["Remedy: call set_device(0) in this thread first"]


def test_unknown_codes_become_500000() -> None:
    error = AclError(987654, "a custom operator returned 987654")
    assert (error.code, error.name) == (500000, "ACL_ERROR_INTERNAL_ERROR")


def test_errors_survive_pickling() -> None:
    error = OutOfMemoryError(207001, "4 GiB asked", remedy="less", cause="full", category="EL0004")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is OutOfMemoryError
    assert (str(copy), copy.code, copy.remedy) == (str(error), 207001, "less")


@pytest.mark.parametrize("member", OpErrorCode)
def test_the_articles_errors_map_to_real_codes(member: OpErrorCode) -> None:
    real = {"SHAPE_MISMATCH": 161002, "TILING_FAILED": 561002, "UB_OOM": 561002, "COMPILATION_FAILED": 500002}
    error = member.error("first line")
    assert error.code == real.get(member.name, 507014)
    assert str(error).startswith("first line\n")
    assert (error.category == "E40021") == (member is OpErrorCode.COMPILATION_FAILED)


def test_get_clears_and_peek_does_not() -> None:
    record(AclError(207001, "first"))
    record(ParamInvalidError("head_num=7", "must be 8", "pass 8"))
    assert [peek_at_last_error(), peek_at_last_error(), get_last_error(), get_last_error()] == [161002, 161002, 161002, 0]
    assert get_recent_err_msg().startswith("head_num=7")
    assert get_recent_err_msg() == ""


def test_each_thread_has_its_own_last_error() -> None:
    record(AclError(107001, "of the main thread"))
    seen: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: seen.append((peek_at_last_error(), get_recent_err_msg())))
    thread.start()
    thread.join()
    assert seen == [(0, "")]
    assert get_last_error() == 107001


def test_a_recorded_call_records_and_raises() -> None:
    @recorded
    def fail(code: int) -> None:
        raise AclError(code, "on purpose")

    get_last_error()
    with pytest.raises(AclError, match="on purpose"):
        fail(507014)
    assert get_last_error() == 507014

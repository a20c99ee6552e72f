"""The articles' log lines of one kernel, read from a timeline."""

import logging
import re

import pytest
from made_up_timeline import MadeUpTimeline

from ascend_jax.kernels import KERNELS
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.runtime.ops.inner_schedule import WORK, inner_schedule, log_inner_schedule
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.system import Options, System
from ascend_jax.tiling.tiling import Tiling

LINE = re.compile(r"(DMA|Cube|Vector) (Submit|Wait): (\w+)(, .+)? @ (\d+\.\d{3}) us, (task \d+(?:, tile \d+)?)")


def parsed(lines: list[str]) -> list[tuple[str, ...]]:
    """Unit, what, verb, operands, time and place of each line."""
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
    return [match.groups("") for match in found if match is not None]


def test_every_stage_of_every_kernel_has_its_words() -> None:
    assert {stage.name for kernel in (*KERNELS.values(), *SCHEDULES.values()) for stage in kernel.graph.stages} == set(WORK)


@pytest.mark.parametrize("seed", range(4))
def test_each_work_is_submitted_and_waited_for_in_order_of_time(seed: int) -> None:
    timeline = MadeUpTimeline(seed=seed)
    rows = parsed(list(inner_schedule(timeline)))
    times = [float(row[4]) for row in rows]
    assert times == sorted(times)
    submitted = [(verb, place) for _, what, verb, _, _, place in rows if what == "Submit"]
    waited = [(verb, place) for _, what, verb, _, _, place in rows if what == "Wait"]
    assert len(submitted) == len(timeline.events(0))
    assert sorted(submitted) == sorted(waited)
    first = {}
    for number, (_, what, verb, operands, _, place) in enumerate(rows):
        if what == "Submit":
            first.setdefault((verb, place, operands.rpartition(", ")[2]), number)
        else:
            assert first[verb, place, operands.rpartition(", ")[2]] < number


def test_results_are_named_by_the_memory_that_they_come_to() -> None:
    lines = [line.split(" @ ")[0] for line in inner_schedule(MadeUpTimeline())]
    assert lines[0] == "DMA Submit: LOAD, q_base, l1_q"
    assert {"DMA Submit: LOAD, k_base, l1_k", "DMA Wait: LOAD, l1_k"} <= set(lines)
    assert {"Cube Submit: GEMM, q, k, l0c_scores", "DMA Submit: STORE, l0c_scores, gm_scores"} <= set(lines)
    assert "Vector Submit: SOFTMAX, scores, row_max, row_sum, ub_probs" in lines


def test_the_log_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    timeline = MadeUpTimeline()
    with caplog.at_level(logging.DEBUG, "ascend_jax.runtime"):
        log_inner_schedule(timeline, most=5)
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 6
    assert caplog.records[-1].getMessage() == "… and so on: the first 5 lines of core 0 of 2"
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ascend_jax.runtime"):
        log_inner_schedule(timeline, most=10_000)
    assert len(caplog.records) == 2 * len(timeline.events(0))


@pytest.mark.slow
def test_the_articles_lines_of_a_real_call(caplog: pytest.LogCaptureFixture) -> None:
    """The hands-on article's call on its chip, by its dataflow: K comes while Q is still under way, and S from the Cube."""
    once = dict.fromkeys(("kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth", "l0_depth"), 1)
    tiling = Tiling(block_q=256, block_kv=128, preload=0, **once)
    options = Options(timing_only=True, choose_tiling=lambda spec, work: (tiling, "ub_resident"))
    with System(["910a"], options=options) as system:
        stream = system.set_device(0).default_stream
        operators = Operators(system, Registry({}))
        inputs = [Tensor(stream.device.memory.malloc(1 << 19), (1, 8, 512, 64), "float16") for _ in range(3)]
        out = {name: Tensor(inputs[0].address, (1, 8, 512, 64), "float16") for name in ("attention_out",)}
        out |= {name: Tensor(inputs[1].address, (1, 8, 512, 8), "float32") for name in ("softmax_max", "softmax_sum")}
        attrs = {"head_num": 8, "input_layout": "BNSD", "scale_value": 0.125}
        size, executor = operators.get_workspace_size("FlashAttentionScore", inputs, attrs, out)
        workspace = stream.device.memory.malloc(size) if size else 0
        with caplog.at_level(logging.DEBUG, "ascend_jax.runtime"):
            operators.execute(workspace, size, executor, stream)
    lines = [record.getMessage().split(" @ ")[0] for record in caplog.records]
    articles = ["DMA Submit: LOAD, q_base, ub_q", "DMA Submit: LOAD, k_base, ub_k", "DMA Wait: LOAD, ub_k"]
    places = [lines.index(line) for line in articles]
    assert places == sorted(places)
    assert any(line.startswith("Cube Submit: GEMM, q, k") for line in lines)
    assert any(line.startswith("DMA Submit: STORE, ub_out, out_base") for line in lines)

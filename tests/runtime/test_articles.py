"""The articles' programs: every one runs, and its figures are these."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.articles.page import Page
from experiments.articles.run import LEFT_OUT, PROGRAMS, main


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What ``--all --json -`` writes, by name."""
    folder = tmp_path_factory.mktemp("articles")
    result = CliRunner().invoke(main, ["--all", "--folder", str(folder), "--json", "-"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["no_programs"] == LEFT_OUT
    assert list(folder.glob("prof_result/PROF_*/mindstudio_profiler_output/op_summary_*.csv"))
    return {page["name"]: page for page in found["programs"]}


def test_every_program_has_its_points_and_a_reason_for_each_difference(pages: dict[str, dict[str, Any]]) -> None:
    assert list(pages) == list(PROGRAMS)
    for name, page in pages.items():
        assert page["article"].startswith(("the call path", "the architecture", "the hands-on trace")), name
        assert page["says"] and list(page["says"]) == list(page["ours"]) == list(page["why"]), name
        for what, said in page["says"].items():
            assert said == page["ours"][what] or page["why"][what], (name, what)


def test_the_tiling_table_is_that_of_its_own_code(pages: dict[str, dict[str, Any]]) -> None:
    says, ours = pages["tiling_table"]["says"], pages["tiling_table"]["ours"]
    rows = [ours[f"seq {seq}, dim {dim}"] for seq, dim in ((512, 64), (2048, 128), (4096, 128), (8192, 128))]
    assert [row["block"] for row in rows] == [400, 192, 192, 192]
    assert [row["blocks"] for row in rows] == [2, 11, 22, 43]
    assert [row["kib"] for row in rows] == [250.0, 240.0, 240.0, 240.0]
    assert [row["allocator_bytes"] for row in rows] == [524_800, 270_336, 270_336, 270_336]
    assert not any(row["fits_256_kib"] for row in rows)
    assert [list(row["block_that_fits"].values()) for row in rows] == [[256, 208], [176, 144], [176, 144], [176, 144]]
    assert says["seq 512, dim 64"] == {"block": 256, "blocks": 2, "kib": 245.8}
    assert ours["KiB of the printed blocks"] == [160.0] * 4
    assert "820" in ours["a block below 32 comes from"] and ours["head dim from which the block is 0"] == 1639


def test_the_oom_example_fits_and_a_wider_head_does_not(pages: dict[str, dict[str, Any]]) -> None:
    ours = pages["oom_example"]["ours"]
    assert ours["the call on 910b3"].endswith("fits") and ours["the call on 910a"].endswith("fits")
    row = ours["by the articles' own code"]
    assert (row["block"], row["blocks"], row["kib"], row["allocator_bytes"], row["fits_256_kib"]) == (
        96,
        105,
        240.0,
        215_040,
        True,
    )
    assert (ours["head dim 2048, the operator"], ours["head dim 2048, the planner"]) == (161002, 561002)
    assert ours["longest block"] == 96 and ours["pad_to_align(100)"] == 112
    assert ours["bytes of a block after padding by 256 rows"] == 0


def test_ub_is_given_out_by_running_offsets_with_a_floor(pages: dict[str, dict[str, Any]]) -> None:
    ours = pages["ub_allocation"]["ours"]
    assert ours["offsets"] == {"Q": 0, "K": 32768, "V": 65536, "O": 98304, "P": 131072}
    assert (ours["bytes for blocks of 400"], ours["block that fits"]) == (524_800, 256)
    assert ours["the shrinking always ends well"] == 561002
    assert ours["the small call of the debugger"] == [256, 262_144]
    assert pages["fallback"]["ours"]["layers that were needed"] == {"dim 256": 1, "dim 128": 2, "dim 1800": 3}
    assert pages["fallback"]["ours"]["the error for it"] == "UB_OOM"


def test_calls_give_the_right_numbers_and_codes(pages: dict[str, dict[str, Any]]) -> None:
    call, phases, miss = (pages[name]["ours"] for name in ("minimal_call", "two_phases", "registry_miss"))
    assert call["the alias and the two phases agree"] and call["largest error against plain softmax in float64"] < 1e-3
    assert phases["an output without memory"] == 161001 and phases["a workspace of 0 bytes"] == 161002
    assert phases["the executor a second time"] == 561103
    assert miss["a miss in phase one"] == [561003, 100024] and miss["setting the variable"] == 100024
    assert miss["order of the search"] == ["example", "built-in"] and miss["level 3 of the log"] == "ERROR"
    assert any("did you mean FlashAttentionScore" in line for line in pages["registry_miss"]["output"])
    assert pages["call_stack"]["ours"]["stack, innermost first"][-1] == "phases.get_workspace_size"
    errors = pages["error_codes"]["ours"]
    kinds = ("SHAPE_MISMATCH", "TILING_FAILED", "UB_OOM", "COMPILATION_FAILED", "DMA_TIMEOUT")
    assert [errors[kind]["code"] for kind in kinds] == [161002, 561103, 561002, 100025, 507014]
    assert [errors[kind]["nearest"] for kind in kinds] == [161002, 561002, 561002, 500002, 507014]
    assert [errors[kind]["is"] for kind in kinds] == list(kinds)


def test_the_log_is_in_order_and_the_vector_does_the_softmax(pages: dict[str, dict[str, Any]]) -> None:
    ours, lines = pages["dma_cube_log"]["ours"], pages["dma_cube_log"]["output"]
    assert ours["lines are in order of time"] and ours["submissions without a wait"] == []
    assert ours["unit of scale, maximum and sum"] == ["Vector"]
    assert ours["work of the next block before this one's end"] > 0
    assert lines[0].startswith("[DEBUG] DMA Submit: LOAD, q_base, l1_q @ ") and any(
        "Cube Submit: GEMM" in line for line in lines
    )


def test_streams_make_no_cores(pages: dict[str, dict[str, Any]]) -> None:
    ours = pages["multi_stream"]["ours"]
    full, short = ours["µs at 4096 rows"], ours["µs at 128 rows"]
    assert full["one launch"] < full["32 launches, 32 streams"] == full["32 launches, 1 stream"]
    assert short["one launch"] < short["32 launches, 32 streams"] < short["32 launches, 1 stream"]
    assert not pages["streams_and_events"]["ours"]["the product waits for the attention"]


def test_memory_devices_and_the_profiler(pages: dict[str, dict[str, Any]]) -> None:
    device, memory, pool = (pages[name]["ours"] for name in ("device_and_context", "device_memory", "memory_pool"))
    assert (device["GiB of memory"], device["init a second time"], device["finalize"]) == (64, 100002, 100037)
    assert memory["bytes of the allocation"] == 2**27 + 32 and memory["more than there is"] == 207001
    assert memory["more bytes than the target takes"] == 107000 and memory["arguments of memcpy"] == 5
    assert (pool["bytes held after creation"], pool["bytes held for 1 MiB"]) == (0, 2**21)
    assert pages["caching_allocator"]["ours"]["MiB reserved for 0.5, 3 and 18 MiB"] == [2, 22, 40]
    many = pages["multi_device"]["ours"]
    assert many["largest error on any device"] < 2e-3 and many["all devices hold the same"]
    assert many["a stream of another context"] == 107003
    assert "op_summary" in pages["profiling"]["ours"]["tables and timeline"]
    assert pages["profiling"]["ours"]["start before init"] == 100043


def test_a_difference_without_a_reason_is_refused(tmp_path: Path) -> None:
    page = Page("made up", "no article", tmp_path)
    page.point("rows", 256, 256)
    with pytest.raises(ValueError, match="says 256, here it is 400"):
        page.point("rows of the other", 256, 400)


def test_pages_and_the_list_are_readable() -> None:
    page = CliRunner().invoke(main, ["ub_allocation"])
    assert page.exit_code == 0 and "text  Q: 32768" in page.output and "ours  Q: 0, K: 32768" in page.output
    listing = CliRunner().invoke(main, ["--list"])
    assert all(name in listing.output for name in PROGRAMS) and "No programs:" in listing.output
    assert CliRunner().invoke(main, []).exit_code == 2

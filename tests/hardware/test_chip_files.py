"""A chip file of one's own: what it may say, and what every mistake in it is answered with."""

from pathlib import Path

import pytest

from ascend_jax.hardware import load_chip


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_two_lines_on_top_of_a_shipped_chip(tmp_path: Path) -> None:
    chip = load_chip(write(tmp_path, 'base = "910b3"\nub_kib = 256\n[vector]\nexp = 1.5\n'))
    given = load_chip("910b3")
    assert (chip.ub_bytes, chip.vector.exp) == (256 * 1024, 1.5)
    assert (chip.l1_bytes, chip.vector.head, chip.architecture) == (given.l1_bytes, given.vector.head, given.architecture)
    assert chip.name == "mine"  # not Ascend910B3, which it no longer is


def test_a_file_replaces_a_number_whatever_unit_its_base_used(tmp_path: Path) -> None:
    chip = load_chip(str(write(tmp_path, 'name = "Fast"\nbase = "910A"\nl1_to_l0a_gb_per_s = 600\ncube_clock_ghz = 2\n')))
    assert chip.name == "Fast"
    assert chip.l1_to_l0a_bytes_per_s == 600e9
    assert chip.l1_to_l0b_bytes_per_s == 256 * 2e9  # still bytes a cycle, now of a faster clock


def test_a_base_may_be_another_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, 'base = "950PR"\ngm_gib = 144\n', "first.toml")
    chip = load_chip(write(tmp_path, 'base = "first.toml"\ngm_tb_per_s = 4\n'))
    assert (chip.gm_bytes, chip.gm_bytes_per_s, chip.architecture) == (144 * 2**30, 4e12, "direct")


B3 = 'base = "910b3"\n'
MISTAKES = {
    "not TOML": ("ub_kib: 192", r"is not valid TOML .*line 1.*write key = value"),
    "unknown key": (B3 + "ub_kbi = 192", r"unknown key 'ub_kbi': .*ub_kib"),
    "misspelt key": (B3 + "handof_ns = 192", r"unknown key 'handof_ns': did you mean handoff_ns"),
    "nothing like it": (B3 + "zzz = 1", r"unknown key 'zzz': the keys are cube_cores"),
    "another unit": (B3 + "ub_kb = 192", r"'ub_kb': the unit .*; write ub_bytes or ub_kib or ub_mib or ub_gib$"),
    "another quantity": (B3 + "ub_gb_per_s = 192", r"'ub_gb_per_s': the unit .*; write ub_bytes or ub_kib"),
    "no unit": (B3 + "cube_clock = 1800", r"'cube_clock': the unit .*; write cube_clock_hz or cube_clock_mhz"),
    "rate of a core for a chip": (B3 + "gm_bytes_per_cycle = 1", r"the unit .* gm_bytes_per_cycle_per_core"),
    "unknown cost": (B3 + "[vector]\nexpp = 1", r"\[vector\]: unknown key 'expp': did you mean exp"),
    "a cost with a unit": (B3 + "[vector]\nexp_ns = 1", r"\[vector\]: unknown key 'exp_ns': .*write exp$"),
    "costs without a table": (B3 + "vector = 2", r"vector=2 must be a table: write \[vector\]"),
    "said twice": (B3 + "ub_kib = 192\nub_bytes = 196608", r"ub_bytes and ub_kib say the same thing twice"),
    "text for a number": (B3 + 'ub_kib = "192"', r"ub_kib='192' must be a finite number"),
    "true for a number": (B3 + "ub_kib = true", r"ub_kib=True must be a finite number"),
    "negative": (B3 + "ub_kib = -1", r"ub_kib=-1 must be a finite number that is not negative"),
    "infinite": (B3 + "gm_gib = inf", r"gm_gib=inf must be a finite number"),
    "zero": (B3 + "ub_kib = 0", r"ub_bytes=0.0 must be a finite number > 0"),
    "number for a text": (B3 + "name = 910", r"name=910 must be text in quotes"),
    "architecture": (B3 + 'architecture = "fused"', r"architecture='fused' must be one of coupled, separated, direct"),
    "missing": ("ub_kib = 192", r"cube_cores, .*vector\.exp, .* missing: give them .* or start from a chip"),
    "no architecture": ('base = "open.toml"', r"architecture='' must be one of coupled"),
    "unknown base": ('base = "910b9"', r"base='910b9': no chip is called '910b9': did you mean .*Ascend910B"),
    "unknown core": ('base = "cores/c999"', r"base='cores/c999': no such core; there are cores/c100, cores/c220"),
    "base not there": ('base = "other.toml"', r"base='other.toml': .*other.toml: cannot be read"),
    "base not a text": ("base = 3", r"base=3 must be text"),
    "loop": ('base = "back.toml"', r"back\.toml: base: the files form a loop: .*mine\.toml → .*back\.toml → .*mine\.toml"),
    "itself": ('base = "mine.toml"', r"the files form a loop: .*mine\.toml → .*mine\.toml"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_file_rule_and_remedy(mistake: str, tmp_path: Path) -> None:
    text, answer = MISTAKES[mistake]
    write(tmp_path, 'base = "./mine.toml"', "back.toml")
    write(tmp_path, complete_but_for_the_architecture(), "open.toml")
    with pytest.raises(ValueError, match=answer) as caught:
        load_chip(write(tmp_path, text))
    assert ".toml" in str(caught.value)


def complete_but_for_the_architecture() -> str:
    lines = ["cube_cores = 1", "vector_cores_per_cube = 1", "cube_clock_mhz = 1", "vector_clock_mhz = 1"]
    lines += [f"{memory}_bytes = 1" for memory in ("ub", "l1", "l0a", "l0b", "l0c", "l2", "gm")]
    lines += [f"{path}_bytes_per_s = 1" for path in ("gm", "l2", "gm_to_l1", "gm_to_ub", "ub_to_gm", "l1_to_l0a", "l1_to_l0b")]
    lines += ["dma_startup_s = 0", "dma_burst_gap_bytes = 0", "cube_mac_cycles = 1", "cube_mac_cycles_fp32 = 1"]
    lines += ["cube_issue_cycles = 0", "vector_repeat_bytes = 1", "handoff_s = 0", "launch_s = 0", "task_s = 0"]
    lines += ["gm_latency_s = 0", "nd2nz_burst_gap_bytes = 0", "operator_head_s = 0", "mask_setup_s = 0", "[vector]"]
    costs = ("scale", "row_max", "subtract", "exp", "row_sum", "cast", "select", "multiply", "add", "divide", "head", "tail")
    costs += ("round_trip",)
    return "\n".join(lines + [f"{cost} = 1" for cost in costs])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.toml: cannot be read .*check the path, or use one of Ascend310P3"):
        load_chip(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=r"no/such/file: cannot be read"):
        load_chip("no/such/file")
    with pytest.raises(ValueError, match=r"cannot be read"):
        load_chip(tmp_path)

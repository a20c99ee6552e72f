"""The chips that come with the package: their numbers against the published tables, their names, and their sources."""

import dataclasses
import re
import subprocess
import sys
from importlib.resources import files

import chex
import jax
import jax.numpy as jnp
import pytest

from ascend_jax._pytree import as_arrays
from ascend_jax.hardware import NpuSpec, chip_names, load_chip, peak_flops

# Printed name → Cube cores, clock in MHz, half-precision peak in TFLOPS. CANN 8.1 platform_config; 950: pypto's.
PEAKS = {
    "Ascend910A": (32, 1000, 262.1),
    "Ascend910ProA": (32, 1100, 288.4),
    "Ascend910PremiumA": (32, 1220, 319.8),
    "Ascend910B1": (24, 1850, 363.7),
    "Ascend910B2": (24, 1800, 353.9),
    "Ascend910B3": (20, 1800, 294.9),
    "Ascend910B4": (20, 1500, 245.8),
    "Ascend910_9391": (24, 1850, 363.7),
    "Ascend910_9392": (24, 1850, 363.7),
    "Ascend910_9381": (24, 1800, 353.9),
    "Ascend910_9382": (24, 1800, 353.9),
    "Ascend910_9372": (20, 1800, 294.9),
    "Ascend910_9362": (20, 1500, 245.8),
    "Ascend310P3": (8, 1060, 69.5),
    "Ascend950DT_957x": (28, 1650, 378.5),
    "Ascend950DT_958x": (32, 1650, 432.5),
    "Ascend950PR_957x": (28, 1650, 378.5),
    "Ascend950PR_958x": (32, 1650, 432.5),
}

# Same files: ub_size, l1_size, l0_a_size, l0_b_size, l0_c_size, l2_size, memory_size (910A: a field report, the key is empty).
COUPLED = (262144, 1048576, 65536, 65536, 262144)
SEPARATED = (196608, 524288, 65536, 65536, 131072)
DIRECT = (253952, 524288, 65536, 65536, 262144)
BUFFERS = {
    "910A": (*COUPLED, 33554432, 34359738368),
    "310P3": (*COUPLED, 16777216, 24000000000),
    "910B1": (*SEPARATED, 201326592, 68719476736),
    "910B3": (*SEPARATED, 201326592, 68719476736),
    "910B4": (*SEPARATED, 100663296, 34359738368),
    "910_9382": (*SEPARATED, 201326592, 68719476736),
    "910_9362": (*SEPARATED, 176160768, 34359738368),
    "950DT": (*DIRECT, 134217728, 103079215104),
    "950PR": (*DIRECT, 134217728, 137438953472),
}


def test_the_catalog_lists_every_chip_by_its_printed_name() -> None:
    assert chip_names() == sorted(PEAKS)
    assert all(load_chip(name).name == name for name in chip_names())


@pytest.mark.parametrize("name", PEAKS)
def test_cores_clock_and_peak_are_the_published_ones(name: str) -> None:
    cores, mhz, tflops = PEAKS[name]
    chip = load_chip(name)
    assert (chip.cube_cores, chip.cube_clock_hz) == (cores, mhz * 1e6)
    assert peak_flops(chip) / 1e12 == pytest.approx(tflops, abs=0.06)
    assert peak_flops(chip, "float32") * 4 == peak_flops(chip, "bfloat16") == peak_flops(chip, "int8") / 2


def test_peak_names_the_types_it_knows() -> None:
    with pytest.raises(ValueError, match=r"dtype='float64' must be one of float32, float16"):
        peak_flops(load_chip("910b3"), "float64")


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_are_the_published_ones(name: str) -> None:
    chip = load_chip(name)
    sizes = (chip.ub_bytes, chip.l1_bytes, chip.l0a_bytes, chip.l0b_bytes, chip.l0c_bytes, chip.l2_bytes, chip.gm_bytes)
    assert sizes == BUFFERS[name]


@pytest.mark.parametrize(
    ("name", "architecture", "absent"),
    [
        ("910A", "coupled", {"l0c_to_gm"}),
        ("310P3", "coupled", {"l0c_to_gm"}),
        ("910B3", "separated", {"l0c_to_ub", "ub_to_l1"}),
        ("910_9362", "separated", {"l0c_to_ub", "ub_to_l1"}),
        ("950PR", "direct", set()),
    ],
)
def test_a_path_that_the_silicon_lacks_is_none(name: str, architecture: str, absent: set[str]) -> None:
    chip = load_chip(name)
    assert chip.architecture == architecture
    nothing = {item.name for item in dataclasses.fields(chip) if getattr(chip, item.name) is None}
    assert nothing == {f"{path}_bytes_per_s" for path in absent}


def test_units_become_base_units() -> None:
    chip = load_chip("910b3")
    assert chip.gm_bytes_per_s == 1.455e12
    assert chip.gm_to_l1_bytes_per_s == 256.86e9
    assert (chip.handoff_s, chip.launch_s) == (205e-9, 3.5e-6)
    assert load_chip("910proa").l1_to_l0a_bytes_per_s == 512 * 1.1e9  # bytes a cycle, at its own clock
    assert load_chip("950pr").gm_bytes_per_s == pytest.approx(29.29 * 32 * 1.65e9, rel=1e-15)  # bytes a cycle of each Cube core


def test_every_number_is_a_python_float() -> None:
    # An integer leaf would trace apart from a float one, and 64 GiB would not fit int32.
    leaves = [leaf for name in chip_names() for leaf in jax.tree.leaves(load_chip(name))]
    assert {type(leaf) for leaf in leaves} == {float}


def test_softmax_of_a_950_costs_what_was_measured() -> None:
    # 2498 cycles for 128 × 256 float32 as one vector function (cann-samples), 512 repeats of 256 bytes.
    cost = load_chip("950PR").vector
    repeat = cost.scale + cost.row_max + cost.subtract + cost.exp + cost.row_sum + cost.cast
    assert 512 * repeat + cost.head + cost.tail == pytest.approx(2498, rel=0.02)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("910b3", "Ascend910B3"),
        ("ascend910B3", "Ascend910B3"),
        ("ASCEND 910-B3", "Ascend910B3"),
        ("910 9382", "Ascend910_9382"),
        ("910-9382", "Ascend910_9382"),
        ("950pr_958X", "Ascend950PR_958x"),
        ("950PR", "Ascend950PR_958x"),
        ("950dt", "Ascend950DT_958x"),
        ("Ascend910_95", "Ascend950PR_958x"),
        ("310P", "Ascend310P3"),
        ("910B2C", "Ascend910B2"),
    ],
)
def test_a_name_is_matched_loosely(spelling: str, name: str) -> None:
    assert load_chip(spelling).name == name


def test_an_unknown_name_lists_the_near_ones_and_the_way_to_a_file() -> None:
    with pytest.raises(ValueError, match=r"no chip is called '910B': did you mean .*Ascend910B1.*give the path of a TOML file"):
        load_chip("910B")  # the 910B of articles is one of four chips, and CANN's is a fifth
    with pytest.raises(ValueError, match=r"no chip is called 'H100': there are Ascend310P3, Ascend910A"):
        load_chip("H100")


def test_a_spec_varies_by_replace() -> None:
    chip = load_chip("910b3")
    faster = dataclasses.replace(chip, gm_bytes_per_s=2e12)
    assert (faster.gm_bytes_per_s, faster.ub_bytes) == (2e12, chip.ub_bytes)
    with pytest.raises(ValueError, match=r"ub_bytes=0 must be a finite number > 0"):
        dataclasses.replace(chip, ub_bytes=0)


def test_chips_of_one_architecture_share_one_compilation_that_sees_no_name() -> None:
    @jax.jit
    @chex.assert_max_traces(n=1)
    def echo(chip: NpuSpec) -> tuple[NpuSpec, jax.Array | float]:
        assert chip.name == ""
        return chip, peak_flops(chip)

    for name in ("910b1", "910b3", "910b4", "910_9382"):
        chip = load_chip(name)
        back, peak = echo(chip)
        chex.assert_trees_all_close(back, as_arrays(chip))
        chex.assert_trees_all_close(peak, jnp.asarray(peak_flops(chip)))
        assert (back.name, back.architecture) == ("", chip.architecture)


def test_a_peak_has_a_gradient_by_any_number() -> None:
    chip = as_arrays(load_chip("910b3"))
    slope = jax.grad(peak_flops)(chip)
    chex.assert_trees_all_close(slope.cube_clock_hz, jnp.asarray(20.0 * 8192))
    assert slope.ub_bytes == 0


def test_listing_the_chips_does_not_import_jax() -> None:
    code = "import sys; from ascend_jax.hardware import chip_names; assert chip_names(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


TAGS = ("ini", "pypto ini", "msopprof", "asc-devkit", "cann-samples", "cann-bench", "pto-isa", "vTriton", "PocketLLM")
SOURCES = re.compile(rf"# ({'|'.join(TAGS)}|calibrated|assumed)\b")


def test_every_number_in_a_chip_file_has_its_source_beside_it() -> None:
    chips = files("ascend_jax.hardware").joinpath("chips")
    sources = [path for folder in (chips, chips.joinpath("cores")) for path in folder.iterdir() if path.name.endswith(".toml")]
    assert len(sources) == len(chip_names()) + 4
    for source in sources:
        numbers = [line for line in source.read_text(encoding="utf-8").splitlines() if re.match(r"\w+ *= *[-+\d.]", line)]
        assert [line for line in numbers if not SOURCES.search(line)] == [], source.name

"""The experiment that fits the shipped chips: which rows take part, and factors that the chips of a family share."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from ascend_jax.calibration.assume import Case, assume
from ascend_jax.calibration.constants import shared_constants, with_constants
from ascend_jax.calibration.rows import Row, read_rows
from ascend_jax.hardware import NpuSpec, load_chip

FOLDER = Path(__file__).parent.parent.parent / "experiments"
FACTORS = {"gm_bytes_per_s": 0.92, "launch_s": 1.25}


def toy_seconds(cases: Sequence[Case], specs: Mapping[str, NpuSpec]) -> Any:
    """Launch, and K and V once over GM."""
    chips = [specs[case.spec.name] for case in cases]
    moved = [4 * case.work.batch * case.work.kv_heads * case.work.kv_len * case.work.head_dim for case in cases]
    rows = [chip.launch_s + count / chip.gm_bytes_per_s for chip, count in zip(chips, moved, strict=True)]
    return jnp.stack([jnp.asarray(row, float) for row in rows])


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = spec_from_file_location("calibration_experiment", FOLDER / "calibration" / "run.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "seconds", toy_seconds)
    return module


def rows_of_two_chips() -> list[dict[str, Any]]:
    """Rows of 910B2 and 910B4, whose bandwidths differ, both off by the same ``FACTORS``."""
    rng, rows = np.random.default_rng(0), []
    for place in range(20):
        shape = {"batch": int(2 ** rng.integers(0, 6)), "q_heads": 8, "kv_heads": 8, "head_dim": 128}
        row = {
            "id": f"r{place}",
            "op": "FusedInferAttentionScore",
            "category": "attention",
            "catalog_chip": ("910B2", "910B4")[place % 2],
            "dtype": "fp16",
            "layout": "BNSD",
            **shape,
            "q_seq": 1 if place % 4 < 2 else 512,
            "kv_seq": int(1024 * 2 ** rng.integers(0, 4)),
            "causal": False,
            "metric": "latency",
            "unit": "us",
            "value": 1.0,
            "quality": "A",
            "core_validation": True,
        }
        chip = load_chip(row["catalog_chip"])
        constants = [constant for constant in shared_constants([chip]) if constant.field in FACTORS]
        truth = with_constants(chip, constants, np.array([FACTORS[constant.field] for constant in constants]))
        row["value"] = float(toy_seconds([assume(Row(**row))], {chip.name: truth})[0]) * 1e6
        rows.append(row)
    return rows


def test_chips_of_a_family_share_their_factors(experiment: Any, tmp_path: Path) -> None:
    entries = rows_of_two_chips()
    entries += [entries[0] | {"id": "c", "quality": "C"}, entries[0] | {"id": "sparse", "core_validation": False}]
    entries += [entries[0] | {"id": "lone", "catalog_chip": "950PR"}]
    (tmp_path / "rows.json").write_text(json.dumps(entries))
    options = {"--rows": tmp_path / "rows.json", "--out": tmp_path / "out.json", "--record": tmp_path / "ids.json"}
    done = CliRunner().invoke(experiment.main, [str(word) for pair in options.items() for word in pair])
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "out.json").read_text())
    assert list(data["families"]) == ["separated"]
    family = data["families"]["separated"]
    assert family["chips"] == ["Ascend910B2", "Ascend910B4"]
    fitted = {constant["field"]: constant["value"] for constant in family["constants"] if constant["fitted"]}
    assert fitted == {field: pytest.approx(factor, rel=0.01) for field, factor in FACTORS.items()}
    for name in family["chips"]:
        before, after = family["numbers"][name]["gm_bytes_per_s"]
        assert before == load_chip(name).gm_bytes_per_s
        assert after == pytest.approx(before * fitted["gm_bytes_per_s"], rel=1e-4)
    assert {row["id"] for row in data["skipped"]} == {"c", "sparse", "lone"}
    assert json.loads((tmp_path / "ids.json").read_text()) == sorted(f"r{place}" for place in range(20))


def test_the_published_rows_are_those_that_are_fitted(experiment: Any) -> None:
    rows = read_rows(FOLDER / "validation" / "rows.json")
    cases, skipped = experiment.cases_of(rows, experiment.Model())
    taken = {case.row.id for members in cases.values() for case in members}
    left = {row["id"] for row in skipped}
    assert taken | left == {row.id for row in rows} and not taken & left
    assert taken <= {row.id for row in rows if row.core_validation and row.quality in ("A", "B")}
    assert set(cases) <= set(experiment.FAMILIES)

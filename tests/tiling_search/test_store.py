"""The store: what is one and the same, what is kept, and what comes back."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_up import make_candidate, make_result

from ascend_jax import Attention, Mask, NpuSpec, Tiling, Verdict, load_chip
from ascend_jax.kernels.cube_vector import SEPARATED
from ascend_jax.workload.attention import DType
from tiling_search import tune
from tiling_search.cli import main
from tiling_search.store import choose as choosing
from tiling_search.store.choose import StoreMiss, choose, overlay
from tiling_search.store.database import StoreError, connect
from tiling_search.store.environment import seed, store_path
from tiling_search.store.keep import keep, keep_search, search_key
from tiling_search.store.key import Key, key_of, workload_json, workload_of
from tiling_search.store.record import Record
from tiling_search.store.store import Search, Store
from tiling_search.store.t4 import export, load

CHIP = load_chip("310p3")
WORK = Attention(batch=1, q_heads=2, kv_heads=2, q_len=128, kv_len=128, head_dim=64)
KEY = key_of(CHIP, WORK)
BLOCKS = {"block_q": 64, "block_kv": 64}


@pytest.fixture(autouse=True)
def no_store_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILING_SEARCH_STORE", str(tmp_path / "default.sqlite"))
    for name in ("DISABLE_STORE", "ASSERT_HIT", "SEED"):
        monkeypatch.delenv(f"TILING_SEARCH_{name}", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def measured(seconds: float | None, invalidity: str = "correct", **blocks: int) -> Record:
    return Record(configuration=BLOCKS | blocks, seconds=seconds, invalidity=invalidity, kind="measured", times=(0.5, 0.25))


# What makes a key.


@pytest.mark.parametrize("name", [item.name for item in fields(NpuSpec) if item.name not in ("name", "architecture", "vector")])
def test_every_number_of_the_chip_is_in_the_key_and_its_name_is_not(name: str) -> None:
    value = getattr(CHIP, name)
    if value is not None:
        changed = replace(CHIP, **{name: value * (1 + 1e-15) if isinstance(value, float) and value else value + 1})
        assert key_of(changed, WORK, kernel="ub_resident").digest != key_of(CHIP, WORK, kernel="ub_resident").digest
    assert key_of(replace(CHIP, name="mine"), WORK).digest == KEY.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 2},
        {"q_heads": 4},
        {"kv_heads": 1},
        {"q_len": 144},
        {"kv_len": 144},
        {"head_dim": 128},
        {"value_dim": 128},
        {"mask": Mask(kind="causal")},
        {"mask": Mask(kind="band", pre=16)},
        {"dtype": "bfloat16"},
        {"layout": "BSND"},
        {"q_len": (128,), "kv_len": (128,), "layout": "TND"},
    ],
    ids=str,
)
def test_every_field_of_the_workload_is_in_the_key(changes: dict[str, Any]) -> None:
    work = replace(WORK, **changes)
    assert key_of(CHIP, work).digest != KEY.digest
    assert workload_of(json.loads(key_of(CHIP, work).workload)) == work


def test_kernel_overlap_space_and_model_are_in_the_key() -> None:
    other = replace(SEPARATED, name="coupled")
    digests = [
        KEY.digest,
        key_of(CHIP, WORK, kernel="ub_resident").digest,
        key_of(CHIP, WORK, kernel=other).digest,  # the name of another dataflow does not make it that one
        key_of(CHIP, WORK, overlap="serial").digest,
        search_key(CHIP, WORK).digest,
        search_key(CHIP, WORK, "ub_resident").digest,
        replace(KEY, model="another").digest,
    ]
    assert len(set(digests)) == len(digests)
    assert key_of(CHIP, WORK, kernel="coupled").digest == KEY.digest  # what auto stands for


# What is kept.


def test_what_goes_in_comes_out(store: Store) -> None:
    failed = Record(configuration=BLOCKS, invalidity="constraints", reason="UB_OVERFLOW: 300 KiB of 256")
    given = [measured(1e-3), measured(None, "timeout", block_q=32), failed, Record(configuration=BLOCKS, seconds=2e-3)]
    assert store.add(KEY, given) == 4
    found = store.records(KEY)
    assert sorted((replace(one, uid="") for one in found), key=str) == sorted(given, key=str)
    assert [one.invalidity for one in store.records(KEY, "measured")] == ["correct", "timeout"]
    assert store.keys() == [KEY]
    store.check()


def test_a_prediction_is_one_fact_and_a_measurement_is_an_event(store: Store) -> None:
    predicted = Record(configuration=BLOCKS, seconds=1e-3)
    assert [store.add(KEY, [replace(predicted, at="later")]) for _ in range(2)] == [1, 0]
    assert [store.add(KEY, [measured(1e-3)]) for _ in range(2)] == [1, 1]
    assert store.add(replace(KEY, model="next"), [predicted]) == 1


def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    bad = replace(measured(1e-3), origin=object())
    with pytest.raises(sqlite3.Error):
        store.add(KEY, [measured(1e-3), bad])
    assert store.records(KEY) == [] and store.keys() == []


@pytest.mark.parametrize("values", [{"seconds": None}, {"seconds": 1.0, "invalidity": "timeout"}, {"invalidity": "slow"}])
def test_a_record_has_a_time_or_a_failure(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="invalidity"):
        Record(configuration=BLOCKS, **values)


def test_the_fastest_measured_is_by_median_over_spaces_and_models_and_never_wrong(store: Store) -> None:
    store.add(KEY, [measured(t) for t in (1.0, 9.0, 9.0)])
    store.add(replace(KEY, space="another", model="old"), [measured(t, block_q=32) for t in (5.0, 5.0, 20.0)])
    store.add(KEY, [measured(1.0, block_q=16), measured(None, "correctness", block_q=16)])
    store.add(replace(KEY, chip_hash="another"), [measured(0.1)])
    assert store.fastest_measured(KEY) == ({"block_q": 32, "block_kv": 64}, 5.0, 3)
    assert store.fastest_measured(replace(KEY, dtype="float32")) is None


def test_the_model_has_a_fastest_only_after_a_search_of_the_whole_space(store: Store) -> None:
    key = search_key(CHIP, WORK)
    store.add(key, [Record(configuration=BLOCKS, seconds=1e-3)], [Search(False, {"best": None})])
    assert store.fastest(key) is None
    store.add(key, [], [Search(True, {"best": None})])
    assert store.fastest(key) == (BLOCKS, 1e-3, 1)


def test_a_search_is_kept_with_its_failures() -> None:
    unfit = make_candidate(verdict=Verdict.UB_OVERFLOW, block_q=512)
    key = search_key(CHIP, WORK)
    with Store(":memory:") as store:
        keep_search(store, key, make_result(make_candidate(0.001), make_candidate(0.002, block_q=32), nearest=unfit))
        rows = store.records(key)
        assert sorted(one.seconds or -1 for one in rows) == [-1, 0.001, 0.002]
        [failed] = [one for one in rows if one.invalidity == "constraints"]
        assert failed.reason.startswith("UB_OVERFLOW")
        assert store.searches(key)[0].outcome["rejected"]


# Files that are no store.


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    text, other, later = tmp_path / "a.sqlite", tmp_path / "b.sqlite", tmp_path / "c.sqlite"
    text.write_text("words, and more than a page of them" * 1000)
    with sqlite3.connect(other) as foreign:
        foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    with sqlite3.connect(later) as newer:
        newer.execute("PRAGMA user_version=99")
    newer.close()
    for path, words in (
        (text, "no store"),
        (other, "something else"),
        (later, "newer package"),
        (tmp_path, "cannot be opened"),
    ):
        with pytest.raises(StoreError, match=words):
            connect(path)
    assert text.read_text().startswith("words")
    assert "not stored" in str(keep(text, KEY, [measured(1.0)]))


# Export, import, merge.


def test_export_and_import_lose_nothing_and_add_nothing_twice(store: Store, tmp_path: Path) -> None:
    store.add(KEY, [measured(0.1 + 0.2), measured(None, "runtime", block_q=32), Record(configuration=BLOCKS, seconds=1 / 3)])
    store.add(search_key(CHIP, WORK), [], [Search(True, {"best": None})])
    document = json.loads(json.dumps(export(store)))
    with Store(tmp_path / "other.sqlite") as other:
        assert load(other, document) == 4
        assert load(other, document) == 0
        assert export(other) == document


def test_the_export_keeps_to_the_schema(store: Store) -> None:
    """The rules of T4 1.0.0 (results-schema.json of Kernel Tuner 1.5.0), by hand."""
    store.add(KEY, [replace(measured(1e-3), compile_s=2.0), measured(None, "compile")])
    document = export(store)
    assert document["schema_version"] == "1.0.0"
    for item in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(item)
        assert item["invalidity"] in ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
        assert isinstance(item["timestamp"], str) and isinstance(item["correctness"], float)
        assert all(isinstance(value, list if name == "runtimes" else float) for name, value in item["times"].items())
        assert all(isinstance(entry["value"], float | list) and entry["unit"] for entry in item["measurements"])
    good, _ = sorted(document["results"], key=lambda item: -item["correctness"])
    assert good["times"] == {"runtimes": [500.0, 250.0], "compilation_time": 2000.0}
    assert {"name": "time", "value": 1.0, "unit": "ms"} in good["measurements"]


@pytest.mark.parametrize("spelling", ["compilation", "compilation_time"])
def test_files_of_other_tuners_are_read(store: Store, spelling: str) -> None:
    times = {spelling: 250.0, "runtimes": [1.0, 3.0]}
    right = {"configuration": BLOCKS, "times": times, "invalidity": "correct", "correctness": 1, "objectives": ["time"]}
    failed = {"configuration": BLOCKS, "times": {}, "invalidity": "compile", "correctness": 0}
    document: Any = {"results": [right | {"measurements": [{"name": "time", "value": 2.0, "unit": "ms"}]}, right, failed]}
    assert load(store, document, foreign=KEY, origin="hub.json") == 3
    assert load(store, document, foreign=KEY, origin="hub.json") == 0
    found = store.records(KEY, "measured")
    assert sorted(one.seconds or 0 for one in found) == [0, 0.002, 0.002]
    assert {one.compile_s for one in found} == {0.25, None}
    with pytest.raises(ValueError, match="which workload"):
        load(store, document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("results"), "no T4 document"),
        (lambda d: d["results"][0].update(configuration={}), "no configuration"),
        (lambda d: d["results"][0].update(invalidity="slow"), "invalidity 'slow'"),
        (lambda d: d["results"][0]["tiling_search"].update(key="x"), "does not describe"),
        (lambda d: next(iter(d["metadata"]["tiling_search"]["keys"].values())).update(dtype="float32"), "was changed"),
    ],
)
def test_a_bad_document_adds_nothing(store: Store, tmp_path: Path, change: Callable[[Any], Any], words: str) -> None:
    store.add(KEY, [measured(1e-3), measured(2e-3)])
    document = export(store)
    change(document)
    with Store(tmp_path / "other.sqlite") as other:
        with pytest.raises(ValueError, match=words):
            load(other, document)
        assert other.keys() == []


def test_a_merge_keeps_everything_of_both(tmp_path: Path) -> None:
    paths = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    shared = Record(configuration=BLOCKS, seconds=1e-3)
    for number, path in enumerate(paths):
        with Store(path) as one:
            one.add(KEY, [shared, measured(1.0 + number)], [Search(True, {"number": number})])
    with Store(paths[0]) as ours:
        assert (ours.merge(paths[1]), ours.merge(paths[1])) == (2, 0)
        assert sorted(one.seconds or 0 for one in ours.records(KEY)) == [1e-3, 1.0, 2.0]
        assert [search.outcome["number"] for search in ours.searches(KEY)] == [0, 1]
        with pytest.raises(StoreError, match="not there"):
            ours.merge(tmp_path / "none.sqlite")


# Who answers.


def test_the_order_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "default.sqlite"
    own = Tiling(block_q=16, block_kv=16)
    assert choose(CHIP, WORK, may_tune=False).source == "rule"
    assert not place.exists()
    first = choose(CHIP, WORK)
    assert (first.source, choose(CHIP, WORK)) == ("tuned", first._replace(source="stored"))
    with Store(place) as store:
        store.add(KEY, [measured(2.0)])
    assert choose(CHIP, WORK) == (Tiling(block_q=64, block_kv=64), "measured", 2.0)
    result = tune(CHIP, WORK, top=1)
    with overlay(result), overlay(tune(CHIP, replace(WORK, q_len=64), top=1)):
        assert choose(CHIP, WORK).source == "overlay"
        assert choose(CHIP, WORK, tiling=own) == (own, "explicit", None)
        assert choose(CHIP, WORK, kernel="ub_resident", may_tune=False).source == "rule"
    assert choose(CHIP, WORK).source == "measured"
    monkeypatch.setenv("TILING_SEARCH_DISABLE_STORE", "1")
    monkeypatch.setattr(choosing, "tune", lambda *_, **__: result)
    assert choose(CHIP, WORK).source == "tuned"


def test_a_miss_that_must_hit_says_what_came_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILING_SEARCH_ASSERT_HIT", "1")
    with pytest.raises(StoreMiss, match="does not exist"):
        choose(CHIP, WORK)
    keep(None, replace(search_key(CHIP, WORK), model="0.0+old"), [Record(configuration=BLOCKS, seconds=1.0)])
    with pytest.raises(StoreMiss, match=r"differs in model \(0\.0\+old there\)"):
        choose(CHIP, WORK)


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert store_path() == tmp_path / "default.sqlite"
    assert store_path("a/b.db") == Path("a/b.db")
    monkeypatch.setenv("TILING_SEARCH_STORE", str(tmp_path))
    assert store_path() == tmp_path / "store.sqlite"
    monkeypatch.setenv("TILING_SEARCH_DISABLE_STORE", "1")
    assert store_path() is None and store_path("a.db") == Path("a.db")
    monkeypatch.setenv("TILING_SEARCH_SEED", "5")
    assert (seed(), seed(3)) == (5, 3)
    monkeypatch.setenv("TILING_SEARCH_SEED", "five")
    with pytest.raises(ValueError, match="'five' must be a whole number"):
        seed()


# The commands.


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments), env={"TILING_SEARCH_DISABLE_CACHE": "1"})


FLAGS = ["--q-heads", "2", "--q-len", "128", "--head-dim", "64", "--chip", "310p3"]


def test_commands_keep_what_they_find_and_share_it(tmp_path: Path) -> None:
    assert "nothing is stored yet" in run("store", "info").stderr
    assert run("evaluate", *FLAGS, "--tiling", "block_q=64,block_kv=64").exit_code == 0
    assert run("evaluate", *FLAGS, "--tiling", "block_q=8192,block_kv=8192").exit_code == 1
    assert run("tune", *FLAGS, "--top", "2").exit_code == 0
    counts = json.loads(run("store", "info", "--json").stdout)
    assert (counts["keys"], counts["searches"], counts["chips"]) == (2, 1, ["Ascend310P3"])
    assert counts["results"]["model, constraints"] == 1 and counts["results"]["model, correct"] >= 3
    shared, other = str(tmp_path / "shared.json"), str(tmp_path / "other.sqlite")
    assert run("store", "export", shared).exit_code == 0
    assert "new rows" in run("store", "import", shared, "--store", other).stdout
    assert run("store", "merge", other).stdout.startswith("0 new rows")
    assert json.loads(run("choose", *FLAGS, "--store", other, "--json", "-").stdout)["source"] == "stored"


def test_commands_say_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("[1")
    assert run("store", "import", str(bad)).exit_code == 2
    bad.write_text('{"results": [{"configuration": {"block_size_x": 4}, "times": {}, "invalidity": "compile"}]}')
    assert "which workload" in run("store", "import", str(bad)).stderr
    assert "--chip" in run("store", "import", str(bad), "--q-heads", "2").stderr
    assert "1 new rows" in run("store", "import", str(bad), *FLAGS).stdout
    missed = CliRunner().invoke(main, ["choose", *FLAGS], env={"TILING_SEARCH_ASSERT_HIT": "1"})
    assert missed.exit_code == 1 and "differs in space" in missed.stderr


def test_every_dtype_has_keys_of_its_own() -> None:
    digests = {key_of(CHIP, replace(WORK, dtype=dtype)).digest for dtype in DType.__args__}
    assert len(digests) == 3
    assert workload_json(WORK)["dtype"] == "float16"
    assert isinstance(KEY, Key)

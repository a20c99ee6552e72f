"""The example that splits attention over devices: right numbers on every rank, and no race on the way."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.stream import Stream

FOLDER = Path(__file__).parent.parent.parent / "experiments" / "split_attention"


@pytest.fixture(name="run")
def the_example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = spec_from_file_location("split_attention_run", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(run: Any, *, causal: bool) -> Any:
    return run.Case(seq=64, q_heads=4, kv_heads=4, head_dim=16, dtype="float16", causal=causal)


@pytest.mark.slow
def test_a_ring_gives_attention(run: Any) -> None:
    """Races are errors in it: without the events between computing and exchange it would raise."""
    assert run.error("910b3", 4, small(run, causal=True), "ring, zigzag") < 2e-3


@pytest.mark.slow  # each way compiles attention for its own shapes
@pytest.mark.parametrize("causal", [False, True])
def test_every_way_gives_attention(run: Any, causal: bool) -> None:
    for way in run.WAYS:
        assert run.error("910b3", 4, small(run, causal=causal), way) < 2e-3, way


def test_the_ring_needs_its_events(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait for what has been computed the next keys would come into a buffer that is still read."""
    monkeypatch.setattr(Stream, "wait_event", lambda self, event, timeout_s=0.0: None)
    with pytest.raises(AclError, match=r"(read|write) after (read|write)"):
        run.timed("910b3", 4, small(run, causal=True), "ring, zigzag", None)


def test_zigzag_balances_a_causal_mask(run: Any) -> None:
    case = run.Case(seq=32768)
    plain, folded = (run.timed("910b3", 4, case, way, None) for way in ("ring", "ring, zigzag"))
    assert folded["least_computing_ms"] == pytest.approx(folded["computing_ms"])
    assert plain["least_computing_ms"] < plain["computing_ms"] / 2
    assert folded["computing_ms"] < plain["computing_ms"]


def test_a_long_sequence_hides_the_exchange(run: Any) -> None:
    """What is exchanged grows with the rows, what is computed with their square."""
    hidden = []
    for seq in (4096, 65536):
        spent = run.timed("910b3", 4, run.Case(seq=seq, causal=False), "ring", None)
        hidden.append(1 - spent["not_hidden_ms"] / spent["communication_ms"])
    assert hidden[0] < hidden[1] == pytest.approx(1.0, abs=0.05)

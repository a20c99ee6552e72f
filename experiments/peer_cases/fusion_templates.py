"""Cases of the gradient that run one tiling template alone.

The operator tries its templates in turn: what one of them declines goes to the next. A test that forces one sees it fail where
a user sees nothing. Source: IsCapable of the templates in op_host/arch22 of flash_attention_score_grad, and the priorities in
attention/flash_attention_score_grad/tests, of ops-transformer.
"""

from typing import Any

BATCH, HEADS, PAIRS = "B", "BN", "BN2"
FORCED = {
    "ts_fag_tc_ubngs1s2_b": BATCH,
    "ts_fag_tc_ungs1s2_bbn": HEADS,
    "ts_fag_tc_us1s2_bbn2": PAIRS,
    "ts_fag_tc_pse_inner_generate/Fag_PseInnerGenerate_Case_002": HEADS,
    "ts_fag_tc_pse_inner_generate/Fag_PseInnerGenerate_Case_003": BATCH,
    "ts_fag_tc_pse_inner_generate/Fag_PseInnerGenerate_Case_007": BATCH,
}
"""The template that a file of tests, or one case, forces."""

VECTOR_CORES = 48


def lone_template_refuses(case: dict[str, Any]) -> str | None:
    """Why a case cannot be put to the operator: the template that it forces declines it. None: it can."""
    template = FORCED.get(case["id"]) or FORCED.get(case["id"].split("/")[0])
    if template is None or not DECLINES[template](case):
        return None
    return f"the test runs template {template} alone, which declines the call; the operator would go on to the next template"


def _batch_declines(case: dict[str, Any]) -> bool:
    """Scores of all heads of a sequence must fit at once."""
    rows, keys = (-(-case[name] // 16) * 16 for name in ("S1", "S2"))
    limit = 6144 if case["S1"] >= 4 else 8192
    return case["dtype"] == "FLOAT" or case.get("pse_type", 1) != 1 or case["N1"] * rows * keys > limit


def _heads_declines(case: dict[str, Any]) -> bool:
    """As many heads of Q as of K and V, and one head's scores at once."""
    keys = -(-case["S2"] // 16) * 16
    small = case["N1"] == case["N2"] and case["S1"] * keys <= 32768
    return case["dtype"] == "FLOAT" or case.get("pse_type", 1) != 1 or not small


def _pairs_declines(case: dict[str, Any]) -> bool:
    """Short sequences, and enough pairs of sequence and head for the cores."""
    long, pairs = max(case["S1"], case["S2"]), case["B"] * case["N2"]
    few = pairs < VECTOR_CORES and long > 768
    groups = case["N1"] > case["N2"] and pairs * 2 <= VECTOR_CORES
    return case["layout"] == "TND" or long >= 1024 or few or groups


DECLINES = {BATCH: _batch_declines, HEADS: _heads_declines, PAIRS: _pairs_declines}

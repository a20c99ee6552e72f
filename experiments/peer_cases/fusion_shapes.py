"""Shapes that cases give by name."""

from typing import Any

import numpy as np


def named_shape(named: Any, case: dict[str, Any], sizes: dict[str, int]) -> tuple[int, ...] | None:
    """The shape of an optional tensor from its name in a case, or as it is listed. None: no tensor."""
    if named is None or str(named).lower() == "none":
        return None
    if not isinstance(named, str):
        return tuple(named)
    batch, heads, rows, keys = (sizes.get(name, 0) for name in ("B", "N1", "S1", "S2"))
    flat = heads * sum(np.multiply(case.get("seq_q_lens") or [0], case.get("seq_kv_lens") or [0]).tolist())
    shapes = {
        "B_N1_S1_S2": (batch, heads, rows, keys),
        "B_N1_1_S2": (batch, heads, 1, keys),
        "B_N1_ALIBI_S1_S2": (batch, heads, 1024, keys),
        "_1_N1_ALIBI_S1_S2": (1, heads, 1024, keys),
        "_1_N1_S1_S2": (1, heads, rows, keys),
        "SLOPE_B_N1": (batch, heads),
        "SLOPE_N1": (heads,),
        "TND_1S": (heads * sizes.get("T2", 0),),
        "TND_SS": (flat,),
        "S1_S2": (rows, keys),
        "_1_1_S1_S2": (1, 1, rows, keys),
        "B_1_S1_S2": (batch, 1, rows, keys),
        "SPARSE": (2048, 2048),
        "PREFIXCOMPRESS": (3072, 2048),
        "B_N1_S1_S2DIV8": (batch, heads, rows, -(-keys // 8)),
        "BNSS": (batch, heads, rows, keys),
        "BN": (batch, heads),
        "N": (heads,),
        "2048X2048": (2048, 2048),
    }
    if named.upper() not in shapes:
        parts = named.upper().replace("N", str(heads)).split(",")
        return tuple({"B": batch, "S": rows}.get(part, 0) or int(part) for part in parts)
    return shapes[named.upper()]

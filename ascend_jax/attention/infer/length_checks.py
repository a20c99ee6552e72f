"""Actual lengths (``checkers/actual_seq_len_checker.cpp``)."""

from ascend_jax.attention.infer.call import refuse
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.layouts import PACKED, axis


def single(f: Facts) -> None:
    """How many lengths there are, and that each fits."""
    if f.device_lengths:
        return
    named = (("actual_seq_lengths", f.lengths_q, f.s1), ("actual_seq_lengths_kv", f.call.lengths_kv, f.s2))
    for name, given, longest in named:
        if given is None:
            continue
        _how_many(f, name, given)
        if f.packed:
            check_ends(name, given, rising=name == "actual_seq_lengths" or f.storage != "paged")
        else:
            _values(name, given[: f.b], longest)
    if f.packed:
        _last_end(f)


def _how_many(f: Facts, name: str, given: tuple[int, ...]) -> None:
    wrong = len(given) != f.b if f.packed else len(given) != 1 and len(given) < f.b
    refuse(
        wrong,
        f"{name} of {len(given)} numbers",
        f"must be {f.b}, one per sequence" if f.packed else f"must be 1 or at least {f.b}",
        f"pass {f.b} numbers",
    )


def check_ends(name: str, given: tuple[int, ...], rising: bool) -> None:
    """Where packed sequences end (``rising``), or how long they are: nothing negative; raises TilingError."""
    for place, end in enumerate(given):
        refuse(
            end < 0 or (rising and place > 0 and end < given[place - 1]),
            f"{name}[{place}]={end}",
            "must not be negative, nor less than the one before",
            "pass cumulative lengths",
        )


def _values(name: str, given: tuple[int, ...], longest: int) -> None:
    for place, length in enumerate(given):
        refuse(not 0 <= length <= longest, f"{name}[{place}]={length}", f"must be 0 to {longest}", "pass the used length")


def _last_end(f: Facts) -> None:
    ends = [("actual_seq_lengths", f.lengths_q, "query", f.call.query, f.q_layout)]
    if f.storage != "paged":
        ends.append(("actual_seq_lengths_kv", f.call.lengths_kv, "key", f.call.key[0], f.kv_layout))
    for name, given, tensor_name, tensor, layout in ends:
        if not given:
            continue
        tokens = axis(tensor_name, tensor, layout, "T")
        refuse(
            given[-1] != tokens,
            f"{name}[-1]={given[-1]}",
            f"must be the {tokens} tokens of {tensor_name}",
            f"end the last sequence at {tokens}",
        )


def existence(f: Facts) -> None:
    """Layouts with T need both lengths, pages those of the keys."""
    needed = f.kv_layout in PACKED or f.storage == "paged"
    refuse(
        needed and f.call.lengths_kv is None,
        f"actual_seq_lengths_kv=None with {'pages' if f.storage == 'paged' else f'layout {f.call.input_layout}'}",
        "must be given",
        "pass the length of each sequence of keys",
    )


def feature(f: Facts) -> None:
    """Quantised decoding takes lengths of the query only in layouts with T."""
    refuse(
        f.quant == "full" and f.mla == "d512" and f.lengths_q is not None and not f.packed,
        f"actual_seq_lengths in layout {f.call.input_layout}",
        "quantised queries with D=512 take it only in layouts with T",
        "leave actual_seq_lengths out",
    )


def consistency(f: Facts) -> None:
    """Nothing of its own."""

"""From the words of the command line to a workload and a tiling. Everything that is wrong with them is a ``ValueError``."""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from ascend_jax import Attention, Mask, Tiling, load_preset

MOST = 2**53
"""The largest number that the formulas count exactly."""
REQUIRED = ("q_heads", "q_len", "head_dim")


def workload_from(preset: str | None, flags: Mapping[str, Any]) -> tuple[str, Attention]:
    """A name for people, and the workload: the preset with the flags in place of its fields, or the flags alone.

    Raises:
      ValueError: no such preset, a flag without which there is no workload, or a value that the operator does not accept.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    if "layout" in given:
        given["layout"] = given["layout"].upper()
    elif any(isinstance(given.get(name), tuple) for name in ("q_len", "kv_len")):
        given["layout"] = "TND"
    name, work = _changed(preset, given) if preset else ("custom", _from_flags(given))
    _check_countable(work)
    return name, work


def _changed(preset: str, given: dict[str, Any]) -> tuple[str, Attention]:
    changes = ", ".join(f"{name}={_text(value)}" for name, value in given.items())
    return f"{preset} with {changes}" if given else preset, replace(load_preset(preset), **_with_mask(given))


def _from_flags(given: dict[str, Any]) -> Attention:
    missing = [f"--{name.replace('_', '-')}" for name in REQUIRED if name not in given]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} missing: a workload is a preset (tiling-search workloads lists them), "
            f"or at least {', '.join('--' + name.replace('_', '-') for name in REQUIRED)}"
        )
    defaults = {"batch": 1, "kv_heads": given["q_heads"], "kv_len": given["q_len"], "value_dim": given["head_dim"]}
    return Attention(**(defaults | _with_mask(given)))


def _with_mask(given: dict[str, Any]) -> dict[str, Any]:
    return given | ({"mask": Mask.parse(given["mask"])} if "mask" in given else {})


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_countable(work: Attention) -> None:
    numbers = [(item.name, getattr(work, item.name)) for item in fields(work)]
    numbers += [(f"mask {item.name}", getattr(work.mask, item.name)) for item in fields(work.mask)]
    for name, value in numbers:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > MOST:
                raise ValueError(f"{name}={number} is beyond 2^53, the largest number that is counted exactly")


def tiling_from(text: str) -> Tiling:
    """``block_q=128,block_kv=512,…`` as a tiling.

    Raises:
      ValueError: a part that is not ``field=number``, a field that does not exist or comes twice, or a block missing.

    >>> tiling_from("block_q=128,block_kv=512").block_kv
    512
    """
    known = [item.name for item in fields(Tiling)]
    values: dict[str, int] = {}
    for part in text.split(","):
        name, value = _assignment(part, known)
        if name in values:
            raise ValueError(f"{name} is given twice: keep one")
        values[name] = value
    if missing := [name for name in ("block_q", "block_kv") if name not in values]:
        raise ValueError(f"{', '.join(missing)} missing: give at least block_q=N,block_kv=N")
    return Tiling(**values)  # pyright: ignore[reportCallIssue] — block_q and block_kv are among them


def _assignment(part: str, known: list[str]) -> tuple[str, int]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise ValueError(f"{part!r} must be field=number, with commas between the fields: block_q=128,block_kv=512")
    if name not in known:
        near = get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"--tiling has no field {name!r}: {hint}")
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"{name}={value} must be a whole number") from None
    if abs(number) > MOST:
        raise ValueError(f"{name}={number} is beyond 2^53, the largest number that is counted exactly")
    return name, number

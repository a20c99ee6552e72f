"""Tilings as code that other tools read: configurations of triton-ascend, arguments of tilelang kernels, a C table."""

from collections.abc import Callable, Sequence
from dataclasses import fields

from ascend_jax.tiling.tiling import Tiling
from tiling_search.result import tiling_dict

C_TYPE = "AscendTiling"


def triton_ascend(tilings: Sequence[Tiling]) -> str:
    """A list for ``@triton.autotune``: ``BLOCK_M`` rows of Q, ``BLOCK_N`` of K, and the compiler's switch for two buffers.

    Triton decides the rest by itself, so that several tilings may give one configuration; it is listed once.

    >>> print(triton_ascend([Tiling(block_q=64, block_kv=128)]))
    configs = [
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "multibuffer": True}),
    ]
    """
    lines = [
        f'    triton.Config({{"BLOCK_M": {one.block_q}, "BLOCK_N": {one.block_kv}, "multibuffer": {one.kv_depth > 1}}}),'
        for one in tilings
    ]
    return "\n".join(["configs = [", *dict.fromkeys(lines), "]"])


def tilelang(tilings: Sequence[Tiling]) -> str:
    """A list for ``@tilelang.autotune``: blocks, and how many tiles of K and V are under way.

    >>> print(tilelang([Tiling(block_q=64, block_kv=128)]))
    configs = [
        {"block_M": 64, "block_N": 128, "num_stages": 2},
    ]
    """
    lines = [f'    {{"block_M": {one.block_q}, "block_N": {one.block_kv}, "num_stages": {one.kv_depth}}},' for one in tilings]
    return "\n".join(["configs = [", *dict.fromkeys(lines), "]"])


def c_struct(tilings: Sequence[Tiling]) -> str:
    """A C99 header's worth: a struct with every field, and a table of it in the order that was asked for."""
    names = [item.name for item in fields(Tiling)]
    rows = ["    {" + ", ".join(f".{name} = {value}" for name, value in tiling_dict(one).items()) + "}," for one in tilings]
    return "\n".join(
        [
            "#include <stdint.h>",
            "",
            "typedef struct {",
            *(f"    uint32_t {name};" for name in names),
            f"}} {C_TYPE};",
            "",
            f"static const {C_TYPE} tilings[{len(tilings)}] = {{",
            *rows,
            "};",
        ]
    )


LANGUAGES: dict[str, Callable[[Sequence[Tiling]], str]] = {"triton-ascend": triton_ascend, "tilelang": tilelang, "c": c_struct}

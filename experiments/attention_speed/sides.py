"""The sides of the comparison: causal attention [1, heads, S, D] as a callable without arguments that runs and waits."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from ascend_jax.attention.options import FAR, Settings, Window
from ascend_jax.attention.tiled import tiled_attention

torch: Any = import_module("torch") if find_spec("torch") else None

Run = Callable[[], Any]
CAUSAL, DENSE = Window(-FAR, 0, 0), Window.full()


class Shape(NamedTuple):
    """Heads, length of Q and of K/V, and width of a head."""

    heads: int
    length: int
    width: int


def tensors(shape: Shape, count: int) -> list[np.ndarray]:
    """Normal float32 ``[1, heads, S, D]``, always the same."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, *shape), dtype=np.float32) for _ in range(count)]


def block_of(length: int) -> int:
    """Rows and keys of a block: the vendor's 128, and twice that where a sequence has many, which CPUs like better."""
    return 128 if length <= 512 else 256


def tiled(shape: Shape, window: Window = CAUSAL) -> Callable[[Array, Array, Array], Array]:
    """Ours, in square blocks of :func:`block_of` the length."""
    block = block_of(shape.length)
    settings = Settings(scale=shape.width**-0.5, block_q=block, block_kv=block)
    return lambda q, k, v: tiled_attention(q, k, v, window, settings).out


def plain(shape: Shape) -> Callable[[Array, Array, Array], Array]:
    """jax's own, which keeps the whole score matrix; its layout is BSND, so it is given that one."""
    scale = shape.width**-0.5
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=True, implementation="xla")


def with_gradient(attend: Callable[..., Array]) -> Callable[..., Any]:
    """Output, and the gradients by Q, K and V of it against a fourth tensor."""

    def both(q: Array, k: Array, v: Array, towards: Array) -> Any:
        out, back = jax.vjp(attend, q, k, v)
        return out, back(towards)

    return both


def compiled(attend: Callable[..., Any], inputs: list[Array]) -> Any:
    """The program for these inputs, not yet run."""
    return jax.jit(attend).lower(*inputs).compile()


def jax_run(attend: Callable[..., Any], inputs: list[np.ndarray], dtype: Any = jnp.float32) -> Run:
    """A compiled run on tensors that are already where they belong."""
    placed = [jnp.asarray(x, dtype) for x in inputs]
    program = compiled(attend, placed)
    return lambda: jax.block_until_ready(program(*placed))


def sharded_run(attend: Callable[..., Any], inputs: list[np.ndarray]) -> Run:
    """The same with the heads dealt to all devices."""
    heads = PartitionSpec(None, "heads")
    mesh = Mesh(np.array(jax.devices()), ("heads",))
    dealt = jax.shard_map(attend, mesh=mesh, in_specs=heads, out_specs=heads, check_vma=False)
    placed = [jax.device_put(x, jax.NamedSharding(mesh, heads)) for x in inputs]
    program = compiled(dealt, placed)
    return lambda: jax.block_until_ready(program(*placed))


def torch_run(shape: Shape, gradient: bool) -> Run | None:
    """torch's scaled_dot_product_attention, whose CPU side is a tiled one too; None where there is no torch."""
    if torch is None:
        return None
    q, k, v, towards = (torch.from_numpy(x) for x in tensors(shape, 4))
    attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    if not gradient:
        return lambda: attend(q, k, v)
    sources = [x.requires_grad_() for x in (q, k, v)]

    def both() -> Any:
        out = attend(*sources)
        return out, torch.autograd.grad(out, sources, towards)

    return both


def sides(shape: Shape, gradient: bool) -> dict[str, Run]:
    """Every side there is: ours, torch's and jax's own."""
    inputs = tensors(shape, 4 if gradient else 3)
    wrap = with_gradient if gradient else lambda attend: attend
    runs = {
        "tiled": jax_run(wrap(tiled(shape)), inputs),
        "torch": torch_run(shape, gradient),
        "jax_nn": jax_run(wrap(plain(shape)), [np.ascontiguousarray(x.swapaxes(1, 2)) for x in inputs]),
    }
    return {name: run for name, run in runs.items() if run}


def check(shape: Shape) -> None:
    """The sides agree before they are timed: output and gradients."""
    runs = sides(shape, gradient=True)
    ours = jax.tree.leaves(runs.pop("tiled")())
    for run in runs.values():
        for mine, other in zip(ours, jax.tree.leaves(run()), strict=True):
            theirs = np.asarray(other.detach() if hasattr(other, "detach") else other)
            theirs = theirs if theirs.shape == mine.shape else theirs.swapaxes(1, 2)
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-3, atol=1e-5)

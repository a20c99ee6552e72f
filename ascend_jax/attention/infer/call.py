"""One call of FusedInferAttentionScore: every input and attribute, as given, before anything is known about them.

The names and defaults are those of ``torch_npu.npu_fused_infer_attention_score`` (op-plugin, ``op_plugin_functions.yaml``).
Beside them stand inputs that only its second version, or the operator itself, has: ``learnable_sink``,
``dequant_scale_query`` and ``query_quant_mode``.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ascend_jax.attention.arguments import in_a_line
from ascend_jax.attention.errors import ParamInvalidError, ParamNullptrError, TilingError

INT_MAX = 2**31 - 1
FLOATS = (jnp.dtype(jnp.float16), jnp.dtype(jnp.bfloat16))

Chip = Literal["910b", "950"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The operator's inputs. ``key`` and ``value`` are tuples of tensors: one, or one per batch.

    Tensors are anything with a shape and a dtype. ``lengths_q``, ``lengths_kv`` and ``prefix_len`` are tuples of whole numbers,
    or, where only the device knows them, the traced array itself; None where they are left out.
    """

    query: Any
    key: tuple[Any, ...]
    value: tuple[Any, ...]
    pse_shift: Any = None
    atten_mask: Any = None
    lengths_q: Any = None
    lengths_kv: Any = None
    quant_scale2: Any = None
    quant_offset2: Any = None
    block_table: Any = None
    query_padding_size: Any = None
    kv_padding_size: Any = None
    key_antiquant_scale: Any = None
    value_antiquant_scale: Any = None
    key_shared_prefix: Any = None
    value_shared_prefix: Any = None
    prefix_len: Any = None
    query_rope: Any = None
    key_rope: Any = None
    dequant_scale_query: Any = None
    learnable_sink: Any = None
    other_scales: tuple[tuple[str, Any], ...] = ()
    num_heads: int = 1
    scale: Any = 1.0
    pre_tokens: int = INT_MAX
    next_tokens: int = INT_MAX
    input_layout: str = "BSH"
    num_key_value_heads: int = 0
    sparse_mode: int = 0
    inner_precise: int = 0
    block_size: int = 0
    antiquant_mode: int = 0
    key_antiquant_mode: int = 0
    value_antiquant_mode: int = 0
    query_quant_mode: int = 0
    softmax_lse_flag: bool = False
    chip: Chip = "910b"

    @property
    def out_dtype(self) -> Any:
        """As the wrapper has it: int8 where the output is quantised; for a quantised query that of its rope, or float16."""
        if self.quant_scale2 is not None:
            return jnp.dtype(jnp.int8)
        if jnp.dtype(self.query.dtype) not in FLOATS and self.query_rope is not None:
            return self.query_rope.dtype
        return self.query.dtype if jnp.dtype(self.query.dtype) in FLOATS else jnp.dtype(jnp.float16)


def required(name: str, tensor: Any) -> Any:
    """``tensor``, which must be there."""
    if tensor is None:
        raise ParamNullptrError(f"{name}=None", "is a required input", f"pass {name}")
    return tensor


def lengths(name: str, given: Any) -> Any:
    """Whole numbers as a tuple; a traced array as it is; None as None.

    >>> lengths("actual_seq_lengths", [3, 5])
    (3, 5)
    """
    if given is None or isinstance(given, Tracer | jax.ShapeDtypeStruct):
        return given
    try:
        values = np.atleast_1d(np.asarray(given))
    except ValueError:  # lists of several lengths
        values = np.zeros((0, 0))
    if values.ndim != 1 or not (values.size == 0 or np.issubdtype(values.dtype, np.integer)):
        wrong = f"{name}={in_a_line(given)}"
        raise ParamInvalidError(wrong, "must be one whole number per batch", f"pass {name}=[…] of ints")
    return tuple(int(value) for value in values)


def known(given: Any) -> bool:
    """Whether the host knows these lengths."""
    return isinstance(given, tuple)


def count(given: Any) -> int:
    """How many lengths there are.

    >>> count((3, 5))
    2
    """
    return len(given) if isinstance(given, tuple) else int(np.prod(given.shape))


def refuse(wrong: bool, value: str, rule: str, remedy: str) -> None:
    """What the host tiling does where a rule is broken: status 561002."""
    if wrong:
        raise TilingError(value, rule, remedy)


def size(tensor: Any) -> int:
    """Elements of a tensor."""
    return int(np.prod(tensor.shape))

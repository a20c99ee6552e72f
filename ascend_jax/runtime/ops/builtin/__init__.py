"""The operators that come with the runtime."""

from ascend_jax.runtime.ops.builtin.elementwise import ADD, CAST, SOFTMAX
from ascend_jax.runtime.ops.builtin.flash_attention import FLASH_ATTENTION_SCORE
from ascend_jax.runtime.ops.builtin.flash_attention_grad import FLASH_ATTENTION_SCORE_GRAD
from ascend_jax.runtime.ops.builtin.matmul import MAT_MUL
from ascend_jax.runtime.ops.operator import Operator

OPERATORS: tuple[Operator, ...] = (FLASH_ATTENTION_SCORE, FLASH_ATTENTION_SCORE_GRAD, MAT_MUL, SOFTMAX, ADD, CAST)

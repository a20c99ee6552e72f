"""What the operators raise: one family of exceptions that carry the code and the name of the aclnn status.

Source of codes and names: docs/zh/context/aclnn返回码.md of ops-transformer; of the texts EZ1001, EZ9903 and EZ9999: opbase's
op_log.h.
"""

from typing import ClassVar


class AclnnError(ValueError):
    """A call that the operator refuses. ``raise ParamInvalidError("head_num=7", "must equal N1=8 …", "pass head_num=8")``.

    Attributes:
      code, name: the aclnn status (161002, ``ACLNN_ERR_PARAM_INVALID``).
      value: what is wrong, with its value.
      rule: what it breaks.
      remedy: what would be right.
    """

    code: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, value: str, rule: str, remedy: str) -> None:
        self.value, self.rule, self.remedy = value, rule, remedy
        super().__init__(f"{value}: {rule}\n{self.category} {self.name} ({self.code})\nRemedy: {remedy}")

    def __reduce__(self) -> tuple[type["AclnnError"], tuple[str, str, str]]:
        return type(self), (self.value, self.rule, self.remedy)

    @property
    def category(self) -> str:
        """The text code that stands before the message in the device's log.

        >>> TilingError("block_q=0", "must be at least 16", "pass block_q=128").category
        'EZ9999'
        """
        return {1: "EZ1001", 3: "EZ9903", 5: "EZ9999"}[self.code // 100_000]


class ParamNullptrError(AclnnError):
    """A required tensor is missing."""

    code, name = 161001, "ACLNN_ERR_PARAM_NULLPTR"


class ParamInvalidError(AclnnError):
    """A shape, dtype, layout or attribute that the front end of the operator refuses."""

    code, name = 161002, "ACLNN_ERR_PARAM_INVALID"


class InferShapeError(AclnnError):
    """Shapes from which no output shape follows."""

    code, name = 561001, "ACLNN_ERR_INNER_INFERSHAPE_ERROR"


class TilingError(AclnnError):
    """A call that the host tiling refuses."""

    code, name = 561002, "ACLNN_ERR_INNER_TILING_ERROR"


class NullptrError(AclnnError):
    """An inner null pointer: what the wrapper reports when a step of the first phase gives nothing back."""

    code, name = 561103, "ACLNN_ERR_INNER_NULLPTR"


class AclnnRuntimeError(AclnnError):
    """A call that an operator refuses while it runs on the host, such as the one that prepares ``flash_attn``."""

    code, name = 361001, "ACLNN_ERR_RUNTIME_ERROR"


class FindKernelError(AclnnError):
    """A call that the checks pass but for which there is no kernel; here: one whose numerics are not built."""

    code, name = 561003, "ACLNN_ERR_INNER_FIND_KERNEL_ERROR"

"""A rank that never comes is named to whoever waits, and at the end of the program."""

import pytest

from ascend_jax.runtime import AclError, System, comm_init_all
from ascend_jax.runtime.hccl.kinds import DataType, ReduceOp
from ascend_jax.runtime.host import Options


def test_a_plain_synchronisation_and_the_end_name_the_missing_rank() -> None:
    options = Options(deadlock_patience_s=0.1)
    with pytest.raises(AclError, match="rank 1 never called it"), System(["910b3"] * 2, options=options) as system:
        first, _ = comm_init_all(system, [0, 1])
        context = system.set_device(0)
        address = system.memory.malloc(64)
        first.all_reduce(address, address, 16, DataType.FP32, ReduceOp.SUM, stream=context.default_stream)
        with pytest.raises(AclError, match="rank 1 never called it") as caught:
            context.default_stream.synchronize()
        assert caught.value.code == 9

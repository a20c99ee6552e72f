"""A custom operator: not found, found, called, and broken.

``python experiments/custom_operator/run.py [--json FILE|-] [--chip NAME]``
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import AclnnError
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.system import System

HERE = Path(__file__).parent
EXAMPLE = HERE / "vendors" / "example"
ROWS, WIDTH = 4096, 11008


def error_of(call: Callable[[], Any]) -> str:
    """The text that ``call`` is refused with."""
    try:
        call()
    except (AclError, AclnnError) as error:
        return str(error).replace(str(HERE), "experiments/custom_operator")
    raise AssertionError("the call was not refused")


def lookups() -> dict[str, Any]:
    """A path that is set too late, one that is read again, a wrong case, and the same operator by ``config.ini``."""
    variables: dict[str, str] = {}
    registry = Registry(variables)
    found: dict[str, Any] = {"before_the_path_is_set": error_of(lambda: registry.find("SwiGluCustom"))}
    variables["ASCEND_CUSTOM_OPP_PATH"] = str(EXAMPLE)
    found["set_too_late"] = error_of(lambda: registry.find("SwiGluCustom"))
    registry.reload()
    found["after_reload"] = registry.owner("SwiGluCustom").name
    found["wrong_case"] = error_of(lambda: registry.find("SwigluCustom"))
    found["by_config_ini"] = Registry({"ASCEND_OPP_PATH": str(HERE)}).owner("SwiGluCustom").name
    return found


def called(chip: str) -> dict[str, Any]:
    """One call on a simulated chip, against NumPy."""
    with System([chip]) as system:
        stream = system.set_device(0).default_stream
        memory, operators = stream.device.memory, Operators(system, Registry({"ASCEND_CUSTOM_OPP_PATH": str(EXAMPLE)}))
        given = np.random.default_rng(0).normal(size=(ROWS, 2 * WIDTH)).astype(jnp.bfloat16)
        x = Tensor(memory.malloc(given.nbytes), given.shape, given.dtype)
        y = Tensor(memory.malloc(given.nbytes // 2), (ROWS, WIDTH), given.dtype)
        x.array(memory)[...] = given
        size, executor = operators.get_workspace_size("SwiGluCustom", [x], None, [y])
        task = operators.execute(memory.malloc(size) if size else 0, size, executor, stream)
        stream.synchronize()
        a, b = np.split(given.astype(np.float64), 2, axis=-1)
        error = np.abs(y.array(memory).astype(np.float64) - a / (1 + np.exp(-a)) * b)
        odd = error_of(lambda: operators.get_workspace_size("SwiGluCustom", [Tensor(64, (3, 5), "float32")]))
        return {
            "virtual_us": task.duration_s * 1e6,
            "cores": task.block_dim,
            "gb_per_s": task.info["bytes"] / task.duration_s / 1e9,
            "largest_error": float(error.max()),
            "odd_width": odd,
        }


def broken() -> dict[str, str]:
    """The package with a mistake in its file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(EXAMPLE, Path(folder) / "example")
        file = copy / "op_impl" / "swi_glu_custom" / "swi_glu_custom.py"
        file.write_text(file.read_text("utf-8").replace('"SwiGluCustom"', '"swi_glu"'), "utf-8")
        text = error_of(lambda: Registry({"ASCEND_CUSTOM_OPP_PATH": str(copy)}).load())
    return {"wrong_name_of_the_type": text.replace(folder, "…")}


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--chip", default="910b3", help="A chip of the catalogue [910b3].")
def main(target: TextIO, chip: str) -> None:
    """Print what each step gives as JSON."""
    found = {"lookups": lookups(), "called": called(chip), "broken": broken()}
    target.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

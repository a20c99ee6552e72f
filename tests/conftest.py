"""A strict test process: whatever jax would silently convert, broadcast or round is an error here."""

import os
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when jax is first used: without it jax probes for GPUs and TPUs

from typing import Any

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# "ci" draws the same examples in every run; HYPOTHESIS_PROFILE=dev looks for new ones and keeps what it found.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("dev", deadline=None, derandomize=False, max_examples=200, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a file of tests of the numerics compiles is dropped after it: a process that kept all of it would need 8 GB.

    It stands here as two files named conftest.py cannot both be searched for examples.
    """
    yield
    if "attention" in request.path.parts:
        jax.clear_caches()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n``, a worker runs whole files: tests of one file share compiled programs, which no worker lends another."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415

    return LoadFileScheduling(config, log)

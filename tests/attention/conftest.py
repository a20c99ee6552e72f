"""What the tests of the numerics compile is dropped after each file: a process that kept all of it would need 8 GB."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_file() -> Iterator[None]:
    yield
    jax.clear_caches()

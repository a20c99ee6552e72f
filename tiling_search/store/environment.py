"""The environment variables of the store, read when asked and not before.

==============================  ==================================================================================
``TILING_SEARCH_STORE``         the store's file, or a folder to keep ``store.sqlite`` in
``TILING_SEARCH_DISABLE_STORE`` 1: read nothing, write nothing
``TILING_SEARCH_ASSERT_HIT``    1: a look-up that the store cannot answer is an error that says what came closest
``TILING_SEARCH_SEED``          the seed where none is given
==============================  ==================================================================================
"""

import os
from pathlib import Path

from platformdirs import user_data_path

PLACE, DISABLE, ASSERT_HIT, SEED = (f"TILING_SEARCH_{name}" for name in ("STORE", "DISABLE_STORE", "ASSERT_HIT", "SEED"))
FILE_NAME = "store.sqlite"


def store_path(given: Path | str | None = None) -> Path | None:
    """The store's file: ``given``, else of the environment, else in the user's data folder; None where stores are disabled."""
    if given is None and is_on(DISABLE):
        return None
    place = given or os.environ.get(PLACE) or user_data_path("tiling-search", appauthor=False)
    path = Path(place).expanduser()
    return path if path.suffix and not path.is_dir() else path / FILE_NAME


def must_hit() -> bool:
    """Whether a look-up that misses is an error."""
    return is_on(ASSERT_HIT)


def seed(given: int | None = None) -> int:
    """``given``, else of the environment, else 0: two runs that say nothing are alike.

    Raises:
      ValueError: the variable is no whole number.
    """
    if given is not None:
        return given
    text = os.environ.get(SEED) or "0"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{SEED}={text!r} must be a whole number") from None


def is_on(variable: str) -> bool:
    """Whether an environment variable says yes: anything but unset, empty and 0.

    >>> is_on("A_VARIABLE_THAT_NOBODY_SETS")
    False
    """
    return os.environ.get(variable, "0") not in ("", "0")

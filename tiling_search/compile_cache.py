"""Where the command line keeps what jax compiled, so that the second run starts at once. A library never calls this."""

import os
import platform
import sys
from hashlib import sha256
from pathlib import Path

from platformdirs import user_cache_path

DIRECTORY_VARIABLE = "TILING_SEARCH_CACHE_DIR"
OPT_OUT_VARIABLE = "TILING_SEARCH_DISABLE_CACHE"


# XLA logs an error for every program that it loads on this very machine: openxla/xla#44565.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def use_compile_cache() -> Path | None:
    """Point jax at :func:`usable_folder`; call it before jax is imported. jax's own variables win.

    Returns:
      The folder, or None where there is none to use or jax is already imported.
    """
    folder = None if "jax" in sys.modules else usable_folder()
    if folder:
        jax_cache = {
            "JAX_COMPILATION_CACHE_DIR": str(folder),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for variable, value in jax_cache.items():
            os.environ.setdefault(variable, value)
    return folder


def usable_folder() -> Path | None:
    """A folder of the user's cache for compiled programs, made if it is not there; call it before jax is imported.

    ``TILING_SEARCH_CACHE_DIR`` names another folder, ``TILING_SEARCH_DISABLE_CACHE=1`` leaves it alone.

    Returns:
      The folder, or None where there is none to use: opted out, or the folder cannot be written.
    """
    if os.environ.get(OPT_OUT_VARIABLE, "0") not in ("", "0"):
        return None
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: "~" of a user without a home
        return None
    if not os.access(folder, os.W_OK):
        return None
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    return folder


def cache_folder() -> Path:
    """The folder for this machine's kind of processor: compiled programs crash on one that lacks an instruction."""
    root = os.environ.get(DIRECTORY_VARIABLE)
    return (Path(root).expanduser() if root else user_cache_path("tiling-search", appauthor=False)) / f"cpu-{_processor()}"


def _processor() -> str:
    """A short name for what the processor can do: its flags on Linux, else its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    return sha256(f"{platform.system()} {platform.machine()} {flags}".encode()).hexdigest()[:12]

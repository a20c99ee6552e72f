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


def use_compile_cache(*, at_once: bool = True) -> Path | None:
    """Point jax at :func:`usable_folder`; call it before jax is imported. jax's own variables win.

    Args:
      at_once: whether jax keeps programs there from now on, rather than from :func:`start_compile_cache` on.

    Returns:
      The folder, or None where there is none to use or jax is already imported.
    """
    folder = None if "jax" in sys.modules else usable_folder()
    if folder:
        jax_cache = {"JAX_COMPILATION_CACHE_DIR": str(folder)} if at_once else {}
        jax_cache |= {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for variable, value in jax_cache.items():
            os.environ.setdefault(variable, value)
    return folder


def start_compile_cache(folder: Path) -> None:
    """Let jax keep programs in ``folder`` from now on, unless a folder of its own is named already.

    What jax loads from its cache cannot be stored again, so large programs that ``programs.py`` keeps are compiled before.
    """
    import jax  # noqa: PLC0415 — this module is for the time before jax is imported
    from jax.experimental.compilation_cache import compilation_cache  # noqa: PLC0415

    if not getattr(jax.config, "jax_compilation_cache_dir", None):
        compilation_cache.set_cache_dir(str(folder))
        compilation_cache.reset_cache()  # or jax stays with what it decided when it compiled for the first time


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

"""``python -m tiling_search`` is the command ``tiling-search``."""

from tiling_search.cli import main

if __name__ == "__main__":
    main(prog_name="tiling-search")

"""Runs a script, a few of them at a time: ``in_turn.py SCRIPT ARGUMENTS``. The suite starts all its clients at once.

Its only scenario that looks at the clock would judge the machine otherwise.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
from pathlib import Path

AT_ONCE = 2


def main() -> None:
    """Wait for one of the turns, then run the script."""
    turns = Path(os.environ["CONFORMANCE_TURNS"]) / f"{os.getpid() % AT_ONCE}.lock"
    with turns.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

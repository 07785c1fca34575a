"""The words by which the user's terminal reaches a gateway that a client has started: what a model has them paste."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from codemode.trace.unseen import all_seen

from ..config.own_entry import NAME
from .setup import told_config

_MOST_CHARACTERS = 300  # of each part: a hint has to say more than where a file is


def gateway_command(options: argparse.Namespace) -> str:
    """Return what a subcommand goes behind, typed in a shell in any folder: `codemode mcp` where that is enough.

    A path that is too long, or would not be read as it is, is left out.
    """
    config = told_config(options)
    named = None if config is None else _shown("--config", str(config))
    return " ".join([_program() or NAME, "mcp", *([named] if named else [])])


def _program() -> str | None:
    started = Path(sys.argv[0]).absolute()
    if (started.parent.name, started.name) == (NAME, "__main__.py"):
        return _shown(sys.executable, "-m", NAME)
    if started.stem != NAME or not started.is_file():
        return None
    found = shutil.which(NAME)
    return None if found is not None and started.samefile(found) else _shown(str(started))


def _shown(*words: str) -> str | None:
    """Return words for a shell; None where they hide something, or would end the code in which a text shows them."""
    said = shlex.join(words)
    return said if len(said) <= _MOST_CHARACTERS and all_seen(said) and "`" not in said else None

"""Where the engine is, read from a plain installation: a twentieth of what it takes to import importlib.metadata."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def recorded_engine(distribution: str, module: str) -> tuple[str, str] | None:
    """Return path and version as the distribution's own record has them, as importlib.metadata would find them.

    None for all that is not one folder of metadata in a folder of `sys.path`: that is for importlib.metadata.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    normal = distribution.replace("-", "_")
    try:
        for entry in sys.path:
            found = [name for name in _listed(entry) if _distribution_of(name) == normal]
            if found:
                return _read(Path(entry or "."), found, module)
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _listed(entry: str) -> list[str]:
    try:
        return os.listdir(entry or ".")  # noqa: PTH208 - of bare names, of which there are many
    except FileNotFoundError:
        return []


def _distribution_of(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if kind not in ("dist-info", "egg-info"):
        return ""
    return stem.partition("-")[0].lower().replace(".", "_")


def _read(folder: Path, found: list[str], module: str) -> tuple[str, str] | None:
    if len(found) != 1 or not found[0].endswith(".dist-info"):
        return None
    head = (folder / found[0] / "METADATA").read_text(encoding="utf-8").partition("\n\n")[0]
    version = [line.removeprefix("Version: ") for line in head.splitlines() if line.startswith("Version: ")]
    for line in (folder / found[0] / "RECORD").read_text(encoding="utf-8").splitlines():
        name = line.partition(",")[0]
        if name.startswith(f"{module}.") and name.endswith((".so", ".pyd")) and version:
            path = (folder / name).resolve()
            return (str(path), version[0].strip()) if path.is_file() else None
    return None

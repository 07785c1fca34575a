"""The kernel's JavaScript files, in their order. Reads nothing."""

from __future__ import annotations

from pathlib import Path

from .image import Kernel

_FOLDER = Path(__file__).parent.parent / "guest" / "kernel"
_PARTS = (
    "intrinsics", "json", "powers", "determinism", "text", "bridge", "surface", "fetch", "faces", "harden", "entry",
)  # fmt: skip

KERNEL = Kernel(
    paths=tuple(str(_FOLDER / f"{part}.js") for part in _PARTS),
    before='(function () {\n"use strict";\n',
    after="})()\n",
)

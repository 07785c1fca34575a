"""The TypeScript compiler in one process for all that a file of tests asks it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from node_answers import NodeAnswers
from required import missing, node_path

TYPESCRIPT = Path(sys.prefix) / "node/node_modules/typescript/lib/typescript.js"
_ERROR = re.compile(r"^checks\.ts\((\d+),\d+\): (.*)$", re.MULTILINE)


class TypeScriptCompiler(NodeAnswers):
    """Called with a text it returns what the compiler says of it: nothing, where it finds no mistake."""

    def __init__(self) -> None:
        node_path()
        if not TYPESCRIPT.exists():
            missing("npm", "typescript is not installed: run `make prepare` with a network")
        super().__init__(Path(__file__).with_suffix(".cjs"), arguments=(str(TYPESCRIPT),))

    def __call__(self, text: str) -> str:
        told: str = super().__call__(text)
        # A compiler that complains of anything but the text must not pass for one that judges it.
        assert (told == "") == (_ERROR.match(told) is None), told
        return told


def problems_of(told: str) -> dict[int, str]:
    """Return what the compiler says, by the number of the line that it is about."""
    return {int(line): message for line, message in _ERROR.findall(told)}

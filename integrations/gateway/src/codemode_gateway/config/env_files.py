"""Files of environment variables: ``NAME=value`` lines, as editors and shells write them. Values are never expanded."""

from __future__ import annotations

import re

from .mistakes import MistakeError

_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\r\n]*)[ \t]*(\#[^\r\n]*)?(?:\r\n|\r|\n|\Z)""",
    re.DOTALL,
)
_BLANK = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(text: str, path: str, name: str) -> dict[str, str]:
    """Return the variables of ``text``, the file ``name``. Raises `MistakeError`, with the number of the line."""
    found, at = dict[str, str](), 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        line = _LINE.match(text, at)
        if line is None:
            number = text.count("\n", 0, at) + 1
            raise MistakeError(path, f"{name}, line {number}: here must be NAME=value, a comment, or nothing")
        found[line[1]] = _value(line[2])
        at = line.end()
    return found


def _value(written: str) -> str:
    if written.startswith('"') and written.endswith('"') and len(written) > 1:
        return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), written[1:-1], flags=re.DOTALL)
    if written.startswith("'") and written.endswith("'") and len(written) > 1:
        return written[1:-1]
    return re.split(r"(?:^|[ \t])#", written, maxsplit=1)[0].strip()

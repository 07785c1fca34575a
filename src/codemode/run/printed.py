"""What a program printed, for the model that wrote it; and a last line whose value nobody gets. Parses nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..trace.visible_text import counted, visible

if TYPE_CHECKING:
    from ..trace.events import ConsoleEvent

MAX_CONSOLE_CHARACTERS = 4000
_BEGINNING = 1000  # of what is too long; the rest of the room is for its end, which says most of a failure
_MARK_CHARACTERS = 60
_KEPT = "\n\t"
_LAST_CHARACTERS = 300
_LAST_CALL = re.compile(r"(?:^|[\n;}])[ \t]*(?:void )?([A-Za-z_$][\w$]{0,80})\(\)(?:\.catch\([\w$.]{0,80}\))?$")


def printed(console: Sequence[ConsoleEvent]) -> str:
    """Return what a program printed as plain text, at most 4,000 characters: of more its beginning and its end."""
    text = "\n".join(line.text if line.level == "log" else f"[{line.level}] {line.text}" for line in console)
    most = MAX_CONSOLE_CHARACTERS
    if len(text) > 2 * most:  # so that a short text is made visible, and not a long one
        text = _cut(text, most)
    shown = visible(text, keep=_KEPT)
    return shown if len(shown) <= most else _cut(shown, most)


def _cut(text: str, most: int) -> str:
    end = most - _BEGINNING - _MARK_CHARACTERS
    left_out = counted(len(text) - _BEGINNING - end, "character")
    return f"{text[:_BEGINNING]}\n... ({left_out} left out) ...\n{text[-end:]}"


def unreturned_call(js: str) -> str | None:
    """Return what to write in place of the last statement of a program that calls its own function and drops it.

    ``async function main() {...} main();`` ends before ``main`` does, and returns nothing.
    """
    end = js.rstrip()[-_LAST_CHARACTERS:].rstrip("; \t\r\n")
    if end.endswith("})()"):
        return "`return await (async () => {...})();`" if "(async" in js else None
    found = _LAST_CALL.search(end)
    if found is None:
        return None
    name = found[1]
    is_own = f"function {name}" in js or f"{name} = async" in js
    return f"`return await {name}();`" if is_own else None

"""How a tool differs from what it was, as lines for a person. Pure, and safe to print: all is escaped."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

from codemode.data.narrowing import is_object
from codemode.trace.visible_text import visible

_WIDTH = 100
_MAX_LINES = 2_000


@dataclass(frozen=True)
class Difference:
    """One tool that is new, or not as it was: what its server said of it then and says now, as JSON texts.

    A text that was too long to keep is cut, and then only the digest tells. ``digest`` is that of the tool now.
    """

    tool: str
    before: str | None
    after: str
    digest: str

    @property
    def kind(self) -> Literal["new", "changed"]:
        """Whether there was no such tool, or another one."""
        return "new" if self.before is None else "changed"

    def lines(self) -> list[str]:
        """Return the lines that are new with a ``+`` before them, those that are gone with a ``-``."""
        before, after = (list(_lines(text))[:_MAX_LINES] for text in (self.before or "", self.after))
        shown = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
        if not shown:
            shown = ["(it differs where it is too long to be shown)"]
        return [visible(line) for line in shown]


def _lines(text: str) -> Iterator[str]:
    try:
        said: Any = json.loads(text) if text else {}
    except ValueError:
        said = text  # it was cut
    if not is_object(said):
        yield from wrap(str(said), _WIDTH)
        return
    for name in sorted(said):
        value = said[name]
        if isinstance(value, str):
            yield from (f"{name}: {line}" for part in value.split("\n") for line in wrap(part, _WIDTH) or [""])
        else:
            yield from (f"{name}: {line}" for line in json.dumps(value, indent=2, sort_keys=True).split("\n"))

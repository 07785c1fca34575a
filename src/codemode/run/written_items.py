"""What a program has written, as values. Trusts none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.threads import run_check
from .outcome import OutputItem
from .results import read_value

if TYPE_CHECKING:
    from .resting_runner import Written

_WHAT = "an item of the program's output"


async def items_of(written: list[Written], max_values: int) -> tuple[OutputItem, ...]:
    """Return what was written, as values. Raises `CodeModeError` for what `read_value` refuses."""
    if not written:
        return ()

    def read(one: Written) -> OutputItem:
        if one.kind not in ("json", "content"):
            return OutputItem(one.kind, one.text, one.level)
        return OutputItem(one.kind, read_value(one.text, max_values, what=_WHAT))

    return await run_check(sum(len(one.text) for one in written), lambda: tuple(map(read, written)))

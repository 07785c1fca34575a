"""Schemas of tools that strangers have written: made ready as far as they can be, and never a reason to lose a tool."""

from __future__ import annotations

import logging
from typing import Any

from .tool_schemas import Mode, ToolSchemas

_log = logging.getLogger("codemode.tools")


def foreign_schemas(name: str, input_schema: Any, output_schema: Any) -> ToolSchemas:
    """Return compiled validators; a side whose schema nobody can read takes anything. Metered work, never raises."""
    left: dict[Mode, Any] = {"input": input_schema, "output": output_schema}
    while True:
        made = ToolSchemas(name, left["input"], left["output"], is_foreign=True)
        broken: list[Mode] = [side for side in left if not _can_be_made(made, side, name)]
        if not broken:
            return made
        left |= dict.fromkeys(broken)


def _can_be_made(schemas: ToolSchemas, side: Mode, name: str) -> bool:
    try:
        _ = getattr(schemas, side)
    except ValueError as error:
        _log.warning("the %s schema of tool %r is wrong and not checked: %s", side, name, error)
        return False
    return True

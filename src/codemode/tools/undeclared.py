"""Makes the schemas of tools, and tells their developer once of those that do not say what they return."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .prepared import PreparedTool

_log = logging.getLogger("codemode.tools")
_MAX_TOLD = 10_000
_MAX_SHOWN = 20
_told: set[str] = set()


def compile_all(tools: Iterable[tuple[str, PreparedTool]]) -> None:
    """Compile tools by their names, and log which of them have no output that nobody was told of before.

    Raises `ValueError` for a schema that cannot be used.
    """
    unknown: list[str] = []
    for name, tool in tools:
        tool.compile()
        if tool.is_late:
            continue
        if tool.output_json_schema is None and name not in _told and len(_told) < _MAX_TOLD:
            _told.add(name)
            unknown.append(name)
    if unknown:
        more = f" and {len(unknown) - _MAX_SHOWN} more" if len(unknown) > _MAX_SHOWN else ""
        _log.info(
            "unknown to programs is what these tools return: %s%s. Declare it: a return annotation of the function,"
            " Tool(output_schema=...), or the outputSchema of an MCP server",
            ", ".join(map(repr, unknown[:_MAX_SHOWN])),
            more,
        )

"""The tools that the programs call: async no-ops with validated inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codemode import Tool, WorkerPool, create_code_mode_tool
from codemode.surfaces.code_mode.tool import CodeModeTool

from . import programs


async def noop(n: int) -> int:
    """Return what was given."""
    return n


async def rows() -> list[dict[str, Any]]:
    """Return about 1 MiB of JSON."""
    return programs.rows()


# What the same tools are for the bare engine.
PLAIN_TOOLS: dict[str, Callable[[Any], Any]] = {"noop": lambda value: value["n"], "rows": lambda _: programs.rows()}


def code_mode_tool(pool: WorkerPool | None = None) -> CodeModeTool:
    """Return codeMode over the tools."""
    return create_code_mode_tool([noop, Tool("rows", execute=rows)], pool=pool)

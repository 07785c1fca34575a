"""A described tool: what its declaration needs. Knows nothing of its execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..records import record


class DescribedTool(Protocol):
    """The readable side of a tool: its names, schemas, examples and MCP-style annotations."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_json_schema(self) -> dict[str, Any] | bool | None: ...

    @property
    def output_json_schema(self) -> dict[str, Any] | bool | None: ...

    @property
    def input_examples(self) -> tuple[Any, ...]: ...

    @property
    def annotations(self) -> Mapping[str, Any]: ...


@record
class RenamedTool:
    """A tool as it is described under another name than its own."""

    name: str
    description: str
    input_json_schema: Any
    output_json_schema: Any
    input_examples: tuple[Any, ...]
    annotations: Mapping[str, Any]
    rich_sides: tuple[bool, bool] = (False, False)
    needs_person: bool = False


def get_rich_input_and_output_flags(tool: DescribedTool) -> tuple[bool, bool]:
    """Return whether dates, bytes and sets of a tool's input and output are Python values, where values are rich."""
    sides: Any = getattr(tool, "rich_sides", (False, False))
    return sides


def may_need_approval(tool: DescribedTool) -> bool:
    """Return whether calls of a tool need approval, always or for some inputs."""
    return bool(getattr(tool, "needs_person", False))


def rename_tool(tool: DescribedTool, name: str) -> RenamedTool:
    """Return the description of a tool under another name."""
    schemas = tool.input_json_schema, tool.output_json_schema
    return RenamedTool(
        name,
        tool.description,
        *schemas,
        tool.input_examples,
        tool.annotations,
        get_rich_input_and_output_flags(tool),
        may_need_approval(tool),
    )

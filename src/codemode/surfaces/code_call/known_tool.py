"""A tool of a set: what it says of itself, what is made of that once, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...data.json_values import decode_json, encode_json
from ...errors import CodeModeSerializationError
from ...schemas.compiled import JsonSchema
from ...tools.prepared import PreparedTool, prepared
from ...tools.tool import Tool
from .examples import usage_examples
from .metadata import ToolInfo, ToolMetadata, info_of, metadata_of


@dataclass(frozen=True)
class KnownTool:
    """A tool that somebody registered. What is made of it is shared by the versions of a set that have it."""

    made: Tool
    tool: PreparedTool
    metadata: ToolMetadata
    info: ToolInfo
    is_indexed: bool = False
    is_listed: bool = False
    _kept: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    def at(self, *, is_indexed: bool, is_listed: bool) -> KnownTool:
        """Return the same tool at another place."""
        if (self.is_indexed, self.is_listed) == (is_indexed, is_listed):
            return self
        return replace(self, is_indexed=is_indexed, is_listed=is_listed)

    @property
    def definition(self) -> dict[str, Any]:
        """What ``getTool`` gives of it, as plain JSON."""
        found = self._kept.get("definition")
        if found is None:
            found = self._kept["definition"] = _definition(self.tool)
        return found

    @property
    def examples(self) -> list[dict[str, str]]:
        """What ``usageExamples`` are."""
        found = self._kept.get("examples")
        if found is None:
            found = self._kept["examples"] = usage_examples(self.tool, self.metadata.examples)
        return found


def known_tool(tool: Tool) -> KnownTool:
    """Return a tool with what it says of itself. Raises `ValueError` for metadata that is wrong."""
    metadata = metadata_of(tool)
    return KnownTool(tool, prepared(tool), metadata, info_of(tool, metadata))


def _definition(tool: PreparedTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {} if tool.input_json_schema is None else _plain(tool.input_json_schema),
        "outputSchema": None if tool.output_json_schema is None else _plain(tool.output_json_schema),
    }


def _plain(schema: JsonSchema) -> Any:
    """Return a schema as plain JSON. Of one that is none, as with a default of Python's own, nothing is shown."""
    if isinstance(schema, bool):
        return {} if schema else schema
    try:
        return decode_json(encode_json(schema, what="a schema"))
    except (CodeModeSerializationError, ValueError):
        return {}

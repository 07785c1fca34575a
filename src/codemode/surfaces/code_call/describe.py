"""What ``codecall.describe`` answers: definitions of tools in the index, with examples of their use."""

from __future__ import annotations

import copy
from typing import Any

from ...data.json_shape import weigh
from ...host import steps
from .index import ToolSet
from .inputs import InputReader
from .known_tool import KnownTool
from .options import MAX_LISTED, CodeCallOptions

_KNOWN = ("tools", "toolNames", "max")
_MAX_NAME_CHARACTERS = 128
_STEPS_FOR_A_TOOL = 20
_LARGE_SCHEMA_CHARACTERS = 1 << 14


def read_describe(meta_tool: str, given: Any, options: CodeCallOptions) -> tuple[tuple[str, ...], int]:
    """Return which tools are asked for, and how many at most. Raises `CodeModeToolError` for a wrong input."""
    reader = InputReader(meta_tool, given, _KNOWN)
    asked, also = reader.texts("tools"), reader.texts("toolNames")
    most = reader.count("max", options.max_definitions, MAX_LISTED)
    reader.require("tools", "toolNames")
    reader.finish()
    return tuple(dict.fromkeys((*(asked or ()), *(also or ())))), most


def described(tools: ToolSet, names: tuple[str, ...], most: int) -> dict[str, Any]:
    """Return the definitions of at most so many tools, the names that are none, and how many were left out."""
    steps.take(len(names) >> 3)
    found = [tools.indexed[name] for name in names if name in tools.indexed]
    answer: dict[str, Any] = {"tools": [_described(one) for one in found[:most]]}
    missing = [name[:_MAX_NAME_CHARACTERS] for name in names if name not in tools.indexed]
    if missing:
        answer["notFound"] = missing
    if len(found) > most:
        answer["omitted"] = len(found) - most
    return answer


def _described(one: KnownTool) -> dict[str, Any]:
    schemas = one.tool.input_json_schema, one.tool.output_json_schema
    steps.take(_STEPS_FOR_A_TOOL + (weigh(schemas, _LARGE_SCHEMA_CHARACTERS) >> 3))
    definition = copy.deepcopy(one.definition)  # an answer is the caller's own
    said: dict[str, Any] = {"name": definition["name"], "description": definition["description"]}
    if one.info.app_id is not None:
        said["appId"] = one.info.app_id
    said |= {"inputSchema": definition["inputSchema"], "outputSchema": definition["outputSchema"]}
    if one.info.annotations:
        said["annotations"] = dict(one.info.annotations)
    return {**said, "usageExamples": [dict(example) for example in one.examples]}

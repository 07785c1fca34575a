"""What a tool says of itself for CodeCall, under ``metadata["codecall"]``, and what filters are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...data.narrowing import is_mapping, is_sequence
from ...options.checked_fields import checked, strings, text_or_none
from ...options.part import OptionPart
from ...tools.tool import Tool

_KEY = "codecall"


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """What ``include_tools`` and ``direct_calls.filter`` are told of a tool. Nothing in it changes the tool."""

    name: str
    description: str
    app_id: str | None
    source: str | None
    tags: tuple[str, ...]
    annotations: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class UsageExample(OptionPart):
    """An example of a tool's author: what it shows, and the input that does so."""

    path: ClassVar[str] = ""

    description: str
    input: Any


def _boolean_or_none(value: Any, path: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{path} must be True or False, got {value!r}")


def _examples(value: Any, path: str) -> tuple[UsageExample, ...]:
    if not is_sequence(value):
        raise ValueError(f"{path} must be a list of examples, got {value!r}")
    return tuple(_example(one, f"{path}[{at}]") for at, one in enumerate(value))


def _example(value: Any, path: str) -> UsageExample:
    if not is_mapping(value) or not {"description", "input"} == {*value}:
        raise ValueError(f'{path} must be {{"description", "input"}}, got {value!r}')
    if not isinstance(value["description"], str):
        raise ValueError(f"{path}.description must be a string, got {value['description']!r}")  # noqa: TRY004 - as above
    return UsageExample(**value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ToolMetadata(OptionPart):
    """Whether a tool is in the index and in the list of tools, what it belongs to, and how it is used."""

    path: ClassVar[str] = ""

    visible_in_list_tools: bool | None = checked(None, _boolean_or_none)
    enabled_in_code_call: bool | None = checked(None, _boolean_or_none)
    app_id: str | None = checked(None, text_or_none)
    source: str | None = checked(None, text_or_none)
    tags: tuple[str, ...] = checked((), strings)
    examples: tuple[UsageExample, ...] = checked((), _examples)


def metadata_of(tool: Tool) -> ToolMetadata:
    """Return what a tool says of itself. Raises `ValueError` naming the full path of what is wrong."""
    said: Any = tool.metadata.get(_KEY)
    path = f'tools["{tool.name}"].metadata.{_KEY}'
    if said is not None and not is_mapping(said):
        raise ValueError(f"{path} must be a mapping, got {said!r}")
    try:
        return ToolMetadata.of(said)
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from error


def info_of(tool: Tool, metadata: ToolMetadata) -> ToolInfo:
    """Return what filters are told of a tool."""
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        app_id=metadata.app_id,
        source=metadata.source,
        tags=metadata.tags,
        annotations=dict(tool.annotations),
    )

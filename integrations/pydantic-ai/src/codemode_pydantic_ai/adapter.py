"""pydantic-ai tools for the core's own `create_code_mode_tool`, outside any agent. Found through an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

import codemode
from codemode import CodeModeToolError, ExecutionPolicy, ToolCallContext
from codemode.plugins import CompiledSchema, FrameworkSchema, ValidatedInput, copy_json

from .content import shown_arguments, with_content_schemas, with_objects
from .failures import told
from .hidden_tools import HiddenTool, Output, annotations_of, exact_schema, excluding_type, metadata_of
from .nested import NestedCalls
from .turns import SharedTurns


def register(register_adapter: Callable[[Callable[[Any], bool], Callable[[Any], codemode.Tool]], None]) -> None:
    """Teach the core these tools."""
    register_adapter(lambda value: isinstance(value, Tool), convert)


def convert(tool: Tool[Any]) -> codemode.Tool:
    """Return the tool of a program that runs a pydantic-ai tool.

    ``context`` of the codeMode call is its `RunContext` or its deps. ``requires_approval`` is the core's approval.
    """
    definition = tool.tool_def
    declared = definition.return_schema
    return HiddenTool(
        definition.name,
        execute=partial(_execute, tool),
        description=definition.description or "",
        input_schema=_InputSchema(tool),
        output_schema=Output(exact_schema(declared, tool.function), excluding_type(declared, tool.function)),
        output_validation="warn",  # the framework checks no outputs
        needs_approval=tool.requires_approval,
        annotations=annotations_of(definition),
        metadata=metadata_of(definition),
    )


@dataclass(frozen=True)
class _Input:
    """Plain JSON for the framework to validate, and what a person is shown of it, if one is asked."""

    arguments: dict[str, Any]
    shown: dict[str, Any] | None


class _InputSchema(FrameworkSchema):
    """What a tool takes, as its definition says."""

    def __init__(self, tool: Tool[Any]) -> None:
        self._tool = tool

    def compiled(self, compiled: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        described = compiled(with_content_schemas(self._tool.tool_def.parameters_json_schema))
        return None if described is None else _Arguments(self._tool, described)


class _Arguments:
    """The arguments of a tool, whose approval shows what the framework will make of them."""

    def __init__(self, tool: Tool[Any], described: CompiledSchema) -> None:
        self._tool = tool
        self._described = described
        self.json_schema = described.json_schema

    @property
    def varies(self) -> bool:
        """Whether one input may give two values."""
        return self._described.varies

    def validate_output(self, value: Any, what: str) -> Any:
        """Refuse: arguments describe no output."""
        raise NotImplementedError(what)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check plain JSON from a program. Raises `SchemaMismatch`, `CodeModeToolError`."""
        arguments: dict[str, Any] = self._described.validate_input(value).value or {}
        tool = self._tool
        if not tool.requires_approval:
            return ValidatedInput(_Input(arguments, None), lambda: copy_json(arguments))
        try:
            validated = tool.function_schema.validator.validate_python(with_objects(arguments))
        except ValidationError as error:
            raise CodeModeToolError(told(error), details={"tool_name": tool.name}) from error
        shown = shown_arguments(validated, tool.function_schema.single_arg_name)
        return ValidatedInput(_Input(arguments, shown), lambda: copy_json(shown))


async def _execute(tool: Tool[Any], given: _Input, context: ToolCallContext) -> Any:
    ctx = _run_context(context)
    toolset = FunctionToolset[Any]([tool])
    calls = NestedCalls(toolset, await toolset.get_tools(ctx), ctx, SharedTurns(), ExecutionPolicy())
    return await calls.call(tool.name, given.arguments, context, approved=tool.requires_approval, shown=given.shown)


def _run_context(context: ToolCallContext) -> RunContext[Any]:
    given: Any = context.context
    if isinstance(given, RunContext):
        return cast("RunContext[Any]", given)
    return RunContext(deps=given, model=TestModel(), usage=RunUsage(), tool_call_id=context.tool_call_id)

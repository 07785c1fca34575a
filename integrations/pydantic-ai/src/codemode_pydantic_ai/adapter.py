"""Register pydantic-ai tools with `codemode.create_code_mode_tool`."""

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

from .call_scheduling import SharedCallState
from .content import replace_media_schemas, restore_media, to_displayed_arguments
from .conversion import (
    FrameworkTool,
    OutputSchema,
    get_annotations,
    get_closed_or_declared_output_schema,
    get_return_type_if_it_excludes_fields,
    get_surface_metadata,
)
from .error_mapping import format_error
from .nested import NestedCalls


def register(register_adapter: Callable[[Callable[[Any], bool], Callable[[Any], codemode.Tool]], None]) -> None:
    """Register pydantic-ai tools (entry point ``codemode.adapters``)."""
    register_adapter(lambda value: isinstance(value, Tool), convert_tool)


def convert_tool(tool: Tool[Any]) -> codemode.Tool:
    """Convert a pydantic-ai tool; ``requires_approval`` becomes ``needs_approval``.

    The ``context`` of the codeMode call is a `RunContext` or the deps.
    """
    definition = tool.tool_def
    return_schema = definition.return_schema
    return FrameworkTool(
        definition.name,
        execute=partial(_execute, tool),
        description=definition.description or "",
        input_schema=_InputSchema(tool),
        output_schema=OutputSchema(
            get_closed_or_declared_output_schema(return_schema, tool.function),
            get_return_type_if_it_excludes_fields(return_schema, tool.function),
        ),
        output_validation="warn",  # the framework checks no outputs
        needs_approval=tool.requires_approval,
        annotations=get_annotations(definition),
        metadata=get_surface_metadata(definition),
    )


@dataclass(frozen=True)
class _ToolInput:
    """Plain JSON arguments for the framework to validate, and the input that an approver sees, if one is asked."""

    arguments: dict[str, Any]
    displayed: dict[str, Any] | None


class _InputSchema(FrameworkSchema):
    """The input schema of a tool's definition."""

    def __init__(self, tool: Tool[Any]) -> None:
        self._tool = tool

    def compile(self, compile_schema: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        compiled_schema = compile_schema(replace_media_schemas(self._tool.tool_def.parameters_json_schema))
        return None if compiled_schema is None else _ArgumentsSchema(self._tool, compiled_schema)


class _ArgumentsSchema:
    """Validates arguments; for tools that require approval it displays them as the framework validates them."""

    def __init__(self, tool: Tool[Any], compiled_schema: CompiledSchema) -> None:
        self._tool = tool
        self._compiled_schema = compiled_schema
        self.json_schema = compiled_schema.json_schema

    @property
    def is_nondeterministic(self) -> bool:
        """Whether validation of an input is nondeterministic."""
        return self._compiled_schema.is_nondeterministic

    def validate_output(self, value: Any, what: str) -> Any:
        """Raise `NotImplementedError`: this schema is for input only."""
        raise NotImplementedError(what)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate plain JSON from a program. Raises `SchemaMismatchError` or `CodeModeToolError`."""
        arguments: dict[str, Any] = self._compiled_schema.validate_input(value).value or {}
        tool = self._tool
        if not tool.requires_approval:
            return ValidatedInput(_ToolInput(arguments, None), lambda: copy_json(arguments))
        try:
            validated = tool.function_schema.validator.validate_python(restore_media(arguments))
        except ValidationError as error:
            raise CodeModeToolError(format_error(error), details={"tool_name": tool.name}) from error
        displayed = to_displayed_arguments(validated, tool.function_schema.single_arg_name)
        return ValidatedInput(_ToolInput(arguments, displayed), lambda: copy_json(displayed))


async def _execute(tool: Tool[Any], tool_input: _ToolInput, context: ToolCallContext) -> Any:
    ctx = _get_or_make_run_context(context)
    toolset = FunctionToolset[Any]([tool])
    calls = NestedCalls(toolset, await toolset.get_tools(ctx), ctx, SharedCallState(), ExecutionPolicy())
    return await calls.call(
        tool.name, tool_input.arguments, context, is_approved=tool.requires_approval, displayed=tool_input.displayed
    )


def _get_or_make_run_context(context: ToolCallContext) -> RunContext[Any]:
    agent_context: Any = context.context
    if isinstance(agent_context, RunContext):
        return cast("RunContext[Any]", agent_context)
    return RunContext(deps=agent_context, model=TestModel(), usage=RunUsage(), tool_call_id=context.tool_call_id)

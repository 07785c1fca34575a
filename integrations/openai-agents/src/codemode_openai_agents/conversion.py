"""Convert the SDK's function tools to tools of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast, get_args, get_type_hints

from agents import FunctionTool, RunContextWrapper, function_tool
from agents.function_schema import function_schema
from agents.tool_context import ToolContext

import codemode
from codemode import Tool, ToolCallContext
from codemode.plugins import (
    CompiledSchema,
    FrameworkSchema,
    InferredOutput,
    PreparedTool,
    ToolSelection,
    select_tools_with_callable_names,
)

from .content import is_image_or_file_type, is_sdk_output_type, replace_content_schemas
from .sdk_internals import is_mcp_tool

_ANNOTATION_NAMES = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


class SdkTool(Tool):
    """A tool of the SDK."""

    is_foreign = True


def convert_and_select_function_tools(tools: Iterable[Any]) -> list[FunctionTool]:
    """Return function tools, with functions wrapped, without those that programs cannot call.

    Raises `ValueError` for any other value and for duplicate names.
    """
    if not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - a tool, or an agent
        raise ValueError(f"tools must be a list of tools, got {type(tools).__name__}")  # noqa: TRY004 - as below
    return select_tools_with_callable_names(
        tool if isinstance(tool, FunctionTool) else _wrap_function(tool) for tool in tools
    )


def _wrap_function(function: Any) -> FunctionTool:
    if callable(function):
        ToolSelection.refuse_framework_tool(function)
    if isinstance(function, type) or not callable(function) or hasattr(function, "name"):
        name = getattr(function, "name", None) or type(function).__name__
        raise ValueError(
            f"programs call function tools and functions, not {name!r}:"
            " give a tool that the provider runs, such as a WebSearchTool, to the agent"
        )
    return function_tool(cast("Callable[..., Any]", function))


def convert_tool(
    tool: FunctionTool,
    needs_approval: Callable[..., Any] | bool = False,
    output_schema: Any = None,
    execute: Callable[..., Any] | None = None,
) -> Tool:
    """Convert a function tool; by default it runs through ``call_tool`` of the program's context.

    ``output_schema``: schema that an MCP server declares. ``execute``: replacement for the default.
    """
    program_tool = SdkTool(
        tool.name,
        execute=execute or _make_execute_function(tool.name),
        description=tool.description,
        input_schema=replace_content_schemas(_get_input_schema_with_defaults(tool)),
        output_schema=_OutputSchema(output_schema or _get_output_schema(tool)),
        needs_approval=needs_approval,
        annotations=get_annotations(tool),
        output_validation="warn",  # the SDK checks no outputs
    )
    PreparedTool.from_tool(program_tool).compile_schemas()
    return program_tool


def register(register_adapter: Callable[..., None]) -> None:
    """Register function tools with `codemode.create_code_mode_tool` (entry point ``codemode.adapters``)."""
    register_adapter(_is_function_tool, _convert_tool_outside_agent)


def _is_function_tool(value: Any) -> bool:
    return isinstance(value, FunctionTool)


def _convert_tool_outside_agent(tool: FunctionTool) -> Tool:
    from .nested import NestedCalls

    async def execute(arguments: Any, context: ToolCallContext) -> Any:
        return await NestedCalls(_make_tool_context(context), {tool.name: tool}).call_tool(
            tool.name, arguments or {}, context
        )

    return convert_tool(tool, tool.needs_approval is not False, execute=execute)


def _make_tool_context(context: ToolCallContext) -> ToolContext[Any]:
    """Return the SDK's context for a program outside of an agent, with the program's context as the run's."""
    agent_context: Any = context.context
    if isinstance(agent_context, ToolContext):
        return cast("ToolContext[Any]", agent_context)
    run_context = cast(
        "RunContextWrapper[Any]",
        agent_context if isinstance(agent_context, RunContextWrapper) else RunContextWrapper(agent_context),
    )
    return ToolContext.from_agent_context(
        run_context, context.outer_tool_call_id, tool_name=codemode.CodeModeTool.name, tool_arguments=""
    )


def _make_execute_function(name: str) -> Callable[..., Any]:
    async def execute(arguments: Any, context: ToolCallContext) -> Any:
        return await context.context.call_tool(name, arguments or {}, context)

    return execute


def get_annotations(tool: FunctionTool) -> dict[str, Any]:
    """Return a tool's MCP annotations in the protocol's spelling."""
    annotations = tool.mcp_annotations
    values: dict[str, Any] = {} if annotations is None else annotations.model_dump(exclude_none=True)
    return {
        _ANNOTATION_NAMES.get(key, key): value
        for key, value in values.items()
        if key.lower().endswith("hint") or key == "title"
    }


def _get_input_schema_with_defaults(tool: FunctionTool) -> dict[str, Any]:
    """Return the input schema; strict mode makes all parameters required, so a function's defaults are restored."""
    strict = {key: value for key, value in tool.params_json_schema.items() if key not in ("title", "description")}
    function = _get_function(tool)
    if function is None or not tool.strict_json_schema:
        return strict
    try:
        loose = function_schema(function, strict_json_schema=False).params_json_schema
    except Exception:  # noqa: BLE001 - the schema does not come from the function: keep it
        return strict
    properties, default_properties = strict.get("properties", {}), loose.get("properties", {})
    if set(properties) != set(default_properties):
        return strict
    defaults = {name: {"default": value["default"]} for name, value in default_properties.items() if "default" in value}
    properties_with_defaults = {name: {**value, **defaults.get(name, {})} for name, value in properties.items()}
    return {**strict, "properties": properties_with_defaults, "required": loose.get("required", [])}


def _get_function(tool: FunctionTool) -> Callable[..., Any] | None:
    return getattr(tool, "__wrapped__", None)


def _get_output_schema(tool: FunctionTool) -> Any:
    """Return the declared output of a tool or of the function behind it."""
    if tool.output_json_schema or is_mcp_tool(tool):
        return tool.output_json_schema
    annotation = _get_return_type(tool)
    return None if annotation is None else InferredOutput(annotation)


def _get_return_type(tool: FunctionTool) -> Any:
    function = _get_function(tool)
    try:
        annotation = None if function is None else get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    if is_image_or_file_type(annotation):
        return codemode.MediaContent
    if annotation in (None, Any, type(None)) or any(map(is_sdk_output_type, (annotation, *get_args(annotation)))):
        return None
    return annotation


class _OutputSchema(FrameworkSchema):
    """A tool's declared output with `MediaContent` instead of the SDK's content types."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def compile(self, compile_schema: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        own = compile_schema(self._schema)
        if own is None or (replaced := replace_content_schemas(own.json_schema)) == own.json_schema:
            return own
        return compile_schema(replaced)

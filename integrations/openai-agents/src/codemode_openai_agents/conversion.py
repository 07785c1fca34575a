"""Function tools of the SDK as tools of a program: schemas as the function has them, outputs as it declares them."""

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
    select_callable_tools,
)

from .content import is_content, is_output, with_content_schemas
from .sdk import is_of_server

_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


class ProgramTool(Tool):
    """A tool of the SDK."""

    is_foreign = True


def tools_of(given: Iterable[Any]) -> list[FunctionTool]:
    """Return function tools, and plain functions as such, without those that no program could call.

    Raises `ValueError` for what is neither, and for two of one name.
    """
    if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - a tool, or an agent
        raise ValueError(f"tools must be a list of tools, got {type(given).__name__}")  # noqa: TRY004 - as below
    return select_callable_tools(one if isinstance(one, FunctionTool) else _of_function(one) for one in given)


def _of_function(one: Any) -> FunctionTool:
    if callable(one):
        ToolSelection.refuse_framework_tool(one)
    if isinstance(one, type) or not callable(one) or hasattr(one, "name"):
        raise ValueError(
            f"programs call function tools and functions, not {getattr(one, 'name', None) or type(one).__name__!r}:"
            " give what the provider runs, such as a WebSearchTool, to the agent itself"
        )
    return function_tool(cast("Callable[..., Any]", one))


def convert(
    tool: FunctionTool,
    needs_approval: Callable[..., Any] | bool = False,
    declared: Any = None,
    execute: Callable[..., Any] | None = None,
) -> Tool:
    """Return the tool of a program; the ``context`` of its program has a ``call`` that runs a tool of the SDK.

    ``declared`` is the schema of its output, where a server has said one; ``execute`` runs it in another way.
    """
    made = ProgramTool(
        tool.name,
        execute=execute or _executing(tool.name),
        description=tool.description,
        input_schema=with_content_schemas(_input_schema(tool)),
        output_schema=_Output(declared or _declared_output(tool)),
        needs_approval=needs_approval,
        annotations=annotations_of(tool),
        output_validation="warn",  # the SDK checks no outputs
    )
    PreparedTool.of(made).compile()
    return made


def register(register_adapter: Callable[..., None]) -> None:
    """Entry point ``codemode.adapters``: `codemode.create_code_mode_tool` takes function tools as they are."""
    register_adapter(_is_function_tool, _adapted)


def _is_function_tool(value: Any) -> bool:
    return isinstance(value, FunctionTool)


def _adapted(tool: FunctionTool) -> Tool:
    from .nested import NestedCalls

    async def execute(arguments: Any, context: ToolCallContext) -> Any:
        return await NestedCalls(_context_of(context), {tool.name: tool}).call(tool.name, arguments or {}, context)

    return convert(tool, tool.needs_approval is not False, execute=execute)


def _context_of(context: ToolCallContext) -> ToolContext[Any]:
    """Return the context of the SDK for a program that no agent runs; what it was given is that of the run."""
    given: Any = context.context
    if isinstance(given, ToolContext):
        return cast("ToolContext[Any]", given)
    wrapped = cast(
        "RunContextWrapper[Any]", given if isinstance(given, RunContextWrapper) else RunContextWrapper(given)
    )
    return ToolContext.from_agent_context(
        wrapped, context.outer_tool_call_id, tool_name=codemode.CodeModeTool.name, tool_arguments=""
    )


def _executing(name: str) -> Callable[..., Any]:
    async def execute(arguments: Any, context: ToolCallContext) -> Any:
        return await context.context.call(name, arguments or {}, context)

    return execute


def annotations_of(tool: FunctionTool) -> dict[str, Any]:
    """Return what an MCP server says of its tool, in the protocol's spelling."""
    said = tool.mcp_annotations
    given: dict[str, Any] = {} if said is None else said.model_dump(exclude_none=True)
    return {_HINTS.get(key, key): one for key, one in given.items() if key.lower().endswith("hint") or key == "title"}


def _input_schema(tool: FunctionTool) -> dict[str, Any]:
    """Return what a tool takes; of a function in strict mode, in which all is required, with its defaults again."""
    strict = {key: one for key, one in tool.params_json_schema.items() if key not in ("title", "description")}
    function = _function(tool)
    if function is None or not tool.strict_json_schema:
        return strict
    try:
        loose = function_schema(function, strict_json_schema=False).params_json_schema
    except Exception:  # noqa: BLE001 - a schema that was made in another way is right as it stands
        return strict
    properties, known = strict.get("properties", {}), loose.get("properties", {})
    if set(properties) != set(known):
        return strict
    defaults = {name: {"default": one["default"]} for name, one in known.items() if "default" in one}
    filled = {name: {**one, **defaults.get(name, {})} for name, one in properties.items()}
    return {**strict, "properties": filled, "required": loose.get("required", [])}


def _function(tool: FunctionTool) -> Callable[..., Any] | None:
    return getattr(tool, "__wrapped__", None)


def _declared_output(tool: FunctionTool) -> Any:
    """Return what a tool, or the function behind it, says that it gives."""
    if tool.output_json_schema or is_of_server(tool):
        return tool.output_json_schema
    annotated = _annotated_output(tool)
    return None if annotated is None else InferredOutput(annotated)


def _annotated_output(tool: FunctionTool) -> Any:
    function = _function(tool)
    try:
        declared = None if function is None else get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    if is_content(declared):
        return codemode.MediaContent
    if declared in (None, Any, type(None)) or any(map(is_output, (declared, *get_args(declared)))):
        return None
    return declared


class _Output(FrameworkSchema):
    """A tool's declared output, with this package's content types in place of the SDK's."""

    def __init__(self, declared: Any) -> None:
        self._declared = declared

    def compiled(self, compiled: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        described = compiled(self._declared)
        if described is None or (shown := with_content_schemas(described.json_schema)) == described.json_schema:
            return described
        return compiled(shown)

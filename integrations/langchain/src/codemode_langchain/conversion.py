"""Convert LangChain and MCP tools to tools of a program."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools import Tool as SingleInputTool
from pydantic import BaseModel

from codemode import CodeModeToolError, Tool, ToolCallContext, ToolResult
from codemode.plugins import CompiledSchema, FrameworkSchema, InferredOutput

from .arguments import ArgumentsSchema, ValidatedArguments, make_input_schema
from .content import replace_blocks_with_media_content

# MCP tools are recognized by shape: no adapter or SDK is imported. Their data comes from a server.

_STRUCTURED_CONTENT_KEY = "structured_content"
_ANNOTATION_NAMES = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}
_SCHEMA_ATTRIBUTES = ("output_schema", "outputSchema")  # newer and older SDK


def is_mcp_tool(tool: BaseTool) -> bool:
    """Return whether a tool looks like an MCP adapter's: a JSON Schema, and blocks with an artifact."""
    return tool.response_format == "content_and_artifact" and isinstance(tool.args_schema, dict)


def get_annotations(tool: BaseTool) -> dict[str, Any]:
    """Return a tool's hints in the protocol's spelling; its metadata takes precedence over the server's hints."""
    metadata: Mapping[str, Any] = tool.metadata or {}
    raw_annotations = {
        **_mapping_or_empty(_mapping_or_empty(_mapping_or_empty(metadata.get("mcp")).get("tool")).get("annotations")),
        **metadata,
    }
    annotations = {_ANNOTATION_NAMES.get(key, key): value for key, value in raw_annotations.items()}
    return {
        key: value
        for key, value in annotations.items()
        if isinstance(value, bool if key.endswith("Hint") else str) and (key.endswith("Hint") or key == "title")
    }


def is_destructive(annotations: Mapping[str, Any]) -> bool:
    """Return whether a tool is destructive: declared so, or neither that nor read-only (MCP's default)."""
    is_destructive: Any = annotations.get("destructiveHint")
    return is_destructive is True or (is_destructive is None and annotations.get("readOnlyHint") is not True)


def get_server_output_schema(tool: BaseTool) -> dict[str, Any] | None:
    """Return the output schema that a server declares, or None.

    Adapters do not expose it: it is read from the closure of the tool's function.
    """
    for cell in getattr(getattr(tool, "coroutine", None), "__closure__", None) or ():
        try:
            cell_value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        key = next((attribute for attribute in _SCHEMA_ATTRIBUTES if hasattr(cell_value, attribute)), None)
        schema = None if key is None else getattr(cell_value, key)
        if isinstance(schema, dict) and isinstance(getattr(cell_value, "name", None), str):
            return cast("dict[str, Any]", schema)
    return None


def unwrap_server_output(content: Any, artifact: Any = None) -> Any:
    """Convert a server's output: structured content, else the text of a single block, else all blocks.

    Blocks with bytes stay unchanged and become media later. Other values are returned unchanged.
    """
    if not isinstance(content, list) or not all(map(_is_content_block, cast("list[Any]", content))):
        return cast("Any", content)
    structured = _mapping_or_empty(artifact).get(_STRUCTURED_CONTENT_KEY)
    if structured is not None:
        return structured
    blocks = [_to_mcp_block(block) for block in cast("list[dict[str, Any]]", content)]
    if len(blocks) == 1 and blocks[0]["type"] == "text" and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    return {"content": blocks}


def join_block_texts(content: Sequence[Any]) -> str | None:
    """Return the text of content blocks, or None."""
    texts = [block if isinstance(block, str) else _mapping_or_empty(block).get("text") for block in content]
    return "\n".join(block for block in texts if isinstance(block, str) and block) or None


def _to_mcp_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without LangChain's id; a link becomes MCP's ``resource_link``."""
    if isinstance(url := block.get("url"), str) and block["type"] in ("image", "audio", "file"):
        mime_type_field = {"mimeType": block["mime_type"]} if isinstance(block.get("mime_type"), str) else {}
        return {"type": "resource_link", "uri": url, **mime_type_field}
    return {key: value for key, value in block.items() if key != "id"}


def _is_content_block(value: Any) -> bool:
    return isinstance(_mapping_or_empty(value).get("type"), str)


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# LangChain's schema of such tools for models.
_SINGLE_INPUT_SCHEMA = {"type": "object", "properties": {"__arg1": {"type": "string"}}, "required": ["__arg1"]}

_CODE_CALL_KEY = "codecall"
_TOOL_KIND_KEY = "toolKind"

NeedsApproval = bool | Callable[..., Any]


class FrameworkTool(Tool):
    """A LangChain tool, validated once as LangChain does."""

    is_foreign = True

    def with_execute(self, execute: Callable[..., Any]) -> FrameworkTool:
        """Return a copy with another ``execute``."""
        return replace(self, execute=execute)


class _InputSchema(FrameworkSchema):
    """The input schema of a LangChain tool, compiled once."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool
        self._arguments_schema: ArgumentsSchema | None = None

    def compile(self, compile_schema: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        if (
            self._arguments_schema is None
            and (compiled_schema := compile_schema(_get_input_schema(self._tool))) is not None
        ):
            self._arguments_schema = ArgumentsSchema(self._tool, compiled_schema, compile_schema)
        return cast("CompiledSchema | None", self._arguments_schema)  # an input schema validates no output


def convert_tool(tool: BaseTool, execute: Callable[..., Any], needs_approval: NeedsApproval = False) -> FrameworkTool:
    """Convert a LangChain tool; ``execute(arguments, context)`` gets its `ValidatedArguments`."""
    return FrameworkTool(
        tool.name,
        execute=execute,
        description=tool.description,
        input_schema=_InputSchema(tool),
        output_schema=_get_output_schema(tool),
        needs_approval=needs_approval,
        annotations=get_annotations(tool),
        metadata=_collect_code_call_metadata(tool),
        output_validation="warn",  # middleware may answer instead of the tool
    )


def _collect_code_call_metadata(tool: BaseTool) -> dict[str, Any]:
    """Return a tool's CodeCall metadata, including its tags, and its tool kind."""
    code_call_metadata: Any = (tool.metadata or {}).get(_CODE_CALL_KEY)
    tags = [tag for tag in tool.tags or () if tag]
    if tags and (code_call_metadata is None or isinstance(code_call_metadata, Mapping)):
        code_call_fields = cast("Mapping[str, Any]", code_call_metadata or {})
        codecall_tags: Any = code_call_fields.get("tags", ())
        if isinstance(codecall_tags, list | tuple | set | frozenset):  # other types are reported as invalid
            code_call_metadata = {**code_call_fields, "tags": [*cast("Iterable[Any]", codecall_tags), *tags]}
    kind_field = (
        {_TOOL_KIND_KEY: tool_kind} if isinstance(tool_kind := (tool.metadata or {}).get(_TOOL_KIND_KEY), str) else {}
    )
    return kind_field if code_call_metadata is None else {**kind_field, _CODE_CALL_KEY: code_call_metadata}


def register(register_adapter: Callable[..., None]) -> None:
    """Register LangChain tools with `codemode.create_code_mode_tool` (entry point ``codemode.adapters``)."""
    register_adapter(_is_tool, _convert_standalone_tool)


def _is_tool(value: Any) -> bool:
    return isinstance(value, BaseTool)


def _convert_standalone_tool(tool: BaseTool) -> Tool:
    async def execute(arguments: ValidatedArguments, context: ToolCallContext) -> Any:
        capture = OutputCapture(tool, ensure_config(), arguments)
        call = make_tool_call(tool.name, arguments.copy(), context.tool_call_id)
        try:
            return to_program_value(await capture.tool.ainvoke(call), capture)
        except ToolException as error:
            raise convert_tool_exception(error, tool.name) from error.__cause__

    return convert_tool(tool, execute)


def make_tool_call(name: str, args: dict[str, Any], tool_call_id: str) -> ToolCall:
    """Return a LangChain tool call."""
    return ToolCall(name=name, args=args, id=tool_call_id, type="tool_call")


@dataclass
class OutputCapture:
    """A copy of a tool that runs with one configuration and records outputs before they become text."""

    original: BaseTool
    config: RunnableConfig
    arguments: ValidatedArguments
    _outputs: list[Any] = field(default_factory=list[Any], init=False)
    tool: BaseTool = field(init=False)
    """The copy: same class, same fields."""

    def __post_init__(self) -> None:
        """Create the copy."""
        self.tool = self._make_recording_copy()

    def _make_recording_copy(self) -> BaseTool:
        original, copy = self.original, self.original.model_copy()
        run, arun = cast("Any", original)._run, cast("Any", original)._arun  # noqa: SLF001 - the methods to override

        @wraps(run)
        def _run(*args: Any, **kwargs: Any) -> Any:
            return self._record_output_or_raise(run(*args, **kwargs))

        @wraps(arun)
        async def _arun(*args: Any, **kwargs: Any) -> Any:
            return self._record_output_or_raise(await arun(*args, **kwargs))

        def invoke(input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002, ARG001 - LangChain's names
            return type(original).invoke(copy, input, self.config, **kwargs)

        async def ainvoke(input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002, ARG001 - as above
            return await type(original).ainvoke(copy, input, self.config, **kwargs)

        def _parse_input(tool_input: Any, tool_call_id: str | None) -> Any:
            parse = partial(cast("Any", type(original))._parse_input, copy)  # noqa: SLF001 - as above
            return self.arguments.schema.parse_input(self.arguments, tool_input, tool_call_id, parse)

        methods = {"_run": _run, "_arun": _arun, "invoke": invoke, "ainvoke": ainvoke, "_parse_input": _parse_input}
        for name, method in methods.items():
            object.__setattr__(copy, name, method)
        return copy

    def find_output(self, message: ToolMessage) -> Any:
        """Return the recorded output that a message contains, else the message's content."""
        for output in reversed(self._outputs):
            content, artifact = output, None
            if self.original.response_format == "content_and_artifact" and isinstance(output, tuple):
                content, artifact = cast("tuple[Any, ...]", output)[0], cast("tuple[Any, ...]", output)[-1]
            if _has_content(message, content):
                return self._to_value(content, artifact)
        return self._to_value(cast("Any", message).content)

    def _to_value(self, content: Any, artifact: Any = None) -> Any:
        return unwrap_server_output(content, artifact) if is_mcp_tool(self.original) else content

    def _record_output_or_raise(self, output: Any) -> Any:
        """Record an output. Raises `TypeError` for a coroutine, which LangChain would convert to text."""
        if inspect.iscoroutine(output):
            output.close()
            raise TypeError(f"tool {self.original.name!r} returned a coroutine: await it inside, in an async function")
        self._outputs.append(output)
        return output


def to_program_value(result: Any, capture: OutputCapture) -> Any:
    """Convert a tool's result to a value for programs. Raises `CodeModeToolError` for a failed call."""
    if not isinstance(result, ToolMessage):
        return result
    if result.status == "error":
        raise CodeModeToolError(_content_to_text(result.content), details={"tool_name": capture.original.name})
    value: Any = replace_blocks_with_media_content(capture.find_output(result))
    return (
        value
        if isinstance(value, str | int | float | bool | None | ToolResult)
        else _keep_json_value_or_use_text(value, result.content)
    )


def convert_tool_exception(error: ToolException, tool_name: str) -> CodeModeToolError:
    """Convert a `ToolException`, whose text is meant for the model; raise the result from the exception's cause."""
    text = str(error.args[0]) if error.args else "Tool execution error"  # as LangChain words it
    return CodeModeToolError(text, details={"tool_name": tool_name})


ASYNC_ONLY_MESSAGE = "tool {!r} is an async function, which a blocking call cannot run: use ainvoke or astream"


def is_async_only(tool: BaseTool) -> bool:
    """Return whether a tool has only an async function, which LangChain cannot run in a blocking call."""
    fields: Any = tool
    return getattr(fields, "func", tool) is None and getattr(fields, "coroutine", None) is not None


def _has_content(message: ToolMessage, content: Any) -> bool:
    message_content: Any = cast("Any", message).content
    if message_content == content or isinstance(content, str):
        return bool(message_content == content)
    try:
        return message_content == json.dumps(content, ensure_ascii=False)
    except (TypeError, ValueError):
        return message_content == str(content)


def _keep_json_value_or_use_text(value: Any, otherwise: Any) -> Any:
    """Return the value if JSON can express it at least in part, else LangChain's text."""
    # The core reads iterators, within its limits: reading one here would lose its items.
    if isinstance(value, Mapping | list | tuple | set | frozenset | bytes | Iterator):
        return cast("Any", value)
    try:
        json.dumps(_to_plain_json(value))
    except (TypeError, ValueError, RecursionError):
        return otherwise
    return value


def _to_plain_json(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=_raise_not_json)


def _raise_not_json(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _content_to_text(content: Any) -> str:
    text = join_block_texts(cast("list[Any]", content)) if isinstance(content, list) else content
    return text if isinstance(text, str) else json.dumps(content, default=str)


def _get_input_schema(tool: BaseTool) -> Any:
    """Return a tool's input schema for models: a pydantic model or a JSON Schema."""
    if isinstance(tool, SingleInputTool) and tool.args_schema is None:
        return _SINGLE_INPUT_SCHEMA
    schema: Any = make_input_schema(tool)
    return (
        schema if isinstance(schema, type) and issubclass(schema, BaseModel) else _without_title_and_description(schema)
    )


def _without_title_and_description(schema: Any) -> dict[str, Any]:
    json_schema = cast("dict[str, Any]", schema if isinstance(schema, dict) else schema.schema())
    # Title and description are those of the tool.
    return {key: value for key, value in json_schema.items() if key not in ("title", "description")}


def _get_output_schema(tool: BaseTool) -> Any:
    """Return the output schema of an MCP tool, or the return type of a tool's function."""
    if is_mcp_tool(tool):
        return get_server_output_schema(tool)
    annotated = _get_return_type(tool)
    return None if annotated is None else InferredOutput(annotated)


def _get_return_type(tool: BaseTool) -> Any:
    """Return the return type of a tool's function; None if it does not describe the value."""
    function = getattr(tool, "coroutine", None) or getattr(tool, "func", None)
    if function is None:
        return None
    try:
        declared = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    if tool.response_format == "content_and_artifact":
        declared = get_args(declared)[0] if get_origin(declared) is tuple and get_args(declared) else None
    if declared is None or declared is Any or declared is type(None) or _is_message_or_command(declared):
        return None
    return declared


def _is_message_or_command(declared: Any) -> bool:
    from langchain_core.messages.tool import ToolOutputMixin

    parts = get_args(declared) or (get_origin(declared) or declared,)
    return any(isinstance(part, type) and issubclass(part, ToolOutputMixin) for part in parts)

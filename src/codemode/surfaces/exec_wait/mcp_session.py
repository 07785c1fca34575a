"""Use sessions of any MCP SDK, and create the tools that programs call through them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ...data.json_shape import run_off_loop_if_large
from ...data.json_values import NOT_GIVEN, encode_json
from ...data.narrowing import is_mapping, is_sequence, mapping_or_empty, string_or_empty
from ...errors import CodeModeError, CodeModeToolError
from ...host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ...schemas.compiled import ValidatedInput
from ...tools.context import ToolCallContext
from ...tools.prepared import MISSING, PreparedTool
from ...tools.server_lists import OmittedEntries, PageCursorTracker, to_bounded_annotations, to_bounded_text
from ...tools.tool import Tool
from ...tools.tool_result import ToolResult, is_content_block, parse_server_result
from ...tools.tool_schemas import compile_foreign_schemas
from ...trace.visible_text import clip_to_visible_line

# Servers are untrusted: lists are bounded, and answers contain no binary values.

MAX_ITEMS = 10_000
_MANY_BLOCKS = LARGE_CHARACTERS
_MAX_ERROR_CHARACTERS = 500
_MAX_VALUE_CHARACTERS = 300
_UNREADABLE_ANSWER = "the session cannot read the answer of the server"
_SERVER_ERROR_CLASSES = frozenset({"MCPError", "McpError"})
_CODES_WITHOUT_ANSWER = frozenset({-32000, -32001, 408})
"""Error codes of the SDK for closed connections and timeouts."""
_BINARY_FIELDS = ("data", "blob")


async def list_paged_items(
    list_page: Callable[..., Awaitable[Any]],
    *names: str,
    max_items: int = MAX_ITEMS,
    left_out: OmittedEntries | None = None,
) -> tuple[list[Any], bool]:
    """Return the items of a paged list, at most ``max_items``, and whether the list is complete.

    ``names``: the field names of the items. Problems of the list are added to ``left_out``.
    """
    found: list[Any] = []
    seen_keys: set[Any] = set()
    cursors = PageCursorTracker(OmittedEntries() if left_out is None else left_out)
    while True:
        try:
            page = await (_request_page(list_page, cursors.cursor) if cursors.cursor is not None else list_page())
        except Exception as error:
            if cursors.cursor is None or not _is_error_sent_by_server(error):
                raise
            cursors.record_page_refusal(_get_error_message(error))
            return found, True
        items = page if is_sequence(page) else read_field(page, *names)
        items = [*items] if is_sequence(items) else []
        new_items = [item for item in items if _get_item_key(item) not in seen_keys]
        seen_keys.update(map(_get_item_key, new_items))
        found += new_items if cursors.is_repeat else items
        if len(found) > max_items:
            return found[:max_items], False
        if not cursors.advance_to(read_field(page, "next_cursor", "nextCursor"), has_new=bool(new_items)):
            return found, True


def _get_item_key(item: Any) -> Any:
    """Return the identity of a list item."""
    return str(read_field(item, "uri", "uri_template", "uriTemplate", "name"))


def _request_page(list_page: Callable[..., Awaitable[Any]], cursor: str) -> Awaitable[Any]:
    """Request a page with the SDK's own convention: a cursor argument or a params object."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(list_page).parameters
    except (TypeError, ValueError):
        parameters = {}
    if "cursor" in parameters or "params" not in parameters:
        return list_page(cursor=cursor)
    return list_page(params=_find_params_class(parameters["params"], list_page)(cursor=cursor))


def _find_params_class(parameter: inspect.Parameter, list_page: Callable[..., Any]) -> Any:
    """Return the SDK's class for page parameters, from the session's module."""
    module_globals = getattr(inspect.unwrap(list_page), "__globals__", {})
    name = "PaginatedRequestParams"
    params_class = getattr(module_globals.get("types"), name, None) or module_globals.get(name)
    if params_class is None:
        raise TypeError(f"the session takes page parameters as {parameter}, and their class was not found")
    return params_class


def has_capability(session: Any, capability: str) -> bool | None:
    """Return whether a server declares tools, resources or prompts; None if unknown."""
    capabilities = getattr(session, "server_capabilities", None)
    if capabilities is None:
        get_capabilities = getattr(session, "get_server_capabilities", None)
        capabilities = get_capabilities() if callable(get_capabilities) else None
    if capabilities is None or callable(capabilities) or inspect.isawaitable(capabilities):
        return None
    return read_field(capabilities, capability) is not None


async def await_answer_or_raise_tool_error(answer: Awaitable[Any]) -> Any:
    """Return the answer of a server; a server error becomes a `CodeModeToolError` with its text."""
    try:
        return await answer
    except Exception as error:
        message = describe_server_error(error)
        if message is None:
            raise
        raise CodeModeToolError(message) from error


def describe_server_error(error: Exception) -> str | None:
    """Return the text of a server error or of an answer that the SDK rejects; None for other errors."""
    if _is_mcp_sdk_error(error):
        return f"the server says: {_get_error_message(error)}"
    if isinstance(error, RuntimeError) and "structured content" in str(error):
        return f"{_UNREADABLE_ANSWER}: {clip_to_visible_line(str(error), _MAX_ERROR_CHARACTERS)}"
    errors, title = getattr(error, "errors", None), getattr(error, "title", None)
    if not callable(errors) or not isinstance(title, str) or not title.endswith("Result"):
        return None  # an error of host code, which programs must not see
    try:
        problem: Any = next(iter(cast("Any", errors())))
        location = ".".join(map(str, problem["loc"])) or "the answer"
        value, reason = (
            clip_to_visible_line(repr(problem["input"]), _MAX_VALUE_CHARACTERS),
            clip_to_visible_line(problem["msg"], 200),
        )
    except (TypeError, KeyError, StopIteration):
        return None
    return f"{_UNREADABLE_ANSWER}: {location} is {value}: {reason}"


def _is_mcp_sdk_error(error: Exception) -> bool:
    return any(base.__name__ in _SERVER_ERROR_CLASSES for base in type(error).__mro__)


def _is_error_sent_by_server(error: Exception) -> bool:
    """Return True if the server answered with this error, False if the SDK made it for a missing answer."""
    return _is_mcp_sdk_error(error) and read_field(read_field(error, "error"), "code") not in _CODES_WITHOUT_ANSWER


def _get_error_message(error: Exception) -> str:
    return (string_or_empty(read_field(read_field(error, "error"), "message")) or str(error))[:_MAX_ERROR_CHARACTERS]


async def await_tool_result(answer: Awaitable[Any]) -> ToolResult:
    """Return the result of a tool call; many content blocks are converted off the event loop."""
    result = await await_answer_or_raise_tool_error(answer)
    content = read_field(result, "content")
    if is_sequence(content) and len(content) > _MANY_BLOCKS:
        return await run_in_thread_if_large_or_slow(len(content), partial(_build_tool_result, result, content))
    return _build_tool_result(result, content)


def _build_tool_result(result: Any, content: Any) -> ToolResult:
    raw = dict(result) if is_mapping(result) else {}
    structured = read_field(result, "structured_content", "structuredContent")
    if structured is not None:
        raw["structuredContent"] = structured
    if content is None and (isinstance(result, str | int | float) or is_sequence(result)):
        content = result
    if is_sequence(content):
        content = [_LazyContentBlock(block) if is_content_block(block) else block for block in content]
    return parse_server_result({**raw, "content": content, "isError": read_field(result, "is_error", "isError")})


class _LazyContentBlock:
    """A content block that is converted when read, off the event loop."""

    def __init__(self, block: Any) -> None:
        self._block = block

    def model_dump(self, **_: Any) -> Any:
        """Return the block as plain JSON without binary values."""
        return strip_binary_fields(to_plain_json(self._block))


async def select_fields_without_binary(answer: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return some fields of an answer as plain JSON; large answers are converted in a thread."""

    def select() -> dict[str, Any]:
        fields = to_plain_json(answer)
        return {name: _strip_binary_items(fields[name]) for name in names if is_mapping(fields) and name in fields}

    return await run_off_loop_if_large(answer, select)


async def to_plain_items(items: list[Any]) -> list[Any]:
    """Return list items as plain JSON; large lists are converted in a thread."""
    return await run_off_loop_if_large(items, lambda: [to_plain_json(item) for item in items])


def _strip_binary_items(value: Any) -> Any:
    if not is_sequence(value):
        return value
    return [_strip_binary_item(item) for item in value]


def _strip_binary_item(item: Any) -> Any:
    if is_mapping(item) and is_mapping(item.get("content")):
        return {**item, "content": strip_binary_fields(item["content"])}
    return strip_binary_fields(item)


def strip_binary_fields(block: Any) -> Any:
    """Return a content block with bytes replaced by their size: programs get no binary values."""
    if not is_mapping(block):
        return block
    if is_mapping(block.get("resource")):
        return {**block, "resource": strip_binary_fields(block["resource"])}
    left_out = [name for name in _BINARY_FIELDS if isinstance(block.get(name), str) and _is_binary(block, name)]
    if not left_out:
        return block
    size = sum(len(block[name]) * 3 // 4 for name in left_out)
    remaining = {name: value for name, value in block.items() if name not in left_out}
    return {**remaining, "omitted": f"about {size} bytes: programs get no binary values"}


def _is_binary(block: Mapping[Any, Any], name: str) -> bool:
    return name == "blob" or block.get("type") in ("image", "audio")


def to_plain_json(value: Any) -> Any:
    """Return a model of the SDK as plain JSON, and any other value unchanged."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else value


def read_field(value: Any, *names: str) -> Any:
    """Return the first of these fields that an object or mapping has, or None.

    Put current SDK names first: some libraries warn about reading former names.
    """
    for name in names:
        found = value.get(name, NOT_GIVEN) if is_mapping(value) else getattr(value, name, NOT_GIVEN)
        if found is not NOT_GIVEN:
            return found
    return None


MAX_NAME_CHARACTERS = 128
MAX_DESCRIPTION_CHARACTERS = 4000

ApprovalCheck = Callable[[str, Any, ToolCallContext], Any]
"""``(name, input, context)`` -> whether the call needs approval; ``name`` is the server's own."""


@dataclass(frozen=True)
class ServerToolSettings:
    """The approval check for a server's tools, and the function with which a plugin adapts them."""

    needs_approval: bool | ApprovalCheck = False
    adapt: Callable[[Tool, str], Tool] | None = None

    @property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool can wait for a person."""
        return self.needs_approval is not False or self.adapt is not None

    def adapt_tool(self, tool: Tool, tool_id: str) -> Tool:
        """Return the tool that programs call."""
        return tool if self.adapt is None else self.adapt(tool, tool_id)


DEFAULT_TOOL_SETTINGS = ServerToolSettings()


@dataclass(frozen=True)
class McpToolWithIdentifiers:
    """A tool of a server: its original ``name`` and its identifiers, the primary first."""

    name: str
    names: tuple[str, ...]
    tool: McpTool


class McpTool(PreparedTool):
    """A tool or lookup with its id. It takes one object; an unreadable schema accepts anything."""

    def __init__(self, tool: Tool, tool_id: str, settings: ServerToolSettings) -> None:
        adapted = settings.adapt_tool(tool, tool_id)
        super().__init__(adapted)
        self.id: str = tool_id
        self._schemas = compile_foreign_schemas(tool_id, adapted.input_schema, adapted.output_schema)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate an input; no input counts as an empty object."""
        if value is MISSING or value is None:
            value = {}
        if not is_mapping(value):
            error = CodeModeToolError(f"tool {self.name!r} takes one object", details={"tool_name": self.name})
            error.reason = "validation"
            raise error
        return super().validate_input(value)

    @property
    def identity_text(self) -> str:
        """The id and schemas, which distinguish it from another tool of the same id."""
        try:
            schemas = [self.input_json_schema, self.output_json_schema]
            return f"{self.id} {encode_json(schemas, what='the schemas of a tool')}"
        except (CodeModeError, ValueError):  # a default that is not JSON
            return self.id


def read_callable_tool_name_or_none(definition: Any) -> str | None:
    """Return a tool's name, or None if programs could not call it by this name."""
    name = string_or_empty(read_field(definition, "name"))
    return name if name and len(name) <= MAX_NAME_CHARACTERS and name.isprintable() else None


def create_mcp_tool(session: Any, name: str, definition: Any, tool_id: str, settings: ServerToolSettings) -> McpTool:
    """Return the tool for an entry of a server's list."""

    async def execute(value: Any, _context: Any) -> Any:
        return await await_tool_result(session.call_tool(name, dict(value)))

    needs_approval = settings.needs_approval
    tool = Tool(
        name,
        execute=execute,
        description=to_bounded_text(read_field(definition, "description"), MAX_DESCRIPTION_CHARACTERS) or "",
        annotations=_read_annotations(definition),
        input_schema=read_field(definition, "input_schema", "inputSchema"),
        output_schema=read_field(definition, "output_schema", "outputSchema"),
        needs_approval=needs_approval
        if isinstance(needs_approval, bool)
        else _create_approval_check(needs_approval, name),
    )
    return McpTool(tool, tool_id, settings)


def _read_annotations(definition: Any) -> dict[str, Any]:
    annotations = to_bounded_annotations(mapping_or_empty(to_plain_json(read_field(definition, "annotations"))))
    title = to_bounded_text(read_field(definition, "title"))
    return {"title": title, **annotations} if title else annotations


def _create_approval_check(needs_approval: ApprovalCheck, name: str) -> Callable[[Any, ToolCallContext], Any]:
    call = getattr(needs_approval, "__call__", None)  # noqa: B004 - of an object
    if inspect.iscoroutinefunction(needs_approval) or inspect.iscoroutinefunction(call):

        async def await_approval_check(value: Any, context: ToolCallContext) -> Any:
            return await needs_approval(name, value, context)

        return await_approval_check
    return partial(needs_approval, name)

"""Sessions of any MCP SDK, and the tools that programs call through them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ...data.json_shape import run_bounded
from ...data.json_values import NOT_GIVEN, encode_json
from ...data.narrowing import is_mapping, is_sequence, mapping_or_empty, string_or_empty
from ...errors import CodeModeError, CodeModeToolError
from ...host.threads import LARGE_CHARACTERS, run_check
from ...schemas.compiled import ValidatedInput
from ...tools.context import ToolCallContext
from ...tools.prepared import MISSING, PreparedTool
from ...tools.server_lists import Cursors, LeftOut, plain_annotations, plain_text
from ...tools.tool import Tool
from ...tools.tool_result import ToolResult, is_block, result_of_server
from ...tools.tool_schemas import foreign_schemas
from ...trace.visible_text import one_line

# Imports no package of MCP. A session may be a stranger's: every list ends, and no answer holds binary values.

MAX_ITEMS = 10_000
_MANY_BLOCKS = LARGE_CHARACTERS
_MAX_SAID_CHARACTERS = 500
_MAX_VALUE_CHARACTERS = 300
_ANSWERED = "the server has answered, and the session cannot read the answer"
_ERRORS_OF_SERVERS = frozenset({"MCPError", "McpError"})
_CODES_WITHOUT_ANSWER = frozenset({-32000, -32001, 408})
"""Of the SDK for a closed connection, and for a request without an answer in time."""
_BINARY = ("data", "blob")


async def pages(
    list_page: Callable[..., Awaitable[Any]], *names: str, most: int = MAX_ITEMS, left_out: LeftOut | None = None
) -> tuple[list[Any], bool]:
    """Return what a server lists under one of these names, at most so many, and whether that is all of it.

    What is wrong with the list is noted in ``left_out``.
    """
    found: list[Any] = []
    known: set[Any] = set()
    cursors = Cursors(LeftOut() if left_out is None else left_out)
    while True:
        try:
            page = await (_next(list_page, cursors.cursor) if cursors.cursor is not None else list_page())
        except Exception as error:
            if cursors.cursor is None or not _is_answer(error):
                raise
            cursors.note_refusal(_said_in(error))
            return found, True
        items = page if is_sequence(page) else read(page, *names)
        items = [*items] if is_sequence(items) else []
        new = [one for one in items if _key(one) not in known]
        known.update(map(_key, new))
        found += new if cursors.is_repeat else items
        if len(found) > most:
            return found[:most], False
        if not cursors.follow(read(page, "next_cursor", "nextCursor"), has_new=bool(new)):
            return found, True


def _key(item: Any) -> Any:
    """Return what tells an item of a list from others."""
    return str(read(item, "uri", "uri_template", "uriTemplate", "name"))


def _next(list_page: Callable[..., Awaitable[Any]], cursor: str) -> Awaitable[Any]:
    """Ask for a page as this SDK does: by a cursor, or by parameters that have one."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(list_page).parameters
    except (TypeError, ValueError):
        parameters = {}
    if "cursor" in parameters or "params" not in parameters:
        return list_page(cursor=cursor)
    return list_page(params=_params_of(parameters["params"], list_page)(cursor=cursor))


def _params_of(parameter: inspect.Parameter, list_page: Callable[..., Any]) -> Any:
    """Return the class of the SDK for the parameters of a page, as the module of its session knows it."""
    known = getattr(inspect.unwrap(list_page), "__globals__", {})
    name = "PaginatedRequestParams"
    found = getattr(known.get("types"), name, None) or known.get(name)
    if found is None:
        raise TypeError(f"the session lists pages by {parameter}, which this surface cannot make")
    return found


def offers(session: Any, what: str) -> bool | None:
    """Tell whether a server says that it has tools, resources or prompts; None where nobody can say."""
    told = getattr(session, "server_capabilities", None)
    if told is None:
        ask = getattr(session, "get_server_capabilities", None)
        told = ask() if callable(ask) else None
    if told is None or callable(told) or inspect.isawaitable(told):
        return None
    return read(told, what) is not None


async def asked(answer: Awaitable[Any]) -> Any:
    """Return the answer of a server. What it says of a failure, be it of the protocol, is what programs are told."""
    try:
        return await answer
    except Exception as error:
        said = said_by_server(error)
        if said is None:
            raise
        raise CodeModeToolError(said) from error


def said_by_server(error: Exception) -> str | None:
    """Return what a server says in an error, or what of its answer an SDK refuses to read; None for other errors."""
    if _is_of_server(error):
        return f"the server says: {_said_in(error)}"
    if isinstance(error, RuntimeError) and "structured content" in str(error):
        return f"{_ANSWERED}: {one_line(str(error), _MAX_SAID_CHARACTERS)}"
    errors, title = getattr(error, "errors", None), getattr(error, "title", None)
    if not callable(errors) or not isinstance(title, str) or not title.endswith("Result"):
        return None  # of host code, whose values are not for programs
    try:
        first: Any = next(iter(cast("Any", errors())))
        place = ".".join(map(str, first["loc"])) or "the whole of it"
        value, why = one_line(repr(first["input"]), _MAX_VALUE_CHARACTERS), one_line(first["msg"], 200)
    except (TypeError, KeyError, StopIteration):
        return None
    return f"{_ANSWERED}: {place} is {value}: {why}"


def _is_of_server(error: Exception) -> bool:
    return any(one.__name__ in _ERRORS_OF_SERVERS for one in type(error).__mro__)


def _is_answer(error: Exception) -> bool:
    """Tell whether a server has answered with this error, and not the SDK for a server that did not answer."""
    return _is_of_server(error) and read(read(error, "error"), "code") not in _CODES_WITHOUT_ANSWER


def _said_in(error: Exception) -> str:
    return (string_or_empty(read(read(error, "error"), "message")) or str(error))[:_MAX_SAID_CHARACTERS]


async def result_of(answer: Awaitable[Any]) -> ToolResult:
    """Return what a called tool answers; what is of very many blocks is put together off the loop."""
    told = await asked(answer)
    content = read(told, "content")
    if is_sequence(content) and len(content) > _MANY_BLOCKS:
        return await run_check(len(content), partial(_result, told, content))
    return _result(told, content)


def _result(told: Any, content: Any) -> ToolResult:
    raw = dict(told) if is_mapping(told) else {}
    structured = read(told, "structured_content", "structuredContent")
    if structured is not None:
        raw["structuredContent"] = structured
    if content is None and (isinstance(told, str | int | float) or is_sequence(told)):
        content = told
    if is_sequence(content):
        content = [_Block(one) if is_block(one) else one for one in content]
    return result_of_server({**raw, "content": content, "isError": read(told, "is_error", "isError")})


class _Block:
    """A block of content, which is made plain when it is read, off the loop."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def model_dump(self, **_: Any) -> Any:
        """Return it as plain JSON without binary values."""
        return without_binary(plain(self._given))


async def shown(answer: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields of an answer as plain JSON, in a thread where there is much of it."""

    def work() -> dict[str, Any]:
        told = plain(answer)
        return {name: _shown(told[name]) for name in names if is_mapping(told) and name in told}

    return await run_bounded(answer, work)


async def all_plain(items: list[Any]) -> list[Any]:
    """Return the items of a list as plain JSON, likewise."""
    return await run_bounded(items, lambda: [plain(one) for one in items])


def _shown(value: Any) -> Any:
    if not is_sequence(value):
        return value
    return [_without_binary_content(one) for one in value]


def _without_binary_content(item: Any) -> Any:
    if is_mapping(item) and is_mapping(item.get("content")):
        return {**item, "content": without_binary(item["content"])}
    return without_binary(item)


def without_binary(block: Any) -> Any:
    """Return a block of content whose bytes are left out; they are counted, for a program gets no binary values."""
    if not is_mapping(block):
        return block
    if is_mapping(block.get("resource")):
        return {**block, "resource": without_binary(block["resource"])}
    left_out = [name for name in _BINARY if isinstance(block.get(name), str) and _is_binary(block, name)]
    if not left_out:
        return block
    size = sum(len(block[name]) * 3 // 4 for name in left_out)
    kept = {name: value for name, value in block.items() if name not in left_out}
    return {**kept, "omitted": f"about {size} bytes: programs get no binary values"}


def _is_binary(block: Mapping[Any, Any], name: str) -> bool:
    return name == "blob" or block.get("type") in ("image", "audio")


def plain(value: Any) -> Any:
    """Return a model of the SDK as plain JSON, and anything else as it is."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else value


def read(value: Any, *names: str) -> Any:
    """Return the first of these fields that a model or a mapping has; None where it has none.

    The names of the SDK now come first: libraries beside it warn of who reads its former ones.
    """
    for name in names:
        found = value.get(name, NOT_GIVEN) if is_mapping(value) else getattr(value, name, NOT_GIVEN)
        if found is not NOT_GIVEN:
            return found
    return None


MAX_NAME_CHARACTERS = 128
MAX_DESCRIPTION_CHARACTERS = 4000

Asks = Callable[[str, Any, ToolCallContext], Any]
"""``(name, input, context)``: whether a person is asked about this call of the tool that the server calls so."""


@dataclass(frozen=True)
class Making:
    """How the tools of a server are made: whether a person is ``asked``, and what a plugin makes of each."""

    asks: bool | Asks = False
    adapt: Callable[[Tool, str], Tool] | None = None

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return self.asks is not False or self.adapt is not None

    def adapted(self, tool: Tool, tool_id: str) -> Tool:
        """Return the tool that programs call."""
        return tool if self.adapt is None else self.adapt(tool, tool_id)


USUAL = Making()


@dataclass(frozen=True)
class ServerTool:
    """A tool of a server: its own ``name``, and its identifiers, the one that is shown first."""

    name: str
    names: tuple[str, ...]
    tool: McpTool


class McpTool(PreparedTool):
    """A tool, or a lookup, with its id, which takes one object. A schema that nobody can read takes anything."""

    def __init__(self, tool: Tool, tool_id: str, making: Making) -> None:
        made = making.adapted(tool, tool_id)
        super().__init__(made)
        self.id: str = tool_id
        self._schemas = foreign_schemas(tool_id, made.input_schema, made.output_schema)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check an input as every tool does; nothing given is an empty object."""
        if value is MISSING or value is None:
            value = {}
        if not is_mapping(value):
            error = CodeModeToolError(f"tool {self.name!r} takes one object", details={"tool_name": self.name})
            error.reason = "validation"
            raise error
        return super().validate_input(value)

    @property
    def text(self) -> str:
        """What tells it from another tool of its id."""
        try:
            schemas = [self.input_json_schema, self.output_json_schema]
            return f"{self.id} {encode_json(schemas, what='the schemas of a tool')}"
        except (CodeModeError, ValueError):  # one has a default that is no JSON
            return self.id


def name_of(listed: Any) -> str | None:
    """Return what a server calls a tool; None for a name by which no program could call it."""
    name = string_or_empty(read(listed, "name"))
    return name if name and len(name) <= MAX_NAME_CHARACTERS and name.isprintable() else None


def tool_of(session: Any, name: str, listed: Any, tool_id: str, making: Making) -> McpTool:
    """Return what a server lists as a tool of a program."""

    async def execute(value: Any, _context: Any) -> Any:
        return await result_of(session.call_tool(name, dict(value)))

    asks = making.asks
    made = Tool(
        name,
        execute=execute,
        description=plain_text(read(listed, "description"), MAX_DESCRIPTION_CHARACTERS) or "",
        annotations=_annotations(listed),
        input_schema=read(listed, "input_schema", "inputSchema"),
        output_schema=read(listed, "output_schema", "outputSchema"),
        needs_approval=asks if isinstance(asks, bool) else _asking(asks, name),
    )
    return McpTool(made, tool_id, making)


def _annotations(listed: Any) -> dict[str, Any]:
    given = plain_annotations(mapping_or_empty(plain(read(listed, "annotations"))))
    title = plain_text(read(listed, "title"))
    return {"title": title, **given} if title else given


def _asking(asks: Asks, name: str) -> Callable[[Any, ToolCallContext], Any]:
    if inspect.iscoroutinefunction(asks) or inspect.iscoroutinefunction(getattr(asks, "__call__", None)):  # noqa: B004

        async def ask(value: Any, context: ToolCallContext) -> Any:
            return await asks(name, value, context)

        return ask
    return partial(asks, name)

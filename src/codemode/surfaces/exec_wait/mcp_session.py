"""What a session of an MCP SDK is asked, whichever it is: pages of a list, what it offers, plain JSON of its answers.

Imports no package of MCP. A session may be a stranger's: every list ends, and no answer holds binary values.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import is_mapping, is_sequence, string_or_empty
from ...errors import CodeModeToolError
from ...host import steps
from ...host.threads import LARGE_CHARACTERS, run_check
from ...tools.tool_result import ToolResult

MAX_PAGES = 1000
MAX_ITEMS = 10_000
_MANY_BLOCKS = LARGE_CHARACTERS
_MAX_SAID_CHARACTERS = 500
_ERRORS_OF_SERVERS = frozenset({"MCPError", "McpError"})
_BINARY = ("data", "blob")


async def pages(list_page: Callable[..., Awaitable[Any]], *names: str, most: int = MAX_ITEMS) -> tuple[list[Any], bool]:
    """Return what a server lists under one of these names, at most so many, and whether that is all of it."""
    found: list[Any] = []
    seen: set[str] = set()
    cursor = ""
    for _ in range(MAX_PAGES):
        page = await (_next(list_page, cursor) if cursor else list_page())
        items = page if is_sequence(page) else read(page, *names)
        found += [*items][: most + 1 - len(found)] if is_sequence(items) else []
        if len(found) > most:
            return found[:most], False
        cursor = string_or_empty(read(page, "next_cursor", "nextCursor"))
        if not cursor:
            return found, True
        if cursor in seen:
            break
        seen.add(cursor)
    return found, False


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
        if not any(one.__name__ in _ERRORS_OF_SERVERS for one in type(error).__mro__):
            raise
        said = string_or_empty(read(read(error, "error"), "message")) or str(error)
        raise CodeModeToolError(f"the server says: {said[:_MAX_SAID_CHARACTERS]}") from error


async def result_of(answer: Awaitable[Any]) -> ToolResult:
    """Return what a called tool answers; what is of very many blocks is put together off the loop."""
    told = await asked(answer)
    content = read(told, "content")
    if is_sequence(content) and len(content) > _MANY_BLOCKS:
        return await run_check(len(content), partial(_result, told, content))
    return _result(told, content)


def _result(told: Any, content: Any) -> ToolResult:
    structured = read(told, "structured_content", "structuredContent")
    is_error = read(told, "is_error", "isError") is True
    blocks = tuple(map(_Block, content)) if is_sequence(content) else ()
    return ToolResult(blocks, NOT_GIVEN if structured is None else structured, is_error)


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

    return await run_check(0, work)


async def all_plain(items: list[Any]) -> list[Any]:
    """Return the items of a list as plain JSON, likewise."""
    return await run_check(0, lambda: [plain(one) for one in items])


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
    steps.take()
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

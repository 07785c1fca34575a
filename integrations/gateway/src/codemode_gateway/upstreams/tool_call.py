"""The time that one call has at its server; it stands still while a person is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from codemode.data.narrowing import is_array, is_mapping
from codemode.errors import CodeModeToolError

from ..config.model import ServerConfig
from ..page_urls import is_page
from .connection import Connection, LostRequestError
from .connection_errors import Lost
from .session_streams import SENDING, Sending


class Clock:
    """Gives a call so many seconds, over all the rounds that it takes."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._stops = 0
        self._deadline: asyncio.Timeout | None = None

    @property
    def has_passed(self) -> bool:
        """True once the time is over."""
        return self._deadline is not None and self._deadline.expired()

    @property
    def is_stopped(self) -> bool:
        """True while the time stands still."""
        return self._deadline is not None and self._deadline.when() is None

    def started(self) -> asyncio.Timeout:
        """Return a context that raises `TimeoutError` when the time is over."""
        self._deadline = asyncio.timeout(self._left)
        return self._deadline

    def stop(self) -> None:
        """Let it stand still."""
        self._stops += 1
        when = None if self._deadline is None else self._deadline.when()
        if self._stops == 1 and when is not None:
            self._left = max(when - asyncio.get_running_loop().time(), 0)
            self._set(None)

    def go_on(self) -> None:
        """Let it go on where it stood, once nobody has it stand still."""
        self._stops -= 1
        if not self._stops:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        with suppress(RuntimeError):  # it has passed, or its call has ended
            if self._deadline is not None:
                self._deadline.reschedule(when)


OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
TIMEOUT = "TIMEOUT"
_MAX_SAID = 20_000


async def called(connection: Connection, params: dict[str, Any], opts: CallOptions, clock: Clock) -> dict[str, Any]:
    """Call a tool and return the result as the server gave it. Raises `Lost`, and `MCPError` for what it refuses.

    When its time is over, or the task is cancelled, the server is told.
    """
    sending = Sending()
    sending.has_left = not connection.tells_sending
    token = SENDING.set(sending)
    try:
        async with clock.started():
            return await connection.requests.send_raw_request("tools/call", params, opts)
    except TimeoutError:
        if not clock.has_passed:
            raise Lost("its connection is stuck", never_arrived=not sending.has_left) from None
        raise Lost("it did not answer in time", never_arrived=not sending.has_left, is_late=True) from None
    except LostRequestError as error:
        raise error.lost from None
    except (OSError, RuntimeError):
        if connection.is_open:
            raise
        raise Lost("its connection was lost", never_arrived=not sending.has_left) from None
    finally:
        SENDING.reset(token)


def stamped(
    connection: Connection, method: str, params: dict[str, Any], capabilities: Mapping[str, Any]
) -> CallOptions:
    """Write into params, and return as headers, what the revision of a connection asks of every request."""
    version = connection.session.protocol_version or ""
    headers = {MCP_PROTOCOL_VERSION_HEADER: version}
    if connection.era == "modern":
        params["_meta"] = {
            **params.get("_meta", {}),
            types.PROTOCOL_VERSION_META_KEY: version,
            types.CLIENT_INFO_META_KEY: client_info().model_dump(mode="json", by_alias=True, exclude_none=True),
            types.CLIENT_CAPABILITIES_META_KEY: dict(capabilities),
        }
        headers[MCP_METHOD_HEADER] = method
        if "name" in params:
            headers[MCP_NAME_HEADER] = encode_header_value(params["name"])
    return {"headers": headers}


def mirrors_arguments(connection: Connection) -> bool:
    """Tell whether tools may want arguments in headers too: over HTTP from the revision 2026-07-28 on."""
    return connection.era == "modern" and not connection.tells_sending


def mirrored(connection: Connection, tool: types.Tool | None, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that a tool wants in headers too."""
    if tool is None or not mirrors_arguments(connection):
        return {}
    if find_invalid_x_mcp_header(tool.input_schema) is not None:
        return {}
    return mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)


@cache
def client_info() -> types.Implementation:
    """Return as what the gateway presents itself to servers."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("codemode-toolkit")
    except PackageNotFoundError:
        own = "0"
    return types.Implementation(name="codemode", version=own)


def refused(config: ServerConfig, tool: str, error: MCPError) -> CodeModeToolError:
    """Return the error for a call that a server does not take, in its own words."""
    said = error.error.message[:_MAX_SAID].strip() or f"server {config.name!r} refuses the call of {tool!r}"
    return CodeModeToolError(said, details={"tool_name": tool, "rpc_code": error.error.code})


def page_to_open(error: MCPError) -> str | None:
    """Return the page that a server wants its user to open before it takes a call; None where it wants none."""
    if error.error.code != types.URL_ELICITATION_REQUIRED or not is_mapping(error.error.data):
        return None
    asked = error.error.data.get("elicitations")
    first = asked[0] if is_array(asked) and asked else None
    url = first.get("url") if is_mapping(first) else None
    return url if isinstance(url, str) and url.isascii() and is_page(url) else None


def unknown_outcome(config: ServerConfig, tool: str, lost: Lost) -> CodeModeToolError:
    """Return the error for a call of which nobody knows whether it has happened."""
    reason = f"it did not answer within {config.timeout_ms} ms" if lost.is_late else lost.reason
    text = (
        f"the outcome of {tool!r} of server {config.name!r} is unknown: {reason}, and the call may have happened all"
        " the same; find out before it is made again"
    )
    return CodeModeToolError(text, code=OUTCOME_UNKNOWN, details={"tool_name": tool})


def failed_call(config: ServerConfig, tool: str, lost: Lost) -> CodeModeToolError:
    """Return the error for a call without an answer that can be made again without harm."""
    if lost.is_late:
        text = f"{tool!r} of server {config.name!r} did not answer within {config.timeout_ms} ms"
        return CodeModeToolError(text, code=TIMEOUT, details={"tool_name": tool, "timeout_ms": config.timeout_ms})
    return CodeModeToolError(
        f"{tool!r} of server {config.name!r} failed: {lost.reason}", code="SERVER_LOST", details={"tool_name": tool}
    )

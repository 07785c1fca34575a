"""Which trace a request belongs to, and its span. Records nothing that a client has said beyond that.

In place of the SDK's own middleware, whose spans take names, ids and words of errors as they come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from codemode.data.narrowing import mapping_or_empty
from codemode.observe.request_telemetry import request_span

from .client_table import TOOL_NAMES

_FORMS = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,100})?"),
    # A header neither begins nor ends with a space.
    "tracestate": re.compile(r"(?! )[\x20-\x7e]{1,512}(?<! )"),
    "baggage": re.compile(r"(?! )[\x20-\x7e]{1,8192}(?<! )"),
}
_OF_THE_SDK = ("initialize", "ping", "server/discover")


def trace_of(said: Mapping[str, Any]) -> dict[str, str]:
    """Return what of ``_meta``, or of headers, names a trace, where it has the form that W3C gives it.

    It goes on to servers, as headers too: whatever else somebody writes there goes nowhere.
    """
    found = {name: said.get(name) for name in _FORMS}
    fitting = {
        name: text for name, text in found.items() if isinstance(text, str) and _FORMS[name].fullmatch(text) is not None
    }
    return fitting if "traceparent" in fitting else {}


def trace_in(ctx: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the trace that the message of a `ServerRequestContext` names in its ``_meta``, and in its headers."""
    request = getattr(ctx, "request", None)
    return trace_of(mapping_or_empty(ctx.meta)), {} if request is None else trace_of(request.headers)


def traced(server: Server[Any]) -> Any:
    """Return a middleware that records each request as a span, below the one that the request names."""

    async def trace(ctx: Any, call_next: Any) -> Any:
        if ctx.request_id is None:
            return await call_next(ctx)
        said, brought = trace_in(ctx)
        name, attributes = _described(ctx, server)
        with request_span(name, attributes, said=said, brought=brought) as span:
            try:
                return await call_next(ctx)
            except MCPError as error:
                span.failed(str(error.error.code))
                raise
            except BaseException as error:
                span.failed(type(error).__name__)
                raise

    return trace


def _described(ctx: Any, server: Server[Any]) -> tuple[str, dict[str, str | int | float | bool]]:
    is_known = ctx.method in _OF_THE_SDK or server.get_request_handler(ctx.method) is not None
    method = ctx.method if is_known else "_OTHER"
    attributes: dict[str, str | int | float | bool] = {"mcp.method.name": method}
    if isinstance(ctx.protocol_version, str):
        attributes["mcp.protocol.version"] = ctx.protocol_version[:20]
    if method != "tools/call":
        return method, attributes
    attributes["gen_ai.operation.name"] = "execute_tool"
    tool = mapping_or_empty(ctx.params).get("name")
    if tool not in TOOL_NAMES:
        return method, attributes
    return f"{method} {tool}", {**attributes, "gen_ai.tool.name": tool}

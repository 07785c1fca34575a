"""The SDK's server with the handlers of a gateway. Runs nothing."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from codemode.trace.failures import log_failure

from ..passthrough.handlers import PassedOf, announcing, handlers, pass_logs
from .callers import kept_in_place
from .tool_shown import INSTRUCTIONS
from .tracing import traced

_MOST_CHARACTERS = 500
_log = logging.getLogger("codemode.mcp")


def made_server(list_tools: Any, call_tool: Any, passed_of: PassedOf, *, passes: bool) -> Server[Any]:
    """Return a server that answers with what these say. ``passes``: what servers have beside tools too."""
    passing = handlers(passed_of)
    told = {"on_subscriptions_listen": passing["on_subscriptions_listen"]}
    server: Server[Any] = Server(
        "codemode",
        version=metadata.version("codemode-toolkit"),
        title="codemode gateway",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **(passing if passes else told),
    )
    server.middleware[:] = [kept_in_place, traced(server)]
    if passes:
        pass_logs(server, passed_of)
        announce = announcing(passed_of)

        async def announced(ctx: Any, call_next: Any) -> Any:
            return await announce(ctx, call_next)

        server.middleware.append(announced)
    server.middleware.append(_says_what_is_wrong)
    return server


async def _says_what_is_wrong(ctx: Any, call_next: Any) -> Any:
    """Name what of a request does not fit, without its values; what is the gateway's own fault is for its log."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, _said(error)) from None
    except MCPError:
        raise
    except Exception as error:  # noqa: BLE001 - the SDK would hand its text to the client
        log_failure(_log, "a request could not be answered: %s", (ctx.method,), error)
        raise MCPError(types.INTERNAL_ERROR, "the gateway could not answer this request; its log says why") from None


def _said(error: ValidationError) -> str:
    wrong = (
        f"{'.'.join(str(part)[:60] for part in one['loc'][:6]) or 'params'}: {one['msg'][:120]}"
        for one in error.errors(include_input=False, include_url=False, include_context=False)[:3]
    )
    return f"the params of this request are not valid: {'; '.join(wrong)}"[:_MOST_CHARACTERS]

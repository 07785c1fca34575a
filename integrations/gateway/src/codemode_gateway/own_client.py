"""A client of a gateway in the same process: what it sees is what any client would. Decides nothing itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import Client

from .passthrough.client_requests import is_from_server

if TYPE_CHECKING:
    from .gateway.gateway import Gateway

Decide = Callable[[str], Awaitable[bool]]


async def listed_tool(gateway: Gateway) -> dict[str, Any]:
    """Return the tool as a client is listed it, as plain JSON."""
    async with Client(gateway.server) as client:
        (tool,) = (await client.list_tools()).tools
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


async def response_to(
    gateway: Gateway, code: str, decide: Decide, say: Callable[[str], None], confirm: Decide | None = None
) -> dict[str, Any]:
    """Run a program and return its response.

    ``decide`` is asked about each call that needs an approval, with what is shown of it. ``say`` gets lines for the
    person: a page on which to sign in, a question that was declined. ``confirm`` is asked about the page that a server
    wants opened, and must not answer for a person; without it that is declined, as a server's forms always are.
    """

    async def asked(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        asked_by_server = is_from_server(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            shown = f"{params.message}\n{params.url}"
            if not asked_by_server:
                say(shown)
                return types.ElicitResult(action="accept")
            is_confirmed = confirm is not None and await confirm(shown)
            return types.ElicitResult(action="accept" if is_confirmed else "decline")
        if asked_by_server:
            say(f"{params.message}\ndeclined: a server's form cannot be filled in here")
            return types.ElicitResult(action="decline")
        if await decide(params.message):
            return types.ElicitResult(action="accept", content={"decision": "once"})
        return types.ElicitResult(action="decline")

    async with Client(gateway.server, elicitation_callback=asked) as client:
        (tool,) = (await client.list_tools()).tools
        answer = await client.call_tool(tool.name, {"code": code})
    return answer.structured_content or _with_media(answer.content)


def _with_media(content: list[types.ContentBlock]) -> dict[str, Any]:
    """Return an answer with images or sounds in it: what is said, and how much there is to see or hear."""
    (text,) = (one.text for one in content if isinstance(one, types.TextContent))
    media = [one for one in content if isinstance(one, types.ImageContent | types.AudioContent)]
    attached = [f"{one.mime_type}, {len(one.data)} characters of base64" for one in media]
    return {**json.loads(text), **({"attached": attached} if attached else {})}

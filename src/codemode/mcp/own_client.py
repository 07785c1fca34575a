"""A client of a gateway in the same process: what it sees is what any client would. Decides nothing itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import Client

if TYPE_CHECKING:
    from .gateway.gateway import Gateway

Decide = Callable[[str], Awaitable[bool]]


async def listed_tool(gateway: Gateway) -> dict[str, Any]:
    """Return the tool as a client is listed it, as plain JSON."""
    async with Client(gateway.server) as client:
        (tool,) = (await client.list_tools()).tools
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


async def response_to(gateway: Gateway, code: str, decide: Decide, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a program and return its response.

    ``decide`` is asked about each call that needs a person, with what the person is shown; ``say`` gets what somebody
    has to be told: a page to open.
    """

    async def asked(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        if isinstance(params, types.ElicitRequestURLParams):
            say(f"{params.message}\n{params.url}")
            return types.ElicitResult(action="accept")
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

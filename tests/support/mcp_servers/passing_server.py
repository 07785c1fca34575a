"""An MCP server on stdio with one of each: a tool that asks, prompt, resource, template, completion, updates, a log.

``python passing_server.py FILE``: FILE holds the description of its tools.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
levels: list[types.LoggingLevel] = []
_NOTHING: dict[str, Any] = {"type": "object"}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    said = await asyncio.to_thread(Path(sys.argv[1]).read_text, "utf-8")
    hints = types.ToolAnnotations(read_only_hint=True)
    names = ("greet", "list_issues", "touch")
    return types.ListToolsResult(
        tools=[types.Tool(name=one, description=said, input_schema=_NOTHING, annotations=hints) for one in names]
    )


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "greet":
        answer = await ctx.session.elicit_form("Who are you?", FORM, related_request_id=ctx.request_id)
        text = f"{answer.action} {(answer.content or {}).get('name')}"
    elif params.name == "touch":
        await ctx.session.send_resource_updated("notes://today")
        for level in levels[-1:]:  # it logs nothing before it is asked to
            logged = types.LoggingMessageNotificationParams(
                level=level, logger="hand", data={"touched": "notes://today"}
            )
            await ctx.session.send_notification(types.LoggingMessageNotification(params=logged), ctx.request_id)
        text = "touched"
    else:
        text = json.dumps([{"number": number, "title": f"private {number}"} for number in (1, 2)])
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def list_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="review", description="Review it.")])


async def get_prompt(_ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    content = types.TextContent(text=f"Review {params.arguments}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(name="today", uri="notes://today")])


async def list_templates(_ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
    found = types.ResourceTemplate(name="day", uri_template="notes://days/{day}")
    return types.ListResourceTemplatesResult(resource_templates=[found])


async def read(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=f"read {params.uri}")])


async def complete(_ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[f"{params.argument.value}1"]))


async def set_level(_ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    levels.append(params.level)
    return types.EmptyResult()


async def subscribe(_ctx: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def main() -> None:
    server: Server[Any] = Server(
        "passing",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_completion=complete,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=subscribe,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    async with stdio_server() as (reading, writing):
        options = server.create_initialization_options(NotificationOptions(resources_changed=True))
        await server.run(reading, writing, options)


if __name__ == "__main__":
    asyncio.run(main())

"""What the conformance suite asks of a server's prompts and resources, as a server over stdio.

The gateway puts a server's name before its prompts: under the name ``test`` these are called what the suite calls them.
Its one tool lets a program be tried.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
PROMPTS: dict[str, tuple[str, ...]] = {
    "simple_prompt": (),
    "prompt_with_arguments": ("arg1", "arg2"),
    "prompt_with_embedded_resource": ("resourceUri",),
    "prompt_with_image": (),
    "input_required_result_prompt": (),
}
RESOURCES = {
    "test://static-text": "text/plain",
    "test://static-binary": "image/png",
    "test://watched-resource": "text/plain",
}
TEMPLATE = "test://template/{id}/data"


async def tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    }
    hints = types.ToolAnnotations(read_only_hint=True)
    return types.ListToolsResult(tools=[types.Tool(name="add", input_schema=schema, annotations=hints)])


async def called(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    return types.CallToolResult(content=[text(str(given["a"] + given["b"]))])


def text(said: str) -> types.TextContent:
    return types.TextContent(text=said)


async def prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=name.replace("_", " "),
                arguments=[types.PromptArgument(name=one, required=True) for one in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
    )


async def prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    if params.name == "input_required_result_prompt":
        schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        answer = await ctx.session.elicit_form("What context should the prompt use?", schema)
        said: list[Any] = [text(f"The context is {(answer.content or {}).get('context', answer.action)}")]
    elif params.name == "simple_prompt":
        said = [text("This is a simple prompt for testing.")]
    elif params.name == "prompt_with_arguments":
        said = [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
    elif params.name == "prompt_with_image":
        said = [types.ImageContent(data=PIXEL, mime_type="image/png"), text("Please analyze the image above.")]
    elif params.name == "prompt_with_embedded_resource":
        inside = types.TextResourceContents(uri=given["resourceUri"], mime_type="text/plain", text="Embedded.")
        said = [types.EmbeddedResource(resource=inside), text("Please process the embedded resource above.")]
    else:
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in said])


async def resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    found = [types.Resource(name=uri.partition("://")[2], uri=uri, mime_type=kind) for uri, kind in RESOURCES.items()]
    return types.ListResourcesResult(resources=found)


async def templates(_ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
    found = [types.ResourceTemplate(name="template", uri_template=TEMPLATE, mime_type="application/json")]
    return types.ListResourceTemplatesResult(resource_templates=found)


async def resource(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = params.uri
    before, _, after = TEMPLATE.partition("{id}")
    if uri == "test://static-binary":
        content: Any = types.BlobResourceContents(uri=uri, mime_type=RESOURCES[uri], blob=PIXEL)
    elif uri in RESOURCES:
        content = types.TextResourceContents(uri=uri, mime_type=RESOURCES[uri], text=f"This is the content of {uri}.")
    elif uri.startswith(before) and uri.endswith(after):
        which = uri[len(before) : -len(after)]
        said = json.dumps({"id": which, "templateTest": True, "data": f"Data for ID: {which}"})
        content = types.TextResourceContents(uri=uri, mime_type="application/json", text=said)
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", data={"uri": uri})
    return types.ReadResourceResult(contents=[content])


async def nothing(_ctx: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def completion(_ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    found = [one for one in ("paris", "park", "test1", "test2") if one.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=found, total=len(found), has_more=False))


SERVER = Server(
    "conformance-fixture",
    on_list_tools=tools,
    on_call_tool=called,
    on_list_prompts=prompts,
    on_get_prompt=prompt,
    on_list_resources=resources,
    on_list_resource_templates=templates,
    on_read_resource=resource,
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_completion=completion,
)
SERVER.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)


async def main() -> None:
    async with stdio_server() as (reading, writing):
        await SERVER.run(
            reading, writing, SERVER.create_initialization_options(NotificationOptions(resources_changed=True))
        )


if __name__ == "__main__":
    asyncio.run(main())

"""A server of MCP in this process, of either SDK, and what programs get of its tools as an adapter makes them."""

from __future__ import annotations

import json
from typing import Any

from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langgraph.types import Command
from scripted_agent import CONFIG, START, agent, content

PICTURE = "aGVsbG8="
JS = """
const said = [await tools.stock({ product: 'bolt' }), await tools.motto({})];
try { await tools.fail({}); } catch (error) { said.push(error.message); }
const [shown] = (await tools.picture({})).content;
return [...said, [shown.kind, shown.mimeType, shown.bytes]];
"""
DELETES = """
const { left } = await tools.stock({ product: 'nut' });
return [left, await tools.touch({}), ...await Promise.all([tools.drop({ id: 'a' }), tools.motto({})])];
"""


class Desk:
    """The tools of a server, and what they did. ``types`` is the SDK's module of types."""

    def __init__(self, server: Any, types: Any, failure: type[Exception]) -> None:
        self.server = server
        self.done: list[str] = []
        hints = types.ToolAnnotations

        @server.tool(annotations=hints(readOnlyHint=True))
        def stock(product: str) -> dict[str, int]:
            """How many of a product are left."""
            return {"left": len(product)}

        @server.tool(structured_output=False)
        def motto() -> str:
            """What is written above the door."""
            return "Measure twice."

        @server.tool(annotations=hints(readOnlyHint=True))
        def fail() -> str:
            """Fail."""
            raise failure("the shelf is locked")

        @server.tool(structured_output=False, annotations=hints(readOnlyHint=True))
        def picture() -> Any:
            """Show the shelf."""
            return types.ImageContent(type="image", data=PICTURE, mimeType="image/png")

        @server.tool(structured_output=False, annotations=hints(destructiveHint=True))
        def drop(id: str) -> str:  # noqa: A002 - what a model would call it
            """Drop a product."""
            self.done.append(id)
            return f"dropped {id}"

        @server.tool(structured_output=False, annotations=hints(destructiveHint=False))
        def touch() -> str:
            """Change nothing that anybody would miss."""
            return "touched"


async def seen(tools: list[Any]) -> dict[str, Any]:
    """What a program, the model and a person get of these tools."""
    code_mode = create_code_mode_tool(tools)
    graph = agent([DELETES], tools, CodeModeMiddleware(approve="destructive"))
    paused = await graph.ainvoke(START, CONFIG)
    waiting = [one.value["name"] for one in paused["__interrupt__"]]
    answers = {one.id: {"type": "approve"} for one in paused["__interrupt__"]}
    output = await graph.ainvoke(Command(resume=answers), CONFIG)
    return {
        "declared": code_mode.description,
        "given": await code_mode.ainvoke({"js": JS}),
        "waiting": waiting,
        "dropped": json.loads(content(output)),
    }

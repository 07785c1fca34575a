"""Servers for programs that are modules, and short ways to run one."""

from __future__ import annotations

import asyncio
from typing import Any

from codemode import CodeModeToolError, ModuleServer, Tool, ToolResult, create_run_tool

USER = {"type": "object", "properties": {"login": {"type": "string"}}, "required": ["login"]}
USER_OUT = {
    "type": "object",
    "properties": {"login": {"type": "string"}, "id": {"type": "integer"}},
    "required": ["login", "id"],
}
ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "labels": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title"],
    "examples": [{"title": "It is broken"}],
    "additionalProperties": False,
}
NUMBERS = {"type": "array", "items": {"type": "number"}}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def giving(name: str, value: Any) -> Tool:
    """A tool that gives a value, whatever it is given."""
    return Tool(name, execute=lambda _: value)


async def broken(_input: Any) -> None:
    raise CodeModeToolError("upstream said: quota exceeded")


async def slow(_input: Any) -> str:
    await asyncio.sleep(30)
    return "late"


def github(did: list[Any] | None = None) -> ModuleServer:
    """A server with tools of every kind. ``did`` notes what ran, with what."""
    seen: list[Any] = [] if did is None else did

    def user(given: Any) -> Any:
        seen.append(("get_user", given))
        return {"login": given["login"], "id": len(given["login"])}

    def issue(given: Any) -> Any:
        seen.append(("create-issue", given))
        return {"number": len(seen), **given}

    return ModuleServer(
        "github",
        [
            Tool("get_user", execute=user, description="Look a user up.", input_schema=USER, output_schema=USER_OUT,
                 annotations={"readOnlyHint": True}),
            Tool("create-issue", execute=issue, description="Open an issue.", input_schema=ISSUE,
                 annotations={"destructiveHint": False, "idempotentHint": False}),
            Tool("ping", execute=lambda _: "pong", description="Say pong."),
            Tool("sum", execute=lambda numbers: sum(numbers), description="Add numbers.", input_schema=NUMBERS),
            Tool("broken", execute=broken, description="Always fails."),
            Tool("slow", execute=slow, description="Takes half a minute."),
            Tool("text", execute=lambda _: ToolResult([{"type": "text", "text": '{"not": "parsed"}'}])),
            Tool("image", execute=lambda _: ToolResult([IMAGE])),
            Tool("both", execute=lambda _: ToolResult([{"type": "text", "text": "ignored"}], structured_content=0)),
            Tool("two", execute=lambda _: ToolResult([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),
            Tool("fails", execute=lambda _: ToolResult([{"type": "text", "text": "no such branch"}], is_error=True)),
        ],
        name="GitHub", version="2.1.0", description="Code and issues.", capabilities=("tools",),
    )  # fmt: skip


def drive() -> ModuleServer:
    """A server whose id is no path, with names that are no identifiers."""
    names = ("list.files", "list-files", "123go", "class", "then")
    return ModuleServer("Google  Drive!", [giving(name, name) for name in names], name="Drive")


async def respond(code: str, *servers: Any, pool: Any = None, **more: Any) -> Any:
    """Run one module over these servers, or `github` and `drive`."""
    options, settings = more.pop("options", None), more.pop("settings", None)
    run = create_run_tool(list(servers) or [github(), drive()], options, settings=settings, pool=pool)
    return await run.execute({"code": code, **more})


async def result_of(code: str, *servers: Any, **more: Any) -> Any:
    """The result of a module that ends well, with nothing to say about it."""
    response = await respond(code, *servers, **more)
    assert response["diagnostics"] == [], response
    return response["result"]


def codes(response: Any) -> list[str]:
    """The codes of the diagnostics, in order."""
    return [one["code"] for one in response["diagnostics"]]

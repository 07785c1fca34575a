"""Servers for programs of `codemode.run`, and how tests run one and read its answer."""

from __future__ import annotations

import asyncio
from typing import Any

from waiting import within

from codemode import CodeModeToolError, ModuleServer, RunTool, Tool, ToolResult, create_modules_tool
from codemode.errors import CodeModeAuthenticationError
from codemode.types import RunResponse

RESULT = "globalThis.__codemode_result__ = "
HUB = 'import * as hub from "@codemode/servers/git-hub";\n'
STRICT = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "count": {"type": "integer", "default": 3}},
    "required": ["title"],
    "examples": [{"title": "own"}],
}


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def raises(error: BaseException) -> Any:
    def fail(_value: Any) -> None:
        raise error

    return fail


async def hang(_value: Any) -> None:
    await asyncio.Event().wait()


def answers(name: str, *blocks: Any, **more: Any) -> Tool:
    return Tool(name, execute=lambda _: ToolResult(blocks, **more))


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
TOOLS = [
    Tool("create-issue", execute=lambda value: value, input_schema=STRICT, description="Opens an issue."),
    Tool("echo", execute=lambda value: value),
    Tool("nothing", execute=lambda _: None, input_schema={"type": "object"}),
    Tool("list", execute=lambda value: value, input_schema={"type": "array", "items": {"type": "integer"}}),
    Tool("fails", execute=raises(RuntimeError("boom in /srv/app/x.py with hunter2"))),
    Tool("refuses", execute=raises(CodeModeToolError("no repository hunter2/x", code="NO_REPO"))),
    Tool("signed-out", execute=raises(CodeModeAuthenticationError("the token has expired"))),
    answers("is-error", text_block("it broke"), text_block("badly"), is_error=True),
    answers("structured", text_block("ignored"), structured_content={"a": 1}),
    answers("zero", text_block("ignored"), structured_content=0),
    answers("text", text_block('{"not": "parsed"}')),
    answers("image", text_block("a picture"), IMAGE),
    answers("several", text_block("one"), text_block("two")),
    Tool("hangs", execute=hang),
    Tool("gated", execute=lambda value: value, needs_approval=True),
]


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


def giving(name: str, value: Any) -> Tool:
    """A tool that gives a value, whatever it is given."""
    return Tool(name, execute=lambda _: value)


def github(did: list[Any] | None = None) -> ModuleServer:
    """A server with tools of every kind. ``did`` notes what was done, with what."""
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
            Tool("broken", execute=raises(CodeModeToolError("upstream said: quota exceeded")), description="Fails."),
            answers("text", text_block('{"not": "parsed"}')),
            answers("image", IMAGE),
            answers("both", text_block("ignored"), structured_content=0),
            answers("two", text_block("a"), text_block("b")),
            answers("fails", text_block("no such branch"), is_error=True),
        ],
        name="GitHub", version="2.1.0", description="Code and issues.", capabilities=("tools",),
    )  # fmt: skip


def drive() -> ModuleServer:
    """A server whose id is no path, with names that are no identifiers."""
    names = ("list.files", "list-files", "123go", "class", "then")
    return ModuleServer("Google  Drive!", [giving(name, name) for name in names], name="Drive")


def servers() -> list[ModuleServer]:
    mail = ModuleServer("mail", {"send": lambda to: f"sent to {to}", "then": lambda: "then"}, description="Sends mail.")
    return [ModuleServer("Git Hub", TOOLS, version="2.1", capabilities=["tools"]), mail]


def run_tool(**given: Any) -> RunTool:
    settings = given.pop("settings", None)
    return create_modules_tool(servers(), {"secrets": ["hunter2"], **given}, settings=settings)


def answer(code: str, tool: RunTool | None = None, **request: Any) -> RunResponse:
    """Run a program and return its response, checked for what all of them have."""
    response = within((tool or run_tool()).execute({"code": code, **request}))
    check_response(response)
    return response


def check_response(response: Any) -> None:
    assert type(response) is RunResponse
    assert {"logs", "result", "diagnostics"} <= response.keys() <= {*ALWAYS, "toolTrace", "declarations"}
    order = ["error", "warning", "info"]
    severities = [order.index(one["severity"]) for one in response["diagnostics"]]
    assert severities == sorted(severities)
    assert all(one["code"] and one["message"] for one in response["diagnostics"])
    if 0 in severities:
        assert response["result"] is None
        assert response.exception is not None
    assert "hunter2" not in str(dict(response))
    assert "/srv" not in str(dict(response))


ALWAYS = ("logs", "result", "diagnostics")


def result_of(code: str, tool: RunTool | None = None, **request: Any) -> Any:
    """Return what a program leaves as its result; nothing may be wrong with it."""
    response = answer(f"{code}\n", tool, **request)
    assert response["diagnostics"] == [], response["diagnostics"]
    return response["result"]


def only(code: str, program: str, tool: RunTool | None = None, **request: Any) -> Any:
    """Return the one diagnostic that a program has, which must be of this code."""
    [said] = answer(program, tool, **request)["diagnostics"]
    assert said["code"] == code, said
    return said


def over(*given: Any, **options: Any) -> RunTool:
    """Return a tool over these servers, or `github` and `drive`."""
    return create_modules_tool(list(given) or [github(), drive()], options)


def codes(response: RunResponse) -> list[str]:
    """Return the codes of the diagnostics, in order."""
    return [one["code"] for one in response["diagnostics"]]

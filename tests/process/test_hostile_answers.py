"""Tools whose answers and errors are objects with methods of their own, in every face: a call fails, never the run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from in_loop import in_loop
from module_servers import RESULT, check_response, raises

from codemode import (
    CodeModeError,
    CodeModeToolError,
    ModuleServer,
    Tool,
    ToolResult,
    create_code_call_tools,
    create_code_mode_tool,
    create_modules_tool,
)
from codemode.errors import CodeModeAuthenticationError

MANY = 3_000
FAILED = {"type": "text", "text": "no"}


def _refuse(*_: Any) -> Any:
    raise RuntimeError("touched")


class Text(str):
    """Text whose methods all raise; what it is remains to be read."""

    __slots__ = ()
    __str__ = __len__ = __getitem__ = __iter__ = __contains__ = __eq__ = __add__ = __format__ = _refuse
    __hash__ = str.__hash__
    replace = encode = split = strip = partition = startswith = lower = _refuse


class Details(dict[str, Any]):
    __getitem__ = __iter__ = __len__ = __contains__ = keys = items = values = get = copy = _refuse


def _with_details(error: CodeModeError) -> CodeModeError:
    error.details = Details(a=1)
    return error


ERRORS = [
    CodeModeToolError(Text("said")),
    CodeModeToolError("said", code=Text("OWN")),
    CodeModeAuthenticationError(Text("said")),
    CodeModeError(Text("said"), code=Text("OWN")),
    _with_details(CodeModeToolError("said")),
]


@pytest.mark.parametrize("error", ERRORS)
@in_loop
async def test_an_error_whose_fields_have_methods_fails_one_call(error: CodeModeError):
    def caught(call: str) -> str:
        return f"let caught = false; try {{ await {call}; }} catch (error) {{ caught = error instanceof Error; }}"

    tools = [Tool("fails", execute=raises(error)), Tool("works", execute=lambda _: 1)]
    js = f"{caught('tools.fails()')} return [caught, await tools.works()];"
    assert await create_code_mode_tool(tools).execute({"js": js}) == [True, 1]
    script = f"{caught('callTool(`fails`, {})')} return [caught, await callTool('works', {{}})];"
    assert (await create_code_call_tools(tools).execute({"script": script}))["result"] == [True, 1]
    code = f'import * as s from "@codemode/servers/s"; {caught("s.fails()")} {RESULT}[caught, await s.works()];'
    response = await create_modules_tool([ModuleServer("s", tools)]).execute({"code": code})
    check_response(response)
    assert response["result"] == [True, 1]


class Block:
    """A content block that notes in which thread it is read."""

    threads: list[int]

    def __init__(self, said: dict[str, Any], threads: list[int]) -> None:
        self.said = said
        self.threads = threads

    def model_dump(self, **_: Any) -> dict[str, Any]:
        self.threads.append(threading.get_ident())
        return self.said


@pytest.mark.parametrize("is_error", [False, True])
@in_loop
async def test_many_blocks_are_read_beside_the_loop(is_error: bool):
    threads: list[int] = []
    result = ToolResult([Block(FAILED, threads)] * MANY, is_error=is_error)

    async def many(_: Any) -> ToolResult:
        return result

    run = create_modules_tool([ModuleServer("s", [Tool("many", execute=many)])])
    code = f"""import {{ many }} from "@codemode/servers/s";
    {RESULT}await many().then((all) => all.content.length, (error) => error.message.slice(0, 5));"""
    response = await run.execute({"code": code})
    assert response["result"] == ("no\nno" if is_error else MANY)
    assert threads.count(threading.get_ident()) < MANY // 4
    assert len(threads) >= MANY


def _broken(*_: Any) -> Any:
    raise ValueError("the database of /srv/approvals is down")


async def _never_told(*_: Any) -> Any:
    raise ConnectionError("the database of /srv/approvals is down")


UNDECIDED: list[tuple[Any, Any]] = [
    (True, None),
    (True, lambda _: None),
    (True, _broken),
    (True, _never_told),
    (_broken, lambda _: "approved"),
    (_never_told, lambda _: "approved"),
]


@pytest.mark.parametrize(("needs_approval", "ask"), UNDECIDED)
@in_loop
async def test_an_approval_that_nobody_came_to_decide_is_required_still(needs_approval: Any, ask: Any):
    ran: list[Any] = []
    gated = Tool("gated", execute=ran.append, needs_approval=needs_approval)
    settings = {"approval": {"on_approval_required": ask}}
    run = create_modules_tool([ModuleServer("s", [gated])], settings=settings)
    imported = 'import { gated } from "@codemode/servers/s";'
    response = await run.execute(
        {"code": f"{imported}{RESULT}await gated().catch((e) => [e.name, e.code, e.message]);"}
    )
    name, code, message = response["result"]
    assert (name, code) == ("ToolCallError", "APPROVAL_REQUIRED")
    assert "database" not in message
    assert response["toolTrace"][0]["error"] == "ToolCallError APPROVAL_REQUIRED"
    response = await run.execute({"code": f"{imported}await gated();"})
    assert response["diagnostics"][0]["errorClass"] == "ToolCallError"
    assert "approve" in response["diagnostics"][0]["hint"]
    assert ran == []


@pytest.mark.parametrize("answer", [True, False, 5, object(), {}, {"approved": "yes"}, ["approved"]])
@in_loop
async def test_a_decision_that_is_none_is_the_hosts_to_mend(answer: Any):
    ran: list[Any] = []
    gated = Tool("gated", execute=ran.append, needs_approval=True)
    settings = {"approval": {"on_approval_required": lambda _: answer}}
    run = create_modules_tool([ModuleServer("s", [gated])], settings=settings)
    response = await run.execute({"code": 'import { gated } from "@codemode/servers/s"; await gated();'})
    check_response(response)
    [said] = response["diagnostics"]
    assert said["code"] == "WORKER_FAILED"
    assert "decision" in said["message"]
    assert "memory" not in said["hint"]
    assert ran == []

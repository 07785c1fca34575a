"""Why a call was denied reaches the program on every surface, where the host shows it, and nowhere else."""

from __future__ import annotations

from typing import Any

from codemode import (
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)

REASON = "not before the release"
SETTLED = "const [one] = await Promise.allSettled([@pay({})]); return one"
CAUGHT = "try { await @pay({}) } catch (error) { return { reason: error } }"


def never(_value: Any) -> None:
    raise AssertionError("a denied call ran")


def answers(body: str, *, show: bool) -> dict[str, Any]:
    """Run a program on each surface and return its results by the surface's name."""
    tools = [Tool("pay", execute=never, needs_approval=True)]
    approval = {"show_denial_reason": show, "on_approval_required": lambda _: {"approved": False, "reason": REASON}}
    settings = {"approval": approval}
    js, script = body.replace("@", "tools."), body.replace("@pay(", "callTool('pay', ")
    code = 'import { pay } from "@codemode/servers/shop";\nglobalThis.__codemode_result__ = '
    code += f"await (async () => {{ {body.replace('@', '')} }})();"
    return {
        "codeMode": create_code_mode_tool(tools, settings).execute_sync({"js": js}),
        "exec": create_exec_wait_tools(tools, settings=settings).exec.execute_sync({"code": js})["value"],
        "CodeCall": create_code_call_tools(tools, {"settings": settings}).execute_sync({"script": script})["result"],
        "modules": create_modules_tool([ModuleServer("shop", tools)], settings=settings).execute_sync({"code": code})[
            "result"
        ],
    }


def test_the_reason_of_a_denial_survives_all_settled_and_a_catch():
    for body in (SETTLED, CAUGHT):
        for surface, value in answers(body, show=True).items():
            assert REASON in value["reason"]["message"], (surface, value)


def test_the_reason_of_a_denial_stays_with_the_host_where_it_is_not_shown():
    for body in (SETTLED, CAUGHT):
        for surface, value in answers(body, show=False).items():
            assert value["reason"]["message"], surface
            assert REASON not in str(value), (surface, value)

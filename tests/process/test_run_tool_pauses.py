"""Programs of `codemode.run` that pause for a person, go on, and are recovered: with the same limits and notes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from module_servers import HUB, RESULT, check_response, servers
from waiting import within

from codemode import CodeModeProtocolError, Interrupt, ModuleServer, RunTool, Tool, create_modules_tool
from codemode.execution import runner
from codemode.types import RunResponse

PAUSING = {"approval": {"mode": "interrupt"}, "continuation": {"keys": ["k" * 32]}}
CODE = f"""{HUB}console.log("before");
const one = await hub.echo(1);
const two = await hub.gated({{ x: 1 }}).catch((error) => error.code);
console.log("after");
{RESULT}[one, two];"""


def pausing(*more: ModuleServer) -> RunTool:
    return create_modules_tool([*servers(), *more], settings=PAUSING)


@pytest.fixture
def late(passing_time: Any) -> ModuleServer:
    """A server whose tools are reached, and then a minute has passed."""

    async def hangs(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    async def ends(_value: Any) -> None:
        passing_time.skip(61)

    return ModuleServer("late", [Tool("hangs", execute=hangs), Tool("gated", execute=ends, needs_approval=True)])


LATE = 'import * as late from "@codemode/servers/late";\n'


def paused(tool: RunTool, code: str = CODE, **request: Any) -> Interrupt:
    interrupt = within(tool.execute({"code": code, **request}))
    assert isinstance(interrupt, Interrupt)
    return interrupt


def resumed(tool: RunTool, interrupt: Any, resolution: Any) -> RunResponse:
    response = within(tool.resume(interrupt, resolution))
    check_response(response)
    return response


@pytest.mark.parametrize(
    ("resolution", "second"),
    [
        ({"approved": True}, {"x": 1}),
        ({"approved": True, "input": {"x": 2}}, {"x": 2}),
        ({"approved": False, "reason": "no"}, "APPROVAL_DENIED"),
    ],
)
def test_a_program_pauses_and_goes_on_wherever_its_pause_was_kept(resolution: Any, second: Any):
    kept = json.loads(json.dumps(paused(pausing()).to_dict()))
    response = resumed(pausing(), kept, resolution)
    assert response["result"] == [1, second]
    assert response["diagnostics"] == []
    assert [line["message"] for line in response["logs"]] == ["before", "after"]
    assert [one["toolName"] for one in response["toolTrace"]] == ["echo", "gated"]


def test_what_was_said_before_a_pause_is_said_after_it():
    tool = pausing()
    request = {"limits": {"timeoutMs": "soon", "maxToolCalls": 2}, "requestedCapabilities": ["nothing", "mail"]}
    interrupt = paused(tool, f"{CODE}\nawait hub.echo(3);", **request)
    response = resumed(tool, interrupt, {"approved": True})
    assert [one["code"] for one in response["diagnostics"]] == [
        "SANDBOX_LIMIT",
        "LIMIT_ADJUSTED",
        "CAPABILITY_UNAVAILABLE",
    ]
    assert "maxToolCalls is 2" in response["diagnostics"][0]["message"]
    assert list(response["diagnostics"][1]) == ["severity", "code", "message", "hint", "path"]


@pytest.mark.parametrize(
    ("limits", "code", "said"),
    [
        ({"timeoutMs": 60_000}, "for (;;);", "timeoutMs is 60000"),
        ({"maxResultBytes": 5}, f"{RESULT}'x'.repeat(50)", "maxResultBytes is 5"),
        ({"maxMemoryBytes": 3 << 20}, "const a = []; for (;;) a.push(String(a.length).repeat(999));", str(3 << 20)),
    ],
)
def test_the_limits_of_a_request_hold_after_its_pause(
    late: ModuleServer, monkeypatch: pytest.MonkeyPatch, limits: Any, code: str, said: str
):
    monkeypatch.setattr(runner, "_DEADLINE_GRACE_MS", 100)  # nothing is awaited of a program whose time is over
    tool, pause = (pausing(late), f"{LATE}await late") if "timeoutMs" in limits else (pausing(), f"{HUB}await hub")
    interrupt = paused(tool, f"{pause}.gated(1);\n{code}", limits=limits)
    [diagnostic] = resumed(tool, interrupt, {"approved": True})["diagnostics"]
    assert said in diagnostic["message"]


def test_declarations_come_with_the_answer_after_a_pause():
    tool = create_modules_tool(servers(), {"max_description_characters": 1_500}, settings=PAUSING)
    interrupt = paused(tool, CODE, requestedCapabilities=["mail"])
    assert 'declare module "@codemode/servers/mail"' in resumed(tool, interrupt, {"approved": True})["declarations"]


@pytest.mark.parametrize("interrupt", [None, 5, "x", {}, {"type": "code-mode-interrupt"}])
def test_what_is_no_interrupt_is_refused(interrupt: Any):
    with pytest.raises(CodeModeProtocolError):
        within(pausing().resume(interrupt, {"approved": True}))


@pytest.mark.parametrize("resolution", [5, {}, {"approved": "yes"}, {"value": 1}])
def test_answers_that_do_not_fit_are_refused_and_the_pause_still_holds(resolution: Any):
    tool = pausing()
    interrupt = paused(tool)
    with pytest.raises(CodeModeProtocolError):
        within(tool.resume(interrupt, resolution))
    assert resumed(tool, interrupt, {"approved": True})["result"] == [1, {"x": 1}]


def test_a_pause_goes_on_once_and_the_same_answers_give_the_same_result():
    tool = pausing()
    interrupt = paused(tool)
    first = resumed(tool, interrupt, {"approved": True})
    again = resumed(tool, interrupt, {"approved": True})
    assert again["result"] == first["result"]
    with pytest.raises(CodeModeProtocolError, match="already"):
        within(tool.resume(interrupt, {"approved": False}))


def test_several_questions_are_one_interrupt():
    tool = pausing()
    interrupt = paused(tool, f"{HUB}{RESULT}await Promise.all([hub.gated(1), hub.echo(2), hub.gated(3)]);")
    assert len(interrupt.requests) == 2
    rest = within(tool.resume(interrupt, {"approved": True}))
    assert isinstance(rest, Interrupt)
    assert resumed(tool, rest, {"approved": True})["result"] == [1, 2, 3]


def test_tools_that_have_changed_since_are_said():
    interrupt = paused(pausing())
    others = [Tool("echo", execute=lambda value: value), Tool("gated", execute=lambda _: "new", needs_approval=True)]
    tool = create_modules_tool([ModuleServer("Git Hub", others)], settings=PAUSING)
    response = resumed(tool, interrupt, {"approved": True})
    assert response["result"] == [1, "new"]
    assert [(one["code"], one["severity"]) for one in response["diagnostics"]] == [("TOOLS_CHANGED", "info")]


def test_notes_of_a_server_with_a_computed_import_are_in_the_response_after_a_pause():
    class ServerWithNotes:
        server_id, notes, revision = "one", ("its tools have changed",), 1

        async def tools(self) -> list[Tool]:
            return [Tool("gated", execute=lambda _: "done", needs_approval=True)]

    tool = create_modules_tool([ServerWithNotes()], settings=PAUSING)
    code = f'const [path] = ["one"]; const one = await import("@codemode/servers/" + path); {RESULT}await one.gated(1);'
    response = resumed(tool, paused(tool, code), {"approved": True})
    assert response["result"] == "done"
    assert [(note["code"], note["severity"]) for note in response["diagnostics"]] == [("TOOLS_CHANGED", "warning")]


def test_a_call_of_unknown_outcome_waits_for_an_answer(late: ModuleServer):
    tool = pausing(late)
    code = f"{LATE}{RESULT}[await late.hangs(1)];"
    response = within(tool.execute({"code": code, "limits": {"timeoutMs": 60_000}}))
    assert [one["code"] for one in response["diagnostics"]] == ["SANDBOX_LIMIT", "OUTCOME_UNKNOWN"]
    recovery = response.recovery
    assert recovery is not None
    assert resumed(tool, recovery, {"value": "it happened"})["result"] == ["it happened"]


def test_a_failure_that_a_person_reports_is_an_error_of_the_program_too(late: ModuleServer):
    tool = pausing(late)
    code = f"{LATE}{RESULT}await late.hangs(1).catch((error) => [error.name, error.message]);"
    recovery = within(tool.execute({"code": code, "limits": {"timeoutMs": 60_000}})).recovery
    assert resumed(tool, recovery, {"error": {"message": "refused"}})["result"] == ["ToolCallError", "refused"]


def test_another_surface_cannot_go_on_with_it():
    from codemode import continue_interrupt

    with pytest.raises(CodeModeProtocolError):
        within(continue_interrupt(paused(pausing()), {"approved": True}, tools=[], options=PAUSING))


def test_the_sync_forms_do_the_same():
    tool = pausing()
    interrupt = tool.execute_sync({"code": CODE})
    assert tool.resume_sync(interrupt, {"approved": True})["result"] == [1, {"x": 1}]
    tool.refresh_sync()


def test_a_server_that_fails_after_a_pause_is_said_to_fail():
    class Far:
        server_id = "far"
        revision = 1
        fails = False

        async def tools(self) -> dict[str, Tool]:
            if self.fails:
                raise ConnectionError("no route to /srv/host")
            return {"gated": Tool("gated", execute=lambda value: value, needs_approval=True)}

    far = Far()
    tool = create_modules_tool([far, *servers()], settings=PAUSING)
    code = f'import {{ gated }} from "@codemode/servers/far"; {RESULT}await gated().catch((error) => error);'
    interrupt = paused(tool, code)
    far.fails, far.revision = True, 2
    response = resumed(tool, interrupt, {"approved": True})
    said = response["result"]
    assert (said["name"], said["serverId"]) == ("ServerNotFoundError", "far")
    assert "is not available: it cannot be reached now" in said["message"]
    assert said["hint"].startswith("Do without this server")
    assert [one["code"] for one in response["diagnostics"]] == ["CAPABILITY_UNAVAILABLE"]

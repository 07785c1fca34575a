"""The time of a module: what its own worker counts is what the host's clock counts, which stands still for people."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from module_servers import HUB, RESULT, run_tool
from waiting import within

TIMEOUT_MS = 1000
THINKING_SECONDS = 1.1
SLEEP = "const sleep = (ms) => new Promise((done) => setTimeout(done, ms));\n"


async def approves(_request: Any) -> dict[str, Any]:
    await asyncio.sleep(THINKING_SECONDS)
    return {"approved": True}


async def denies(_request: Any) -> dict[str, Any]:
    await asyncio.sleep(THINKING_SECONDS)
    return {"approved": False}


def answered(code: str, settings: Any) -> Any:
    tool = run_tool(settings=settings)
    return within(tool.execute({"code": HUB + code, "limits": {"timeoutMs": TIMEOUT_MS}}))


@pytest.mark.parametrize(
    ("clock", "asked", "value", "times"),
    [("wall", approves, 1, 2), ("wall", denies, "APPROVAL_DENIED", 1), ("program", approves, 1, 1)],
)
def test_what_a_person_takes_is_not_the_programs_time(clock: str, asked: Any, value: Any, times: int):
    settings = {"approval": {"on_approval_required": asked}, "execution_policy": {"clock": clock}}
    call = f"const last = await hub.gated(1).catch((error) => error.code);\n{RESULT}last;"
    response = answered(f"for (let i = 0; i < {times}; i++) {{ {call} }}", settings)
    assert (response["result"], response["diagnostics"]) == (value, [])


def test_what_a_hook_keeps_the_loop_for_is_not_the_programs_time():
    settings = {"lifecycle": {"on_nested_tool_call": lambda _event: time.sleep(THINKING_SECONDS)}}
    response = answered(f"{RESULT}[await hub.echo(1), await hub.echo(2)];", settings)
    assert (response["result"], response["diagnostics"]) == ([1, 2], [])


@pytest.mark.parametrize("end", ["for (;;) {}", "await sleep(60000)"])
def test_what_is_left_of_its_time_holds_behind_that_and_what_was_written_is_kept(end: str):
    code = f"{SLEEP}console.log('one'); await hub.gated(1); console.log('two'); {end}"
    response = answered(code, {"approval": {"on_approval_required": approves}})
    assert response["diagnostics"][0]["code"] == "SANDBOX_LIMIT"
    assert [line["message"] for line in response["logs"]] == ["one", "two"]


ENDLESS = "console.log('one'); for (;;) {}"


@pytest.mark.parametrize(
    "code",
    [
        f"setTimeout(() => {{ {ENDLESS} }}); await sleep(60000)",
        f"await hub.echo(1); {ENDLESS}",
        f"await hub.nothing(); {ENDLESS}",
        f"await hub.fails(1).catch(() => 0); {ENDLESS}",
        f"await Promise.all([hub.echo(1), hub.echo(2).then(() => {{ {ENDLESS} }})])",
        f"({{ get then() {{ {ENDLESS} }} }}); await {{ then() {{ {ENDLESS} }} }}",
    ],
)
def test_wherever_a_program_does_not_end_its_worker_stops_it_and_keeps_what_was_written(code: str):
    tool = run_tool()
    response = within(tool.execute({"code": HUB + SLEEP + code, "limits": {"timeoutMs": 200}}))
    assert response["diagnostics"][0]["code"] == "SANDBOX_LIMIT"
    assert [line["message"] for line in response["logs"]] == ["one"]

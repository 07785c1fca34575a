"""Hostile programs as scripts of CodeCall: each ends in a status, in bounded time, and harms nobody."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from codemode import WorkerPool, create_code_call_tools
from codemode.types import CodeCallResult

from .hostile_program import HostileProgram, groups_of_other_surfaces, sample
from .hostile_run import AT_ONCE, HOST_SECRET, SLACK_MS, make_tools

TIMEOUT_MS = 200
NOTHING_RAN = ("syntax_error", "illegal_access")
STATUSES = ("ok", "tool_error", "runtime_error", "timeout", *NOTHING_RAN)
NAMES = ("x", "y", "admin", "kebab-name", "fail", "never", "echoProto")
MADE = "".join(f"{json.dumps(name)}: (...given) => callTool({json.dumps(name)}, ...given)," for name in NAMES)
CANARY = "return [Object.isFrozen(Array.prototype), Object.keys({}).length, await callTool('x', 'canary')]"


async def run_script(program: HostileProgram, pool: WorkerPool) -> list[str]:
    """Run one program, and an innocent script after it. Return what is not as it must be."""
    calls: list[Any] = []
    policy = {"memory_limit_bytes": 64 << 20, "timeout_includes_tools": True}
    vm = {"preset": "experimental", "timeout_ms": TIMEOUT_MS}
    options = {"vm": vm, "settings": {"execution_policy": policy}, "sidecar": {"max_script_length_when_disabled": None}}
    tools = create_code_call_tools(make_tools(calls), options, pool=pool)
    started = time.monotonic()
    answer = await tools.execute({"script": f"const tools = {{{MADE}}};{program.source}"})
    took_ms = (time.monotonic() - started) * 1000
    found: list[str] = []
    if not isinstance(answer, CodeCallResult) or answer["status"] not in STATUSES:
        found.append(f"answered {answer!r:.200}")
    elif answer["status"] in NOTHING_RAN and calls:
        found.append(f"{answer['status']} after {calls!r:.200}")
    if HOST_SECRET in json.dumps(answer):
        found.append("told what a tool had raised")
    if took_ms > TIMEOUT_MS + SLACK_MS:
        found.append(f"took {took_ms:.0f} ms")
    canary = await create_code_call_tools(make_tools([]), {}, pool=pool).execute({"script": CANARY})
    if canary != {"status": "ok", "result": [True, 0, ["canary"]]}:
        found.append(f"was followed by {canary!r:.200}")
    return [f"{program.group}/{program.id} {problem}" for problem in found]


@pytest.mark.parametrize("group", groups_of_other_surfaces())
def test_group(group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    async def all_of_them() -> list[list[str]]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(program: HostileProgram) -> list[str]:
            async with gate:
                return await run_script(program, pool)

        return await asyncio.gather(*map(one, sample(group)))

    problems = asyncio.run(all_of_them())
    assert [problem for found in problems for problem in found] == []
    assert capfd.readouterr() == ("", "")

"""Hostile modules, and hostile programs as modules: each ends in an answer, in bounded time, and harms nobody."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from codemode import ModuleServer, Tool, WorkerPool, create_modules_tool
from codemode.execution import runner

from . import hostile_program, module_program
from .hostile_run import AT_ONCE, HOST_SECRET, SLACK_MS, make_tools

TIMEOUT_MS = 200
FIELDS = {"logs", "result", "diagnostics", "toolTrace", "declarations"}
NAMES = ("x", "y", "admin", "kebab_name", "fail", "never", "echoProto")
MADE = "".join(f"{json.dumps(name)}: (...given) => host.{name}(...given)," for name in NAMES)
HOST = 'import * as host from "@codemode/servers/host";'
CANARY = (
    f"{HOST} globalThis.__codemode_result__ = [Object.isFrozen(Array.prototype), typeof pwn, await host.x('canary')];"
)


def server(calls: list[Any]) -> ModuleServer:
    def same(value: Any) -> Any:
        calls.append(["x", value])
        return value

    own = {"x": Tool("x", execute=same), "thenable": Tool("thenable", execute=lambda _: {"then": "text"})}
    return ModuleServer("host", {**make_tools(calls), **own})


async def run_module(source: str, timeout_ms: int, pool: WorkerPool, **limits: int) -> tuple[Any, list[Any], list[str]]:
    """Run one program, and an innocent one after it: its answer, what it called, and what is not as it must be."""
    calls: list[Any] = []
    options = {"ceilings": {"maxMemoryBytes": 64 << 20}, "secrets": [HOST_SECRET]}
    run = create_modules_tool([server(calls)], options, pool=pool)
    started = time.monotonic()
    response = await run.execute({"code": source, "limits": {"timeoutMs": timeout_ms, **limits}})
    took_ms = (time.monotonic() - started) * 1000
    found: list[str] = []
    if not {"logs", "result", "diagnostics"} <= set(response) <= FIELDS:
        found.append(f"answered {response!r:.200}")
    if HOST_SECRET in json.dumps(response):
        found.append("told what a tool had raised")
    errors = [one for one in response["diagnostics"] if one["severity"] == "error"]
    if errors and response["result"] is not None:
        found.append("has a result beside an error")
    if any(one["code"] in ("WORKER_FAILED", "BAD_REQUEST") for one in errors):
        found.append(f"ended with {errors!r:.300}")
    if took_ms > timeout_ms + SLACK_MS:
        found.append(f"took {took_ms:.0f} ms")
    canary = await create_modules_tool([server([])], pool=pool).execute({"code": CANARY})
    if canary["result"] != [True, "undefined", "canary"] or canary["diagnostics"]:
        found.append(f"was followed by {canary!r:.200}")
    return response, calls, found


async def judged(program: module_program.HostileModule, pool: WorkerPool) -> list[str]:
    expect = program.expect
    response, calls, found = await run_module(program.source, program.timeout_ms, pool, **expect.limits)
    codes = [one["code"] for one in response["diagnostics"]]
    if not set(codes) <= set(expect.codes):
        found.append(f"said {response['diagnostics']!r:.400}")
    if expect.codes and not codes and not expect.any:
        found.append("said nothing")
    failed = any(one["severity"] == "error" for one in response["diagnostics"])
    if expect.result is not ... and not failed and response["result"] != expect.result:
        found.append(f"gave {response['result']!r:.300}, expected {expect.result!r:.300}")
    if expect.calls is not None and calls != expect.calls:
        found.append(f"called {calls!r:.200}")
    return [f"{program.group}/{program.id} {problem}" for problem in found]


async def as_module(program: hostile_program.HostileProgram, pool: WorkerPool) -> list[str]:
    body = f"const tools = {{{MADE}}};\n{program.source}\n"
    source = f"{HOST} globalThis.__codemode_result__ = (await (async () => {{{body}}})()) ?? null;"
    *_, found = await run_module(source, TIMEOUT_MS, pool)
    return [f"{program.group}/{program.id} {problem}" for problem in found]


def problems_of(
    programs: list[Any], one: Callable[[Any, WorkerPool], Awaitable[list[str]]], pool: WorkerPool
) -> list[str]:
    async def all_of_them() -> list[list[str]]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def gated(program: Any) -> list[str]:
            async with gate:
                return await one(program, pool)

        return await asyncio.gather(*map(gated, programs))

    return [problem for found in asyncio.run(all_of_them()) for problem in found]


@pytest.mark.parametrize("group", module_program.groups())
def test_module_group(group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    assert problems_of(module_program.usual(group), judged, pool) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("group", hostile_program.groups_of_other_surfaces())
def test_group_as_module(
    group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_DEADLINE_GRACE_MS", 200)  # nobody reads what those have written that nothing can stop
    assert problems_of(hostile_program.sample(group), as_module, pool) == []
    assert capfd.readouterr() == ("", "")


def test_modules_are_many() -> None:
    assert sum(len(module_program.load_group(group)) for group in module_program.groups()) >= 60

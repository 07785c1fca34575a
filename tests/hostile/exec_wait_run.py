"""Runs hostile programs through exec and wait, as a model would, for the judge of all the others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from codemode import CallContext, CodeModeError, ExecWaitTools, WorkerPool, create_exec_wait_tools

from .hostile_program import HostileProgram
from .hostile_run import AT_ONCE, CANARY, HOST_SECRET, Outcome, make_tools

SCOPE = "hostile"
WAIT_MS = 300
MAX_OUTPUT_BYTES = 1 << 20
NEVER = "host:core:never"
Way = Literal["plain", "warm", "cold"]
"""How a program is run: as it is, or all of it after a rest, on the worker that was kept or on another one."""
_RESTED = "await yield_control();"
# What the code of a failure is called in the files.
_ENDS = {
    "timeout": "timeout",
    "memory_limit_exceeded": "memory",
    "output_limit_exceeded": "serialization",
    "too_many_pending_tool_calls": "bridge-limit",
    "nested_tool_failed": "tool-error",
    "typescript_transform_failed": "syntax",
    "module_access_denied": "syntax",
    "invalid_input": "syntax",
}
# Of an internal_error its text alone says what it was. A program's own error may have any of these names, but not these
# beginnings.
_SAID = {
    "CodeModeSyntaxError: ": "syntax",
    "CodeModeSerializationError: ": "serialization",
    "CodeModeBridgeLimitError: the program ": "bridge-limit",
    "CodeModeProtocolError: the run broke a rule": "protocol",
    "CodeModeWorkerError: ": "worker-died",
    "CodeModeError: the program waits for something that cannot happen": "deadlock",
    # What the kernel says where the program's text has what may throw null: it names no limit that it is not sure of.
    "InternalError: out of memory (or the program threw null)": "memory",
}
Make = Callable[[list[Any], dict[str, Any], dict[str, Any], WorkerPool], ExecWaitTools]


def make_pair(calls: list[Any], options: dict[str, Any], settings: dict[str, Any], pool: WorkerPool) -> ExecWaitTools:
    """Make a pair over the tools of the suite."""
    return create_exec_wait_tools(make_tools(calls), options, settings=settings, pool=pool)


async def run_programs(
    programs: Iterable[HostileProgram], pool: WorkerPool, way: Callable[[int], Way], *, make: Make = make_pair
) -> list[Outcome]:
    """Run each program in the way of its number, and an innocent one after it, on one pool, a few at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def run_one(number: int, program: HostileProgram) -> Outcome:
        async with gate:
            return await run_program(program, pool, way(number), make=make)

    outcomes = await asyncio.gather(*(run_one(number, program) for number, program in enumerate(programs)))
    assert pool.active == 0
    return outcomes


async def run_program(program: HostileProgram, pool: WorkerPool, way: Way, *, make: Make = make_pair) -> Outcome:
    """Run one program to its end, or until nothing happens any more, and then the canary on the same pool."""
    calls: list[Any] = []
    console: list[str] = []
    expect = program.expect
    options = {
        "timeoutMs": program.timeout_ms,
        "waitTimeoutMs": WAIT_MS,
        "memoryLimitBytes": expect.memory_mib << 20,
        "maxOutputBytes": MAX_OUTPUT_BYTES,
        "maxPendingToolCalls": 32,
        "maxWarmRuns": 0 if way == "cold" else AT_ONCE,
    }
    policy = {"max_stack_size_bytes": expect.stack_kib << 10, "max_source_bytes": 1_000_000}
    settings = {
        "execution_policy": policy,
        "lifecycle": {"on_console": lambda event: console.append(event.text)},
    }
    pair = make(calls, options, settings, pool)
    outcome = Outcome(program, "returns", calls=calls, console=console)
    try:
        started = time.monotonic()
        outcome.told = await _to_its_end(pair, _RESTED * _rests_first(program, way) + program.source)
        outcome.elapsed_ms = (time.monotonic() - started) * 1000
    finally:
        await pair.aclose()
    _judge_by(outcome)
    outcome.canary = await _canary(pool)
    return outcome


async def _to_its_end(pair: ExecWaitTools, code: str) -> list[dict[str, Any]]:
    """Return the results of exec and of every wait after it, as long as something else is in flight than `never`."""
    results: list[dict[str, Any]] = [await pair.exec.execute({"code": code}, call=CallContext(conversation_id=SCOPE))]
    while results[-1]["status"] == "waiting":
        pending = {one["tool"] for one in results[-1].get("pendingToolCalls", ())}
        if results[-1]["reason"] == "pending_tools" and pending == {NEVER}:
            break
        results.append(
            await pair.wait.execute({"runId": results[-1]["runId"]}, call=CallContext(conversation_id=SCOPE))
        )
    return results


def _rests_first(program: HostileProgram, way: Way) -> bool:
    """False for what is expected of its first statement alone: a directive, and a syntax error anywhere."""
    return way != "plain" and not program.source.startswith(("'use strict'", '"use strict"'))


def _judge_by(outcome: Outcome) -> None:
    last = outcome.told[-1]
    if last["status"] == "completed":
        outcome.value = last["value"]
    elif last["status"] == "waiting":
        outcome.end = "waits"
    else:
        headline = last["error"].partition("\n")[0]
        name, _, message = headline.partition(": ")
        outcome.error = CodeModeError(message, details={"name": name})
        said = next((end for beginning, end in _SAID.items() if headline.startswith(beginning)), "throws")
        outcome.end = _ENDS.get(last["code"], said)
    if HOST_SECRET in json.dumps(outcome.told):
        outcome.end = "a secret told"


async def _canary(pool: WorkerPool) -> Any:
    pair = make_pair([], {"timeoutMs": 30_000}, {}, pool)
    try:
        result = await pair.exec.execute({"code": CANARY})
        return result.get("value", result)
    finally:
        await pair.aclose()

"""Runs hostile programs on real workers and says what came of them, without judging by anything but the expectation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
    PoolOptions,
    Tool,
    WorkerPool,
    run_code_mode,
)
from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeDetachedBridgeRequestError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)

from .hostile_program import HostileProgram

AT_ONCE = 4
# What a host may need beyond the program's own time: a loaded machine, a worker to start, a kill.
SLACK_MS = 4000
HOST_SECRET = "host-secret-4711"
CANARY = "return [typeof pwn, typeof Object.prototype.pwn, Object.isFrozen(Array.prototype), await tools.x('canary')]"
CANARY_OPTIONS = {"execution_policy": {"timeout_ms": 30_000}}
CANARY_VALUE = ["undefined", "undefined", True, ["canary"]]

# The class of an error says the end; order matters where classes inherit.
_ENDS: tuple[tuple[type[CodeModeError], str], ...] = (
    (CodeModeTimeoutError, "timeout"),
    (CodeModeSyntaxError, "syntax"),
    (CodeModeDetachedBridgeRequestError, "detached"),
    (CodeModeSerializationError, "serialization"),
    (CodeModeBridgeLimitError, "bridge-limit"),
    (CodeModeProtocolError, "protocol"),
    (CodeModeWorkerError, "worker-died"),
    (CodeModeToolError, "tool-error"),
)


@dataclass
class Outcome:
    """What came of one program."""

    program: HostileProgram
    end: str
    value: Any = None
    error: CodeModeError | None = None
    calls: list[Any] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    elapsed_ms: float = 0.0
    canary: Any = None
    told: list[Any] = field(default_factory=list)  # of exec and wait: every result

    @property
    def output(self) -> list[Any]:
        """What was written of texts and other values, through all results."""
        items = [item for result in self.told for item in result.get("output", ())]
        return [item["text"] if item["type"] == "text" else [item["value"]] for item in items]

    def problems(self) -> list[str]:
        """What is not as expected; empty when all is well."""
        expect = self.program.expect
        found: list[str] = []
        if self.end not in expect.ends:
            found.append(f"ended with {self.end}, expected {' or '.join(expect.ends)}: {self._shown()}")
        if self.end == "returns" and expect.value is not ... and self.value != expect.value:
            found.append(f"returned {self.value!r:.300}, expected {expect.value!r:.300}")
        found += self._error_problems()
        # What the clock ends may not have come to all of its calls, on a busy machine.
        calls = expect.calls if self.end != "timeout" or expect.calls is None else expect.calls[: len(self.calls)]
        if calls is not None and self.calls != calls:
            found.append(f"tools saw {self.calls!r:.300}, expected {expect.calls!r:.300}")
        if expect.console is not None and self.console != expect.console:
            found.append(f"console has {self.console!r:.300}, expected {expect.console!r:.300}")
        if expect.output is not None and self.output != expect.output:
            found.append(f"wrote {self.output!r:.300}, expected {expect.output!r:.300}")
        if self.elapsed_ms > self.program.timeout_ms + SLACK_MS:
            found.append(f"took {self.elapsed_ms:.0f} ms")
        if self.canary != CANARY_VALUE:
            found.append(f"the next invocation gave {self.canary!r:.300}")
        if HOST_SECRET in repr(self.value) + "".join(self.console):
            found.append("the guest saw what a tool raised")
        return found

    def _error_problems(self) -> list[str]:
        expect, error = self.program.expect, self.error
        if error is None:
            return []
        found: list[str] = []
        name = error.details.get("name")
        if self.end == "throws" and expect.error_name is not None and name != expect.error_name:
            found.append(f"threw {name}, expected {expect.error_name}: {self._shown()}")
        if expect.message is not None and expect.message not in error.message:
            found.append(f"said {error.message!r:.300}, expected {expect.message!r}")
        return found

    def _shown(self) -> str:
        error = self.error
        if error is None:
            return f"{self.value!r:.200}"
        return f"{type(error).__name__} {error.details.get('name')} {error.message:.200}"


def make_pool() -> WorkerPool:
    """Make a pool for programs of which a few run at once."""
    return WorkerPool(PoolOptions(max_workers=AT_ONCE, on_saturation="wait"))


async def run_programs(programs: Iterable[HostileProgram], pool: WorkerPool) -> list[Outcome]:
    """Run each program, and an innocent one after it, a few at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def run_one(program: HostileProgram) -> Outcome:
        async with gate:
            return await run_program(program, pool)

    return await asyncio.gather(*map(run_one, programs))


async def run_program(program: HostileProgram, pool: WorkerPool) -> Outcome:
    """Run one program and then the canary on the same pool."""
    calls: list[Any] = []
    console: list[str] = []
    policy = {
        "timeout_ms": program.timeout_ms,
        "memory_limit_bytes": program.expect.memory_mib << 20,
        "max_stack_size_bytes": program.expect.stack_kib << 10,
        "max_source_bytes": 1_000_000,
    }
    options = {"execution_policy": policy, "lifecycle": {"on_console": lambda event: console.append(event.text)}}
    started = time.monotonic()
    outcome = Outcome(program, "returns", calls=calls, console=console)
    try:
        outcome.value = await run_code_mode(program.source, make_tools(calls), options=options, pool=pool)
    except CodeModeError as error:
        outcome.end, outcome.error = name_end(error), error
    outcome.elapsed_ms = (time.monotonic() - started) * 1000
    try:
        outcome.canary = await run_code_mode(CANARY, make_tools([]), options=CANARY_OPTIONS, pool=pool)
    except CodeModeError as error:
        outcome.canary = error
    return outcome


def name_end(error: CodeModeError) -> str:
    """The word that expectations use for this error."""
    for kind, end in _ENDS:
        if isinstance(error, kind):
            return end
    if error.code == "CODE_MODE_DEADLOCK":
        return "deadlock"
    if "out of memory" in error.message and error.details.get("name") == "InternalError":
        return "memory"
    return "throws" if "stack" in error.details else "engine"


def make_tools(calls: list[Any]) -> dict[str, Tool]:
    """The tools of the suite; each call that reaches one is appended to `calls` as [name, input]."""

    def echo(name: str) -> Tool:
        async def execute(value: Any, context: Any) -> Any:
            calls.append([name, value])
            return [value]

        return Tool(name, execute=execute)

    async def fail(value: Any, context: Any) -> Any:
        calls.append(["fail", value])
        raise RuntimeError(HOST_SECRET)

    async def never(value: Any, context: Any) -> Any:
        calls.append(["never", value])
        await asyncio.Event().wait()

    async def echo_proto(value: Any, context: Any) -> Any:
        calls.append(["echoProto", value])
        return {"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}, "then": 1, "toJSON": 2}

    named = {name: echo(name) for name in ("x", "y", "admin", "kebab-name")}
    named["fail"] = Tool("fail", execute=fail)
    named["never"] = Tool("never", execute=never)
    named["echoProto"] = Tool("echoProto", execute=echo_proto)
    return named

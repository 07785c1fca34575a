"""A surface that only tests know, whose programs may rest: everything that the core has for it, and nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from calls import with_call

from codemode import CodeModeOptions, Tool
from codemode.execution.call_context import OuterCallSettings
from codemode.execution.starting import get_pool_and_import_execution, import_resume_module
from codemode.execution.suspendable_execution import SuspendableExecution
from codemode.options.parts import ExecutionPolicy
from codemode.profile import GuestSettings, OutputRules, SurfaceSettings
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools

GLOBALS = ("tools", "console", "text", "json", "yield_control", "setTimeout", "clearTimeout")
MAX_OUTPUT = 65_536


def profile_of(max_output: int = MAX_OUTPUT, **limits: Any) -> SurfaceSettings:
    """The profile of this surface; ``limits`` are its defaults."""
    own: dict[str, Any] = {"max_result_bytes": max_output, "max_console_bytes": max_output, **limits}
    return SurfaceSettings(
        name="restingPrograms",
        outer_tool="runResting",
        guest=GuestSettings(wrapper="sloppy", globals=GLOBALS),
        request_kinds=frozenset({"tool", "catalog", "timer", "yield"}),
        limits=ExecutionPolicy(**own),
        unawaited="drain",
        at_deadline="rest",
        output=OutputRules(max_bytes=max_output),
        shows_run_details=True,
        parameters={"max_output": max_output},
        restored=_restored,
    )


def _restored(parameters: Mapping[str, Any]) -> SurfaceSettings:
    return profile_of(**parameters)


class Surface:
    """Runs programs over these tools, each on the loop that starts it."""

    def __init__(
        self, tools: Any, options: Any = None, pool: Any = None, profile: SurfaceSettings | None = None
    ) -> None:
        self.catalog = Catalog(collect_tools(tools))
        self.options = CodeModeOptions.of(options)
        self.pool = pool
        self.profile = profile or profile_of()

    async def run(self, **outer: Any) -> SuspendableExecution:
        """A run that has not been started."""
        pool = await get_pool_and_import_execution(self.pool, self.options)
        call = OuterCallSettings(**{"wait_ms": 30_000, **with_call(outer, tool_call_id="o")})
        return SuspendableExecution(self.profile, self.catalog, self.options, call, pool)

    async def start(self, js: str, **outer: Any) -> Any:
        """The first outcome of a program."""
        return await (await self.run(**outer)).start(js)

    async def restore(self, interrupt: Any, answers: Any = None, **outer: Any) -> Any:
        """The outcome of a program that was kept, or interrupted, as another process goes on with it."""
        go_on = import_resume_module()
        call = OuterCallSettings(**{"wait_ms": 30_000, **with_call(outer)})
        asked = lambda _: answers or {}  # noqa: E731
        return await go_on.resume_program(
            self.profile,
            interrupt,
            asked,
            self.catalog,
            self.options,
            call,
            self.pool,
            needs_answers=answers is not None,
        )


class Slow:
    """A tool whose calls end when the test says so, each with what it was called with."""

    def __init__(self, name: str = "slow", **settings: Any) -> None:
        self.calls: list[Any] = []
        self._open: dict[Any, asyncio.Future[Any]] = {}
        self.cancelled: list[Any] = []
        self.tool = Tool(name, execute=self._execute, **settings)

    async def _execute(self, value: Any, _context: Any) -> Any:
        self.calls.append(value)
        future = self._open.setdefault(value, asyncio.get_running_loop().create_future())
        try:
            return await future
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise

    def end(self, value: Any, result: Any = None) -> None:
        self._open[value].set_result(value if result is None else result)

    def fail(self, value: Any) -> None:
        self._open[value].set_exception(ValueError("broken"))

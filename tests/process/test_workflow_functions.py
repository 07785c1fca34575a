"""A program inside a workflow function of Temporal: a clear error at once, from every face, and nothing is started."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from required import missing
from waiting import within

from codemode import (
    WorkerPool,
    continue_interrupt,
    continue_interrupt_sync,
    create_code_call_tools,
    create_code_mode_tool,
    create_modules_tool,
    run_code_mode,
    run_code_mode_sync,
    tool,
)

pytestmark = pytest.mark.usefixtures("leaves_nothing")
JS, SCRIPT, MODULE = {"js": "return 1"}, {"script": "return 1"}, {"code": "globalThis.__codemode_result__ = 1;"}


@tool(needs_approval=True)
def pay() -> str:
    return "paid"


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Stands for the loaded SDK: what runs in a marked event loop is a workflow function."""
    workflow: Any = ModuleType("temporalio.workflow")

    def in_workflow() -> bool:
        try:
            return hasattr(asyncio.get_running_loop(), "marked")
        except RuntimeError:
            return False

    workflow.in_workflow = in_workflow
    monkeypatch.setitem(sys.modules, "temporalio.workflow", workflow)
    return in_workflow


def ways(pool: WorkerPool, paused: Any) -> dict[str, Callable[[], Any]]:
    mode, run = create_code_mode_tool([pay], pool=pool), create_modules_tool([], pool=pool)
    call = create_code_call_tools([pay], {"direct_calls": {"enabled": True}}, pool=pool)
    approved = {"approved": True}
    return {
        "execute": lambda: mode.execute(JS),
        "execute_sync": lambda: mode.execute_sync(JS),
        "resume": lambda: mode.resume(paused, approved),
        "resume_sync": lambda: mode.resume_sync(paused, approved),
        "run_code_mode": lambda: run_code_mode("return 1", [pay], pool=pool),
        "run_code_mode_sync": lambda: run_code_mode_sync("return 1", [pay], pool=pool),
        "continue_interrupt": lambda: continue_interrupt(paused, approved, tools=[pay], pool=pool),
        "continue_interrupt_sync": lambda: continue_interrupt_sync(paused, approved, tools=[pay], pool=pool),
        "script": lambda: call.execute(SCRIPT),
        "script_sync": lambda: call.execute_sync(SCRIPT),
        "direct call": lambda: call.invoke({"tool": "pay", "input": {}}),
        "module": lambda: run.execute(MODULE),
        "module_sync": lambda: run.execute_sync(MODULE),
    }


async def _refused(way: Callable[[], Any]) -> str:
    asyncio.get_running_loop().marked = True  # type: ignore[attr-defined]
    try:
        answer = way()
        answer = await answer if isinstance(answer, Awaitable) else answer
    except RuntimeError as error:
        return str(error)
    raise AssertionError(f"it gave {answer!r}")


@pytest.mark.usefixtures("temporal")
def test_every_way_to_run_a_program_says_so_and_starts_nothing() -> None:
    paused = within(_paused())
    with WorkerPool({"max_workers": 1}) as pool:
        for name, way in ways(pool, paused).items():
            said = within(_refused(way))
            assert "in an activity" in said, name
            assert not pool.has_started, name


async def _paused() -> Any:
    with WorkerPool({"max_workers": 1}) as pool:
        options: Any = {"approval": {"mode": "interrupt"}}
        return await create_code_mode_tool([pay], options, pool=pool).execute({"js": "return await tools.pay()"})


@pytest.mark.usefixtures("temporal")
def test_outside_of_workflow_functions_programs_run() -> None:
    with WorkerPool({"max_workers": 1}) as pool:
        assert create_code_mode_tool([], pool=pool).execute_sync(JS) == 1


def test_an_sdk_that_is_only_half_loaded_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio.workflow", ModuleType("temporalio.workflow"))
    with WorkerPool({"max_workers": 1}) as pool:
        assert create_code_mode_tool([], pool=pool).execute_sync(JS) == 1


def test_the_real_sdk_fails_the_workflow_task_with_what_to_do() -> None:
    if find_spec("temporalio") is None:
        missing("temporal", "temporalio is not installed")
    command = [sys.executable, "-c", "import temporal_desk; temporal_desk.main()"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    # The SDK writes its own log to the same place.
    (said,) = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("said ")]
    told = json.loads(said)
    assert len(told) == 4
    for way, failure in told.items():
        assert "one activity for each program" in failure, way

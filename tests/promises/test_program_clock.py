"""With ``timeout_includes_tools=False`` the time limit is the program's own; ``tool_timeout_ms`` bounds each call."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fetching import silent
from http_server import HttpServer
from invocation_settings import SETTINGS, limited
from running import failure, run
from suite import full_only
from waiting import within

from codemode import (
    CodeModeTimeoutError,
    CodeModeToolError,
    Interrupt,
    PoolOptions,
    Tool,
    WorkerPool,
    create_code_mode_tool,
)
from codemode.execution.outcome_texts import failure_text
from codemode.protocol.continuation import Continuation
from codemode.protocol.ledger import Ledger

CAUGHT = "try { await (CALL); return 'answered' } catch (e) { return [e.name, e.code, e.message] }"
LIMIT_MS, LATE_SECONDS = 60_000, 61
# What is told beside a limit where this machine has let the host stand still.
STOOD_STILL = r"; the host's event loop stood still for \d+ ms beyond that, as with an async tool that blocks$"
EACH_CALL: dict[str, Any] = {"tool_timeout_ms": LIMIT_MS, "timeout_ms": 10 * LIMIT_MS}


@pytest.fixture
def taking(passing_time: Any) -> Callable[[float], Tool]:
    """Make a tool that takes so many seconds, which pass at once."""

    def taking(seconds: float) -> Tool:
        async def execute() -> str:
            passing_time.skip(seconds)
            await asyncio.sleep(0)  # in which a deadline would ring
            return "awake"

        return Tool("slow", execute=execute)

    return taking


@pytest.fixture
def late(passing_time: Any) -> Callable[[], None]:
    """Let a call be late."""
    return lambda: passing_time.skip(LATE_SECONDS)


def caught(call: str) -> str:
    return CAUGHT.replace("CALL", call)


# --- the clock ---


@pytest.mark.parametrize(
    "js", ["return await tools.slow()", "return (await Promise.all([tools.slow(), tools.slow()]))[1]"]
)
def test_waiting_for_a_tool_takes_none_of_the_programs_time(taking: Any, js: str):
    assert run(js, [taking(350)], timeout_includes_tools=False, timeout_ms=LIMIT_MS) == "awake"
    assert type(failure(js, [taking(350)], timeout_includes_tools=True, timeout_ms=LIMIT_MS)) is CodeModeTimeoutError


@pytest.mark.parametrize(
    "js",
    [
        "await tools.slow(); for (;;);",
        "for (;;) await null;",
        *full_only("for (;;);", "tools.slow(); for (;;);", "const one = tools.slow(); await null; for (;;);"),
    ],
)
def test_a_program_that_does_not_end_is_ended(taking: Any, js: str):
    error = failure(js, [taking(0)], timeout_includes_tools=False, timeout_ms=300)
    assert type(error) is CodeModeTimeoutError
    message = re.sub(STOOD_STILL, "", error.message)
    assert message == "the program ran, not counting its calls, for more than 300 ms"
    assert error.details["timeout_ms"] == 300


def test_the_programs_time_adds_up_over_its_turns(passing_time: Any):
    calls: list[int] = []
    tools = [Tool("tick", execute=lambda: calls.append(1))]
    options = {"lifecycle": {"on_console": lambda _: passing_time.skip(5)}}  # it has written that in its turn
    js = "for (let turn = 0; turn < 200; turn++) { console.log(turn); await tools.tick() }"
    error = failure(js, tools, options=options, timeout_includes_tools=False, timeout_ms=LIMIT_MS)
    assert type(error) is CodeModeTimeoutError
    assert 0 < len(calls) < 200


def test_a_worker_that_never_answers_is_killed(passing_time: Any):
    stopped: list[int] = []

    def stop(pool: WorkerPool) -> None:
        for worker in pool.supply.inventory.busy:
            assert not worker.process.wait_until_dead(0)  # which also takes its pidfd
            pidfd = worker.process._handle.pidfd
            stopped.append(pid_of(pidfd))
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)

    async def time_passes() -> None:
        while True:  # none of it counts until the worker has its answer
            passing_time.skip(LATE_SECONDS)
            await asyncio.sleep(0.01)

    js = "tools.timePasses(); await tools.stop(); return 1"
    with WorkerPool(PoolOptions(spare_workers=0)) as pool:
        tools = [Tool("stop", execute=lambda: stop(pool)), Tool("timePasses", execute=time_passes)]
        error = failure(js, tools, pool=pool, timeout_includes_tools=False, timeout_ms=LIMIT_MS)
    assert type(error) is CodeModeTimeoutError
    assert stopped
    assert not any(Path(f"/proc/{pid}").exists() and "T (stopped)" in status(pid) for pid in stopped)


def pid_of(pidfd: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return ""


def test_the_clock_is_kept_in_the_continuation():
    kept = Continuation.from_ledger("return 1", "engine", limited(SETTINGS, timeout_includes_tools=False), Ledger())
    plain = kept.to_dict()
    assert not Continuation.from_dict(plain).restore_settings(SETTINGS).limits.timeout_includes_tools
    for wrong in ("sundial", None, 1, ["program"]):
        changed = {**plain, "settings": {**plain["settings"], "timeout_includes_tools": wrong}}
        with pytest.raises(Exception, match="the continuation holds"):
            Continuation.from_dict(changed)


def test_a_resumed_program_has_the_clock_that_it_began_with(taking: Any):
    js = "await tools.pay(); return await tools.slow()"
    tools = [Tool("pay", execute=lambda: "paid", needs_approval=True), taking(350)]

    def code_mode(*, includes_tools: bool) -> Any:
        policy = {"timeout_includes_tools": includes_tools, "timeout_ms": LIMIT_MS}
        return create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}, "execution_policy": policy})

    async def scenario(first: bool, then: bool) -> Any:
        paused = await code_mode(includes_tools=first).execute({"js": js})
        assert isinstance(paused, Interrupt)
        return await code_mode(includes_tools=then).resume(paused, {"approved": True})

    assert within(scenario(False, True)) == "awake"
    with pytest.raises(CodeModeTimeoutError):
        within(scenario(True, False))


# --- one call's time ---


def test_a_tool_that_does_not_answer_fails_for_the_program_and_is_cancelled(taking: Any, late: Any):
    seen: list[str] = []

    async def hang() -> None:
        try:
            late()
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    tools = [Tool("hang", execute=hang), taking(0)]
    js = f"const told = await (async () => {{ {caught('tools.hang()')} }})(); return [told, await tools.slow()]"
    told, then = run(js, tools, **EACH_CALL)
    assert told == [
        "CodeModeToolError",
        "CODE_MODE_CALL_TIMEOUT",
        "tool 'hang' did not answer within 60000 ms; it may have happened all the same",
    ]
    assert (then, seen) == ("awake", ["cancelled"])


async def _stubborn(late: Callable[[], None]) -> None:
    late()
    for _ in range(3):
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            continue


async def _items(late: Callable[[], None]) -> Any:
    yield 1
    late()
    await asyncio.Event().wait()


async def _swallowing(late: Callable[[], None]) -> str:
    late()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "as if nothing had been"
    return "never"


@pytest.mark.parametrize("kind", [_stubborn, _items, _swallowing])
@pytest.mark.parametrize("includes_tools", [True, False])
def test_no_kind_of_tool_outlasts_its_time(late: Any, kind: Any, includes_tools: bool):
    told = run(
        caught("tools.hang()"),
        [Tool("hang", execute=partial(kind, late))],
        timeout_includes_tools=includes_tools,
        **EACH_CALL,
    )
    assert told[1] == "CODE_MODE_CALL_TIMEOUT"


def test_a_tool_in_a_thread_is_left_to_it(late: Any):
    going_on, went_on = threading.Event(), threading.Event()

    def hang() -> None:
        late()
        going_on.wait(60)
        went_on.set()

    assert run(caught("tools.hang()"), [Tool("hang", execute=hang)], **EACH_CALL)[1] == "CODE_MODE_CALL_TIMEOUT"
    assert not went_on.is_set()
    going_on.set()
    assert went_on.wait(60)


def test_a_call_that_was_not_begun_did_not_happen(late: Any):
    ran: list[int] = []

    async def undecided(_input: Any, _context: Any) -> bool:
        late()
        await asyncio.Event().wait()
        return False

    tools = [Tool("pay", execute=lambda: ran.append(1), needs_approval=undecided)]
    told = run(caught("tools.pay()"), tools, **EACH_CALL)
    assert told == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR", "tool 'pay' did not answer within 60000 ms"]
    assert ran == []


def test_a_person_may_take_longer_than_a_tool(passing_time: Any):
    both = asyncio.Barrier(2)

    async def thought() -> None:
        await both.wait()
        passing_time.skip(350)
        await both.wait()

    async def ask(_request: Any) -> str:
        await thought()
        return "approved"

    async def asking(_input: Any, context: Any) -> str:
        with context.asking_person():
            await thought()
        return "asked"

    tools = [Tool("pay", execute=lambda: "paid", needs_approval=True), Tool("asking", execute=asking)]
    options = {"approval": {"on_approval_required": ask}}
    js = "return await Promise.all([tools.pay(), tools.asking()])"
    assert run(js, tools, options=options, tool_timeout_ms=LIMIT_MS) == ["paid", "asked"]


def test_what_comes_before_and_after_a_person_counts(passing_time: Any):
    async def asking(_input: Any, context: Any) -> None:
        passing_time.skip(31)
        with context.asking_person():
            passing_time.skip(350)
            await asyncio.sleep(0)
            seen.append("a person decided")
        passing_time.skip(31)
        await asyncio.Event().wait()

    seen: list[str] = []
    told = run(caught("tools.asking()"), [Tool("asking", execute=asking)], **EACH_CALL)
    assert (told[0], seen) == ("CodeModeToolError", ["a person decided"])


def test_an_uncaught_tool_timeout_tells_the_model_that_the_call_may_have_happened(taking: Any):
    js = "await tools.slow()"
    error = failure(js, [taking(LATE_SECONDS)], **EACH_CALL)
    assert type(error) is CodeModeToolError
    assert error.code == "CODE_MODE_CALL_TIMEOUT"
    assert error.details["tool_name"] == "slow"
    assert error.details["timeout_ms"] == LIMIT_MS
    assert [call["status"] for call in error.calls] == ["unknown"]
    assert "May or may not have happened, find out before repeating: slow" in failure_text(error, js)


def test_listeners_hear_once_how_a_timed_out_call_ended(late: Any):
    traces: list[Any] = []
    options = {"lifecycle": {"on_trace": traces.append}}
    run(caught("tools.hang()"), [Tool("hang", execute=partial(_swallowing, late))], options=options, **EACH_CALL)
    assert [(one.status, one.error.code) for one in traces[0].bridge_requests] == [
        ("rejected", "CODE_MODE_CALL_TIMEOUT")
    ]


def test_a_timed_out_call_is_recorded_and_not_made_again(late: Any):
    began: list[int] = []

    async def hang() -> None:
        began.append(1)
        late()
        await asyncio.Event().wait()

    js = f"const told = await (async () => {{ {caught('tools.hang()')} }})(); await tools.pay(); return told"
    tools = [Tool("hang", execute=hang), Tool("pay", execute=lambda: None, needs_approval=True)]
    code_mode = create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}, "execution_policy": EACH_CALL})

    async def scenario() -> Any:
        paused = await code_mode.execute({"js": js})
        return await code_mode.resume(paused, {"approved": True})

    assert within(scenario())[1] == "CODE_MODE_CALL_TIMEOUT"
    assert began == [1]


@pytest.mark.parametrize("policy", [EACH_CALL, {"timeout_includes_tools": False, "timeout_ms": LIMIT_MS}])
def test_a_server_that_does_not_answer_does_not_hold_a_program(late: Any, policy: dict[str, Any]):
    async def late_and_silent(*connection: Any) -> None:
        late()
        await silent(*connection)

    server = HttpServer().start()
    try:
        server.on("/silent", late_and_silent)
        options = {"fetch_policy": {"allowed_origins": [server.origin]}}
        told = run(caught(f"fetch('{server.origin}/silent')"), options=options, **policy)
        assert server.hung_up.wait(60)
    finally:
        server.stop()
    assert told == ["CodeModeFetchError", "CODE_MODE_FETCH_ERROR", "fetch did not answer within 60000 ms"]


def test_a_call_within_its_time_is_unchanged():
    js, slow = "return await Promise.all([tools.slow(), tools.slow()])", lambda: asyncio.sleep(0.01, "awake")
    assert run(js, [Tool("slow", execute=slow)], tool_timeout_ms=20_000, timeout_includes_tools=False) == [
        "awake",
        "awake",
    ]

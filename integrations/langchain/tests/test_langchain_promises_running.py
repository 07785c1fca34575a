"""How programs run in agents: whose time counts, what is logged, and crowds that wait their turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from codemode_langchain import (
    CodeCallMiddleware,
    CodeModeMiddleware,
    ExecWaitMiddleware,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
)
from langchain.agents import create_agent
from langchain_core.tools import ToolException, tool
from scripted_agent import START, Session, agent, content, model, results
from suite import full_only, rounds

from codemode import ExecutionPolicy, PoolOptions, WorkerPool

CROWD = rounds(8, 100)  # many more than there are workers
FEW = rounds(4, 12)


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


# --- a tool's failure is logged ---


@tool
def broken(key: str) -> str:
    """Fail."""
    raise KeyError(key)


@tool
async def abroken(key: str) -> str:
    """Fail."""
    raise KeyError(key)


@tool
def refusing(key: str) -> str:
    """Tell the model why not."""
    raise ToolException(f"no {key}")


@tool
def refusing_for_a_reason(key: str) -> str:
    """Tell the model why not, and keep the reason."""
    try:
        raise KeyError(key)
    except KeyError as error:
        raise ToolException("not now") from error


def failures(records: list[logging.LogRecord]) -> list[tuple[str, type[BaseException] | None]]:
    return [
        (one.getMessage(), one.exc_info[0] if one.exc_info else None) for one in records if one.name == "codemode.tools"
    ]


@pytest.mark.parametrize("caught", [False, True], ids=["uncaught", "caught"])
def test_what_a_tool_raised_is_logged(is_async: bool, caught: bool, caplog: pytest.LogCaptureFixture):
    chosen, name = (abroken, "abroken") if is_async else (broken, "broken")
    call = f"await tools.{name}({{ key: 'pass' + 'word' }})"
    js = f"try {{ {call} }} catch (error) {{ return error.message }}" if caught else call
    output = Session(agent([js], [chosen], CodeModeMiddleware()), is_async).start()
    assert "KeyError" not in results(output)[0].content
    assert failures(caplog.records) == [(f"tool {name!r} failed (call_0:tool-1)", KeyError)]
    caplog.clear()
    create_code_mode_tool([broken]).invoke({"js": "await tools.broken({ key: 'k' }).catch(() => 0)"})
    assert [kind for _, kind in failures(caplog.records)] == [KeyError]


def test_what_it_told_the_model_is_no_failure_to_log(caplog: pytest.LogCaptureFixture):
    js = "await tools.refusing({ key: 'k' }).catch(() => 0); await tools.refusing_for_a_reason({ key: 'k' })"
    output = Session(agent([js], [refusing, refusing_for_a_reason], CodeModeMiddleware())).start()
    assert "not now" in results(output)[0].content
    (record,) = (one for one in caplog.records if one.name == "codemode.tools")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1].__cause__, KeyError)


# --- whose time counts ---

LIMITED: dict[str, Any] = {"execution_policy": {"timeout_ms": 60_000}}


@pytest.fixture
def slow(passing_time: Any) -> Any:
    @tool
    def slow(answer: str) -> str:
        """Take longer than a program may: a deadline rings before its loop hears the answer."""
        passing_time.skip(350)
        return answer

    return slow


def test_a_tools_time_is_not_the_programs(slow: Any, is_async: bool):
    js = "return await tools.slow({ answer: 'here' })"
    assert content(Session(agent([js], [slow], CodeModeMiddleware(options=LIMITED)), is_async).start()) == "here"
    assert create_code_mode_tool([slow], LIMITED).invoke({"js": js}) == "here"


@pytest.mark.parametrize("given", [dict, ExecutionPolicy])
def test_the_wall_counts_for_who_asks_for_it(slow: Any, given: Any, is_async: bool):
    options = {"execution_policy": given(timeout_ms=60_000, timeout_includes_tools=True)}
    js = "return await tools.slow({ answer: 'here' })"
    output = Session(agent([js], [slow], CodeModeMiddleware(options=options)), is_async).start()
    assert results(output)[0].status == "error"


def test_a_program_that_never_ends_is_ended():
    options = {"execution_policy": {"timeout_ms": 150}}
    output = Session(agent(["for (;;);"], [broken], CodeModeMiddleware(options=options))).start()
    assert "150 ms" in results(output)[0].content


def test_each_tool_can_be_given_its_time(slow: Any, is_async: bool):
    options = {"execution_policy": {"tool_timeout_ms": 60_000}}
    js = "try { return await tools.slow({ answer: 'here' }) } catch (error) { return error.code }"
    graph = agent([js], [slow], CodeModeMiddleware(options=options))
    assert content(Session(graph, is_async).start()) == "CODE_MODE_CALL_TIMEOUT"


def test_the_time_limit_of_a_graph_holds():
    cancelled = asyncio.Event()

    @tool
    async def endless() -> str:
        """Wait for ever, and let the graph's time pass, which goes by its loop."""
        loop: Any = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + 61
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    graph = create_agent(model("return await tools.endless({})"), [endless], middleware=[CodeModeMiddleware()])
    graph.step_timeout = 60.0

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await graph.ainvoke(START)
        await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(run())


# --- crowds ---

INNER = "const one = await tools.one({ n: 1 }); return one + await tools.one({ n: 2 })"
OUTER = "return await tools.delegate({ what: 'sum' })"


@tool
def one(n: int) -> int:
    """Give it back."""
    return n


@tool
async def aone(n: int) -> int:
    """Give it back."""
    return n


def delegating(is_async: bool, pool: WorkerPool | None) -> Any:
    """An agent whose program asks a sub-agent, whose program calls a tool."""

    def sub_agent() -> Any:
        js = INNER.replace("tools.one", "tools.aone") if is_async else INNER
        return create_agent(model(js), [aone if is_async else one], middleware=[CodeModeMiddleware(pool=pool)])

    @tool
    async def adelegate(what: str) -> str:
        """Ask a sub-agent."""
        return content(await sub_agent().ainvoke(START))

    @tool
    def delegate(what: str) -> str:
        """Ask a sub-agent."""
        return content(sub_agent().invoke(START))

    js = OUTER.replace("delegate", "adelegate") if is_async else OUTER
    return create_agent(model(js), [adelegate if is_async else delegate], middleware=[CodeModeMiddleware(pool=pool)])


def crowd(count: int, *, is_async: bool, pool: WorkerPool | None = None) -> list[str]:
    agents = [delegating(is_async, pool) for _ in range(count)]

    async def run() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*(one.ainvoke(START) for one in agents)), 240)

    if is_async:
        return [content(output) for output in asyncio.run(run())]
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(one.invoke, START) for one in agents]
        return [content(one.result(240)) for one in running]


def test_many_agents_with_sub_agents_all_end(is_async: bool):
    assert crowd(CROWD, is_async=is_async) == ["3"] * CROWD


def test_many_agents_with_sub_agents_all_end_with_the_slots_of_two(is_async: bool):
    with WorkerPool(PoolOptions(max_workers=2, on_saturation="wait")) as pool:
        assert crowd(FEW, is_async=is_async, pool=pool) == ["3"] * FEW
        assert crowd(FEW, is_async=is_async, pool=pool.share("tenant", max_workers=1)) == ["3"] * FEW
        assert pool.active == 0


def test_nothing_is_made_with_a_pool_that_is_closed():
    with WorkerPool() as closed:
        pass
    for middleware in (CodeModeMiddleware, CodeCallMiddleware, ExecWaitMiddleware):
        with pytest.raises(ValueError, match="pool is closed"):
            middleware(pool=closed)
    for create in (create_code_mode_tool, create_code_call_tools, create_exec_wait_tools):
        with pytest.raises(ValueError, match="pool is closed"):
            create([], pool=closed)


@pytest.mark.parametrize("tool_alone", [False, True])
def test_a_pool_that_is_given_does_as_it_was_told(tool_alone: bool):
    options: dict[str, Any] = {"execution_policy": {"on_saturation": "wait"}}
    entered, release = threading.Semaphore(0), threading.Event()

    @tool
    def hold() -> str:
        """Keep the worker until the end."""
        entered.release()
        release.wait(60)
        return "held"

    def start(pool: WorkerPool, options: Any = None) -> Any:
        js = "return await tools.hold({})"
        if tool_alone:
            return create_code_mode_tool([hold], options, pool=pool).invoke(
                {"type": "tool_call", "name": "codeMode", "args": {"js": js}, "id": "c"}
            )
        middleware = CodeModeMiddleware(options=options, pool=pool)
        return results(create_agent(model(js), [hold], middleware=[middleware]).invoke(START))[0]

    with WorkerPool(PoolOptions(max_workers=1)) as pool, ThreadPoolExecutor(2) as threads:
        first = threads.submit(start, pool)
        assert entered.acquire(timeout=60)
        refused = start(pool)
        assert refused.status == "error"
        assert "all 1 code mode workers are busy" in refused.content
        second = threads.submit(start, pool, options)
        assert not second.done()
        release.set()
        assert [one.result(60).content for one in (first, second)] == ["held", "held"]

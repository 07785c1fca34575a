"""Workers that are started with exec instead of forked: the same programs end the same way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from leftovers import PATIENCE_SECONDS, children, command_line, kill_all, nothing_left
from pausing import PAUSING, through_json
from suite import each_row, full_only
from tests.hostile.hostile_program import groups, load_group
from tests.hostile.hostile_run import run_program
from waiting import until, within

from codemode import (
    CodeModeError,
    CodeModeOptions,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    WorkerPool,
    continue_interrupt,
    run_code_mode,
    run_code_mode_sync,
)
from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeDetachedBridgeRequestError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)
from codemode.workers import worker_generations
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.process import WorkerProcess
from codemode.workers.supply import REQUIRED_LAYERS, IsolationLayerState
from codemode.workers.worker_generations import ExecWorkerSource

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers do not run there")


_SPARES = 2
MOSTLY_WITH_PIDFDS = pytest.mark.parametrize("pool", ["pidfd", *full_only("no pidfd")], indirect=True)


_HOSTILE_PER_GROUP = 2


@pytest.fixture(params=["pidfd", "no pidfd"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    """A pool of exec'd workers, held by pidfds, and as on platforms that have none."""
    if request.param == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    with nothing_left():
        sizes = {"max_workers": 4, "spare_workers": _SPARES, "programs_per_worker": 1}
        made = WorkerPool({"start_method": "exec", "on_saturation": "wait", **sizes})
        yield made
        made.close()
        assert made.active == 0


async def all_spares(pool: WorkerPool) -> list[WorkerProcess]:
    """Wait for them: a run's end has them started in a thread of the pool."""
    await until(lambda: len(pool.supply.inventory.spares) >= _SPARES)
    return [worker.process for worker in pool.supply.inventory.spares]


async def only_spares(before: set[int]) -> None:
    """Wait until the worker that is done is gone: it is closed in a thread of the pool."""
    await until(lambda: len(children() - before) <= _SPARES)


async def double(number: int) -> int:
    return number * 2


def refuse(number: int) -> int:
    raise ValueError("a host secret")


def limited(**limits: Any) -> CodeModeOptions:
    return CodeModeOptions(execution_policy=limits)


PROGRAMS: list[tuple[str, Any]] = [
    ("return 1 + 1", 2),
    ("", None),
    ("return await Promise.all([1, 2, 3].map((number) => tools.double({ number })))", [2, 4, 6]),
    ("const [a, b]: number[] = [1, 2]; interface Pair { a: number }; return a + b", 3),
    ("try { await tools.refuse({ number: 1 }) } catch (error) { return error.message }", "the tool failed"),
    ("return [await tools.$search('double')].length", 1),
    ("console.log('here'); return [typeof fetch, typeof process, new Date(0).getTimezoneOffset()]",
     ["undefined", "undefined", 0]),
    ("const mark = globalThis.mark; globalThis.mark = 1; return mark ?? 'none'", "none"),
    ("return 'ü€😀'.repeat(20000).length", 80_000),
]  # fmt: skip


FAILURES: list[tuple[str, dict[str, int], type[CodeModeError]]] = [
    ("for (;;);", {"timeout_ms": 300}, CodeModeTimeoutError),
    ("await new Promise(() => {})", {}, CodeModeError),
    ("throw new RangeError('far')", {}, CodeModeError),
    ("const kept = []; for (;;) kept.push('x'.repeat(1 << 20) + kept.length)", {"memory_limit_bytes": 16 << 20},
     CodeModeError),
    ("const deeper = () => deeper() + 1; return deeper()", {}, CodeModeError),
    ("return 'x'.repeat(2000)", {"max_result_bytes": 1000}, CodeModeSerializationError),
    ("for (let i = 0; i < 5; i++) await tools.double({ number: i })", {"max_bridge_requests": 3},
     CodeModeBridgeLimitError),
    ("tools.double({ number: 1 }); await tools.double({ number: 2 });", {}, CodeModeDetachedBridgeRequestError),
    ("return await tools.doubel({ number: 1 })", {}, CodeModeSyntaxError),
    ("return await tools['dou' + 'bel']({ number: 1 })", {}, CodeModeToolError),
    ("return (", {}, CodeModeSyntaxError),
]  # fmt: skip


@MOSTLY_WITH_PIDFDS
def test_programs(pool: WorkerPool) -> None:
    async def main() -> None:
        for program, value in PROGRAMS:
            assert await run_code_mode(program, [double, refuse], pool=pool) == value, program

    within(main())


@pytest.mark.full
@MOSTLY_WITH_PIDFDS
def test_limits_and_errors(pool: WorkerPool) -> None:
    async def main() -> None:
        for program, limits, error_class in FAILURES:
            with pytest.raises(CodeModeError) as caught:
                await run_code_mode(program, [double], options=limited(**limits), pool=pool)
            assert type(caught.value) is error_class, (program, caught.value)
            assert await run_code_mode("return 1", (), pool=pool) == 1

    within(main())


def test_interrupts(pool: WorkerPool) -> None:
    spent: list[Any] = []
    tool = Tool("spend", execute=lambda value, _context: spent.append(value) or len(spent), needs_approval=True)
    program = """
    const both = await Promise.all([tools.spend({ cents: 1 }), tools.spend({ cents: 2 })]);
    return [...both, await tools.spend({ cents: 3 })];
    """

    async def main() -> Any:
        outcome = await run_code_mode(program, [tool], options=PAUSING, pool=pool)
        for expected in (2, 1):
            assert len(outcome.requests) == expected
            answers = {request.interrupt_id: {"approved": True} for request in outcome.requests}
            outcome = await continue_interrupt(
                through_json(outcome), resolutions=answers, tools=[tool], options=PAUSING, pool=pool
            )
        return outcome

    # The first two run in threads, in either order.
    *both, last = within(main())
    assert (sorted(both), last) == ([1, 2], 3)
    assert (sorted(value["cents"] for value in spent[:2]), spent[2]["cents"]) == ([1, 2], 3)


@pytest.mark.full
@each_row("group", groups())
def test_hostile_programs(group: str) -> None:
    programs = load_group(group)
    # The first and the last by name: the whole suite has a zygote.
    sample = programs[:1] + programs[-_HOSTILE_PER_GROUP + 1 :]
    pool = WorkerPool({"start_method": "exec", "max_workers": 4, "on_saturation": "wait"})

    async def main() -> list[Any]:
        return await asyncio.gather(*(run_program(program, pool) for program in sample))

    try:
        assert [problem for outcome in within(main()) for problem in outcome.problems()] == []
    finally:
        pool.close()


@MOSTLY_WITH_PIDFDS
def test_spares_are_ready_before_they_are_needed(pool: WorkerPool) -> None:
    async def main() -> None:
        await run_code_mode("return 1", (), pool=pool)
        for _ in range(3):
            spares = await all_spares(pool)
            loop = asyncio.get_running_loop()
            for spare in spares:
                ready = asyncio.Event()
                loop.add_reader(spare.channel, ready.set)
                await asyncio.wait_for(ready.wait(), PATIENCE_SECONDS)
                loop.remove_reader(spare.channel)
            taken = set(spares)
            assert await run_code_mode("return 2", (), pool=pool) == 2
            # One of those that were waiting ran it, and another has been started in its place.
            assert len(taken - set(await all_spares(pool))) == 1

    within(main())


def test_each_worker_is_a_child_of_its_own_and_locked(pool: WorkerPool) -> None:
    before = children()
    seen: list[str] = []

    async def look() -> None:
        seen.extend(command_line(pid) for pid in children() - before)

    assert within(run_code_mode("await tools.look()", [look], pool=pool)) is None
    # The one that runs, and the first spares: all the same program, and no zygote among them.
    own = command_line(os.getpid())  # what a child has that is just forked, and not yet executed; or it has none
    commands = [command for command in seen if command not in ("", own)]
    assert len(commands) >= 1
    assert all("worker.py" in command for command in commands), seen
    assert pool.isolation is not None
    if sys.platform == "linux":
        in_force = {layer.name for layer in pool.isolation.layers if layer.state is IsolationLayerState.IN_FORCE}
        assert set(REQUIRED_LAYERS) <= in_force
        assert "parent-death-signal" in in_force


@MOSTLY_WITH_PIDFDS
@pytest.mark.parametrize("number", [signal.SIGKILL, *full_only(signal.SIGSTOP)])
def test_a_spare_that_died_or_stopped_costs_at_most_its_own_invocation(
    pool: WorkerPool, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children()
    within(run_code_mode("return 1", (), pool=pool))
    within(all_spares(pool))
    within(only_spares(before))
    kill_all(children() - before, number)
    with monkeypatch.context() as hurried:
        hurried.setattr(worker_generations, "_HELLO_SECONDS", 0.5)
        for _ in range(_SPARES):
            with contextlib.suppress(CodeModeTimeoutError, CodeModeWorkerError):
                run_code_mode_sync("return 1", (), options=limited(timeout_ms=500), pool=pool)
    assert [run_code_mode_sync("return 1", (), pool=pool) for _ in range(2)] == [1, 1]


def test_a_worker_that_is_killed_in_a_call_leaves_a_recovery(pool: WorkerPool) -> None:
    before = children()
    executed: list[int] = []

    async def strike(number: int) -> int:
        executed.append(number)
        if number == 1 and len(executed) == 1:
            kill_all(children() - before)
            await asyncio.Event().wait()
        return number

    async def main() -> Any:
        program = "return [await tools.strike({ number: 1 }), await tools.strike({ number: 2 })]"
        with pytest.raises(CodeModeWorkerError) as caught:
            await run_code_mode(program, [strike], pool=pool)
        recovery = caught.value.recovery
        assert recovery is not None
        return await continue_interrupt(recovery, {"value": 1}, tools=[strike], pool=pool)

    assert within(main()) == [1, 2]
    assert executed == [1, 2]


@pytest.mark.full
@MOSTLY_WITH_PIDFDS
def test_from_many_threads(pool: WorkerPool) -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        results.append(run_code_mode_sync(f"return {number}", (), pool=pool))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    assert sorted(results) == list(range(12))


# --- another platform: no pidfd in the host, no lock-down in the worker ---

# Stands in the place of the interpreter's own options, which it throws away.
ELSEWHERE = """
import os, runpy, sys, types
os.uname = lambda: types.SimpleNamespace(sysname="Elsewhere", machine="m")
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def make_pool_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    made: list[WorkerPool] = []

    def make(**options: Any) -> WorkerPool:
        command = (sys.executable, "-c", ELSEWHERE)
        made.append(WorkerPool({"start_method": "exec", "worker_command": command, **options}))
        return made[-1]

    with nothing_left():
        yield make
        for pool in made:
            pool.close()


def test_elsewhere_programs_run_and_the_report_says_that_nothing_confines_them(make_pool_elsewhere: Any) -> None:
    pool = make_pool_elsewhere()
    assert within(run_code_mode("return await tools.double({ number: 21 })", [double], pool=pool)) == 42
    assert {layer.state for layer in pool.isolation.layers} == {IsolationLayerState.NOT_ON_THIS_PLATFORM}
    with pytest.raises(CodeModeTimeoutError):
        within(run_code_mode("for (;;);", (), options=limited(timeout_ms=300), pool=pool))


def test_elsewhere_required_isolation_is_refused(make_pool_elsewhere: Any) -> None:
    pool = make_pool_elsewhere(isolation="required")
    with pytest.raises(CodeModeWorkerError, match="no isolation layer exists on this platform"):
        within(run_code_mode("return 1", (), pool=pool))


def test_elsewhere_a_zygote_is_refused(make_pool_elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool_elsewhere(start_method="fork")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CodeModeWorkerError, match="'fork' needs Linux"):
        within(run_code_mode("return 1", (), pool=pool))
    monkeypatch.undo()


def test_a_worker_that_cannot_start_says_why() -> None:
    with nothing_left():
        image = replace(WorkerImage.from_installed(GUEST_RUNTIME), engine_path="/nonexistent/_quickjs.so")
        pool = WorkerPool(source=lambda: ExecWorkerSource(image, isolation_required=False))
        with pytest.raises(CodeModeWorkerError, match="refused to start: ImportError"):
            within(run_code_mode("return 1", (), pool=pool))
        pool.close()

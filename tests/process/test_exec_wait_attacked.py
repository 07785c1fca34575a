"""The pair in the hands of a hostile caller: ids, scopes, interrupts and aborts that are not meant so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from calls import with_call
from pausing import NO, OK, PAUSING, Spy
from waiting import until, within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    ExecWaitTools,
    Interrupt,
    WorkerPool,
    create_code_mode_tool,
    create_exec_wait_tools,
)

SCOPE = "a conversation"
YIELDING = "await yield_control(); return await tools.act(1)"
PAYING = "const paid = await tools.pay(5); text('a'); await yield_control(); return [paid, await tools.act(1)]"


class Attacked:
    """A pair whose tools note their calls; ``gate`` holds those of ``hold``."""

    def __init__(self, pool: Any, options: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.spy, self.gate = Spy(), asyncio.Event()
        self.pool = pool
        self.tools = [
            self.spy.tool("act", lambda value, _: value),
            self.spy.tool("hold", self._held),
            self.spy.guarded("pay"),
        ]
        settings = {"waitTimeoutMs": 20_000, **(options or {})}
        self.pair: ExecWaitTools = create_exec_wait_tools(self.tools, settings, settings=PAUSING, pool=pool, **more)

    async def _held(self, value: Any, _context: Any) -> Any:
        await self.gate.wait()
        return value

    async def run(self, code: str, **more: Any) -> Any:
        return await self.pair.exec.execute({"code": code}, **with_call(more, conversation_id=SCOPE))

    async def wait(self, run_id: Any, conversation_id: str | None = SCOPE) -> Any:
        return await self.pair.wait.execute({"runId": run_id}, call=CallContext(conversation_id=conversation_id))

    async def answer(self, interrupt: Any, answer: Any = OK, conversation_id: str | None = SCOPE) -> Any:
        answers = {one.interrupt_id: answer for one in interrupt.requests}
        return await self.pair.resume(interrupt, resolutions=answers, call=CallContext(conversation_id=conversation_id))

    def live(self) -> int:
        return self.pair._runner.runs._active_count


@pytest.fixture(scope="module")
def waiting_pool() -> Iterator[WorkerPool]:
    """Two workers for which programs wait."""
    with WorkerPool({"max_workers": 2, "on_saturation": "wait"}) as pool:
        yield pool


@pytest.fixture
def attacked(make_pool, waiting_pool) -> Any:
    """Run something with a pair, after which nothing of it may be left."""

    def run(work: Any, options: Mapping[str, Any] | None = None, *, workers: int = 2, **more: Any) -> Any:
        pool = waiting_pool if workers == 2 else make_pool(max_workers=workers, on_saturation="wait")

        async def main() -> Any:
            one = Attacked(pool, options, **more)
            before = asyncio.all_tasks()
            try:
                return await work(one)
            finally:
                await one.pair.aclose()
                assert (one.live(), pool.active, asyncio.all_tasks() - before) == (0, 0, set())

        return within(main())

    return run


# -- inputs


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


class Rude:
    """A key or a word that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not shown")

    __repr__ = __str__


class RudeText(str):
    """A text of the host's own that does as it likes."""

    __slots__ = ()

    def strip(self, *_: Any) -> str:
        raise RuntimeError("not stripped")


class RudeMapping(dict[str, Any]):
    """A mapping that cannot be read."""

    def __iter__(self) -> Any:
        raise RuntimeError("not read")


LARGE = 10_000_000
ODD_INPUTS: list[Any] = [
    *(None, 1, [], b"return 1", {}, Rude()),
    *({"code": one} for one in (None, 1, b"return 1", ["return 1"], deep(50_000), "", " \n", "\ud800", "\0", "x\0")),
    *({"code": "return 1", "language": one} for one in ("python", 5, deep(50_000), 10**6000, ["javascript"], Rude())),
    *({"code": "return 1", one: 1} for one in (5, 10**6000, Rude(), "\ud800", "k" * LARGE)),
    {"code": "return 1", "command": "return 2"},
    {"code": "return 1", "more": deep(50_000)},
    {"code": RudeText("return 1")},
    RudeMapping(code="return 1"),
    *({"code": one} for one in ("/" * LARGE, "\n" * LARGE, "tools " * (LARGE // 6), "[" * LARGE, " " * LARGE + "ls")),
    *({"code": one} for one in ("(" * 100_000, "`${" * 50_000, "return " + "[" * 100_000)),
]
ODD_IDS: list[Any] = [
    *(None, 5, "", "x", "run_", "run_" + "0" * 32, "run_" + "0" * 32 + "\n", "\ud800", "\0", "../../x", "12345"),
    *("job-77", "x" * LARGE, ["run_"], deep(50_000), 10**6000, Rude()),
]


@pytest.mark.parametrize("call", [None, "call_1"])
def test_no_input_of_a_model_makes_them_raise_or_run(attacked, call):
    async def work(one: Attacked) -> list[Any]:
        results = [
            await one.pair.exec.execute(given, call=CallContext(conversation_id=SCOPE, tool_call_id=call))
            for given in ODD_INPUTS
        ]
        results += [
            await one.pair.wait.execute({"runId": given}, call=CallContext(conversation_id=SCOPE, tool_call_id=call))
            for given in ODD_IDS
        ]
        results += [
            await one.pair.wait.execute(given, call=CallContext(conversation_id=SCOPE))
            for given in (None, [], "x", {"runId": 1, 2: 3})
        ]
        assert one.spy.ran == []
        return results

    for result in attacked(work):
        assert result["status"] == "failed"
        assert result["code"] in ("invalid_input", "unsupported_language", "internal_error"), result
        assert len(result["error"]) < 5_000
        json.dumps(result, ensure_ascii=False).encode()


def test_what_is_too_long_is_refused_before_anything_looks_at_it(attacked, monkeypatch):
    from codemode.surfaces.exec_wait import catalog

    class Unlooked:
        def search(self, _code: str) -> Any:
            raise AssertionError("looked at")

    async def work(one: Attacked) -> Any:
        monkeypatch.setattr(catalog, "_USES_TOOLS", Unlooked())
        return [await one.run(text) for text in ("\n" * LARGE + "x", "ls " + "a" * LARGE, "tools " * LARGE)]

    for result in attacked(work):
        assert (result["code"], "max_source_bytes is 262144" in result["error"]) == ("invalid_input", True)


@pytest.mark.parametrize("call", ["a thread", 5, {"conversation_id": "a thread"}])
def test_what_is_no_context_of_a_call_is_a_failure_too(attacked, call):
    async def work(one: Attacked) -> Any:
        return [
            await one.pair.exec.execute({"code": "return 1"}, call),
            await one.pair.wait.execute({"runId": "run_" + "0" * 32}, call),
        ]

    assert {result["code"] for result in attacked(work)} == {"internal_error"}


# -- ids and scopes


def test_a_run_is_gone_on_with_in_its_own_scope_alone_and_nobody_else_learns_that_it_is_there(attacked):
    async def work(one: Attacked) -> None:
        run_id = (await one.run(YIELDING))["runId"]
        nobody = "run_" + "0" * 32
        for scope in (None, "another", SCOPE + " ", SCOPE.upper()):
            of_another, of_nobody = await one.wait(run_id, scope), await one.wait(nobody, scope)
            assert of_another["error"].replace(run_id, nobody) == of_nobody["error"]
            assert (await one.pair.abort(conversation_id=scope, run_id=run_id), one.pair.runs(scope)) == (0, ())
        guesses = (run_id.upper(), run_id[:-1], run_id + "0", f" {run_id}", run_id.removeprefix("run_"))
        assert {(await one.wait(guess))["code"] for guess in guesses} == {"invalid_input"}
        assert ([*one.spy.ran], (await one.wait(run_id))["value"]) == ([], 1)

    attacked(work)


def test_ids_have_128_random_bits(attacked):
    async def work(one: Attacked) -> Any:
        return [(await one.run("await yield_control()"))["runId"] for _ in range(20)]

    found = attacked(work)
    assert len(set(found)) == 20
    assert all(len(run_id.removeprefix("run_")) == 32 for run_id in found)


def test_of_many_waits_one_goes_on(attacked):
    async def work(one: Attacked) -> Any:
        run_id = (await one.run(YIELDING))["runId"]
        return await asyncio.gather(*(one.wait(run_id) for _ in range(8))), one.spy.ran

    results, ran = attacked(work)
    assert sorted(one["status"] for one in results) == ["completed", *["failed"] * 7]
    assert {one["code"] for one in results if one["status"] == "failed"} == {"invalid_input"}
    assert ran == [("act", 1)]


def test_the_same_id_with_another_input_is_another_call(attacked):
    async def work(one: Attacked) -> Any:
        codes = ["return [await tools.act(1), 1]", "return [await tools.act(2), 2]", "return [await tools.act(1), 1]"]
        at_once = await asyncio.gather(*(one.run(code, tool_call_id="c") for code in codes[:2]))
        return [*at_once, await one.run(codes[2], tool_call_id="c", conversation_id="another")], one.spy.ran

    results, ran = attacked(work)
    assert [one["value"] for one in results] == [[1, 1], [2, 2], [1, 1]]
    assert sorted(ran) == [("act", 1), ("act", 1), ("act", 2)]


# -- abort


@pytest.mark.parametrize("ticks", range(14))
def test_nothing_runs_any_more_once_an_abort_has_answered(attacked, ticks):
    async def work(one: Attacked) -> None:
        await one.run("return 1")
        begun = asyncio.ensure_future(one.run("for (;;) await tools.act(1)"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        count = await one.pair.abort(conversation_id=SCOPE)
        ran = len(one.spy.ran)
        if count == 0:  # it had not even begun
            await until(lambda: one.spy.ran)
            assert await one.pair.abort(conversation_id=SCOPE) == 1
            ran = len(one.spy.ran)
        result = await begun
        assert (result["code"], len(one.spy.ran), one.live()) == ("aborted", ran, 0)

    attacked(work)


@pytest.mark.parametrize("begins", ["exec", "resume"])
def test_a_program_that_waits_for_a_worker_never_runs_once_it_is_aborted(attacked, begins):
    async def work(one: Attacked) -> None:
        interrupt = await one.run(PAYING, conversation_id="other") if begins == "resume" else None
        first = asyncio.ensure_future(one.run("return await tools.hold(1)"))
        await until(lambda: one.spy.ran)
        second = asyncio.ensure_future(
            one.run("return await tools.act(2)", conversation_id="other")
            if interrupt is None
            else one.answer(interrupt, conversation_id="other")
        )
        await until(lambda: one.live() == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert await one.pair.abort(conversation_id="other") == 1
        assert ((await second)["code"], one.live()) == ("aborted", 1)
        one.gate.set()
        assert ((await first)["value"], one.spy.ran) == (1, [("hold", 1)])

    attacked(work, workers=1)


def test_a_resume_that_computes_is_ended_by_an_abort(attacked):
    async def work(one: Attacked) -> None:
        interrupt = await one.run("await tools.pay(5); return await tools.hold(1)")
        resumed = asyncio.ensure_future(one.answer(interrupt))
        await until(lambda: ("hold", 1) in one.spy.ran)
        assert await one.pair.abort(conversation_id=SCOPE) == 1
        assert ((await resumed)["code"], one.live()) == ("aborted", 0)

    attacked(work)


def test_whoever_cancels_an_aborted_call_as_well_is_told_that_it_was_cancelled(attacked):
    async def work(one: Attacked) -> None:
        first = asyncio.ensure_future(one.run("return await tools.hold(1)"))
        await until(lambda: one.spy.ran)
        second = asyncio.ensure_future(one.run("return 2", conversation_id="other"))
        await until(lambda: one.live() == 2)
        aborted = asyncio.ensure_future(one.pair.abort(conversation_id="other"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second, aborted])
        assert second.cancelled()
        first.cancel()
        await asyncio.wait([first])

    attacked(work, workers=1)


# -- interrupts


def test_an_interrupt_is_answered_in_its_own_scope_alone(attacked):
    async def work(one: Attacked) -> Any:
        for made_in, others in ((SCOPE, (None, "another")), (None, (SCOPE,))):
            interrupt = await one.run(PAYING, conversation_id=made_in)
            for scope in others:
                with pytest.raises(CodeModeProtocolError):
                    await one.answer(interrupt, conversation_id=scope)
        return one.spy.ran

    assert attacked(work) == []


def test_an_interrupt_of_another_tool_or_catalog_is_refused(attacked):
    async def work(one: Attacked) -> Any:
        code_mode = create_code_mode_tool(one.tools, PAUSING, pool=one.pool)
        other = create_exec_wait_tools(one.tools[1:], settings=PAUSING, pool=one.pool)
        of_pair, of_code_mode = (
            await one.run(PAYING, conversation_id=None),
            await code_mode.execute({"js": "await tools.pay(5)"}),
        )
        answers = [{asked.interrupt_id: OK for asked in paused.requests} for paused in (of_pair, of_code_mode)]
        for attempt in (
            lambda: code_mode.resume(of_pair, resolutions=answers[0]),
            lambda: other.resume(of_pair, resolutions=answers[0]),
            lambda: one.pair.resume(of_code_mode, resolutions=answers[1]),
        ):
            with pytest.raises(CodeModeProtocolError):
                await attempt()
        await other.aclose()
        return one.spy.ran

    assert attacked(work) == []


def changed(value: Any, at: tuple[Any, ...], to: Any) -> Any:
    if not at:
        return to(value) if callable(to) else to
    copied: Any = [*value] if isinstance(value, list) else {**value}
    copied[at[0]] = changed(copied[at[0]], at[1:], to)
    return copied


@pytest.mark.parametrize(
    ("at", "to"),
    [
        (("continuation", "body", 0), lambda text: text.replace("execWait", "codeMode")),
        (("continuation", "body", 0), lambda text: text.replace("timeout_ms", "timeout_mz")),
        (("continuation", "auth", "nonce"), "0" * 32),
        (("continuation", "version"), "1"),
        (("toolName",), "host:core:act"),
        (("input",), 6),
    ],
    ids=["profile", "parameters", "nonce", "version", "tool", "input"],
)
def test_an_interrupt_that_was_changed_is_refused(attacked, at, to):
    async def work(one: Attacked) -> Any:
        interrupt = await one.run(PAYING)
        given = interrupt.to_dict()
        forged = changed(given, at, to)
        assert forged != given
        with pytest.raises(CodeModeProtocolError):
            await one.pair.resume(
                forged, resolutions={interrupt.interrupt_id: OK}, call=CallContext(conversation_id=SCOPE)
            )
        return one.spy.ran

    assert attacked(work) == []


def test_an_interrupt_answered_again_gives_the_run_that_goes_on_and_runs_nothing_twice(attacked):
    async def work(one: Attacked) -> None:
        interrupt = await one.run(PAYING)
        assert isinstance(interrupt, Interrupt)
        results = await asyncio.gather(*(one.answer(interrupt) for _ in range(4)))
        assert results == [results[0]] * 4
        assert (results[0]["status"], one.live()) == ("waiting", 1)
        with pytest.raises(CodeModeProtocolError):
            await one.answer(interrupt, NO)
        last = await one.wait(results[0]["runId"])
        assert (last["value"], one.spy.ran) == ([{"done": "pay"}, 1], [("pay", 5), ("act", 1)])

    attacked(work)


def test_what_has_gone_on_elsewhere_is_no_result_of_nothing(attacked):
    async def work(one: Attacked) -> None:
        interrupt = await one.run(PAYING)
        assert (await one.answer(interrupt))["status"] == "waiting"
        again = create_exec_wait_tools(one.tools, settings=PAUSING, pool=one.pool)  # its guard is the same
        answers = {asked.interrupt_id: OK for asked in interrupt.requests}
        result = await again.resume(interrupt, resolutions=answers, call=CallContext(conversation_id=SCOPE))
        assert (result["status"], result["code"]) == ("failed", "snapshot_restore_failed")
        await again.aclose()
        assert one.spy.ran == [("pay", 5)]

    attacked(work)

"""What a catalog of a surface's own may do around a run: prepare itself, refuse programs, answer questions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from calls import with_call
from pausing import PAUSING
from strict_surface import View
from waiting import within

from codemode import CodeModeError, CodeModeOptions, CodeModeProtocolError, CodeModeTimeoutError, Tool, WorkerPool
from codemode.execution.starting import get_pool_and_import_execution, import_execution_module, import_resume_module
from codemode.profile import GuestSettings, HostErrorRules, SurfaceSettings
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools


def words(error: Any, kind: str, name: str, is_raised: bool) -> dict[str, Any]:
    return {
        "class": "Own",
        "message": f"{kind} {name}: {error.message}",
        "code": "OWN",
        "hint": "do",
        "raised": is_raised,
    }


OWN = SurfaceSettings(
    name="hooked",
    outer_tool="hooked",
    guest=GuestSettings(wrapper="strict", globals=("tools", "console")),
    host_errors=HostErrorRules(error_fields=words),
)
ABANDONING = replace(OWN, unawaited="abandon")


class Hooked(View):
    """A view that does, refuses and answers what a test says."""

    def __init__(
        self,
        tools: Any = (),
        *,
        prepare: Callable[[Any, Any], Awaitable[None] | None] | None = None,
        refuse: Callable[[Any], CodeModeError | None] | None = None,
        answer: Callable[[str, Any], Any] | None = None,
    ) -> None:
        super().__init__(Catalog(collect_tools(tools)))
        self._prepare = prepare
        self._refuse = refuse
        self._answer = answer

    def for_invocation(self, given: Any) -> Hooked:
        return self

    def prepare_for_program(self, facts: Any, given: Any) -> Awaitable[None] | None:
        return None if self._prepare is None else self._prepare(facts, given)

    def check_resumed_program(self, given: Any, names: Any) -> None:
        """Nothing."""

    def find_program_error(self, facts: Any) -> CodeModeError | None:
        return None if self._refuse is None else self._refuse(facts)

    def answer_query(self, name: str, argument: Any) -> Any:
        return super().answer_query(name, argument) if self._answer is None else self._answer(name, argument)


async def run(
    js: str, catalog: Hooked, options: Any = None, profile: SurfaceSettings = OWN, pool: Any = None, **outer: Any
) -> Any:
    settings = CodeModeOptions.of(options)
    workers = await get_pool_and_import_execution(pool, settings)
    load = import_execution_module()
    return await load.Execution(profile, catalog, settings, load.OuterCallSettings(**with_call(outer)), workers).start(
        js
    )


async def go_on(interrupt: Any, catalog: Hooked, answer: Any, options: Any) -> Any:
    continuations, load = import_resume_module(), import_execution_module()

    def answers(paused: Any) -> Any:
        return continuations.normalize_answers_by_id(paused, answer, None)

    return await continuations.resume_program(OWN, interrupt, answers, catalog, options, load.OuterCallSettings(), None)


# --- preparation ---


def test_a_catalog_prepares_itself_before_the_program_is_checked():
    order: list[Any] = []

    async def prepare() -> None:
        await asyncio.sleep(0)
        order.append("prepared")

    def refuse(facts: Any) -> None:
        order.append(("checked", [one["name"] for one in facts["calls"]]))

    catalog = Hooked([Tool("echo", execute=lambda value: value)], prepare=lambda *_: prepare(), refuse=refuse)
    js = "return await tools.echo(1) // to be prepared"
    for _ in range(3):  # the second time the program is known, and still compared with tools that may have changed
        assert within(run(js, catalog)).value == 1
    assert order == ["prepared", ("checked", ["echo"])] * 3


def test_a_catalog_that_has_nothing_to_prepare_is_compared_once():
    checked: list[Any] = []
    catalog = Hooked([Tool("echo", execute=lambda value: value)], refuse=checked.append)
    with WorkerPool({"programs_per_worker": 1}) as pool:  # only a worker's first analysis is kept
        for _ in range(4):
            assert within(run("return await tools.echo(2) // known", catalog, pool=pool)).value == 2
    assert len(checked) == 2  # as new, and as known


def test_the_programs_clock_stands_still_while_a_catalog_prepares_itself(passing_time):
    async def slow() -> None:
        passing_time.skip(350)
        await asyncio.sleep(0)  # in which a deadline would ring

    options = {"execution_policy": {"timeout_ms": 60_000}}
    for js in ("return 5 // once", "return 5 // once"):
        assert within(run(js, Hooked(prepare=lambda *_: slow()), options)).value == 5
    hasty = {"execution_policy": {"timeout_ms": 300}}
    outcome = within(run("for (;;) {} // after that it runs", Hooked(prepare=lambda *_: slow()), hasty))
    assert type(outcome.error) is CodeModeTimeoutError


def test_preparation_is_cancelled_with_the_run():
    seen: list[str] = []

    async def cancelled() -> None:
        begun = asyncio.Event()

        async def forever() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        task = asyncio.ensure_future(run("return 1 // cancelled", Hooked(prepare=lambda *_: forever())))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    within(cancelled())
    assert seen == ["cancelled"]


@pytest.mark.parametrize("raised", [RuntimeError("broken"), asyncio.CancelledError()])
def test_what_fails_in_preparation_ends_the_run_and_nothing_hangs(raised: BaseException):
    async def fail() -> None:
        raise raised

    async def caught() -> Any:
        try:
            return (await run("return 1 // fails", Hooked(prepare=lambda *_: fail()))).error
        except Exception as error:
            return error

    error = within(caught())
    assert error is raised or (type(error) is CodeModeError and "cancelled" in error.message)


def test_a_resume_prepares_the_catalog_with_what_the_run_was_given_before_answers_are_checked():
    prepared_with: list[Any] = []

    async def prepare(given: Any) -> None:
        await asyncio.sleep(0)
        prepared_with.append(given)

    tools = [Tool("gated", execute=lambda value: value, needs_approval=True)]
    catalog = Hooked(tools, prepare=lambda _facts, given: prepare(given))
    options = {**PAUSING, "continuation": {"keys": "a key of this test"}}

    async def both() -> Any:
        paused = await run("return await tools.gated(7)", catalog, options)
        with pytest.raises(CodeModeProtocolError):
            await go_on(paused.interrupt, catalog, {"approved": "perhaps"}, options)
        return await go_on(paused.interrupt, catalog, {"approved": True}, options)

    assert within(both()).value == 7
    assert prepared_with == [None, {"named": ["gated"]}, {"named": ["gated"]}]


# --- refusal ---


def test_a_catalog_refuses_a_program_of_which_nothing_then_runs():
    ran: list[Any] = []
    refused = CodeModeError("no such module", code="IMPORT_FAILURE", details={"problems": [{"line": 1}]})
    catalog = Hooked([Tool("echo", execute=ran.append)], refuse=lambda _facts: refused)
    for _ in range(2):
        outcome = within(run("await tools.echo(1) // refused", catalog))
        assert outcome.error is refused
    assert (ran, outcome.calls) == ([], ())


# --- questions ---


@pytest.mark.parametrize("argument", ['"text"', "[1, {a: 2}]", "null", "{}", "5", ""])
def test_a_catalog_is_asked_with_what_the_program_has_passed(argument: str):
    asked: list[Any] = []

    def answer(name: str, value: Any) -> Any:
        asked.append((name, value))
        return {"answer": value}

    outcome = within(run(f"return await tools.$search({argument})", Hooked(answer=answer)))
    expected = {'"text"': "text", "[1, {a: 2}]": [1, {"a": 2}], "null": None, "{}": {}, "5": 5, "": None}[argument]
    assert (outcome.value, asked) == ({"answer": expected}, [("$search", expected)])


def test_an_ordinary_catalog_takes_one_string():
    caught = "try { await tools.$describe([1]) } catch (error) { return [error.code, error.message] }"
    assert within(run(caught, Hooked())).value == ["OWN", "catalog $describe: tools.$describe takes one string"]


# --- words ---


def test_a_program_reads_the_words_of_its_face_and_they_are_kept_over_a_pause():
    def fail(_value: Any) -> None:
        raise CodeModeError("sorry")

    tools = [Tool("fail", execute=fail), Tool("gated", execute=lambda value: value, needs_approval=True)]
    js = (
        "let kept; try { await tools.fail(1) } catch (error) { kept = error }"
        "const seen = [kept.code, kept.message]; await tools.gated(seen); throw kept"
    )
    options = {**PAUSING, "continuation": {"keys": "a key of this test"}}

    async def both() -> Any:
        paused = await run(js, Hooked(tools), options)
        return paused, await go_on(paused.interrupt, Hooked(tools), {"approved": True}, options)

    paused, ended = within(both())
    assert paused.interrupt.input == ["OWN", "tool fail: sorry"]
    call = ended.error.details["call"]
    assert (call["class"], call["message"], call["raised"]) == ("Own", "tool fail: sorry", True)
    assert (type(ended.error), ended.error.message) == (CodeModeError, "sorry")


# --- calls that nobody waits for ---


class Slow:
    """Tools that begin and do not end, and one that waits for a person."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def hang(self, _value: Any) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def fail(self, _value: Any) -> None:
        raise ValueError

    async def quick(self, value: Any) -> Any:
        await self.begun.wait()
        return value

    def tools(self) -> list[Tool]:
        return [
            Tool("hang", execute=self.hang),
            Tool("quick", execute=self.quick),
            Tool("fail", execute=self.fail),
            Tool("gated", execute=lambda value: value, needs_approval=True),
        ]


def test_the_result_stands_and_what_runs_is_cancelled():
    async def main() -> Any:
        slow = Slow()
        js = "tools.hang(1); tools.gated(2); tools.fail(3); const x = await tools.quick(4); tools.quick(5); return x"
        return slow, await run(js, Hooked(slow.tools()), PAUSING, ABANDONING, is_traced=True)

    slow, outcome = within(main())
    assert (outcome.status, outcome.value, slow.ended) == ("completed", 4, ["cancelled"])
    assert [(one["name"], one["status"]) for one in outcome.abandoned] == [
        ("hang", "pending"), ("gated", "waiting"), ("fail", "failed"), ("quick", "not sent"),
    ]  # fmt: skip
    assert outcome.trace is not None


def test_a_failure_that_the_program_saw_is_not_told_again():
    async def main() -> Any:
        js = "try { await tools.fail(1) } catch {} tools.fail(2).catch(() => {}); return 1"
        return await run(js, Hooked(Slow().tools()), None, ABANDONING)

    outcome = within(main())
    assert [(one["name"], one["status"]) for one in outcome.abandoned] == [("fail", "not sent")]


def test_a_program_that_waits_for_a_person_still_pauses_and_one_that_throws_still_fails():
    async def main() -> Any:
        waits = await run("return await tools.gated(2)", Hooked(Slow().tools()), PAUSING, ABANDONING)
        throws = await run("tools.fail(1); throw new Error('x')", Hooked(Slow().tools()), PAUSING, ABANDONING)
        return waits, throws

    waits, throws = within(main())
    assert (waits.status, throws.status, throws.abandoned) == ("interrupted", "failed", ())

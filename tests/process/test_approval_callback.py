"""Approval in callback mode: who is asked, what decides, and what the clock does meanwhile."""

from __future__ import annotations

import asyncio

import pydantic
import pytest
from suite import each_row

from codemode import (
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    Tool,
    failure_text,
)
from codemode.errors import CodeModeToolApprovalRequiredError


class Guarded:
    """A tool that needs approval and notes when it runs."""

    def __init__(self, needs_approval=True, **settings):
        self.ran = []
        self.tool = Tool("pay", execute=self.pay, needs_approval=needs_approval, **settings)

    async def pay(self, value):
        self.ran.append(value)
        return "paid"


def asking(callback, **policy):
    return {"approval": {"on_approval_required": callback, **policy}}


def answering(answer, kind):
    def now(request):
        return answer

    async def later(request):
        await asyncio.sleep(0)
        return answer

    return now if kind == "sync" else later


JS = "return await tools.pay({amount: 5})"
both = pytest.mark.parametrize("kind", ["sync", "async"])


@both
@each_row("answer", ["approved", {"approved": True}, {"approved": True, "reason": "fine"}, {"approved": True, "x": 1}])
def test_an_approved_call_runs(run, kind, answer):
    guarded = Guarded()
    assert run(JS, [guarded.tool], options=asking(answering(answer, kind))) == "paid"
    assert guarded.ran == [{"amount": 5}]


@both
@each_row("answer", ["denied", "", "Approved", "no", {"approved": False}, {"approved": False, "reason": "too much"}])
def test_any_other_decision_denies(run, fails, kind, answer):
    guarded = Guarded()
    options = asking(answering(answer, kind))
    error = fails(CodeModeToolApprovalDeniedError, JS, [guarded.tool], options=options)
    assert error.code == "CODE_MODE_TOOL_APPROVAL_DENIED"
    assert error.details["tool_name"] == "pay"
    assert error.details.get("reason") == (answer.get("reason") if isinstance(answer, dict) else None)
    caught = run(
        f"try {{ {JS} }} catch (e) {{ return [e.name, e.code, e.message, e.reason] }}", [guarded.tool], options=options
    )
    assert caught[:2] == ["CodeModeToolApprovalDeniedError", "CODE_MODE_TOOL_APPROVAL_DENIED"]
    assert "too much" not in caught[2]
    assert guarded.ran == []


def test_the_reason_reaches_the_guest_only_when_allowed(run):
    options = asking(lambda request: {"approved": False, "reason": "too much"}, show_denial_reason=True)
    assert "too much" in run("return await tools.pay(1).catch(e => e.message)", [Guarded().tool], options=options)


@both
@each_row("answer",
    [True, False, 1, 0, [], {}, {"approved": "yes"}, {"approved": None}, {"approved": 1},
     {"approved": True, "reason": 5}, {"reason": "x"}, b"approved", {"approved": True, "input": 2}],
)  # fmt: skip
def test_a_malformed_decision_ends_the_run_and_cannot_be_caught(fails, kind, answer):
    guarded = Guarded()
    js = "try { return await tools.pay(1) } catch { return 'caught' } finally { return 'finally' }"
    error = fails(CodeModeProtocolError, js, [guarded.tool], options=asking(answering(answer, kind)))
    assert error.code == "CODE_MODE_PROTOCOL_ERROR"
    assert isinstance(answer, dict) or '"denied"' in error.message
    assert "the host's approval decision was malformed; the call did not run" in failure_text(error, js)
    assert guarded.ran == []


@pytest.mark.parametrize("options", [None, asking(lambda request: None), asking(answering(None, "async"))])
def test_without_a_decision_the_call_fails(run, fails, options):
    guarded = Guarded()
    error = fails(CodeModeToolApprovalRequiredError, JS, [guarded.tool], options=options)
    assert error.code == "CODE_MODE_TOOL_APPROVAL_REQUIRED"
    assert isinstance(error, CodeModeToolError)
    assert run(f"try {{ {JS} }} catch (e) {{ return e.name }}", [guarded.tool], options=options) == (
        "CodeModeToolApprovalRequiredError"
    )
    assert guarded.ran == []


@both
def test_a_callback_that_raises_is_a_hidden_tool_error(run, fails, kind):
    def raise_now(request):
        raise RuntimeError("/secret")

    async def raise_later(request):
        raise RuntimeError("/secret")

    guarded = Guarded()
    options = asking(raise_now if kind == "sync" else raise_later)
    error = fails(CodeModeToolError, JS, [guarded.tool], options=options)
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert str(error.__cause__) == "/secret"
    assert "tools.pay: no decision could be obtained; the call did not run" in failure_text(error, JS)
    assert run("return await tools.pay(1).catch(e => e.message)", [guarded.tool], options=options) == "the tool failed"
    assert guarded.ran == []


@both
def test_a_rule_that_raises_is_a_hidden_tool_error(fails, kind):
    def raise_now(value, context):
        raise RuntimeError("/secret")

    async def raise_later(value, context):
        raise RuntimeError("/secret")

    guarded = Guarded(raise_now if kind == "sync" else raise_later)
    error = fails(CodeModeToolError, JS, [guarded.tool], options=asking(lambda request: "approved"))
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert guarded.ran == []


@both
def test_a_rule_sees_the_validated_input_and_the_call(run, kind):
    class Payment(pydantic.BaseModel):
        amount: int
        currency: str = "EUR"

    asked, decided = [], []

    def needs_now(value, context):
        asked.append((value, context.tool_call_id, context.context))
        return value.amount > 3

    async def needs_later(value, context):
        return needs_now(value, context)

    def decide(request):
        decided.append(request)
        return "approved"

    guarded = Guarded(needs_now if kind == "sync" else needs_later, input_schema=Payment)
    js = "return [await tools.pay({amount: '2'}), await tools.pay({amount: 7})]"
    settings = {"options": asking(decide), "tool_call_id": "o", "context": "c"}
    assert run(js, [guarded.tool], **settings) == ["paid", "paid"]
    assert asked == [(Payment(amount=2), "o:tool-1", "c"), (Payment(amount=7), "o:tool-2", "c")]
    (request,) = decided
    assert (request.tool_name, request.tool_call_id) == ("pay", "o:tool-2")
    assert request.input == {"amount": 7, "currency": "EUR"}


def test_wrong_input_is_refused_before_anyone_is_asked(fails):
    asked = []
    guarded = Guarded(input_schema={"type": "object", "required": ["amount"]})
    js = "const input = {}; await tools.pay(input)"
    fails(CodeModeToolError, js, [guarded.tool], options=asking(asked.append))
    assert asked == []


def test_every_call_is_asked_about(run):
    asked = []

    def decide(request):
        asked.append(request.input)
        return "approved" if request.input != 2 else "denied"

    guarded = Guarded()
    js = "return (await Promise.allSettled([1, 2, 3].map(n => tools.pay(n)))).map(one => one.status)"
    assert run(js, [guarded.tool], options=asking(decide)) == ["fulfilled", "rejected", "fulfilled"]
    assert sorted(asked) == [1, 2, 3]
    assert sorted(guarded.ran) == [1, 3]


# --- the clock ---


@pytest.fixture
def thinking(passing_time):
    """Make a decision that takes so many seconds, which pass at once."""

    def taking(seconds):
        async def think(request):
            passing_time.skip(seconds)
            await asyncio.sleep(0)  # in which a deadline would ring
            return "approved"

        return think

    return taking


def test_the_clock_stops_while_only_a_person_decides(run, thinking):
    js = "return [await tools.pay(1), await tools.pay(2)]"
    assert run(js, [Guarded().tool], options=asking(thinking(350)), timeout_ms=60_000) == ["paid", "paid"]


def test_the_clock_runs_on_after_the_decision(fails, thinking, passing_time):
    js = "await tools.pay(1); await tools.late(2); for (;;);"
    tools = [Guarded().tool, Tool("late", execute=lambda value: passing_time.skip(61))]
    fails(CodeModeTimeoutError, js, tools, options=asking(thinking(350)), timeout_ms=60_000)


def test_the_clock_does_not_stop_while_the_guest_spins(fails, passing_time):
    # The guest is not idle: another answer keeps it busy while the person thinks.
    async def think(request):
        await answered.wait()
        passing_time.skip(61)
        await asyncio.Event().wait()

    answered = asyncio.Event()
    js = "const p = tools.pay(1); await tools.quick(2); for (;;);"
    tools = [Guarded().tool, Tool("quick", execute=lambda value: answered.set())]
    fails(CodeModeTimeoutError, js, tools, options=asking(think), timeout_ms=60_000)


def test_the_clock_does_not_stop_while_another_tool_runs(fails, passing_time):
    async def think(request):
        await begun.wait()
        passing_time.skip(61)
        await asyncio.Event().wait()

    async def runs(value):
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    js = "await Promise.all([tools.pay(1), tools.runs(2)])"
    tools = [Guarded().tool, Tool("runs", execute=runs)]
    fails(CodeModeTimeoutError, js, tools, options=asking(think), timeout_ms=60_000)


def test_the_clock_stops_for_two_people_at_once(run, passing_time):
    both = asyncio.Barrier(2)

    async def think(request):
        await both.wait()
        passing_time.skip(350)
        await both.wait()
        return "approved"

    js = "return await Promise.all([tools.pay(1), tools.pay(2)])"
    assert run(js, [Guarded().tool], options=asking(think), timeout_ms=60_000) == ["paid", "paid"]


def test_a_rule_that_takes_long_counts(fails, thinking, passing_time):
    async def needs(value, context):
        passing_time.skip(61)
        await asyncio.Event().wait()

    fails(CodeModeTimeoutError, JS, [Guarded(needs).tool], options=asking(thinking(0)), timeout_ms=60_000)


def test_a_person_who_never_answers_is_forgotten_when_the_caller_gives_up(within):
    from codemode import run_code_mode

    async def scenario():
        asked, forgotten = asyncio.Event(), []

        async def decide(request):
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                forgotten.append(True)

        task = asyncio.create_task(run_code_mode(JS, [Guarded().tool], options=asking(decide)))
        await asyncio.wait_for(asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return forgotten

    assert within(scenario()) == [True]

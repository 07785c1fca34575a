"""After a timeout, an abort or a dead worker: what had happened is known, and nothing finished is done again."""

from __future__ import annotations

import asyncio

import pydantic
import pytest
from leftovers import kill_workers
from pausing import OK, PAUSING, go_on, start, through_json
from recovering import LIMITED, UNKNOWN, failing, forever, killing, statuses
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
    WorkerPool,
    continue_interrupt,
    request_interrupt,
    run_code_mode,
)
from codemode.errors import CodeModeWorkerError


@pytest.fixture
def pool():
    # Without spares every child of the zygote is the worker of the one run.
    made = WorkerPool({"max_workers": 2, "spare_workers": 0})
    yield made
    made.close()


@pytest.fixture
def hangs(passing_time):
    """What a tool does that has begun when the run is too late."""

    async def hang(value, context):
        passing_time.skip(61)
        await forever(value, context)

    return hang


@pytest.fixture
def late_after_a_call(passing_time):
    """Options of a run that is too late as soon as one of its calls has succeeded."""

    def skip(event):
        if event.status == "fulfilled":
            passing_time.skip(61)

    return {**LIMITED, "lifecycle": {"on_nested_tool_result": skip}}


JS = "const one = await tools.refund(1); const two = await tools.mail(2); return [one, two]"


def test_a_timeout_tells_what_had_happened(spy, hangs):
    error = failing(CodeModeTimeoutError, JS, [spy.tool("refund"), spy.tool("mail", hangs)], LIMITED)
    assert statuses(error) == [("refund", "fulfilled"), ("mail", "unknown")]
    (request,) = error.recovery.requests
    assert (request.tool_name, request.input, request.payload) == ("mail", 2, {"kind": UNKNOWN})
    assert error.trace.status == "failed"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"value": "sent"}, [{"done": "refund"}, "sent"]),
        ({"value": None}, [{"done": "refund"}, None]),
        ({"runAgain": True}, [{"done": "refund"}, {"done": "mail"}]),
    ],
)
def test_a_call_of_unknown_outcome_is_decided_by_a_person(spy, hangs, answer, result):
    error = failing(CodeModeTimeoutError, JS, [spy.tool("refund"), spy.tool("mail", hangs)], LIMITED)
    assert go_on(error.recovery, [spy.tool("refund"), spy.tool("mail")], answer) == result
    assert spy.ran == [("refund", 1), ("mail", 2)] + [("mail", 2)] * ("runAgain" in answer)


def test_a_known_failure_is_thrown_at_the_program(spy, hangs):
    js = "try { await tools.mail(1) } catch (e) { return [e.name, e.message] }"
    error = failing(CodeModeTimeoutError, js, [spy.tool("mail", hangs)], LIMITED)
    bounced = {"error": {"message": "bounced"}}
    assert go_on(error.recovery, [spy.tool("mail")], bounced) == ["CodeModeToolError", "bounced"]
    error = failing(CodeModeTimeoutError, "return await tools.mail(1)", [spy.tool("mail", hangs)], LIMITED)
    with pytest.raises(CodeModeToolError, match="bounced"):
        go_on(error.recovery, [spy.tool("mail")], bounced)


@pytest.mark.parametrize("answer", [None, OK, {}, {"value": 1, "runAgain": True}, {"runAgain": "yes"}])
def test_other_answers_are_refused(spy, hangs, answer):
    error = failing(CodeModeTimeoutError, JS, [spy.tool("refund"), spy.tool("mail", hangs)], LIMITED)
    with pytest.raises(CodeModeProtocolError):
        go_on(error.recovery, [spy.tool("refund"), spy.tool("mail")], answer)


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_what_does_no_harm_runs_again_by_itself(spy, late_after_a_call, hint):
    js = "return await Promise.all([tools.look(1), tools.refund(2)])"
    annotated = {"annotations": {hint: True}}
    tools = [spy.tool("look", forever, **annotated), spy.tool("refund")]
    error = failing(CodeModeTimeoutError, js, tools, late_after_a_call)
    assert statuses(error) == [("look", "unknown"), ("refund", "fulfilled")]
    assert error.recovery.requests == ()
    tools = [spy.tool("look", **annotated), spy.tool("refund")]
    assert go_on(error.recovery, tools) == [{"done": "look"}, {"done": "refund"}]
    assert spy.ran == [("look", 1), ("refund", 2), ("look", 1)]


def test_an_endless_loop_recovers_into_the_same_endless_loop(spy, late_after_a_call):
    error = failing(CodeModeTimeoutError, "await tools.refund(1); for (;;);", [spy.tool("refund")], late_after_a_call)
    assert error.recovery.requests == ()
    with pytest.raises(CodeModeTimeoutError) as again:
        go_on(error.recovery, [spy.tool("refund")], options=late_after_a_call)
    assert statuses(again.value) == [("refund", "fulfilled")]
    assert spy.ran == [("refund", 1)]


def test_what_ends_after_the_end_is_known(spy, passing_time):
    """The tool sees the abort and still finishes: nobody needs to be asked about it."""

    async def finishing(value, context):
        passing_time.skip(61)
        await context.aborted.wait()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            return "finished late"

    error = failing(CodeModeTimeoutError, "return await tools.mail(1)", [spy.tool("mail", finishing)], LIMITED)
    assert statuses(error) == [("mail", "fulfilled")]
    assert error.recovery.requests == ()
    assert go_on(error.recovery, [spy.tool("mail")]) == "finished late"
    assert spy.ran == [("mail", 1)]


def test_a_waiting_approval_is_still_waiting_after_a_timeout(spy, late_after_a_call):
    js = "const waiting = tools.refund(1); await tools.mail(2); for (let n = 0; n < 1e12; n++); return await waiting"
    error = failing(CodeModeTimeoutError, js, [spy.guarded(), spy.tool("mail")], late_after_a_call)
    (request,) = error.recovery.requests
    assert request.is_approval
    assert spy.ran == [("mail", 2)]


def test_cancelling_gives_a_recovery(spy):
    async def scenario():
        running = asyncio.Event()

        async def mail(value, context):
            running.set()
            await asyncio.Event().wait()

        tools = [spy.tool("refund"), spy.tool("mail", mail)]
        task = asyncio.create_task(run_code_mode(JS, tools, options=PAUSING))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__

    error = within(scenario())
    assert type(error) is CodeModeAbortedError
    assert statuses(error) == [("refund", "fulfilled"), ("mail", "unknown")]
    assert go_on(error.recovery, [spy.tool("mail")], {"value": "sent"}) == [{"done": "refund"}, "sent"]
    assert spy.ran == [("refund", 1), ("mail", 2)]


def test_a_cancelled_resume_is_over_and_says_how(spy):
    async def scenario():
        running = asyncio.Event()

        async def refund(value, context):
            running.set()
            await asyncio.Event().wait()

        tools = [spy.tool("refund", refund, needs_approval=True)]
        interrupt = await run_code_mode("return await tools.refund(1)", tools, options=PAUSING)
        task = asyncio.create_task(continue_interrupt(interrupt, OK, tools=tools, options=PAUSING))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        with pytest.raises(CodeModeAbortedError) as again:
            await continue_interrupt(interrupt, OK, tools=tools, options=PAUSING)
        assert again.value.recovery == caught.value.__cause__.recovery
        return again.value.recovery

    recovery = within(scenario())
    assert go_on(recovery, [spy.guarded()], {"value": "refunded"}) == "refunded"
    assert spy.ran == [("refund", 1)]


def test_an_approved_refund_runs_once_though_the_worker_dies(spy, pool):
    """The resume approves the refund, it runs, the worker dies, the host goes on from the recovery."""
    deaths = []

    def look(value, context):
        if not deaths:
            deaths.append(1)
            kill_workers()
            return forever(value, context)
        return "looked"

    tools = [spy.guarded(), spy.tool("look", look, annotations={"readOnlyHint": True})]
    js = "const refund = await tools.refund({amount: 900}); const look = await tools.look(1); return [refund, look]"
    interrupt = start(js, tools, pool=pool)
    with pytest.raises(CodeModeWorkerError) as caught:
        go_on(interrupt, tools, {**OK, "input": {"amount": 9}}, pool=pool)
    assert statuses(caught.value) == [("refund", "fulfilled"), ("look", "unknown")]
    assert go_on(caught.value.recovery, tools, pool=pool) == [{"done": "refund"}, "looked"]
    assert [one for one in spy.ran if one[0] == "refund"] == [("refund", {"amount": 9})]


def test_a_refund_that_was_running_when_the_worker_died_is_asked_about(spy, pool):
    killer = [spy.tool("refund", killing, needs_approval=True)]
    interrupt = start("return await tools.refund({amount: 900})", killer, pool=pool)
    with pytest.raises(CodeModeWorkerError) as caught:
        go_on(interrupt, killer, {**OK, "input": {"amount": 9}}, pool=pool)
    recovery = through_json(caught.value.recovery)
    (request,) = recovery.requests
    assert (request.input, request.payload["kind"]) == ({"amount": 9}, UNKNOWN)
    assert request.interrupt_id != interrupt.interrupt_id
    # Approved once is approved: "run again" runs the edited input without asking.
    assert go_on(recovery, [spy.guarded()], {"runAgain": True}, pool=pool) == {"done": "refund"}
    assert spy.ran == [("refund", {"amount": 9})] * 2


class Mail(pydantic.BaseModel):
    to: str
    subject: str = "Your refund"


def test_a_call_with_defaults_can_run_again(spy, hangs):
    js = "return await tools.mail({to: 'a@example.com'})"
    error = failing(CodeModeTimeoutError, js, [spy.tool("mail", hangs, input_schema=Mail)], LIMITED)
    assert error.recovery.input == {"to": "a@example.com", "subject": "Your refund"}
    assert go_on(error.recovery, [spy.tool("mail", input_schema=Mail)], {"runAgain": True}) == {"done": "mail"}
    assert spy.ran == [("mail", Mail(to="a@example.com"))] * 2


@pytest.mark.parametrize("is_read_only", [False, True])
def test_every_wait_of_one_call_has_an_id_of_its_own(spy, hangs, is_read_only):
    """A login, a death, another login: an answer to the first one must never fit the second."""
    annotations = {"readOnlyHint": is_read_only}

    def login(value, context):
        request_interrupt({"kind": "oauth"})

    asking = [spy.tool("login", login, annotations=annotations)]
    hanging = [spy.tool("login", hangs, annotations=annotations)]
    interrupt = start("return await tools.login(1)", asking)
    ids = [interrupt.interrupt_id]
    for _ in range(3):
        with pytest.raises(CodeModeTimeoutError) as caught:
            go_on(interrupt, hanging, "token", options=LIMITED)
        recovery = caught.value.recovery
        ids += [request.interrupt_id for request in recovery.requests]
        answer = [] if is_read_only else [{"runAgain": True}]
        interrupt = go_on(recovery, asking, *answer)
        ids.append(interrupt.interrupt_id)
    assert len(set(ids)) == len(ids) == (4 if is_read_only else 7)


def test_a_recovery_can_be_answered_in_parts(spy, hangs):
    js = "return await Promise.all([tools.refund(1), tools.mail(2), tools.mail(3)])"
    last_hangs = spy.tool("mail", lambda value, context: (hangs if value == 3 else forever)(value, context))
    tools = [spy.guarded(), last_hangs]
    error = failing(CodeModeTimeoutError, js, tools, LIMITED)
    approval, second, third = error.recovery.requests
    assert [one.is_approval for one in error.recovery.requests] == [True, False, False]
    tools = [spy.guarded(), spy.tool("mail")]
    rest = go_on(error.recovery, tools, resolutions={third.interrupt_id: {"value": "three"}})
    assert [one.interrupt_id for one in rest.requests] == [approval.interrupt_id, second.interrupt_id]
    answers = {approval.interrupt_id: OK, second.interrupt_id: {"runAgain": True}}
    assert go_on(rest, tools, resolutions=answers) == [{"done": "refund"}, {"done": "mail"}, "three"]


def test_a_recovery_can_go_on_before_a_person_has_answered(spy, hangs):
    js = "return await Promise.all([tools.refund(1), tools.look(2)])"
    annotated = {"annotations": {"readOnlyHint": True}}
    error = failing(CodeModeTimeoutError, js, [spy.guarded(), spy.tool("look", hangs, **annotated)], LIMITED)
    tools = [spy.guarded(), spy.tool("look", **annotated)]
    paused = go_on(error.recovery, tools)
    assert paused.requests == error.recovery.requests
    assert go_on(paused, tools, OK) == [{"done": "refund"}, {"done": "look"}]
    assert spy.ran == [("look", 2), ("look", 2), ("refund", 1)]


def test_a_recovery_is_resumed_once_too(spy, hangs):
    error = failing(CodeModeTimeoutError, JS, [spy.tool("refund"), spy.tool("mail", hangs)], LIMITED)
    tools = [spy.tool("refund"), spy.tool("mail")]
    first = go_on(error.recovery, tools, {"runAgain": True})
    assert go_on(error.recovery, tools, {"runAgain": True}) == first
    with pytest.raises(CodeModeProtocolError, match="other answers"):
        go_on(error.recovery, tools, {"value": 1})
    assert spy.ran == [("refund", 1), ("mail", 2), ("mail", 2)]


def test_errors_of_the_program_have_calls_but_nothing_to_recover(spy):
    error = failing(CodeModeError, "await tools.refund(1); throw new Error('x')", [spy.tool("refund")])
    assert statuses(error) == [("refund", "fulfilled")]
    assert error.recovery is None


def test_a_tool_that_is_gone_from_the_recovering_host_is_not_run_by_itself(spy, hangs):
    error = failing(CodeModeTimeoutError, "return await tools.mail(1)", [spy.tool("mail", hangs)], LIMITED)
    with pytest.raises(CodeModeToolError, match="mail"):
        go_on(error.recovery, [spy.tool("other")], {"runAgain": True})

"""Scripts and direct calls that pause: they go on once, under the rules they began with, over the tools there are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pausing import NO, OK, Spy, start, through_json
from waiting import within

from codemode import (
    CodeCallToolset,
    CodeModeProtocolError,
    Interrupt,
    Tool,
    continue_interrupt_sync,
    create_code_call_tools,
)
from codemode.types import CodeCallResult

KEYED = {"approval": {"mode": "interrupt"}, "continuation": {"keys": "a key of this test"}}
ECHO = Tool("echo", execute=lambda value: value)
DIRECT = {"enabled": True}
REFUND = "return await callTool('refund', { cents: 9 })"
PAUSES = {
    "script": lambda tools: tools.execute_sync({"script": REFUND}),
    "invoke": lambda tools: tools.invoke_sync({"tool": "refund", "input": {"cents": 9}}),
}


def toolset(tools: list[Tool], **options: Any) -> CodeCallToolset:
    return create_code_call_tools(tools, {"settings": KEYED, "direct_calls": DIRECT, **options})


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.mark.parametrize("kind", PAUSES)
def test_a_pause_is_approved_once(spy: Spy, kind: str):
    tools = toolset([spy.guarded()])
    interrupt = PAUSES[kind](tools)
    assert isinstance(interrupt, Interrupt)
    assert (interrupt.tool_name, interrupt.input, spy.ran) == ("refund", {"cents": 9}, [])
    other = toolset([spy.guarded()])
    first = other.resume_sync(through_json(interrupt), OK)
    assert isinstance(first, CodeCallResult)
    assert first == {"status": "ok", "result": {"done": "refund"}}
    again = tools.resume_sync(through_json(interrupt).to_dict(), OK)
    assert again == first
    assert spy.ran == [("refund", {"cents": 9})]
    with pytest.raises(CodeModeProtocolError):
        tools.resume_sync(through_json(interrupt), NO)


@pytest.mark.parametrize("kind", PAUSES)
def test_a_pause_is_denied(spy: Spy, kind: str):
    tools = toolset([spy.guarded()])
    answer = tools.resume_sync(through_json(PAUSES[kind](tools)), NO)
    assert (answer["status"], answer["error"]["code"], spy.ran) == ("tool_error", "APPROVAL_DENIED", [])
    assert answer["error"]["toolInput"] == {"cents": 9}


@pytest.mark.parametrize("kind", PAUSES)
def test_an_edited_input_runs(spy: Spy, kind: str):
    tools = toolset([spy.guarded()])
    tools.resume_sync(through_json(PAUSES[kind](tools)), {**OK, "input": {"cents": 4}})
    assert spy.ran == [("refund", {"cents": 4})]


@pytest.mark.parametrize("kind", PAUSES)
def test_a_tool_that_has_left_the_index_does_not_run(spy: Spy, kind: str):
    tools = toolset([spy.guarded(), ECHO])
    interrupt = PAUSES[kind](tools)
    hidden = Tool("refund", execute=spy.guarded().execute, metadata={"codecall": {"enabledInCodeCall": False}})
    for left in ([ECHO], [ECHO, hidden]):
        tools.update(left)
        answer = toolset(left).resume_sync(through_json(interrupt), OK)
        assert answer["status"] == "tool_error", answer
        assert answer["error"]["code"] == "UnknownTool"
    assert spy.ran == []


def test_the_faces_do_not_take_each_others_pauses(spy: Spy):
    tools = toolset([spy.guarded()])
    for pause in PAUSES.values():
        with pytest.raises(CodeModeProtocolError):
            continue_interrupt_sync(through_json(pause(tools)), OK, tools=[spy.guarded()], options=KEYED)
    other = start("return await tools.refund({ cents: 9 })", [spy.guarded()], KEYED)
    with pytest.raises(CodeModeProtocolError):
        tools.resume_sync(through_json(other), OK)
    assert spy.ran == []


def test_a_resume_has_the_allowed_tools_of_its_beginning(spy: Spy):
    script = (
        REFUND.replace("return", "const a =")
        + """
        const b = await callTool('ec' + 'ho', 1, { throwOnError: false });
        return [a.done, b.success || b.error.code, getTool('ec' + 'ho') === undefined];
    """
    )
    for allowed, expected in ((["refund"], ["refund", "ACCESS_DENIED", True]), (None, ["refund", True, False])):
        given = {"script": script, "allowedTools": allowed}
        interrupt = toolset([spy.guarded(), ECHO]).execute_sync(given)
        answer = toolset([spy.guarded(), ECHO]).resume_sync(through_json(interrupt), OK)
        assert answer == {"status": "ok", "result": expected}


def test_a_resume_has_the_context_of_its_beginning(spy: Spy):
    script = f"const a = codecallContext.who; {REFUND.replace('return', '')}; return [a, codecallContext.who]"
    tools = toolset([spy.guarded()])
    interrupt = tools.execute_sync({"script": script, "context": {"who": "model"}}, script_context={"who": "host"})
    assert tools.resume_sync(through_json(interrupt), OK)["result"] == ["host", "host"]


def test_a_resume_goes_on_under_the_rules_that_it_began_with(spy: Spy):
    many = (
        f"{REFUND.replace('return', '')}; return (await Promise.all([1, 2, 3].map((n) => callTool('echo', n)))).length"
    )
    few, more = {"vm": {"maxSteps": 2}}, {"vm": {"preset": "experimental"}}
    for began, then, status in ((few, more, "runtime_error"), (more, few, "ok")):
        interrupt = toolset([spy.guarded(), ECHO], **began).execute_sync({"script": many})
        answer = toolset([spy.guarded(), ECHO], **then).resume_sync(through_json(interrupt), OK)
        assert answer["status"] == status, answer


def test_a_bundle_is_answered_in_parts(spy: Spy):
    script = "return await Promise.all([1, 2].map((n) => callTool('refund', n)))"
    tools = toolset([spy.guarded()])
    first = tools.execute_sync({"script": script})
    assert len(first.requests) == 2
    second = tools.resume_sync(through_json(first), resolutions={first.requests[1].interrupt_id: OK})
    assert [one.input for one in second.requests] == [1]
    assert tools.resume_sync(through_json(second), OK)["status"] == "ok"
    assert sorted(value for _, value in spy.ran) == [1, 2]


@pytest.mark.parametrize("kind", PAUSES)
def test_of_two_resumes_at_once_one_runs(spy: Spy, kind: str):
    tools = toolset([spy.guarded()])
    interrupt = through_json(PAUSES[kind](tools))

    async def twice() -> list[Any]:
        return await asyncio.gather(tools.resume(interrupt, OK), tools.resume(interrupt, OK))

    assert within(twice()) == [{"status": "ok", "result": {"done": "refund"}}] * 2
    assert len(spy.ran) == 1


def test_what_timed_out_goes_on(spy: Spy, passing_time: Any):
    def wait(_value: Any, _context: Any) -> Any:
        passing_time.skip(61)
        return asyncio.Event().wait()

    clock = {**KEYED, "execution_policy": {"timeout_includes_tools": True}}
    tools = create_code_call_tools([spy.tool("slow", wait), ECHO], {"settings": clock, "vm": {"timeoutMs": 60_000}})
    answer = tools.execute_sync({"script": "return [await callTool('echo', 1), await callTool('slow', 2)]"})
    assert answer["status"] == "timeout"
    assert "recovery" not in answer
    ended = tools.resume_sync(through_json(answer.recovery), {"value": "known"})
    assert ended == {"status": "ok", "result": [1, "known"]}
    assert len(spy.ran) == 1


def test_a_wrong_answer_raises(spy: Spy):
    tools = toolset([spy.guarded()])
    interrupt = through_json(PAUSES["script"](tools))
    for wrong in ({"approved": "yes"}, 3, None):
        with pytest.raises(CodeModeProtocolError):
            tools.resume_sync(interrupt, wrong)
    forged = interrupt.to_dict()
    forged["input"] = {"cents": 1}
    with pytest.raises(CodeModeProtocolError):
        tools.resume_sync(forged, OK)
    assert spy.ran == []

"""Resumes that are refused before anything runs, and say what is wrong; refused is not used up."""

from __future__ import annotations

import dataclasses

import pydantic
import pytest
from pausing import OK, PAUSING, go_on, packed, start, through_json

from codemode import (
    CodeModeProtocolError,
    CodeModeToolError,
    Tool,
    WorkerPool,
    create_code_mode_tool,
    failure_text,
    set_continuation_signing_key,
)
from codemode.errors import CodeModeWorkerError
from codemode.protocol import continuation as continuations

JS = "await tools.look(0); return await tools.refund({order: 'A1'})"


def having(**continuation):
    return {**PAUSING, "continuation": continuation}


@pytest.fixture
def tools(spy):
    return [spy.tool("look"), spy.guarded()]


@pytest.fixture
def interrupt(spy, tools):
    paused = start(JS, tools)
    spy.ran.clear()
    return paused


def refused(interrupt, tools, spy, *answer, match=None, options=PAUSING, **settings):
    with pytest.raises(CodeModeProtocolError, match=match) as caught:
        go_on(interrupt, tools, *(answer or ([] if settings else [OK])), options=options, **settings)
    text = failure_text(caught.value, JS)
    assert text.startswith(f"CodeModeProtocolError: the paused program could not resume: {caught.value.message}")
    assert "Calls made before the pause may be done; do not repeat them." in text
    assert "No call was made" not in text
    assert spy.ran == []


def test_a_refused_resume_is_not_used_up(interrupt, tools, spy):
    refused(interrupt, tools, spy, {"approved": "yes"})
    refused(interrupt, tools, spy, resolutions={})
    refused(dataclasses.replace(interrupt, outer_tool_call_id="x"), tools, spy)
    assert go_on(interrupt, tools, OK) == {"done": "refund"}


@pytest.mark.parametrize(
    "resolutions", [{}, {"unknown": OK}, {"": OK}, [OK], 5], ids=["none", "unknown", "empty", "list", "number"]
)
def test_ids_must_be_those_of_pending_requests(interrupt, tools, spy, resolutions):
    refused(interrupt, tools, spy, resolutions=resolutions)


def test_one_unknown_id_spoils_the_whole_answer(interrupt, tools, spy):
    refused(interrupt, tools, spy, resolutions={interrupt.interrupt_id: OK, "other": OK}, match="other")


def test_a_request_cannot_be_answered_twice_at_once(interrupt, tools, spy):
    refused(interrupt, tools, spy, OK, resolutions={interrupt.interrupt_id: OK}, match="twice")


def test_an_answer_is_needed(interrupt, tools, spy):
    with pytest.raises(CodeModeProtocolError, match="no pending request was answered"):
        go_on(interrupt, tools)
    assert spy.ran == []


def test_a_tool_that_is_gone_is_an_unknown_tool_to_the_guest(spy, tools):
    js = "try { return await tools.refund(1) } catch (e) { return [e.name, e.message.includes('refund')] }"
    interrupt = start(js, tools)
    assert go_on(interrupt, [spy.tool("look")], OK) == ["CodeModeToolError", True]
    with pytest.raises(CodeModeToolError, match="refund"):
        go_on(start("return await tools.refund(1)", tools), [spy.tool("look")], OK)


def test_a_finished_call_does_not_need_its_tool(interrupt, spy):
    assert go_on(interrupt, [spy.guarded()], OK) == {"done": "refund"}
    assert spy.ran == [("refund", {"order": "A1"})]


class Before(pydantic.BaseModel):
    order: str
    amount: float = 5


class OtherDefault(pydantic.BaseModel):
    order: str
    amount: float = 500


class Stricter(pydantic.BaseModel):
    order: int
    amount: float = 5


class Wider(pydantic.BaseModel):
    order: str
    amount: float = 5
    fast: bool = False


@pytest.mark.parametrize("schema", [Stricter, Wider])
def test_a_schema_that_gives_another_input_is_refused(spy, schema):
    interrupt = start("return await tools.refund({order: 'A1'})", [spy.guarded(input_schema=Before)])
    refused(interrupt, [spy.guarded(input_schema=schema)], spy, match="schema has changed")
    assert go_on(interrupt, [spy.guarded(input_schema=Before)], OK) == {"done": "refund"}


def test_another_default_does_not_change_what_was_shown(spy):
    interrupt = start("return await tools.refund({order: 'A1'})", [spy.guarded(input_schema=Before)])
    assert go_on(interrupt, [spy.guarded(input_schema=OtherDefault)], OK) == {"done": "refund"}
    assert spy.ran == [("refund", OtherDefault(order="A1", amount=5))]


def test_another_replay_version_is_refused(interrupt, tools, spy, monkeypatch):
    monkeypatch.setattr(continuations, "REPLAY_VERSION", continuations.REPLAY_VERSION + 1)
    refused(interrupt, tools, spy, match="replay version")


def test_keys_tenants_and_seals(spy, tools):
    interrupt = start(JS, tools, having(keys="a", conversation_id="tenant 1"))
    spy.ran.clear()
    for options in (
        having(keys="b", conversation_id="tenant 1"),
        having(keys="a", conversation_id="tenant 2"),
        having(keys="a"),
        having(keys="a", conversation_id="tenant 1", seal=True),
        PAUSING,
    ):
        refused(interrupt, tools, spy, OK, options=options)
    assert go_on(interrupt, tools, OK, options=having(keys=["a", "b"], conversation_id="tenant 1")) == {
        "done": "refund"
    }


@pytest.mark.parametrize("form", [{"compress": True}, {"seal": True}, {"seal": True, "compress": True}])
def test_sealed_and_compressed_pauses_go_on(spy, form):
    options = having(keys="a", **form)
    tools = [spy.tool("look", lambda *_: "customer 4711"), spy.guarded()]
    interrupt = start("return [await tools.look(0), await tools.refund(1)]", tools, options)
    assert "customer" not in str(interrupt.to_dict())
    assert go_on(interrupt, tools, OK, options=options) == ["customer 4711", {"done": "refund"}]


def test_the_process_key(spy, tools):
    interrupt = start(JS, tools)
    spy.ran.clear()
    set_continuation_signing_key("new")
    try:
        refused(interrupt, tools, spy, match="not known")
        short = start(JS, tools, having(max_age_ms=1))
        spy.ran.clear()
        while short.continuation["auth"]["expiresAtMs"] > current():
            pass
        refused(short, tools, spy, match="expired")
    finally:
        set_continuation_signing_key()


def current():
    from codemode.host.clock import now_ms

    return now_ms()


def test_a_program_that_replays_otherwise_is_refused_and_cannot_catch_it(spy, tools, monkeypatch):
    """What a changed engine would do: the recorded input is another one. Nothing runs, not even a `finally`."""
    options = having(keys="a")
    js = "try { await tools.look(0) } finally { await tools.look('finally') } return await tools.refund(1)"
    interrupt = start(js, tools, options)
    spy.ran.clear()
    changed = resigned(interrupt, lambda body: body["ledger"][0].update(inputJson="1"))
    with pytest.raises(CodeModeProtocolError, match="1") as caught:
        go_on(changed, tools, OK, options=options)
    assert "recorded" in caught.value.message
    assert spy.ran == []


def test_a_program_that_ends_before_its_record_is_refused(spy, tools):
    options = having(keys="a")
    interrupt = start(JS, tools, options)
    spy.ran.clear()
    shorter = resigned(interrupt, lambda body: body.update(js="await tools.look(0); return 1"))
    with pytest.raises(CodeModeProtocolError):
        go_on(shorter, tools, OK, options=options)
    longer = resigned(interrupt, lambda body: body.update(js="await tools.look(0); await tools.look(7);" + JS))
    with pytest.raises(CodeModeProtocolError):
        go_on(longer, tools, OK, options=options)
    assert spy.ran == []


def resigned(interrupt, change):
    """The same pause with another body under the right key: what only a bug or a leaked key can make."""
    body = continuations.continuation_from_texts(through_json(interrupt).continuation["body"])
    change(body)
    return dataclasses.replace(interrupt, continuation=packed(body, {"keys": "a"}, current()))


def test_tools_of_a_code_mode_tool_are_checked_too(spy):
    interrupt = create_code_mode_tool([spy.guarded()], PAUSING).execute_sync({"js": "return await tools.refund(1)"})
    other = create_code_mode_tool([Tool("look", execute=lambda value: value)], PAUSING)
    with pytest.raises(CodeModeToolError):
        other.resume_sync(interrupt, OK)


def test_a_resume_without_a_worker_does_not_say_that_no_call_was_made(interrupt, tools, spy):
    closed = WorkerPool()
    closed.close()
    with pytest.raises(CodeModeWorkerError) as caught:
        go_on(interrupt, tools, OK, pool=closed)
    text = failure_text(caught.value, JS)
    assert "No call was made" not in text
    assert "Already done, do not repeat: look(" in text
    assert "Waits for a person, not done: refund(" in text
    assert spy.ran == []
    assert go_on(interrupt, tools, OK) == {"done": "refund"}

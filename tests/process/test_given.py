"""What one invocation is given: its tools are seen under it, a pause has it signed, and a resume from there alone."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from pausing import PAUSING, Spy, through_json
from strict_surface import STRICT, go_on_strict, run_strict, strict
from waiting import within

from codemode import CodeModeProtocolError, ContinuationOptions, Tool
from codemode.continuations.sealing import encode_and_sign_continuation, verify_and_decode_continuation
from codemode.host.clock import now_ms
from codemode.protocol.continuation import continuation_from_texts, continuation_to_texts

KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}
OK = {"approved": True}
GIVEN = {"source": "script", "allowedTools": ["refund", "echo"], "context": {"who": "\U0001f600"}}
ECHO = Tool("echo", execute=lambda value: value)
OTHER = Tool("other", execute=lambda value: value)


@pytest.fixture
def spy() -> Spy:
    return Spy()


def paused(spy: Spy, js: str = "return (await tools.refund(1)).done", **more: Any) -> Any:
    settings = {"given": GIVEN, **more}
    outcome = within(run_strict(js, [spy.guarded(), ECHO, OTHER], KEYED, **settings))
    assert outcome.status == "interrupted", outcome
    return outcome.interrupt


def body_in(interrupt: Any) -> dict[str, Any]:
    texts, _ = verify_and_decode_continuation(
        interrupt.continuation, ContinuationOptions(keys="a key of this test"), now_ms()
    )
    return continuation_from_texts(texts)


def changed(interrupt: Any, change: Any) -> Any:
    """The same pause with another body under the right key."""
    options = ContinuationOptions(keys="a key of this test")
    body = body_in(interrupt)
    change(body)
    return dataclasses.replace(
        interrupt, continuation=encode_and_sign_continuation(continuation_to_texts(body), options, now_ms())
    )


def test_tools_are_seen_under_what_is_given():
    js = 'return tools[["ot", "her"].join("")](1).catch((error) => error.code)'
    assert within(run_strict(js, [OTHER], given={"allowedTools": ["echo"]})).value == "Denied"
    assert within(run_strict(js, [OTHER], given={"allowedTools": ["other"]})).value == 1
    assert within(run_strict(js, [OTHER])).value == 1


def test_a_pause_keeps_what_was_given_and_what_the_program_added(spy):
    kept = json.loads(body_in(paused(spy))["given"])
    assert kept == {**GIVEN, "named": ["refund"]}


def test_what_goes_on_sees_its_tools_as_it_did(spy):
    js = 'await tools.refund(1); return tools[["ot", "her"].join("")](1).catch((error) => error.code)'
    interrupt = through_json(paused(spy, js))
    outcome = within(go_on_strict(interrupt, [spy.guarded(), ECHO, OTHER], OK, options=KEYED))
    assert outcome.value == "Denied"


def test_a_tool_that_has_left_does_not_run(spy):
    interrupt = paused(spy, "return tools.refund(1).catch((error) => error.code)")
    assert within(go_on_strict(interrupt, [ECHO], OK, options=KEYED)).value == "Unknown"
    assert spy.ran == []


def test_a_tool_that_has_left_while_its_outcome_is_unknown_is_asked_about_and_does_not_run(spy, passing_time):
    def hang(_value: Any, _context: Any) -> Any:
        passing_time.skip(61)
        return asyncio.Event().wait()

    tools = [spy.tool("refund", hang)]
    limits = {**KEYED, "execution_policy": {"timeout_ms": 60_000}}
    js = "return tools.refund(1).catch((error) => error.code)"
    recovery = within(run_strict(js, tools, limits, given=GIVEN)).error.recovery
    spy.ran.clear()
    assert within(go_on_strict(recovery, [ECHO], {"runAgain": True}, options=KEYED)).value == "Unknown"
    assert spy.ran == []


@pytest.mark.parametrize(
    "given", [None, '{"allowedTools":["other"]}', '{"allowedTools":null}', "{}"], ids=["none", "other", "null", "empty"]
)
def test_what_was_given_cannot_be_changed(spy, given):
    interrupt = paused(spy)
    plain = json.loads(json.dumps(interrupt.to_dict()))
    texts = plain["continuation"]["body"]
    assert json.loads(texts[2])["allowedTools"] == ["refund", "echo"]
    texts[2] = given or ""
    with pytest.raises(CodeModeProtocolError):
        within(go_on_strict(plain, [spy.guarded(), OTHER], OK, options=KEYED))
    assert spy.ran == []
    assert within(go_on_strict(interrupt, [spy.guarded(), OTHER], OK, options=KEYED)).value == "refund"


@pytest.mark.parametrize("given", ["[]", "1", "{", "nothing"])
def test_what_no_host_gives_is_refused_under_the_right_key_too(spy, given):
    forged = changed(paused(spy), lambda body: body.update(given=given))
    with pytest.raises(CodeModeProtocolError) as caught:
        within(go_on_strict(forged, [spy.guarded()], OK, options=KEYED))
    assert caught.value.details["origin"] == "continuation"
    assert spy.ran == []


def test_it_names_the_invocation(spy):
    outer = {"tool_call_id": "call_1", "conversation_id": "thread", "started_at_ms": 1_700_000_000_000}
    first, again = (paused(spy, **outer).interrupt_id for _ in "ab")
    other = paused(spy, given={**GIVEN, "context": {}}, **outer).interrupt_id
    wider = paused(spy, profile=strict(max_calls=9), **outer).interrupt_id
    assert first == again
    assert len({first, other, wider}) == 3


# --- parameters of the profile ---

THREE = "await tools.refund(1); for (let i = 0; i < 2; i++) await tools.echo(i); await tools.echo(9); return 'all'"


def test_a_pause_goes_on_under_the_parameters_that_it_began_with(spy):
    tools = [spy.guarded(), ECHO, OTHER]
    for began, others in ((STRICT, strict(max_calls=9)), (strict(max_calls=4), STRICT)):
        interrupt = paused(spy, THREE, profile=began)
        outcome = within(go_on_strict(interrupt, tools, OK, options=KEYED, profile=others))
        assert (outcome.status == "completed") == (began.limits.max_bridge_requests == 4)


@pytest.mark.parametrize("parameters", [{"max_calls": -1}, {"max_calls": "many"}, {"what": 1}])
def test_parameters_that_cannot_be_are_refused(spy, parameters):
    forged = changed(paused(spy), lambda body: body["settings"].update(parameters=parameters))
    with pytest.raises(CodeModeProtocolError, match="parameters") as caught:
        within(go_on_strict(forged, [spy.guarded()], OK, options=KEYED))
    assert caught.value.details["origin"] == "continuation"
    assert spy.ran == []


def test_a_profile_without_parameters_takes_none(spy):
    bare = dataclasses.replace(STRICT, restored=None)
    interrupt = paused(spy, profile=bare)
    assert within(go_on_strict(interrupt, [spy.guarded()], OK, options=KEYED, profile=bare)).value == "refund"
    wider = paused(spy, profile=strict(max_calls=9))
    with pytest.raises(CodeModeProtocolError, match="parameters"):
        within(go_on_strict(wider, [spy.guarded()], OK, options=KEYED, profile=bare))

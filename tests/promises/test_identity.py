"""Ids, seed and start of an invocation: random, or the same again for an engine that runs a step again."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invocation_settings import SETTINGS
from pausing import PAUSING, Spy, start, through_json
from suite import rounds
from waiting import within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    ContinuationOptions,
    Interrupt,
    Tool,
    continue_approval,
    continue_interrupt,
    create_code_mode_tool,
    is_approval_interrupt,
    is_interrupt,
    run_code_mode_sync,
    set_continuation_signing_key,
)
from codemode.continuations.journal import MemoryJournal
from codemode.execution.identity import make_salt_and_seed_deriver
from codemode.protocol.continuation import REPLAY_VERSION

OK = {"approved": True}
JS = "const seen = [Date.now(), Math.random()]; await tools.refund({ order: 'a' }); return seen"
KEYS = {"keys": "a key that was set"}
THREAD = {"tool_call_id": "call_1", "conversation_id": "thread 1", "started_at_ms": 1_700_000_000_000}


@pytest.fixture
def spy():
    return Spy()


def paused(spy, js=JS, *, continuation=KEYS, tools=None, policy=None, **call):
    options = {**PAUSING, "continuation": continuation, "execution_policy": policy or {}}
    return start(js, tools or [spy.guarded()], options, **call)


def ids(interrupt):
    assert isinstance(interrupt, Interrupt)
    return [request.interrupt_id for request in interrupt.requests]


def test_a_step_that_is_run_again_finds_its_pause_seed_and_start(spy):
    first, again = (paused(spy, **THREAD) for _ in range(2))
    assert ids(first) == ids(again)
    options = {**PAUSING, "continuation": KEYS}
    seen = [
        within(
            continue_interrupt(
                one, OK, tools=[spy.guarded()], options=options, call=CallContext(conversation_id="thread 1")
            )
        )
        for one in (first, again)
    ]
    assert seen[0] == seen[1]
    assert seen[0][0] == THREAD["started_at_ms"]


def test_a_binding_of_the_options_names_the_conversation_too(spy):
    bound = {**KEYS, "conversation_id": "workflow 7"}
    assert ids(paused(spy, continuation=bound, tool_call_id="call_1")) == ids(
        paused(spy, continuation=bound, tool_call_id="call_1")
    )


def test_the_process_key_counts_when_it_was_set(spy):
    set_continuation_signing_key("set for the process")
    try:
        assert ids(paused(spy, continuation={}, **THREAD)) == ids(paused(spy, continuation={}, **THREAD))
    finally:
        set_continuation_signing_key()
    assert ids(paused(spy, continuation={}, **THREAD)) != ids(paused(spy, continuation={}, **THREAD))


@pytest.mark.parametrize("missing", ["tool_call_id", "conversation_id", "keys"])
def test_without_key_outer_id_and_binding_all_stays_random(spy, missing):
    call = {key: value for key, value in THREAD.items() if key != missing}
    keys = {} if missing == "keys" else KEYS
    js = "await tools.refund(Math.random()); return 1"
    first, again = (paused(spy, js, continuation=keys, **call) for _ in range(2))
    assert first.input != again.input
    assert set(ids(first)).isdisjoint(ids(again))


OTHERS = {
    "program": {"js": JS + " "},
    "thread": {"conversation_id": "thread 2"},
    "outer id": {"tool_call_id": "call_2"},
    "tenant": {"continuation": {**KEYS, "conversation_id": "tenant"}},
    "key": {"continuation": {"keys": "another"}},
    "limits": {"policy": {"max_bridge_requests": 5}},
    "recorded time": {"started_at_ms": THREAD["started_at_ms"] + 1},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_whatever_differs_makes_another_pause(spy, other):
    assert set(ids(paused(spy, **THREAD))).isdisjoint(ids(paused(spy, **{**THREAD, **other})))


def test_types_are_stripped_before_a_program_names_itself(spy):
    plain, typed = "const n  = 1; return await tools.refund(n)", "const n: 1 = 1; return await tools.refund(n)"
    assert len(ids(paused(spy, plain, **THREAD))) == 1
    same = [paused(spy, js, **THREAD) for js in (typed, typed)]
    assert ids(same[0]) == ids(same[1])


@pytest.mark.parametrize(
    ("keys", "is_same"),
    [(["old", "new", "old"], True), (["old", "new"], True), (["new", "old"], False), (["new"], False)],
)
def test_the_first_key_names_a_program_for_as_long_as_it_stays_the_first(spy, keys, is_same):
    old = paused(spy, continuation={"keys": ["old"]}, **THREAD)
    assert (ids(old) == ids(paused(spy, continuation={"keys": keys}, **THREAD))) is is_same


def test_a_step_that_is_run_again_while_keys_are_rotated_makes_no_call_again(spy):
    journal, noted = MemoryJournal(), []
    tools = [Tool("note", execute=lambda value, context: noted.append(value) or "noted"), spy.guarded()]
    js = "const one = await tools.note(1); return [one, await tools.refund({ order: 'a' })]"
    keyed = [{"keys": keys, "journal": journal} for keys in (["old"], ["old", "new", "old"], ["old", "new"])]
    first, *again = [paused(spy, js, continuation=one, tools=tools, **THREAD) for one in keyed]
    assert [ids(one) for one in again] == [ids(first)] * 2
    assert noted == [1]


def test_the_same_call_with_another_input_is_another_question(spy):
    """A tool that gives something else when the step is run again: the answer to the first must not fit."""
    prices = itertools.count(100)
    tools = [Tool("price", execute=lambda: next(prices)), spy.guarded()]
    first, again = (paused(spy, "return await tools.refund(await tools.price())", tools=tools, **THREAD) for _ in "ab")
    assert (first.input, again.input) == (100, 101)
    with pytest.raises(CodeModeProtocolError, match="not a pending request"):
        within(
            continue_interrupt(
                again,
                resolutions={first.interrupt_id: OK},
                tools=tools,
                options={**PAUSING, "continuation": KEYS},
                call=CallContext(conversation_id="thread 1"),
            )
        )
    assert spy.ran == []


def test_a_recovery_of_a_step_that_is_run_again_has_the_same_ids(spy, passing_time):
    def unknown():
        code_mode = create_code_mode_tool(
            [spy.guarded(), Tool("hang", execute=hang)],
            {"continuation": KEYS, "execution_policy": {"timeout_ms": 60_000}},
        )
        with pytest.raises(Exception, match="did not end") as caught:
            code_mode.execute_sync({"js": "await tools.hang(1)"}, CallContext(**THREAD))
        return ids(caught.value.recovery)

    async def hang(value):
        passing_time.skip(61)
        await asyncio.Event().wait()

    assert unknown() == unknown()


# --- the binding of an invocation ---


def test_a_pause_goes_on_under_its_own_binding_alone(spy):
    options = {**PAUSING, "continuation": {**KEYS, "conversation_id": "tenant"}}
    code_mode = create_code_mode_tool([spy.guarded()], options)
    interrupt = through_json(code_mode.execute_sync({"js": JS}, call=CallContext(conversation_id="thread 1")))
    answer = {"approvalId": interrupt.interrupt_id, "approved": True}
    for wrong in (None, "thread 2", "tenant"):
        assert not is_interrupt(interrupt, options=options, conversation_id=wrong)
        with pytest.raises(CodeModeProtocolError, match="conversation"):
            code_mode.resume_sync(interrupt, OK, call=CallContext(conversation_id=wrong))
        with pytest.raises(CodeModeProtocolError, match="conversation"):
            within(
                continue_approval(
                    interrupt, answer, tools=[spy.guarded()], options=options, call=CallContext(conversation_id=wrong)
                )
            )
    assert spy.ran == []
    assert is_interrupt(interrupt, options=options, conversation_id="thread 1")
    assert is_approval_interrupt(interrupt, options=options, conversation_id="thread 1")
    assert len(code_mode.resume_sync(interrupt, OK, call=CallContext(conversation_id="thread 1"))) == 2
    assert len(spy.ran) == 1


def test_the_next_pause_is_bound_as_the_first_was(spy):
    code_mode = create_code_mode_tool([spy.guarded()], {**PAUSING, "continuation": KEYS})
    first = code_mode.execute_sync(
        {"js": "await tools.refund(1); return await tools.refund(2)"}, call=CallContext(conversation_id="t")
    )
    second = code_mode.resume_sync(first, OK, call=CallContext(conversation_id="t"))
    with pytest.raises(CodeModeProtocolError, match="conversation"):
        code_mode.resume_sync(second, OK)
    assert code_mode.resume_sync(second, OK, call=CallContext(conversation_id="t")) == {"done": "refund"}


def test_the_two_bindings_are_never_one_text(spy):
    """A thread id may be a client's choice; no choice of it makes the pause of another tenant."""
    made = paused(spy, continuation={**KEYS, "conversation_id": "a"}, conversation_id="b")
    for tenant, thread in [("b", "a"), ("ab", None), (None, "ab"), ('["a","b"]', None), (None, '["a","b"]')]:
        options = {"continuation": {**KEYS, **({"conversation_id": tenant} if tenant else {})}}
        assert not is_interrupt(made, options=options, conversation_id=thread)


@pytest.mark.parametrize(
    "wrong",
    [{"conversation_id": ""}, {"conversation_id": 5}, {"started_at_ms": 0}, {"started_at_ms": -1},
     {"started_at_ms": 1.5}, {"started_at_ms": True}, {"started_at_ms": "1"}, {"started_at_ms": 10**16}],
)  # fmt: skip
def test_what_reaches_a_signature_or_the_clock_is_checked_at_the_call(spy, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run_code_mode_sync("return 1", [], call=CallContext(**wrong))


def test_a_program_starts_at_the_time_that_was_noted():
    js = "return [Date.now(), new Date().getTime()]"
    assert run_code_mode_sync(js, [], call=CallContext(started_at_ms=5)) == [5, 6]


def test_the_clock_goes_on_to_times_that_were_noted(spy):
    async def look() -> None:
        """Give the program an answer."""

    js = "const seen = [Date.now()]; await tools.look(); seen.push(Date.now()); await tools.refund(1);"
    code_mode = create_code_mode_tool([Tool("look", execute=look), spy.guarded()], {**PAUSING, "continuation": KEYS})
    noted = itertools.chain([7_000], itertools.repeat(9_000))
    given = {"conversation_id": "t", "clock_ms": lambda: next(noted)}
    interrupt = code_mode.execute_sync(
        {"js": js + "return [...seen, Date.now()]"}, CallContext(started_at_ms=5_000, **given)
    )
    assert code_mode.resume_sync(interrupt, OK, CallContext(**given)) == [5_000, 7_000, 9_000]
    with pytest.raises(ValueError, match="clock_ms"):
        code_mode.execute_sync({"js": js}, call=CallContext(clock_ms=5))


names = st.text(min_size=1, max_size=6)


@settings(max_examples=rounds(15, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(names | st.none(), names | st.none(), names, names), min_size=2, max_size=2, unique=True))
def test_no_two_sets_of_names_come_to_one_identity(two):
    made = []
    for tenant, thread, outer_id, js in two:
        call = CallContext(tool_call_id=outer_id, conversation_id=thread)
        identify = make_salt_and_seed_deriver(ContinuationOptions(keys="k", conversation_id=tenant), call)
        assert (identify is None) == (tenant is None and thread is None)
        if identify is not None:
            named = identify(dataclasses.replace(SETTINGS, outer_tool_call_id=outer_id), js)
            made.append((named.salt, named.seed))
    assert len(set(made)) == len(made)


def test_identities_came_with_another_replay_version():
    assert REPLAY_VERSION >= 5

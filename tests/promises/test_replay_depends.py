"""What a replay depends on is in the continuation: limits of memory and stack, and the engine."""

from __future__ import annotations

import dataclasses

import pytest
from invocation_settings import SETTINGS
from pausing import PAUSING, Spy, current_ms, go_on, start
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeOptions,
    CodeModeProtocolError,
    ContinuationOptions,
    create_code_mode_tool,
    failure_text,
)
from codemode.continuations.guard import GuardClock
from codemode.continuations.sealing import encode_and_sign_continuation, verify_and_decode_continuation
from codemode.execution import resume as continuations
from codemode.protocol.continuation import Continuation, continuation_from_texts, continuation_to_texts
from codemode.protocol.ledger import Ledger
from codemode.stores import MemoryResumeGuard
from codemode.surfaces.code_mode.outcome import CODE_MODE

OK = {"approved": True}
KEYS = {"keys": "k"}
MIB = 1 << 20

DEEP = """
let depth = 0;
const deeper = () => { depth++; deeper(); };
try { deeper(); } catch {}
"""
MEMORY = """
let count = 0; const held = [];
try { for (;;) { held.push("x".repeat(1 << 16) + count); count++; } } catch {}
held.length = 0;
"""
WAYS = {
    "stack": (DEEP + "await tools.note(depth > 2000 ? 'far' : 'near');", {"max_stack_size_bytes": 256 * 1024}),
    "memory": (MEMORY + "await tools.note(count > 300 ? 'much' : 'little');", {"memory_limit_bytes": 12 * MIB}),
}


@pytest.fixture
def spy():
    return Spy()


def having(policy=None, **continuation):
    return {**PAUSING, "execution_policy": policy or {}, "continuation": {**KEYS, **continuation}}


@pytest.mark.parametrize("first", ["small", "usual"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_program_that_looks_at_its_limits_goes_the_same_way_again(spy, way, first):
    js, small = way
    limits = [small, {}] if first == "small" else [{}, small]
    tools = [spy.tool("note", lambda value, _: value), spy.guarded()]
    program = f"{js} return await tools.refund(1)"
    interrupt = start(program, tools, having(limits[0]))
    assert go_on(interrupt, tools, OK, options=having(limits[1])) == {"done": "refund"}
    assert [name for name, _ in spy.ran] == ["note", "refund"]


def changed(interrupt, change):
    """The same pause with another body under the right key, as another host would have made it."""
    options = ContinuationOptions(**KEYS)
    texts, _ = verify_and_decode_continuation(interrupt.continuation, options, current_ms())
    body = continuation_from_texts(texts)
    change(body)
    return dataclasses.replace(
        interrupt, continuation=encode_and_sign_continuation(continuation_to_texts(body), options, current_ms())
    )


def elsewhere(interrupt):
    return changed(interrupt, lambda body: body.update(engine="0.0.1"))


def test_another_engine_is_refused_unless_that_is_wanted(spy):
    interrupt = elsewhere(start("return await tools.refund(1)", [spy.guarded()], having()))
    for _ in range(2):
        with pytest.raises(CodeModeProtocolError, match=r"version 0\.0\.1 of the engine") as caught:
            go_on(interrupt, [spy.guarded()], OK, options=having())
        assert caught.value.details["origin"] == "continuation"
        assert "the paused program could not resume" in failure_text(caught.value, "")
    assert spy.ran == []
    # What was refused is not used up.
    wanted = having(any_engine=True)
    assert go_on(interrupt, [spy.guarded()], OK, options=wanted) == {"done": "refund"}
    assert create_code_mode_tool([], {"continuation": {"anyEngine": True}}).options.continuation.any_engine is True


def test_a_recorded_outcome_needs_no_engine(spy, monkeypatch):
    """A second click after the host has got a newer engine: nothing has to run for it."""
    interrupt = start("return await tools.refund(1)", [spy.guarded()], having())
    value = go_on(interrupt, [spy.guarded()], OK, options=having())
    monkeypatch.setattr(continuations, "find_engine_version", lambda: "9.9.9")
    assert go_on(interrupt, [spy.guarded()], OK, options=having()) == value
    assert spy.ran == [("refund", 1)]


def test_a_recovery_of_a_host_that_is_gone_names_the_engine_of_its_pause(spy):
    guard = MemoryResumeGuard(clock=Hurry())
    interrupt = elsewhere(start("return await tools.refund(1)", [spy.guarded()], having()))

    async def abandoned():
        wanted = CodeModeOptions.of(having())
        _, auth = continuations.open_unexpired_interrupt(interrupt, CODE_MODE, wanted)
        claim = continuations.make_answers_claim(auth, {interrupt.interrupt_id: OK}, wanted.continuation)
        assert await guard.claim(claim) is None

    within(abandoned())
    with pytest.raises(CodeModeAbortedError) as caught:
        go_on(interrupt, [spy.guarded()], OK, options=having(guard=guard))
    recovery = caught.value.recovery
    with pytest.raises(CodeModeProtocolError, match=r"0\.0\.1"):
        go_on(recovery, [spy.guarded()], {"value": 1}, options=having(guard=guard))
    assert go_on(recovery, [spy.guarded()], {"value": 1}, options=having(guard=guard, any_engine=True)) == 1


class Hurry(GuardClock):
    ahead = 0.0

    def monotonic_seconds(self) -> float:
        return self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds


def test_with_another_engine_a_replay_that_goes_another_way_is_still_stopped(spy):
    tools = [spy.tool("look"), spy.guarded()]
    interrupt = start("await tools.look(0); return await tools.refund(1)", tools, having())
    spy.ran.clear()

    def another(body):
        body.update(engine="0.0.1", js="await tools.look(1); return await tools.refund(1)")

    with pytest.raises(CodeModeProtocolError, match="recorded"):
        go_on(changed(interrupt, another), tools, OK, options=having(any_engine=True))
    assert spy.ran == []


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_any_engine_must_be_a_boolean(wrong):
    with pytest.raises(ValueError, match=r"^continuation\.any_engine must be True or False"):
        ContinuationOptions(any_engine=wrong)


@pytest.mark.parametrize("name", ["memory_limit_bytes", "max_stack_size_bytes"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1", None, True, 1 << 40])
def test_limits_of_a_continuation_are_checked(spy, name, wrong):
    interrupt = start("return await tools.refund(1)", [spy.guarded()], having())
    forged = changed(interrupt, lambda body: body["settings"].update({name: wrong}))
    with pytest.raises(CodeModeError):
        go_on(forged, [spy.guarded()], OK, options=having())
    assert spy.ran == []


def test_the_limits_are_among_what_is_kept():
    kept = Continuation.from_ledger("return 1", "engine", SETTINGS, Ledger()).replay_settings
    assert {"memory_limit_bytes", "max_stack_size_bytes"} <= set(kept)

"""What a program drops is freed in the guest; what the host keeps of its calls has a limit of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pausing import PAUSING, Spy, go_on, start, through_json
from suite import full_only

from codemode import CodeModeError, Tool
from codemode.errors import MAX_GUEST_MESSAGE_CHARACTERS, CodeModeBridgeLimitError
from codemode.profile import HostErrorRules
from codemode.protocol import events
from codemode.protocol.invocation import LedgerSizeLimit
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting

MEGABYTE = 1 << 20
ROOMY = {"execution_policy": {"max_bridge_requests": 500, "max_ledger_bytes": 512 * MEGABYTE, "timeout_ms": 120_000}}
DROPPING = {
    "one after the other": "for (let i = 0; i < 60; i++) await tools.get(1); return 'ok'",
    "looked at": "let n = 0; for (let i = 0; i < 60; i++) n += (await tools.get(1)).length; return n > 0 && 'ok'",
    "by then": "for (let i = 0; i < 60; i++) await tools.get(1).then((v) => v.length); return 'ok'",
    "several at once": "for (let i = 0; i < 60; i += 4) await Promise.all([1, 2, 3, 4].map(tools.get)); return 'ok'",
    "awaited twice": "for (let i = 0; i < 60; i++) { const p = tools.get(1); await p; await p; } return 'ok'",
    "promises kept": """
        const kept = [];
        for (let i = 0; i < 60; i++) { const p = tools.get(1); kept.push(p.then((v) => v.length)); await p; }
        return (await Promise.all(kept)).length === 60 && 'ok'""",
}

OTHER_WAYS = sorted({*DROPPING} - {"promises kept"})


def giving(value):
    async def get(_input):
        return value

    return Tool("get", execute=get)


@pytest.mark.parametrize("how", ["promises kept", *full_only(*OTHER_WAYS)])
def test_an_output_that_was_dropped_is_freed(how):
    assert start(DROPPING[how], [giving("x" * 3 * MEGABYTE)], ROOMY) == "ok"


@pytest.mark.full
def test_dropped_outputs_of_many_objects_are_freed():
    rows = [{"id": number, "name": f"row {number}"} for number in range(8_000)]
    assert start(DROPPING["one after the other"], [giving(rows)], ROOMY) == "ok"


def test_what_is_kept_still_meets_the_memory_limit():
    js = "const kept = []; for (let i = 0; i < 60; i++) kept.push(await tools.get(1)); return kept.length"
    with pytest.raises(CodeModeError, match="memory"):
        start(js, [giving("x" * 3 * MEGABYTE)], ROOMY)


def test_of_a_very_long_error_message_the_program_gets_the_beginning():
    async def fail(_input):
        raise CodeModeError("x" * 5_000_000)

    js = """
        const sizes = [];
        for (let i = 0; i < 50; i++) try { await tools.fail(1) } catch (error) { sizes.push(error.message.length) }
        return sizes;"""
    assert start(js, [Tool("fail", execute=fail)], ROOMY) == [MAX_GUEST_MESSAGE_CHARACTERS] * 50


# --- the ledger's own limit ---


def test_a_full_ledger_is_an_error_that_names_itself():
    js = "for (let i = 0; i < 60; i++) await tools.get(1); return 'ok'"
    with pytest.raises(CodeModeBridgeLimitError, match=r"ledger.*execution_policy\.max_ledger_bytes") as caught:
        start(js, [giving("x" * 3 * MEGABYTE)], {"execution_policy": {"max_bridge_requests": 500}})
    assert caught.value.details["limit"] == "max_ledger_bytes"
    assert sum(call["status"] == "fulfilled" for call in caught.value.calls) == 42


def test_a_program_can_catch_that_the_ledger_is_full():
    js = """
        let done = 0;
        try { for (;;) { await tools.get(1); done++; } }
        catch (error) { return [done, error.name, error.message.includes('ledger')]; }"""
    policy = {"execution_policy": {"max_ledger_bytes": MEGABYTE}}
    assert start(js, [giving("x" * 300_000)], policy) == [3, "CodeModeBridgeLimitError", True]


def test_inputs_count_and_end_the_program():
    js = "try { for (;;) await tools.get('x'.repeat(300000)) } catch { return 'caught' }"
    with pytest.raises(CodeModeBridgeLimitError, match="ledger"):
        start(js, [giving(1)], {"execution_policy": {"max_ledger_bytes": MEGABYTE}})


def test_errors_and_what_a_person_is_shown_count():
    async def fail(_input):
        raise CodeModeError("x" * 20_000)

    js = """
        const seen = [];
        for (let i = 0; i < 60; i++) try { await tools.fail(1) } catch (e) { seen.push(e.name) }
        return seen;"""
    policy = {"max_ledger_bytes": MEGABYTE}
    seen = start(js, [Tool("fail", execute=fail)], {"execution_policy": policy})
    assert seen == ["CodeModeError"] * 52 + ["CodeModeBridgeLimitError"] * 8
    shown = (
        "return (await Promise.allSettled([1, 2, 3].map(() => tools.refund('x'.repeat(250000))))).map((r) => r.status)"
    )
    interrupt = start(shown, [Spy().guarded()], {**PAUSING, "execution_policy": policy})
    assert len(interrupt.requests) == 1


def test_the_limit_of_the_first_run_holds_for_the_rest():
    js = "await tools.get(1); await tools.refund(1); await tools.get(1); return 'ok'"
    tools = [giving("x" * 300_000), Spy().guarded()]
    tight = {**PAUSING, "execution_policy": {"max_ledger_bytes": 500_000}}
    approve = {"approved": True}
    with pytest.raises(CodeModeBridgeLimitError, match="ledger"):
        go_on(start(js, tools, tight), tools, approve)
    roomy = through_json(start(js, tools, PAUSING))
    assert go_on(roomy, tools, approve, options=tight) == "ok"


def test_a_caught_refusal_is_replayed_as_it_was():
    js = """
        const seen = [];
        for (let i = 0; i < 5; i++) { try { await tools.get(1); seen.push(1); } catch (e) { seen.push(e.name); } }
        await tools.refund(1);
        return seen;"""
    tools = [giving("x" * 300_000), Spy().guarded()]
    tight = {**PAUSING, "execution_policy": {"max_ledger_bytes": MEGABYTE}}
    interrupt = start(js, tools, tight)
    expected = [1, 1, 1, "CodeModeBridgeLimitError", "CodeModeBridgeLimitError"]
    assert go_on(interrupt, tools, {"approved": True}) == expected


def test_what_a_trace_keeps_is_what_the_ledger_took():
    traces = []
    policy = {"max_ledger_bytes": MEGABYTE}
    options = {"execution_policy": policy, "lifecycle": {"on_trace": traces.append}}
    js = "for (let i = 0; i < 5; i++) try { await tools.get(1) } catch {} return 1"
    start(js, [giving("x" * 300_000)], options)
    (trace,) = traces
    assert [call.status for call in trace.bridge_requests] == ["fulfilled"] * 3 + ["rejected"] * 2


@pytest.mark.parametrize("value", [0, -1, True, "1", 1 << 40])
def test_a_wrong_ledger_limit_is_refused(value):
    with pytest.raises(ValueError, match=r"execution_policy\.max_ledger_bytes"):
        start("return 1", [], {"execution_policy": {"max_ledger_bytes": value}})


texts = st.none() | st.text(max_size=40)
outcomes = (
    st.builds(Fulfilled, texts)
    | st.builds(Rejected, st.just("Error"), st.text(max_size=40), st.just(""), texts)
    | st.builds(Waiting, st.just("id"), st.text(max_size=40), texts, st.just(1))
)


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts, outcomes), max_size=12))
def test_the_count_is_that_of_the_entries(calls):
    """Counting step by step comes to what the ledger would count if it were recorded at once."""
    maximum = 3000
    size, again = (LedgerSizeLimit(maximum, HostErrorRules()) for _ in range(2))
    for number, (input_json, executed_json, outcome) in enumerate(calls, 1):
        entry = LedgerEntry(number, "tool", "t", input_json)
        try:
            size.count_new_request(entry)
        except CodeModeBridgeLimitError:
            break
        begun = entry._replace(executed_input_json=executed_json)
        size.recount_entry_and_release_reservation(entry, begun)
        settled = size.admit_or_replace_outcome(events.CallSettled(number, outcome, 1), begun)
        ended = begun._replace(outcome=settled.outcome)
        size.recount_entry_and_release_reservation(begun, ended)
        again.count_recorded_entry(ended)
        assert size._bytes == again._bytes
        assert settled.outcome == outcome or isinstance(settled.error, CodeModeBridgeLimitError)

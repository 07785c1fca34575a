"""Checks of every plugin's promises about calls that wait for a person, on every surface."""

from __future__ import annotations

import json
from typing import Any

from .plugin_under_test import (
    Check,
    ContractAnswer,
    Failed,
    Finished,
    Outcome,
    Paused,
    PluginUnderTest,
    RecordingTools,
    create_edit_and_deny_answers,
    resume_run,
    run_program,
)


async def shows_all_waiting_calls(plugin: PluginUnderTest) -> None:
    """A pause shows every inner call that waits, with its validated input, and an id of its own."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(plugin)
    assert [call.tool_name for call in paused.calls] == ["refund", "refund"]
    assert [call.input for call in paused.calls] == [{"order": order, "cents": 500} for order in "ab"]
    assert len({call.id for call in paused.calls}) == 2
    assert recorder.calls == [("stock", "nut")]
    json.loads(paused.state)


async def applies_edits_and_denials(plugin: PluginUnderTest) -> None:
    """An edited call runs as edited, a denied one never, a finished one not again."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(plugin)
    outcome = await resume_run(plugin, recorder.tools, paused.state, create_edit_and_deny_answers(paused))
    assert outcome == Finished(value=[7, "fulfilled", "rejected"]), outcome
    assert recorder.calls == [("stock", "nut"), ("refund", ("a", 300))]


async def repeats_outcome_without_running_calls(plugin: PluginUnderTest) -> None:
    """The same answers to the same pause give the same outcome, and nothing runs."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(plugin)
    first = await resume_run(plugin, recorder.tools, paused.state, create_edit_and_deny_answers(paused))
    did = list(recorder.calls)
    assert await resume_run(plugin, recorder.tools, paused.state, create_edit_and_deny_answers(paused)) == first
    assert recorder.calls == did


async def refuses_different_answers_later(plugin: PluginUnderTest) -> None:
    """Other answers to a pause that was answered are refused: they raise or fail, and nothing runs."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(plugin)
    await resume_run(plugin, recorder.tools, paused.state, create_edit_and_deny_answers(paused))
    did = list(recorder.calls)
    everything = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    try:
        outcome = await resume_run(plugin, recorder.tools, paused.state, everything)
    except Exception:  # noqa: BLE001 - each framework refuses in its own words
        outcome = Failed(text="refused")
    assert isinstance(outcome, Failed), outcome
    assert recorder.calls == did


_CATCHING_PROGRAMS = (
    """
    try { await tools.refund({ order: "a" }); }
    catch { await tools.stock({ product: "caught" }); }
    finally { await tools.stock({ product: "finally" }); }
    """,
    """
    const swallow = () => tools.stock({ product: "swallowed" });
    await tools.refund({ order: "a" }).then(swallow, swallow).catch(swallow).finally(swallow);
    """,
)


async def hides_pauses_from_catch_blocks(plugin: PluginUnderTest) -> None:
    """No try, catch or finally of a program sees a pause, and no handler of a promise."""
    recorder = RecordingTools()
    for js in _CATCHING_PROGRAMS:
        paused = await recorder.run_until_pause(plugin, js)
        assert [call.tool_name for call in paused.calls] == ["refund"]
    assert recorder.calls == [], recorder.calls


async def pauses_resumed_programs_again(plugin: PluginUnderTest) -> None:
    """A resumed program may pause again; approved calls do not run again."""
    recorder = RecordingTools()
    js = "await tools.refund({ order: 'a' }); await tools.refund({ order: 'b' }); return 'both';"
    outcome: Outcome = await recorder.run_until_pause(plugin, js)
    for _ in range(2):
        assert isinstance(outcome, Paused), outcome
        answers = {call.id: ContractAnswer(approved=True) for call in outcome.calls}
        outcome = await resume_run(plugin, recorder.tools, outcome.state, answers)
    assert outcome == Finished(value="both"), outcome
    assert recorder.calls == [("refund", ("a", 500)), ("refund", ("b", 500))]


async def keeps_waiting_calls_that_lose_a_race(plugin: PluginUnderTest) -> None:
    """A waiting call is not lost when the program continues with a faster one."""
    recorder = RecordingTools()
    for how in ("race", "any"):
        js = f"return await Promise.{how}([tools.refund({{ order: 'a' }}), tools.stock({{ product: 'nut' }})]);"
        outcome = await run_program(plugin, recorder.tools, js)
        assert not isinstance(outcome, Finished), outcome
    assert recorder.calls == [("stock", "nut")] * 2


_THREE_REFUNDS_PROGRAM = """
const all = await Promise.allSettled(["a", "b", "c"].map((order) => tools.refund({ order })));
return all.map((one) => one.value ?? one.reason.message);
"""


async def accepts_all_answers_at_once(plugin: PluginUnderTest) -> None:
    """Any number of waiting calls takes a decision each at once: one approved, one edited, one denied."""
    recorder = RecordingTools()
    paused = await recorder.run_until_pause(plugin, _THREE_REFUNDS_PROGRAM)
    decisions = [
        ContractAnswer(approved=True),
        ContractAnswer(approved=True, input={"order": "b", "cents": 1}),
        ContractAnswer(approved=False, reason="too late for c"),
    ]
    answers = dict(zip((call.id for call in paused.calls), decisions, strict=True))
    outcome = await resume_run(plugin, recorder.tools, paused.state, answers)
    assert isinstance(outcome, Finished), outcome
    assert outcome.value[:2] == ["refunded a", "refunded b"]
    assert "too late for c" in outcome.value[2]
    assert sorted(recorder.calls) == [("refund", ("a", 500)), ("refund", ("b", 1))], recorder.calls


async def accepts_partial_answers(plugin: PluginUnderTest) -> None:
    """After answers to some of the waiting calls, the rest still waits, under the same ids."""
    recorder = RecordingTools()
    outcome: Outcome = await recorder.run_until_pause(plugin, _THREE_REFUNDS_PROGRAM)
    assert isinstance(outcome, Paused)
    ids = [call.id for call in outcome.calls]
    for at in (1, 2, 0):
        assert isinstance(outcome, Paused), outcome
        assert [call.id for call in outcome.calls] == [
            call_id for call_id in ids if call_id in {call.id for call in outcome.calls}
        ]
        outcome = await resume_run(plugin, recorder.tools, outcome.state, {ids[at]: ContractAnswer(approved=True)})
    assert outcome == Finished(value=["refunded a", "refunded b", "refunded c"]), outcome
    assert recorder.calls == [("refund", (order, 500)) for order in "bca"]


async def asks_again_after_invalid_edit(plugin: PluginUnderTest) -> None:
    """An edit that does not fit runs nothing and is not used up: the call is asked about again, with the reason.

    The plugin refuses the answers and the pause stays open, or the run pauses again; the program never sees the edit.
    """
    recorder = RecordingTools()
    program = """
    try { return await tools.refund({ order: "a" }); }
    catch (error) { await tools.stock({ product: "caught" }); return String(error.message); }
    """
    wrong: tuple[dict[str, Any], ...] = ({"order": "a", "cents": "many"}, {"cents": 5})
    for number, edit in enumerate(wrong):
        paused = await recorder.run_until_pause(plugin, program)
        reason = await _resume_with_invalid_edit(plugin, recorder, paused, edit)
        if isinstance(reason, Paused):
            paused, reason = reason, reason.state
        missing = next(name for name in ("cents", "order") if edit.get(name) not in ("a", 5))
        assert missing in reason, reason
        assert [call.input for call in paused.calls] == [{"order": "a", "cents": 500}], paused
        assert recorder.calls == [("refund", ("a", 300))] * number, recorder.calls
        fits = {paused.calls[0].id: ContractAnswer(approved=True, input={"order": "a", "cents": 300})}
        outcome = await resume_run(plugin, recorder.tools, paused.state, fits)
        assert outcome == Finished(value="refunded a"), outcome
    assert recorder.calls == [("refund", ("a", 300))] * len(wrong), recorder.calls


async def _resume_with_invalid_edit(
    plugin: PluginUnderTest, recorder: RecordingTools, paused: Paused, edit: dict[str, Any]
) -> str | Paused:
    answers = {paused.calls[0].id: ContractAnswer(approved=True, input=edit)}
    try:
        outcome = await resume_run(plugin, recorder.tools, paused.state, answers)
    except Exception as error:  # noqa: BLE001 - each framework refuses in its own words
        return str(error)
    assert isinstance(outcome, Paused), outcome
    return outcome


PAUSES: tuple[Check, ...] = (
    shows_all_waiting_calls,
    applies_edits_and_denials,
    asks_again_after_invalid_edit,
    repeats_outcome_without_running_calls,
    refuses_different_answers_later,
    hides_pauses_from_catch_blocks,
    keeps_waiting_calls_that_lose_a_race,
    pauses_resumed_programs_again,
    accepts_all_answers_at_once,
    accepts_partial_answers,
)

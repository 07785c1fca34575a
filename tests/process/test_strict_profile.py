"""A profile with rules, results that are cut, and notices: nothing against a rule runs, and nothing is told twice."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from pausing import PAUSING, Spy, through_json
from strict_surface import STRICT, go_on_strict, run_strict
from waiting import within

from codemode import Tool
from codemode.errors import CodeModeIllegalAccessError, CodeModeSyntaxError
from codemode.observe.reporter import InvocationReporter
from codemode.profile import StaticRules
from codemode.source import rules

KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}
OK = {"approved": True}
RULES = StaticRules(
    disabled_builtins=("eval", "Function"),
    disabled_globals=("fetch", "setTimeout"),
    allow_loops=False,
    runs_unanalysed=False,
    analysis_ms=20_000,
)
FACE = dataclasses.replace(
    STRICT.guest,
    globals=("callTool", "mcpLog", "mcpNotify", "console"),
    result="sanitised",
    max_result_depth=3,
    max_result_properties=20,
)


def made(guest: Any = FACE, static_rules: StaticRules = RULES) -> Any:
    profile = dataclasses.replace(STRICT, guest=guest, static_rules=static_rules, restored=None, shows_run_details=True)
    return dataclasses.replace(profile, name="ruledCalls")


RULED = made()


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What listeners are told, in order."""
    told: list[Any] = []

    def report_guest_message(_self: InvocationReporter, kind: str, payload_json: str) -> None:
        told.append((kind, json.loads(payload_json)))

    monkeypatch.setattr(InvocationReporter, "report_guest_message", report_guest_message)
    return told


def run(js: str, spy: Spy, options: Any = KEYED, profile: Any = RULED, **more: Any) -> Any:
    return within(run_strict(js, [spy.guarded(), spy.tool("look")], options, profile=profile, **more))


def go_on(interrupt: Any, spy: Spy, answer: Any = OK) -> Any:
    tools = [spy.guarded(), spy.tool("look")]
    return within(go_on_strict(through_json(interrupt), tools, answer, options=KEYED, profile=RULED))


# --- rules ---


@pytest.mark.parametrize(
    ("js", "kinds"),
    [
        ("await callTool('look'); eval('1')", ["IllegalBuiltinAccess"]),
        ("await callTool('look'); ev\\u0061l('1')", ["IllegalBuiltinAccess"]),
        ("await callTool('look'); const { fetch } = {}", ["DisallowedGlobal"]),
        ("await callTool('look'); for (;;) {}", ["DisallowedLoop"]),
        ("callTool('look'); fetch(); import('x')", ["DisallowedGlobal", "DisallowedImport"]),
        ("const n: number = 1; callTool('look');\ndo { } while (eval)", ["DisallowedLoop", "IllegalBuiltinAccess"]),
    ],
)
def test_nothing_of_a_program_that_breaks_a_rule_runs_and_all_are_told(spy, js, kinds):
    for _ in "ab":  # analysed, and known
        outcome = run(js, spy)
        assert type(outcome.error) is CodeModeIllegalAccessError
        assert [one["kind"] for one in outcome.error.details["violations"]] == kinds
    assert spy.ran == []


def test_one_that_keeps_to_them_runs(spy):
    js = "const one = { eval: 1, for: 2 }; const text: string = 'eval for'; await callTool('look'); return one.eval"
    assert [run(js, spy).value for _ in "ab"] == [1, 1]
    assert [name for name, _ in spy.ran] == ["look", "look"]


@pytest.mark.parametrize("js", ["await callTool('look'); return 1", "callTool('look'); throw 1", "mcpNotify('e')"])
def test_one_that_nothing_is_known_of_does_not_run(spy, heard, js, monkeypatch):
    monkeypatch.setattr("codemode.execution.programs.has_analysis_facts", lambda _facts: False)
    outcome = run(js, spy)
    assert type(outcome.error) is CodeModeIllegalAccessError
    assert outcome.error.details["violations"] == [{"kind": "NotAnalysable", "location": {"line": 1, "column": 1}}]
    assert (spy.ran, heard, list(outcome.console)) == ([], [], [])


@pytest.mark.parametrize("js", ["return (", "const a = 1; const a = 2", "await callTool('look'); return 1 1"])
def test_one_that_nothing_is_known_of_has_its_own_mistake_told(spy, js, monkeypatch):
    monkeypatch.setattr("codemode.execution.programs.has_analysis_facts", lambda _facts: False)
    outcome = run(js, spy)
    assert type(outcome.error) is CodeModeSyntaxError
    assert spy.ran == []


def test_a_parser_without_time_fails_closed(spy):
    # Half a megabyte does not parse in a millisecond.
    js = "await callTool('look'); return [" + "1,".join(["a => a,"] * 60_000) + "1]"
    hasty = made(static_rules=dataclasses.replace(RULES, analysis_ms=1))
    roomy = {**KEYED, "execution_policy": {"max_source_bytes": 900_000}}
    outcome = run(js, spy, roomy, hasty)
    assert type(outcome.error) is CodeModeIllegalAccessError
    assert outcome.error.details["violations"][0]["kind"] == "NotAnalysable"
    assert spy.ran == []


def test_a_literal_name_that_cannot_be_called_is_told_before_anything_runs(spy):
    js = "await callTool('look'); await callTool('nothing', 5)"
    outcome = run(js, spy)
    assert spy.ran == []
    details = outcome.error.details
    said = {"code": "Unknown", "message": "no nothing", "toolName": "nothing", "details": {"ran": False}}
    assert details["call"] == said
    assert (details["ran"], details["line"], details["column"]) == (False, 1, 31)
    allowed = run("await callTool('look')", spy, given={"allowedTools": ["refund"]})
    assert allowed.error.details["call"]["code"] == "Denied"
    assert spy.ran == []


@pytest.mark.parametrize("off", ["profile", "options"])
def test_unless_that_is_left_to_the_run(spy, off):
    js = "await callTool('look'); await callTool('nothing', 5)"
    late = made(static_rules=dataclasses.replace(RULES, checks_tools=False)) if off == "profile" else RULED
    options = {**KEYED, "execution_policy": {"check_program": off == "profile"}}
    error = run(js, spy, options, late).error
    assert error.details["call"]["code"] == "Unknown"
    assert [name for name, _ in spy.ran] == ["look"]
    # What rules forbid does not depend on it.
    assert type(run("eval('1')", spy, options, late).error) is CodeModeIllegalAccessError


def test_what_rules_find_is_taken_from_the_facts_of_this_very_text():
    assert (
        rules.find_violations({"names": {"eval": [0]}, "loops": [], "modules": []}, RULES, "eval")[0]["name"] == "eval"
    )


# --- notices ---

TELLING = (
    "mcpLog('info', 'first', { a: 1 }); mcpNotify('begun'); const one = await callTool('look');"
    " mcpNotify('looked', [1, null]); const two = await callTool('refund'); mcpNotify('paid'); return 'done'"
)
FIRST = [
    ("log", {"level": "info", "message": "first", "metadata": {"a": 1}}),
    ("notify", {"event": "begun"}),
    ("notify", {"event": "looked", "payload": [1, None]}),
]


def test_listeners_hear_each_once_over_a_pause(spy, heard):
    interrupt = run(TELLING, spy).interrupt
    assert heard == FIRST
    for _ in "ab":  # the second time it is the recorded outcome
        assert go_on(interrupt, spy).value == "done"
        assert heard == [*FIRST, ("notify", {"event": "paid"})]


def test_and_over_a_recovery(spy, heard, passing_time):
    options = {**KEYED, "execution_policy": {"timeout_ms": 60_000}}
    js = "mcpNotify('a'); await callTool('look'); mcpNotify('b'); await callTool('hang'); mcpNotify('c'); return 1"

    async def hang(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    tools = [spy.tool("look"), Tool("hang", execute=hang)]
    error = within(run_strict(js, tools, options, profile=RULED)).error
    assert [payload["event"] for _, payload in heard] == ["a", "b"]
    answer = {"value": 5}
    assert within(go_on_strict(error.recovery, tools, answer, options=KEYED, profile=RULED)).value == 1
    assert [payload["event"] for _, payload in heard] == ["a", "b", "c"]


# --- what is shown beside a result ---


@pytest.mark.parametrize(
    "ending", ["return { a: { b: { c: { d: 1 } } } }", "throw new Error('x')", "return await callTool('refund')"]
)
def test_a_repeated_resume_has_the_same_logs_and_warnings(spy, ending):
    js = f"console.log('one', 1); await callTool('refund'); console.error('two'); {ending}"
    interrupt = run(js, spy).interrupt
    first, again = go_on(interrupt, spy), go_on(interrupt, spy)
    assert (first.is_replayed, again.is_replayed) == (False, True)
    assert [(line.level, line.text) for line in again.console] == [("log", "one 1"), ("error", "two")]
    assert [line.to_dict() for line in again.console] == [line.to_dict() for line in first.console]
    assert again.warnings == first.warnings
    assert bool(again.warnings) == ending.startswith("return {")
    assert len(spy.ran) == 1


def test_a_face_that_cuts_nothing_keeps_no_logs_with_outcomes(spy):
    tools = [spy.guarded()]
    js = "console.log('one'); return await callTool('refund')"
    interrupt = within(run_strict(js, tools, KEYED)).interrupt
    within(go_on_strict(interrupt, tools, OK, options=KEYED))
    again = within(go_on_strict(interrupt, tools, OK, options=KEYED))
    assert (again.is_replayed, list(again.console), again.warnings) == (True, [], ())

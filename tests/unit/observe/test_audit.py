"""Records of an audit log: one for each thing that happens, in plain JSON, and nothing of what was said."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from typing import Any

import pytest
from calls import with_call
from suite import each_row
from waiting import within

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Lifecycle,
    Tool,
    audit_log,
    continue_interrupt,
    request_interrupt,
    run_code_mode,
    run_code_mode_sync,
)
from codemode.errors import CodeModeIllegalAccessError
from codemode.observe.meta_tools import CatalogQueryRecorder
from codemode.observe.reporter import InvocationReporter
from codemode.options.parts import CodeModeOptions
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected

SECRET = "hunter2-CANARY"


def fails(value: Any) -> None:
    raise RuntimeError(SECRET)


def tells(value: Any) -> None:
    raise CodeModeToolError(SECRET, code="CLOSED", details={"secret": SECRET})


TOOLS = [
    Tool("echo", execute=lambda value: value),
    Tool("fails", execute=fails),
    Tool("tells", execute=tells),
]


def ran(js: str, tools: Any = TOOLS, options: Any = None, **settings: Any) -> list[dict[str, Any]]:
    """Return the records of a program, which may fail."""
    records: list[dict[str, Any]] = []
    with contextlib.suppress(CodeModeError):
        run_code_mode_sync(
            js, tools, options={**(options or {}), "lifecycle": audit_log(records.append)}, **with_call(settings)
        )
    return records


def names(records: list[dict[str, Any]]) -> list[str]:
    return [record["event"] for record in records]


def test_a_program_and_its_calls_are_told_in_order():
    js = f"await tools.echo({{password: '{SECRET}'}}); return '{SECRET}'"
    started, call, done, ended = ran(js, tool_call_id="outer")
    assert names([started, call, done, ended]) == [
        "execution_started", "call_started", "call_succeeded", "execution_succeeded",
    ]  # fmt: skip
    assert started["scriptSha256"] == hashlib.sha256(js.encode()).hexdigest()
    assert started["scriptBytes"] == len(js)
    assert set(started) == {"event", "at", "invocationId", "outerToolCallId", "scriptSha256", "scriptBytes"}
    assert set(call) == {"event", "at", "invocationId", "outerToolCallId", "toolName", "callId"}
    assert (call["toolName"], call["callId"], call["outerToolCallId"]) == ("echo", "outer:tool-1", "outer")
    assert set(done) == {*call, "durationMs"}
    assert set(ended) == {"event", "at", "invocationId", "outerToolCallId", "durationMs"}
    assert [one["at"] for one in (started, call, done, ended)] == sorted(
        one["at"] for one in (started, call, done, ended)
    )


@each_row(
    "js, expected",
    [
        (f"throw new Error('{SECRET}')", [("execution_failed", "CODE_MODE_ERROR")]),
        (f"throw Object.assign(new Error(), {{code: '{SECRET}'}})", [("execution_failed", "CODE_MODE_ERROR")]),
        (f"await tools.fails('{SECRET}')", [("call_failed", "CODE_MODE_HOST_TOOL_ERROR")]),
        (f"await tools.tells('{SECRET}')", [("call_failed", "CLOSED"), ("execution_failed", "CLOSED")]),
        (f"const name = '{SECRET}'; await tools[name](1)", [("call_failed", "CODE_MODE_TOOL_ERROR")]),
        ("this is not a program", [("execution_failed", "CODE_MODE_SYNTAX_ERROR")]),
        ("for (;;);", [("execution_timed_out", "CODE_MODE_TIMEOUT")]),
    ],
)
def test_failures_have_a_code_and_no_words(js: str, expected: list[tuple[str, str]]):
    records = ran(js, options={"execution_policy": {"timeout_ms": 300 if js == "for (;;);" else 60_000}})
    assert expected[0] in [(record["event"], record.get("code")) for record in records]
    assert expected[-1] in [(record["event"], record.get("code")) for record in records]
    kept = [record for record in records if record.get("toolName") != SECRET]  # a name is one, whatever it says
    assert SECRET not in json.dumps(kept)


def test_a_name_that_is_no_tools_is_cut():
    records = ran("try { await tools['x'.repeat(200)](1) } catch {}")
    assert {len(record["toolName"]) for record in records if "toolName" in record} == {128}


def test_a_pause_ends_what_it_began_and_a_resume_repeats_nothing():
    records: list[dict[str, Any]] = []
    lifecycle = audit_log(records.append)
    options = {"approval": {"mode": "interrupt"}, "lifecycle": lifecycle}

    def asks(value: Any, context: Any) -> Any:
        return context.interrupt.resolution if context.interrupt else request_interrupt({"kind": "card"})

    tools = [TOOLS[0], Tool("asks", execute=asks)]
    interrupt = within(run_code_mode("await tools.echo(1); return await tools.asks(2)", tools, options=options))
    first = names(records)
    assert first == [
        "execution_started", "call_started", "call_succeeded", "call_started", "call_paused", "execution_paused",
    ]  # fmt: skip
    records.clear()
    assert within(continue_interrupt(interrupt, 3, tools=tools, options=options)) == 3
    assert names(records) == ["execution_started", "call_resumed", "call_succeeded", "execution_succeeded"]
    assert records[0]["resumed"] is True


def test_the_catalog_is_told_of():
    records = ran("await tools.$search('echo'); return await tools.$describe('echo')")
    assert names(records) == ["execution_started", "search", "describe", "execution_succeeded"]
    assert "durationMs" in records[1]
    assert "echo" not in json.dumps(records)


async def _invoked(events: InvocationReporter, source: Any) -> None:
    events.report_start("return await callTool('pay', 1)", source=source)
    call = events.report_call_start(LedgerEntry(1, "tool", "pay", "1", tool_call_id="outer:tool-1"))
    events.report_call_end(call, Fulfilled("2"), None)
    await events.report_end_and_create_trace()


def reported(scenario: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []

    async def run() -> None:
        await scenario(InvocationReporter(audit_log(records.append), "invocation", "outer"))

    within(run())
    return records


def test_a_direct_call_is_one_and_no_execution():
    records = reported(lambda events: _invoked(events, "invoke"))
    assert names(records) == ["call_started", "call_succeeded", "invoke"]
    assert records[-1]["toolName"] == "pay"
    assert names(reported(lambda events: _invoked(events, "script")))[0] == "execution_started"


@pytest.mark.parametrize("reason", ["self_reference", "access_denied"])
def test_a_refused_call_is_told_of_once(reason: Any):
    error = CodeModeToolError(SECRET)
    error.reason = reason

    async def scenario(events: InvocationReporter) -> None:
        events.report_start("x")
        call = events.report_call_start(LedgerEntry(1, "tool", "pay", "1", tool_call_id="outer:tool-1"))
        outcome = Rejected(
            "Error", SECRET, "C", json.dumps({"code": "ACCESS_DENIED", "message": "", "toolName": "pay"})
        )
        events.report_call_end(call, outcome, error)
        await events.report_end_and_create_trace(error=error)

    records = reported(scenario)
    assert names(records) == ["execution_started", "call_started", "call_failed", reason, "execution_failed"]
    assert records[2]["code"] == "ACCESS_DENIED"
    assert (records[3]["toolName"], records[3]["callId"]) == ("pay", "outer:tool-1")
    assert SECRET not in json.dumps(records)


def test_what_was_refused_before_it_ran_is_told_of():
    denied = CodeModeToolError(SECRET, details={"ran": False, "call": {"toolName": "pay"}})
    denied.reason = "access_denied"
    violations = [{"kind": "DisallowedLoop", "location": {"line": 1, "column": 1}}] * 2
    illegal = CodeModeIllegalAccessError(SECRET, details={"violations": violations})
    for error, record in ((denied, {"toolName": "pay"}), (illegal, {"kinds": ["DisallowedLoop"]})):

        async def scenario(events: InvocationReporter, error: CodeModeError = error) -> None:
            events.report_start("x")
            await events.report_end_and_create_trace(error=error)

        records = reported(scenario)
        assert len(records) == 3
        assert record.items() <= records[1].items()
        assert SECRET not in json.dumps(records)
    assert records[1]["event"] == "static_rule"


def test_what_the_model_asks_beside_programs_is_told_of():
    records: list[dict[str, Any]] = []
    options = CodeModeOptions(lifecycle=audit_log(records.append))

    async def asks() -> None:
        async with CatalogQueryRecorder(options, "codecall.search", "search", SECRET, "outer") as question:
            question.result_count = 3
        with pytest.raises(CodeModeTimeoutError):
            async with CatalogQueryRecorder(options, "codecall.describe", "describe", [SECRET]):
                raise CodeModeTimeoutError(SECRET)

    within(asks())
    assert names(records) == ["search", "describe"]
    assert (records[0]["results"], records[0]["outerToolCallId"]) == (3, "outer")
    assert records[1]["code"] == "CODE_MODE_TIMEOUT"
    assert SECRET not in json.dumps(records)


# --- the sink, and hooks beside it


def test_an_async_sink_is_given_one_after_another():
    log: list[str] = []

    async def sink(record: dict[str, Any]) -> None:
        log.append(f"begin {record['event']}")
        for _ in range(3 if record["event"] == "execution_started" else 0):
            await asyncio.sleep(0)
        log.append(f"end {record['event']}")

    run_code_mode_sync("return await tools.echo(1)", TOOLS, options={"lifecycle": audit_log(sink)})
    events = ["execution_started", "call_started", "call_succeeded", "execution_succeeded"]
    assert log == [f"{what} {event}" for event in events for what in ("begin", "end")]


@each_row("kind", ["sync", "async"])
@each_row("error", [ValueError("x"), SystemExit(1), asyncio.CancelledError()])
def test_a_sink_that_fails_changes_nothing_and_is_reported(kind: str, error: BaseException):
    reported: list[str] = []

    def now(_record: Any) -> None:
        raise error

    async def later(_record: Any) -> None:
        raise error

    own = {"on_hook_error": lambda _error, info: reported.append(info["hook"])}
    lifecycle = audit_log(now if kind == "sync" else later, lifecycle=own)
    assert run_code_mode_sync("return await tools.echo(1)", TOOLS, options={"lifecycle": lifecycle}) == 1
    assert sorted(reported) == ["on_invocation_start", "on_nested_tool_call", "on_nested_tool_result", "on_trace"]


@each_row("own_kind", ["sync", "async", "raises", "raises later"])
@each_row("sink_kind", ["sync", "async"])
def test_own_hooks_hear_everything_beside_it(own_kind: str, sink_kind: str):
    heard: list[str] = []
    records: list[dict[str, Any]] = []
    reported: list[BaseException] = []

    def own(event: Any) -> Any:
        heard.append(type(event).__name__)
        if own_kind == "raises":
            raise ValueError(own_kind)
        return asyncio.sleep(0) if own_kind == "async" else None

    async def own_later(event: Any) -> None:
        own(event)
        await asyncio.sleep(0)
        raise ValueError(own_kind)

    async def sink(record: Any) -> None:
        await asyncio.sleep(0)
        records.append(record)

    hook = own_later if own_kind == "raises later" else own
    mine = Lifecycle(on_nested_tool_call=hook, on_trace=hook, on_hook_error=lambda error, _info: reported.append(error))
    lifecycle = audit_log(records.append if sink_kind == "sync" else sink, lifecycle=mine)
    run_code_mode_sync("return await tools.echo(1)", TOOLS, options={"lifecycle": lifecycle})
    assert heard == ["NestedToolCallEvent", "Trace"]
    assert names(records) == ["execution_started", "call_started", "call_succeeded", "execution_succeeded"]
    assert [str(error) for error in reported] == ([own_kind] * 2 if "raises" in own_kind else [])


def test_one_log_serves_many_runs_on_many_loops_at_once():
    records: list[dict[str, Any]] = []

    async def sink(record: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        records.append(record)

    options = {"lifecycle": audit_log(sink)}

    async def four() -> None:
        js = "return await tools.echo(1)"
        await asyncio.gather(
            *(run_code_mode(js, TOOLS, options=options, call=CallContext(tool_call_id=f"{n}")) for n in range(4))
        )

    threads = [threading.Thread(target=lambda: within(four())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    runs: dict[str, list[str]] = {}
    for record in records:
        runs.setdefault(record["invocationId"], []).append(record["event"])
    assert list(runs.values()) == [["execution_started", "call_started", "call_succeeded", "execution_succeeded"]] * 8

"""Who listens to CodeCall: notifications in order, an audit record of each thing that happens, a span of each call."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pausing import OK, through_json
from suite import each_row

from codemode import CallContext, CodeModeToolError, Tool, audit_log, create_code_call_tools
from codemode.surfaces.code_call.names import format_meta_tool_name

SECRET = "canary-3141"


def fail(_value: Any) -> None:
    raise RuntimeError(f"/srv/{SECRET}/keys.pem is gone")


TOOLS = [
    Tool("echo", execute=lambda value: value, description="Says it again."),
    Tool("fails", execute=fail),
    Tool("asks", execute=lambda value: "done", needs_approval=True),
]


def test_notifications_come_in_order_around_every_call():
    heard: list[dict[str, Any]] = []
    tools = create_code_call_tools(TOOLS, {"notify": heard.append, "direct_calls": {"enabled": True}})
    tools.execute_sync(
        {
            "script": """
              mcpNotify('begun', { at: 1 });
              await callTool('echo', { n: 1 });
              mcpLog('warn', 'half', { left: 2 });
              await callTool('fails', {}).catch(() => 0);
            """
        }
    )
    told = [{key: value for key, value in one.items() if key not in ("callId", "durationMs")} for one in heard]
    assert told[:4] == [
        {"type": "notify", "event": "begun", "payload": {"at": 1}},
        {"type": "tool_call_start", "toolName": "echo", "input": {"n": 1}},
        {"type": "tool_call_end", "toolName": "echo", "status": "ok"},
        {"type": "log", "level": "warn", "message": "half", "metadata": {"left": 2}},
    ]
    assert (told[5]["type"], told[5]["status"]) == ("tool_call_end", "error")
    assert len(heard) == 6
    assert heard[1]["callId"] == heard[2]["callId"] != heard[4]["callId"]
    assert SECRET not in json.dumps(heard)
    heard.clear()
    tools.invoke_sync({"tool": "echo", "input": 1})
    assert [one["type"] for one in heard] == ["tool_call_start", "tool_call_end"]


def test_a_replay_does_not_tell_again():
    heard: list[dict[str, Any]] = []
    settings = {"approval": {"mode": "interrupt"}}
    tools = create_code_call_tools(TOOLS, {"notify": heard.append, "settings": settings})
    script = "mcpNotify('once'); await callTool('echo', 1); return await callTool('asks', 2)"
    interrupt = tools.execute_sync({"script": script})
    before = [(one["type"], one.get("toolName")) for one in heard]
    assert tools.resume_sync(through_json(interrupt), OK)["status"] == "ok"
    every = [(one["type"], one.get("toolName")) for one in heard]
    assert every[: len(before)] == before
    assert sorted(every, key=str) == sorted(
        [
            ("notify", None),
            *((f"tool_call_{at}", name) for at in ("start", "end") for name in ("echo", "asks")),
        ],
        key=str,
    )


def test_one_audit_record_each_and_nothing_of_what_was_said():
    records: list[dict[str, Any]] = []
    settings = {"lifecycle": audit_log(records.append)}
    tools = create_code_call_tools(TOOLS, {"settings": settings, "direct_calls": {"enabled": True}})

    def events(work: Any) -> list[str]:
        records.clear()
        work()
        assert SECRET not in json.dumps(records)
        return [record["event"] for record in records]

    def run(script: str, **more: Any) -> list[str]:
        return events(lambda: tools.execute_sync({"script": f"{script} // {SECRET}", **more}))

    assert events(lambda: tools.search_sync({"query": f"{SECRET} echo"})) == ["search"]
    assert records[0]["results"] == 1
    assert events(lambda: tools.describe_sync({"tools": ["echo", SECRET]})) == ["describe"]
    assert run("return await callTool('echo', 1)") == [
        "execution_started", "call_started", "call_succeeded", "execution_succeeded",
    ]  # fmt: skip
    assert len(records[0]["scriptSha256"]) == 64
    assert run("return await callTool('fails', {})") == [
        "execution_started", "call_started", "call_failed", "execution_failed",
    ]  # fmt: skip
    too_large = "return 1 // " + "\u00e9" * 40_000
    assert run(too_large) == ["execution_started", "execution_failed"]
    whole = f"{too_large} // {SECRET}".encode()
    assert (records[0]["scriptBytes"], records[0]["scriptSha256"]) == (len(whole), sha256(whole).hexdigest())
    assert records[1]["code"] == "CODE_MODE_SOURCE_TOO_LARGE"
    assert "\u00e9" not in json.dumps(records, ensure_ascii=False)
    assert events(lambda: tools.execute_sync({"script": f"return ( // {SECRET}"})) == [
        "execution_started", "execution_failed",
    ]  # fmt: skip
    assert run("return process") == ["execution_started", "static_rule", "execution_failed"]
    assert "self_reference" in run("return await callTool('codecall' + '.search', {})")
    assert "access_denied" in run("return await callTool('ec' + 'ho', {})", allowedTools=[])
    assert "invoke" in events(lambda: tools.invoke_sync({"tool": "echo", "input": SECRET}))
    assert "self_reference" in events(lambda: tools.invoke_sync({"tool": "codecall.x", "input": {}}))


WRONG: dict[str, list[Any]] = {
    "search": [{}, {"query": 5}, {"query": SECRET, SECRET: 1}, SECRET, {"query": "x", "filter": {SECRET: []}}],
    "describe": [{}, {"tools": SECRET}, {"tools": ["echo"], SECRET: 1}, None],
    "execute": [{}, {"script": 5}, {"script": SECRET, SECRET: 1}, [SECRET], {"script": SECRET, "context": SECRET}],
    "invoke": [{}, {"tool": 5}, {"tool": SECRET, SECRET: 1}, None, {"tool": "echo", "input": {"a": object()}}],
}
RECORDS = {
    "search": ["search"],
    "describe": ["describe"],
    "execute": ["execution_started", "execution_failed"],
    "invoke": ["invoke"],
}


@each_row("names", ["dotted", "underscore"])
@each_row("meta, wrong", [(meta, one) for meta, every in WRONG.items() for one in every])
def test_a_wrong_input_has_its_record_and_its_span(meta: str, wrong: Any, names: str):
    records: list[dict[str, Any]] = []
    heard: list[dict[str, Any]] = []
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = {"is_enabled": True, "tracer": provider.get_tracer("test")}
    settings = {"lifecycle": audit_log(records.append), "telemetry": telemetry}
    options = {"settings": settings, "direct_calls": {"enabled": True}, "names": names, "notify": heard.append}
    tools = create_code_call_tools(TOOLS, options)
    with pytest.raises(CodeModeToolError) as caught:
        tools.call_sync(f"codecall.{meta}", wrong, call=CallContext(tool_call_id="call_7"))
    assert caught.value.details["problems"]
    assert [one["event"] for one in records] == RECORDS[meta]
    assert {one["outerToolCallId"] for one in records} == {"call_7"}
    assert records[-1]["code"] == "CODE_MODE_TOOL_ERROR"
    assert len({one["invocationId"] for one in records}) == 1
    (span,) = exporter.get_finished_spans()
    assert span.name == f"execute_tool {format_meta_tool_name(meta, names)}"
    assert span.status.status_code is StatusCode.ERROR
    assert heard == []
    assert SECRET not in f"{json.dumps(records)} {span.to_json()}"


def test_of_a_script_with_a_wrong_input_beside_it_the_record_has_hash_and_length():
    records: list[dict[str, Any]] = []
    tools = create_code_call_tools(TOOLS, {"settings": {"lifecycle": audit_log(records.append)}})
    for script in ("return 1", "return 1 // " + "\u00e9" * 100_000):
        records.clear()
        with pytest.raises(CodeModeToolError):
            tools.execute_sync({"script": script, "allowedTools": 5})
        whole = script.encode()
        assert (records[0]["scriptBytes"], records[0]["scriptSha256"]) == (len(whole), sha256(whole).hexdigest())


def test_a_context_of_the_hosts_that_is_wrong_is_no_call_of_the_models():
    records: list[dict[str, Any]] = []
    tools = create_code_call_tools(TOOLS, {"settings": {"lifecycle": audit_log(records.append)}})
    with pytest.raises(ValueError, match="script_context"):
        tools.execute_sync({"script": "return 1"}, script_context={"a": object()})
    assert records == []


LIMITS = {"max_in_flight_bridge_requests": 2, "in_flight_limit": "fail"}
MANY = {
    "one after another": "await callTool('echo', 1); await callTool('echo', 2); await callTool('a.b', 3)",
    "by a namespace": "await callTool('echo', 1); await callTool('echo', 2); await a.b(3)",
    "thrown again": "try { await callTool('echo', 1); await callTool('echo', 2); await a.b(3) } catch (e) { throw e }",
    "at once": "await Promise.all([callTool('echo', 1), callTool('echo', 2), callTool('a.b', 3)])",
}


@pytest.mark.parametrize("script", MANY.values(), ids=MANY)
def test_a_call_beyond_a_limit_that_ends_the_script_has_a_record(script: str):
    records: list[dict[str, Any]] = []
    settings = {"lifecycle": audit_log(records.append), "execution_policy": LIMITS}
    most = 5 if "Promise.all" in script else 2
    tools = create_code_call_tools(
        [*TOOLS, Tool("a.b", execute=lambda value: value)], {"vm": {"maxSteps": most}, "settings": settings}
    )
    answer = tools.execute_sync({"script": script})
    assert answer["status"] == "runtime_error"
    told = answer["error"]["message"]
    assert ("maxSteps allows (2)" in told) == (most == 2)
    assert "max_bridge_requests" not in json.dumps(answer)
    (refused,) = [one for one in records if one.get("toolName") == "a.b"]
    assert (refused["event"], refused["code"], "callId" in refused) == ("call_failed", "LIMIT", False)
    # What is asked for in the turn in which a script ends is never sent.
    assert [one["event"] for one in records].count("call_started") == (2 if most == 2 else 0)
    assert records[-1]["event"] == "execution_failed"


def test_a_call_whose_input_is_no_json_has_a_record_and_what_is_caught_has_none():
    records: list[dict[str, Any]] = []
    settings = {"lifecycle": audit_log(records.append)}
    tools = create_code_call_tools(TOOLS, {"vm": {"maxSteps": 1}, "settings": settings})
    assert tools.execute_sync({"script": "await callTool('echo', () => 1)"})["status"] == "tool_error"
    assert [(one["event"], one.get("code")) for one in records][1:2] == [("call_failed", "VALIDATION")]
    records.clear()
    script = "await callTool('echo', 1); return await callTool('echo', 2, { throwOnError: false })"
    assert tools.execute_sync({"script": script})["result"]["error"]["code"] == "LIMIT"
    assert "call_failed" not in [one["event"] for one in records]


def test_the_record_of_a_direct_call_that_pauses_says_so():
    records: list[dict[str, Any]] = []
    settings = {"approval": {"mode": "interrupt"}, "lifecycle": audit_log(records.append)}
    asks = Tool("asks", execute=lambda value: value, needs_approval=True)
    tools = create_code_call_tools([asks], {"direct_calls": {"enabled": True}, "settings": settings})
    interrupt = tools.invoke_sync({"tool": "asks", "input": 1})
    assert (records[-1]["event"], records[-1]["paused"]) == ("invoke", True)
    assert tools.resume_sync(interrupt, {"approved": True})["status"] == "ok"
    assert records[-1]["event"] == "invoke"
    assert "paused" not in records[-1]


def test_each_meta_tool_has_a_span():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = {"is_enabled": True, "tracer": provider.get_tracer("test")}
    tools = create_code_call_tools(TOOLS, {"settings": {"telemetry": telemetry}, "direct_calls": {"enabled": True}})

    def spans(work: Any) -> list[str]:
        exporter.clear()
        work()
        return [span.name for span in exporter.get_finished_spans()]

    assert spans(lambda: tools.search_sync({"query": "echo"})) == ["execute_tool codecall.search"]
    assert spans(lambda: tools.describe_sync({"tools": ["echo"]})) == ["execute_tool codecall.describe"]
    script = {"script": "return await callTool('echo', 1)"}
    assert spans(lambda: tools.execute_sync(script)) == ["execute_tool echo", "execute_tool codecall.execute"]
    invoked = spans(lambda: tools.invoke_sync({"tool": "echo", "input": 1}))
    assert invoked == ["execute_tool echo", "execute_tool codecall.invoke"]
    too_large = {"script": " " * 70_000}
    assert spans(lambda: tools.execute_sync(too_large)) == ["execute_tool codecall.execute"]


@pytest.mark.parametrize("names", ["dotted", "colon", "underscore"])
def test_a_span_that_goes_on_is_named_after_what_the_model_called(names: str):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = {"is_enabled": True, "tracer": provider.get_tracer("test")}
    settings = {"telemetry": telemetry, "approval": {"mode": "interrupt"}}
    options = {"settings": settings, "direct_calls": {"enabled": True}, "names": names}

    def last(work: Any) -> str:
        exporter.clear()
        work()
        return exporter.get_finished_spans()[-1].name

    tools = create_code_call_tools(TOOLS, options)
    # A host whose own rules are others restores those with which it began; the name comes with them.
    others = create_code_call_tools(TOOLS, {**options, "vm": {"preset": "balanced"}})
    script = {"script": "return await callTool('asks', 1)"}
    paused: list[Any] = []
    for meta, begin in (
        ("execute", lambda: paused.append(tools.execute_sync(script))),
        ("invoke", lambda: paused.append(tools.invoke_sync({"tool": "asks", "input": 1}))),
    ):
        name = f"execute_tool {format_meta_tool_name(meta, names)}"
        assert last(begin) == name
        interrupt = through_json(paused[-1])
        assert last(partial(others.resume_sync, interrupt, OK)) == name

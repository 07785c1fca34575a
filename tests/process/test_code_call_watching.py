"""Whoever watches CodeCall: notifications, the audit log, spans; and the pipeline around all of its calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from suite import each_row
from waiting import within

from codemode import (
    CallContext,
    CodeModeToolError,
    Interrupt,
    Tool,
    audit_log,
    create_code_call_tools,
    request_interrupt,
)

SECRET = "CANARY-7731"
MADE = "const canary = 'CAN' + 'ARY-7731';"


def fails(_value: Any) -> None:
    raise RuntimeError(f"no route to {SECRET}")


def tells(value: Any) -> None:
    raise CodeModeToolError(f"got {value}", code="CLOSED", details={"got": value})


def pauses(value: Any, context: Any) -> Any:
    return context.interrupt.resolution if context.interrupt else request_interrupt({"kind": "card"})


TOOLS = [
    Tool("shop.echo", execute=lambda value: value),
    Tool("shop.fails", execute=fails),
    Tool("shop.tells", execute=tells),
    Tool("shop.pauses", execute=pauses),
    Tool("shop.other", execute=lambda value: value),
    Tool("shop.typed", execute=lambda value: value, input_schema={"type": "object", "required": ["id"]}),
    Tool("shop.asks", execute=lambda value: value, needs_approval=True),
]
DIRECT = {"enabled": True, "allowed_tools": [tool.name for tool in TOOLS if tool.name != "shop.other"]}


class Watched:
    """A tool set with everything that can be told of it."""

    def __init__(self, **settings: Any) -> None:
        self.messages: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.events: list[Any] = []
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        hooks = ("on_nested_tool_call", "on_nested_tool_result", "on_trace", "on_guest_message", "on_catalog")
        lifecycle = audit_log(self.records.append, lifecycle=dict.fromkeys(hooks, self.events.append))
        telemetry = {"is_enabled": True, "tracer": provider.get_tracer("test")}
        approval = {"mode": "interrupt"}
        self.tools = create_code_call_tools(
            TOOLS,
            {
                "direct_calls": DIRECT,
                "notify": self.messages.append,
                "settings": {"lifecycle": lifecycle, "telemetry": telemetry, "approval": approval, **settings},
            },
        )

    def execute(self, script: str, **more: Any) -> Any:
        return within(
            self.tools.execute({"script": script, **more}, call=CallContext(tool_call_id="outer", context={"user": 7}))
        )

    def invoke(self, tool: str, value: Any) -> Any:
        return within(
            self.tools.invoke(
                {"tool": tool, "input": value}, call=CallContext(tool_call_id="outer", context={"user": 7})
            )
        )

    def resume(self, interrupt: Any, answer: Any) -> Any:
        paused = Interrupt.from_dict(json.loads(json.dumps(interrupt.to_dict())))
        return within(self.tools.resume(paused, answer))

    @property
    def told(self) -> list[str]:
        return [record["event"] for record in self.records]

    def everything(self) -> str:
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        events = [json.dumps(_without_continuation(event.to_dict()), default=str) for event in self.events]
        return "\n".join([json.dumps(self.messages), json.dumps(self.records), *spans, *events])


def _without_continuation(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _without_continuation(value) for key, value in plain.items() if key != "continuation"}
    return [_without_continuation(one) for one in plain] if isinstance(plain, list) else plain


def brief(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    def one(said: dict[str, Any]) -> tuple[Any, ...]:
        if said["type"] == "tool_call_start":
            return "start", said["toolName"], said["input"]
        if said["type"] == "tool_call_end":
            return "end", said["toolName"], said["status"], said.get("error", {}).get("code")
        return said["type"], said.get("event", said.get("message")), said.get("payload", said.get("metadata"))

    return [one(said) for said in messages]


# --- notifications


def test_the_client_hears_calls_and_words_in_order():
    watched = Watched()
    script = """
      mcpLog("info", "begin", {n: 1});
      await callTool("shop.echo", {a: 1});
      mcpNotify("half", [1, 2]);
      const tried = await callTool("shop.fails", {}, {throwOnError: false});
      mcpNotify("done");
      return tried.error.code;
    """
    assert watched.execute(script) == {"status": "ok", "result": "EXECUTION"}
    assert brief(watched.messages) == [
        ("log", "begin", {"n": 1}),
        ("start", "shop.echo", {"a": 1}),
        ("end", "shop.echo", "ok", None),
        ("notify", "half", [1, 2]),
        ("start", "shop.fails", {}),
        ("end", "shop.fails", "error", "EXECUTION"),
        ("notify", "done", None),
    ]
    assert SECRET not in json.dumps(watched.messages)


@pytest.mark.parametrize(
    ("tool", "value", "code"),
    [
        ("shop.echo", {"a": 1}, None),
        ("shop.fails", {}, "EXECUTION"),
        ("shop.tells", {}, "CLOSED"),
        ("shop.typed", {}, "VALIDATION"),
        ("shop.other", {}, "ACCESS_DENIED"),
        ("shop.unknown", {}, "UnknownTool"),
        ("codecall.execute", {}, "SELF_REFERENCE"),
    ],
)
def test_the_client_hears_of_every_direct_call(tool: str, value: Any, code: str | None):
    watched = Watched()
    answer = watched.invoke(tool, value)
    assert answer["status"] == ("ok" if code is None else "tool_error")
    assert answer.get("error", {}).get("code") == code
    (_, name, _), end = brief(watched.messages)
    assert (name, end) == (tool, ("end", tool, "ok" if code is None else "error", code))


@pytest.mark.parametrize("how", ["execute", "invoke"])
def test_a_pause_and_its_resume_tell_of_each_thing_once(how: str):
    watched = Watched()
    if how == "execute":
        script = "mcpNotify('begin'); await callTool('shop.echo', 1); return await callTool('shop.pauses', 2)"
        interrupt = watched.execute(script)
    else:
        interrupt = watched.invoke("shop.pauses", 2)
    before = brief(watched.messages)
    assert watched.resume(interrupt, 5)["result"] == 5
    told = [("notify", "begin", None), ("start", "shop.echo", 1), ("end", "shop.echo", "ok", None)]
    assert before == [*(told if how == "execute" else []), ("start", "shop.pauses", 2)]
    assert brief(watched.messages)[len(before) :] == [("end", "shop.pauses", "ok", None)]


def test_async_notifications_arrive_in_order_and_before_the_answer():
    heard: list[str] = []

    async def notify(event: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(event["event"])

    tools = create_code_call_tools(TOOLS, {"notify": notify, "vm": {"preset": "balanced"}})
    script = "for (let i = 0; i < 20; i++) mcpNotify(String(i)); return 1"
    assert within(tools.execute({"script": script})) == {"status": "ok", "result": 1}
    assert heard == [str(number) for number in range(20)]


# --- the audit log


def test_the_audit_log_of_a_script():
    watched = Watched()
    watched.execute("return await callTool('shop.echo', 1)")
    assert watched.told == ["execution_started", "call_started", "call_succeeded", "execution_succeeded"]


@each_row(
    "script, expected",
    [
        ("return await callTool('shop.fails', {})", ["call_failed", "execution_failed"]),
        ("throw new Error('x')", ["execution_failed"]),
        ("return await new Promise(() => {})", ["execution_failed"]),
        ("for (;;) {}", ["static_rule", "execution_failed"]),
        ("return eval('1')", ["static_rule", "execution_failed"]),
        ("const name = 'shop.other'; return await callTool(name, 1)", ["access_denied", "execution_failed"]),
        ("return await callTool('shop.other', 1)", ["access_denied", "execution_failed"]),
        ("const name = 'codecall.execute'; return await callTool(name, {})", ["self_reference", "execution_failed"]),
        ("return await callTool('codecall:search', {})", ["self_reference", "execution_failed"]),
    ],
)
def test_the_audit_log_of_what_goes_wrong(script: str, expected: list[str]):
    watched = Watched()
    answer = watched.execute(script, allowedTools=["shop.echo", "shop.fails"])
    assert answer["status"] != "ok"
    assert watched.told[0] == "execution_started"
    assert watched.told[-len(expected) :] == expected
    assert [one for one in watched.told if one in ("static_rule", "access_denied", "self_reference")] == [
        one for one in expected if one in ("static_rule", "access_denied", "self_reference")
    ]


def test_the_audit_log_of_a_script_out_of_time():
    watched = Watched()
    tools = create_code_call_tools(
        TOOLS,
        {"vm": {"preset": "balanced", "timeoutMs": 300}, "settings": {"lifecycle": audit_log(watched.records.append)}},
    )
    assert within(tools.execute({"script": "for (;;) {}"}))["status"] == "timeout"
    assert watched.told == ["execution_started", "execution_timed_out"]


def test_the_audit_log_of_the_other_meta_tools():
    watched = Watched()
    within(watched.tools.search({"query": "echo"}))
    within(watched.tools.describe({"tools": ["shop.echo"]}))
    watched.invoke("shop.echo", {"a": 1})
    watched.invoke("shop.other", {"a": 1})
    watched.invoke("shop.unknown", {"a": 1})
    assert watched.told == [
        "search", "describe",
        "call_started", "call_succeeded", "invoke",
        "call_started", "call_failed", "access_denied", "invoke",
        "call_started", "call_failed", "invoke",
    ]  # fmt: skip
    assert watched.records[0]["results"] >= 1
    assert watched.records[1]["results"] == 1
    assert watched.records[4]["toolName"] == "shop.echo"


# --- spans


def test_each_meta_tool_is_a_span():
    watched = Watched()
    within(watched.tools.search({"query": "echo"}))
    within(watched.tools.describe({"tools": ["shop.echo"]}))
    watched.execute("return await callTool('shop.echo', 1)")
    watched.invoke("shop.echo", 1)
    watched.invoke("shop.other", 1)
    spans = watched.exporter.get_finished_spans()
    parents = {span.context.span_id: span.name for span in spans}
    found = [(span.name, span.parent and parents.get(span.parent.span_id)) for span in spans]
    assert found == [
        ("execute_tool codecall.search", None),
        ("execute_tool codecall.describe", None),
        ("execute_tool shop.echo", "execute_tool codecall.execute"),
        ("execute_tool codecall.execute", None),
        ("execute_tool shop.echo", "execute_tool codecall.invoke"),
        ("execute_tool codecall.invoke", None),
        ("execute_tool", "execute_tool codecall.invoke"),
        ("execute_tool codecall.invoke", None),
    ]


# --- the pipeline


@pytest.mark.parametrize("how", ["execute", "invoke"])
def test_hooks_know_who_calls(how: str):
    heard: list[Any] = []
    watched = Watched(pipeline={"before": heard.append, "after": lambda call, _output: heard.append(call)})
    if how == "execute":
        watched.execute("return await callTool('shop.echo', {a: 1})", context={"of": "the model"})
    else:
        watched.invoke("shop.echo", {"a": 1})
    assert {(call.source, call.tool_name, call.tool_call_id) for call in heard} == {
        ("script" if how == "execute" else "invoke", "shop.echo", "outer:tool-1")
    }
    assert [call.context for call in heard] == [{"user": 7}] * 2


@pytest.mark.parametrize("how", ["execute", "invoke"])
def test_a_refusal_of_a_hook_is_the_error_of_the_call(how: str):
    def refuse(call: Any) -> None:
        raise CodeModeToolError("not on a Sunday", code="CLOSED", details={"until": "Monday"})

    watched = Watched(pipeline={"before": refuse})
    script = "return await callTool('shop.echo', {token: 'x'})"
    answer = watched.execute(script) if how == "execute" else watched.invoke("shop.echo", {"token": "x"})
    assert answer["status"] == "tool_error"
    assert (answer["error"]["code"], answer["error"]["message"]) == ("CLOSED", "not on a Sunday")
    assert "toolInput" not in answer["error"]
    assert brief(watched.messages) == [("start", "shop.echo", None), ("end", "shop.echo", "error", "CLOSED")]


def scrub(call: Any) -> Any:
    return {**call.input, "token": "***"} if "token" in call.input else None


@each_row("how", ["execute", "invoke"])
@each_row("tool", ["shop.unknown", *(tool.name for tool in TOOLS if tool.name != "shop.fails")])
def test_what_was_scrubbed_reaches_nobody(how: str, tool: str):
    watched = Watched(pipeline={"before": scrub})
    if how == "execute":
        answer = watched.execute(f"{MADE} return await callTool('{tool}', {{token: canary, deep: [1]}})")
    else:
        answer = watched.invoke(tool, {"token": SECRET, "deep": [1]})
    answers = [answer]
    if isinstance(answer, Interrupt):
        assert answer.input == {"token": "***", "deep": [1]}
        answers.append(watched.resume(answer, {"approved": True} if tool == "shop.asks" else 5))
    for one in answers:
        plain = _without_continuation(one.to_dict()) if isinstance(one, Interrupt) else dict(one)
        assert SECRET not in json.dumps(plain)
    assert SECRET not in watched.everything()


@pytest.mark.parametrize("how", ["execute", "invoke"])
def test_what_a_tool_gives_is_seen_as_it_was_scrubbed(how: str):
    watched = Watched(pipeline={"after": lambda call, output: {**output, "secret": "***"}})
    if how == "execute":
        answer = watched.execute(f"{MADE} return await callTool('shop.echo', {{secret: 1, x: 2}})")
    else:
        answer = watched.invoke("shop.echo", {"secret": 1, "x": 2})
    assert answer == {"status": "ok", "result": {"secret": "***", "x": 2}}
    (result,) = [event for event in watched.events if hasattr(event, "output")]
    assert result.output == {"secret": "***", "x": 2}

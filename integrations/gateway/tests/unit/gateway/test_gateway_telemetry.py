"""Spans, metrics and the trace of a gateway's calls, through the real OpenTelemetry SDK, from client to server."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import Gateway, GatewayConfig, GatewaySettings, ServerConfig
from codemode_gateway.gateway.mcp_server import parse_trace_fields
from codemode_gateway.upstreams import reconnecting
from codemode_gateway.upstreams.connection import RequestDispatcher, Transport
from gateway_clients import ERAS, Era, client_of
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from suite import each_row

from codemode.observe import request_telemetry

BOUND = 60.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
SECRET = "hunter2-hunter2"
PROGRAM = """
import { add, refuse } from "@codemode/servers/sums";
let told = "";
try { await refuse({ what: "SECRET" }); } catch (error) { told = error.message; }
globalThis.__codemode_result__ = [await add({ a: 1, b: 2 }), told];
"""


class Recorded:
    """What is recorded in this process while it is set up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader], shutdown_on_exit=False)
        monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
        monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", meters)
        monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("mcp-python-sdk"))

    def spans(self) -> dict[str, Any]:
        return {one.name: one for one in self.exporter.get_finished_spans()}

    def text(self) -> str:
        return "".join(one.to_json() for one in self.exporter.get_finished_spans()) + self.reader_text()

    def reader_text(self) -> str:
        data = self.reader.get_metrics_data()
        return "" if data is None else data.to_json()

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics]
        return {metric.name: [*metric.data.data_points] for scope in scopes for metric in scope.metrics}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


class Sums:
    """A server that keeps what it was sent: ``add`` adds, ``refuse`` refuses in the words that it was given."""

    def __init__(self) -> None:
        self.metas: list[dict[str, Any]] = []
        self.server = Server("sums", on_list_tools=self._listed, on_call_tool=self._called)
        self.server.middleware.clear()  # it records nothing itself

    async def _listed(self, ctx: Any, params: Any) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True)
        tools = [types.Tool(name=one, input_schema={"type": "object"}, annotations=hints) for one in ("add", "refuse")]
        return types.ListToolsResult(tools=tools)

    async def _called(self, ctx: Any, params: Any) -> types.CallToolResult:
        self.metas.append(dict(ctx.meta or {}))
        said = params.arguments or {}
        if params.name == "refuse":
            raise MCPError(-32010, f"no {said['what']}")
        return types.CallToolResult(content=[], structured_content={"sum": said["a"] + said["b"]})

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (near, far):
            serving = asyncio.create_task(self.server.run(far[0], far[1], self.server.create_initialization_options()))
            try:
                yield near
            finally:
                serving.cancel()
                await asyncio.wait([serving])


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Sums:
    made = Sums()

    def transport_of(*_: Any) -> Transport:
        return Transport(made.streams(), lambda: None, tracks_sending=False)

    monkeypatch.setattr(reconnecting, "create_transport", transport_of)
    return made


def run(folder: Path, era: Era, use: Any, **how: Any) -> None:
    async def main() -> None:
        server = ServerConfig("sums", "stdio", command="none", **how)
        config = GatewayConfig((server,), GatewaySettings(state_folder=folder, secrets=(SECRET,)))
        async with Gateway(config) as gateway, client_of(gateway, era) as client:
            await asyncio.wait_for(use(client, gateway), BOUND)

    asyncio.run(main())


async def called(client: Client, **meta: Any) -> Any:
    code = PROGRAM.replace("SECRET", SECRET)
    result = await client.call_tool("codemode_run", {"code": code}, meta=meta or None)
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
def test_a_call_is_one_trace_from_the_client_to_the_server(
    tmp_path: Path, era: Era, recorded: Recorded, sums: Sums, caplog: pytest.LogCaptureFixture
):
    async def use(client: Client, _: Gateway) -> None:
        said = await called(client)
        assert said["result"] == [{"sum": 3}, "no [secret]"]

    with caplog.at_level(logging.INFO, "codemode.mcp"):
        run(tmp_path, era, use)
    spans = recorded.spans()
    outer, program = spans["tools/call codemode_run"], spans["execute_tool codemode.run"]
    inner, sent = spans["execute_tool sums.add"], spans["MCP send tools/call add"]
    links = [(program, outer), (inner, program), (sent, inner)]
    if era == "legacy":  # the other one says nothing of a trace within a process
        links.append((outer, spans["MCP send tools/call codemode_run"]))
    for below, above in links:
        assert below.parent.span_id == above.context.span_id
        assert below.context.trace_id == outer.context.trace_id
    parent = f"00-{outer.context.trace_id:032x}-{sent.context.span_id:016x}-"
    assert sums.metas[-1]["traceparent"].startswith(parent)
    assert outer.attributes["gen_ai.tool.name"] == "codemode_run"
    assert outer.attributes["code_mode.ended"] == "answered"
    line = next(json.loads(one.getMessage()) for one in caplog.records if one.getMessage().startswith('{"event"'))
    assert line["trace"] == f"{outer.context.trace_id:032x}"
    assert outer.attributes["code_mode.outer_tool_call_id"] == line["id"]


def test_neither_inputs_nor_what_a_server_says_of_them_is_recorded(tmp_path: Path, recorded: Recorded, sums: Sums):
    async def use(client: Client, _: Gateway) -> None:
        await called(client)
        for name in (f"is {SECRET}", SECRET):
            with pytest.raises(MCPError):
                await client.call_tool(name, {})

    run(tmp_path, "legacy", use)
    own = [one for one in recorded.exporter.get_finished_spans() if "MCP send tools/call" not in one.name]
    assert {one.name for one in own} >= {"tools/call", "tools/call codemode_run"}
    refused = recorded.spans()["MCP send tools/call refuse"]
    assert refused.attributes["error.type"] == "-32010"
    assert not refused.status.description
    for one in [*own, refused]:
        assert SECRET not in one.to_json()
    assert SECRET not in recorded.reader_text()
    failed = recorded.spans()["tools/call"]
    assert failed.attributes["error.type"] == "-32602"


def test_calls_of_servers_and_their_starts_are_counted(tmp_path: Path, recorded: Recorded, sums: Sums):
    async def use(client: Client, gateway: Gateway) -> None:
        await called(client)
        await (await gateway.get_or_create_workspace()).connected.upstream("sums").stop()
        await called(client)

    run(tmp_path, "auto", use)
    points = recorded.points()
    calls = points["code_mode.gateway.call.duration"]
    assert [(one.count, dict(one.attributes)) for one in calls] == [
        (2, {"code_mode.ended": "answered", "code_mode.waiting": False})
    ]
    inner = {one.attributes.get("error.type"): one.count for one in points["code_mode.gateway.inner_call.duration"]}
    assert {one.attributes["code_mode.server"] for one in points["code_mode.gateway.inner_call.duration"]} == {"sums"}
    assert inner[None] == 2
    assert sum(inner.values()) == 4
    starts = {one.attributes["code_mode.restart"]: one.value for one in points["code_mode.gateway.server.starts"]}
    assert starts == {False: 1, True: 1}


def test_calls_that_wait_for_people_are_counted_while_they_do(tmp_path: Path, recorded: Recorded, sums: Sums):
    async def use(client: Client, _: Gateway) -> None:
        said = await called(client)
        assert said["diagnostics"][0]["code"] == "WAITING_FOR_APPROVAL"

    run(tmp_path, "legacy", use, approval="always", approval_wait_ms=1)
    points = recorded.points()
    (asked,) = points["code_mode.gateway.approvals.asked"]
    (waiting,) = points["code_mode.gateway.approvals.waiting"]
    assert (asked.value, dict(asked.attributes)) == (1, {"code_mode.way": "store"})
    assert (waiting.value, dict(waiting.attributes)) == (0, {"code_mode.way": "store"})
    (call,) = points["code_mode.gateway.call.duration"]
    assert call.attributes["code_mode.waiting"] is True
    assert recorded.spans()["tools/call codemode_run"].attributes["code_mode.codes"] == ("WAITING_FOR_APPROVAL",)


def test_metrics_are_recorded_where_nobody_records_spans(
    tmp_path: Path, recorded: Recorded, sums: Sums, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)

    async def use(client: Client, _: Gateway) -> None:
        await called(client)

    run(tmp_path, "auto", use)
    assert {"code_mode.invocation.duration", "code_mode.gateway.call.duration"} <= recorded.points().keys()


def test_who_records_nothing_passes_on_the_trace_of_the_client(
    tmp_path: Path, sums: Sums, monkeypatch: pytest.MonkeyPatch
):
    headers: list[Any] = []
    send = RequestDispatcher.send_raw_request

    async def sent(self: RequestDispatcher, method: str, params: Any, opts: Any = None, **more: Any) -> Any:
        if method == "tools/call":
            headers.append({name: opts["headers"][name] for name in ("traceparent", "tracestate")})
        return await send(self, method, params, opts, **more)

    monkeypatch.setattr(RequestDispatcher, "send_raw_request", sent)

    async def use(client: Client, _: Gateway) -> None:
        await called(client, traceparent=PARENT, tracestate="a=b")
        assert [one["traceparent"] for one in sums.metas] == [PARENT] * 2
        assert [one["tracestate"] for one in sums.metas] == ["a=b"] * 2
        assert headers == [{"traceparent": PARENT, "tracestate": "a=b"}] * 2

    run(tmp_path, "legacy", use)


def current_trace() -> str | None:
    parent = request_telemetry.get_propagation_headers().get("traceparent")
    return None if parent is None else parent.split("-")[1]


@pytest.mark.parametrize("headers", [{}, {"traceparent": PARENT}])
def test_a_parent_is_what_the_message_says_else_what_its_request_brings(recorded: Recorded, headers: dict[str, str]):
    said = f"00-{'1' * 32}-{'2' * 16}-01"
    with request_telemetry.request_span("one", {}, request_carrier={"traceparent": said}, transport_carrier=headers):
        assert request_telemetry.get_propagation_headers()["traceparent"].startswith(f"00-{'1' * 32}-")
    with request_telemetry.request_span("two", {}, request_carrier={}, transport_carrier=headers):
        assert (current_trace() == TRACE) == bool(headers)
    with request_telemetry.request_span("around", {}, request_carrier={}, transport_carrier={}):
        around = current_trace()
        with request_telemetry.request_span("three", {}, request_carrier={}, transport_carrier={"traceparent": PARENT}):
            assert current_trace() == around
        with request_telemetry.without_parent_trace():
            assert current_trace() is None


def test_nothing_is_recorded_where_opentelemetry_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_telemetry, "_get_loaded_opentelemetry_module", lambda _name: None)
    with (
        request_telemetry.request_span("x", {}, request_carrier={"traceparent": PARENT}, transport_carrier={}) as span,
        request_telemetry.measure_server_call("x"),
        request_telemetry.count_approvals_while_waiting("store", 1),
        request_telemetry.without_parent_trace(),
    ):
        request_telemetry.record_span_failure(span, "x")
        request_telemetry.record_call_end_and_get_trace_id("x", "x", 1.0, [])
        assert request_telemetry.get_propagation_headers() == {}
        assert current_trace() is None


def test_what_is_being_imported_at_this_moment_records_nothing_yet(monkeypatch: pytest.MonkeyPatch):
    for name in ("trace", "propagate", "metrics", "context"):
        begun = ModuleType(f"opentelemetry.{name}")
        begun.__spec__ = ModuleSpec(begun.__name__, None)
        vars(begun.__spec__)["_initializing"] = True
        monkeypatch.setitem(sys.modules, begun.__name__, begun)
    assert not request_telemetry.is_telemetry_recorded()
    with (
        request_telemetry.request_span("x", {}, request_carrier={}, transport_carrier={}),
        request_telemetry.measure_server_call("x"),
    ):
        assert current_trace() is None


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage", "x"]), st.text() | st.integers()))
@example({"tracestate": " ", "baggage": "a=b "})
def test_what_is_passed_on_of_a_trace_can_stand_in_a_header(said: dict[str, Any]):
    for text in parse_trace_fields({"traceparent": PARENT, **said}).values():
        assert text.isascii()
        assert text.isprintable()
        assert text == text.strip()
    assert parse_trace_fields(said) == {} or "traceparent" in said


@each_row("wrong", [f"{PARENT}\r\nx: y", PARENT.upper(), "t", 7, None, f"{PARENT}-{'a' * 1000}"])
def test_a_parent_of_another_form_is_none(wrong: Any):
    assert parse_trace_fields({"traceparent": wrong, "tracestate": "a=b"}) == {}

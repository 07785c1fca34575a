"""Spans and metrics of real programs, through the real OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import json
import subprocess
import sys

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeOptions,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    create_code_mode_tool,
    run_code_mode,
    run_code_mode_sync,
    tool,
)
from codemode.observe.meta_tools import CatalogQueryRecorder

SECRET = "hunter2"


class Telemetry:
    """A tracer and a meter that keep everything in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.metrics = MeterProvider([self.reader], shutdown_on_exit=False)
        self.meter = self.metrics.get_meter("test")

    def options(self, **more):
        return {"telemetry": {"is_enabled": True, "tracer": self.tracer, "meter": self.meter, **more}}

    def spans(self):
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self):
        data = self.reader.get_metrics_data()
        found = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            found[metric.name] = list(metric.data.data_points)
        return found

    def everything(self):
        return "".join(span.to_json() for span in self.exporter.get_finished_spans()) + str(self.points())


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.metrics.shutdown()


async def echo(value):
    return value


def fail(value):
    raise LookupError("the host's own words")


TOOLS = [Tool("echo", execute=echo), Tool("fail", execute=fail)]


def attributes(span, prefix):
    return {key: value for key, value in span.attributes.items() if key.startswith(prefix)}


def test_a_program_is_a_span_and_so_is_every_call(telemetry):
    code_mode = create_code_mode_tool(
        TOOLS, telemetry.options(function_id="agent.f", metadata={"tenant": "t", "x": [1]})
    )
    js = "await Promise.all([tools.echo({a: 'ü'}), tools.echo([])]); return 'ok'"
    with telemetry.tracer.start_as_current_span("agent") as agent:
        code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id="call_1"))
    outer = telemetry.spans()["execute_tool codeMode"]
    assert outer.parent.span_id == agent.get_span_context().span_id
    assert attributes(outer, "gen_ai.") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "codeMode",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    found = attributes(outer, "code_mode.")
    assert found.pop("code_mode.invocation_id").startswith("code-mode-")
    assert found == {
        "code_mode.outer_tool_call_id": "call_1",
        "code_mode.function_id": "agent.f",
        "code_mode.metadata.tenant": "t",
        "code_mode.source_bytes": len(js.encode()),
        "code_mode.result_bytes": 4,
        "code_mode.bridge_request_count": 2,
        "code_mode.status": "completed",
    }
    nested = [span for span in telemetry.exporter.get_finished_spans() if span.name == "execute_tool echo"]
    assert [span.parent.span_id for span in nested] == [outer.context.span_id] * 2
    assert attributes(nested[0], "gen_ai.")["gen_ai.tool.call.id"] == "call_1:tool-1"
    found = attributes(nested[0], "code_mode.")
    del found["code_mode.invocation_id"]
    assert found == {
        "code_mode.kind": "tool",
        "code_mode.bridge_index": 1,
        "code_mode.replayed": False,
        "code_mode.status": "fulfilled",
        "code_mode.input_bytes": 10,
        "code_mode.output_bytes": 10,
    }
    assert {span.status.status_code for span in (outer, *nested)} == {StatusCode.UNSET}


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_what_a_tool_records_lands_inside_its_span(telemetry, kind):
    gate = []

    async def work(name: str) -> str:
        with telemetry.tracer.start_as_current_span(f"inside {name}"):
            # Both are at work at once: the contexts must not mix.
            gate.append(name)
            while len(gate) < 2:  # noqa: ASYNC110 - bounded by the program's own deadline
                await asyncio.sleep(0)
        return name

    def work_in_a_thread(name: str) -> str:
        with telemetry.tracer.start_as_current_span(f"inside {name}"):
            return name

    made = tool(name="work")(work if kind == "async" else work_in_a_thread)
    code_mode = create_code_mode_tool([made], telemetry.options())
    code_mode.execute_sync({"js": "await Promise.all(['a', 'b'].map((name) => tools.work({name})))"})
    spans = telemetry.exporter.get_finished_spans()
    nested = [span.context.span_id for span in spans if span.name == "execute_tool work"]
    inside = [span.parent.span_id for span in spans if span.name.startswith("inside")]
    assert len(set(inside)) == 2
    assert set(inside) == set(nested)


def test_the_callers_own_span_is_still_current_afterwards(telemetry):
    code_mode = create_code_mode_tool(TOOLS, telemetry.options())

    async def scenario():
        with telemetry.tracer.start_as_current_span("agent") as agent:
            await code_mode.execute({"js": "await tools.echo(1); await tools.echo(2)"})
            assert otel.get_current_span() is agent
        assert otel.get_current_span() is otel.INVALID_SPAN

    asyncio.run(scenario())


def test_hooks_see_the_span_of_a_call_while_it_lasts(telemetry):
    seen = {}
    hooks = ("on_nested_tool_call", "on_nested_tool_result", "on_trace")
    lifecycle = {hook: lambda _, hook=hook: seen.update({hook: otel.get_current_span()}) for hook in hooks}
    code_mode = create_code_mode_tool(TOOLS, {**telemetry.options(), "lifecycle": lifecycle})
    with telemetry.tracer.start_as_current_span("agent") as agent:
        code_mode.execute_sync({"js": "await tools.echo(1)"})
    assert seen["on_nested_tool_call"].name == "execute_tool echo"
    assert seen["on_nested_tool_result"] is seen["on_trace"] is agent


def test_a_tools_failure_is_recorded_in_full(telemetry):
    code_mode = create_code_mode_tool(TOOLS, telemetry.options())
    with pytest.raises(CodeModeToolError):
        code_mode.execute_sync({"js": "await tools.fail(1)"})
    spans = telemetry.spans()
    nested, outer = spans["execute_tool fail"], spans["execute_tool codeMode"]
    for span in (nested, outer):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "LookupError"
        assert span.attributes["code_mode.error.code"] == "CODE_MODE_HOST_TOOL_ERROR"
    (event,) = nested.events
    assert event.attributes["exception.message"] == "the host's own words"
    assert "LookupError" in event.attributes["exception.stacktrace"]
    assert nested.attributes["code_mode.status"] == "rejected"
    assert outer.attributes["code_mode.status"] == "failed"


def test_a_caught_failure_leaves_the_program_unharmed(telemetry):
    create_code_mode_tool(TOOLS, telemetry.options()).execute_sync({"js": "await tools.fail(1).catch(() => 0)"})
    assert telemetry.spans()["execute_tool codeMode"].status.status_code is StatusCode.UNSET


PROGRAMS = [
    f"const s = '{SECRET}'; console.log(s); await tools.echo(s); return s",
    f"await tools.echo('{SECRET}'); throw new Error('{SECRET}')",
    f"const e = new Error('x'); e.name = '{SECRET}'; throw e",
    f"throw '{SECRET}'",
    f"const n = '{SECRET}'; await tools[n]('{SECRET}')",
    f"await tools.strict({{n: '{SECRET}'.slice(0)}})",
    f"const n = '{SECRET}'; return await tools.strict({{[n]: 1, n}})",
    f"await fetch('https://{SECRET}:{SECRET}@{SECRET}.example/{SECRET}?{SECRET}')",
    f"await fetch('https://allowed.example/{SECRET}', {{method: '{SECRET}'}})",
    f"return ({SECRET}",
    f"tools.{SECRET}()",
]


@pytest.mark.parametrize("js", PROGRAMS, ids=range(len(PROGRAMS)))
def test_nothing_that_a_program_wrote_is_recorded(telemetry, js):
    async def strict(n: int) -> int:
        return n

    options = {**telemetry.options(), "fetch_policy": {"allowed_origins": ["https://allowed.example"]}}
    code_mode = create_code_mode_tool([*TOOLS, strict], options)
    with contextlib.suppress(CodeModeError):
        code_mode.execute_sync({"js": js})
    assert telemetry.spans()["execute_tool codeMode"].end_time
    assert SECRET not in telemetry.everything().lower()


def test_sizes_and_host_texts_can_be_left_out(telemetry):
    code_mode = create_code_mode_tool(TOOLS, telemetry.options(record_inputs=False, record_outputs=False))
    code_mode.execute_sync({"js": "await tools.echo(1); await tools.fail(1).catch(() => 0); return 1"})
    assert "bytes" not in telemetry.everything()
    assert "own words" not in telemetry.everything()
    (event,) = telemetry.spans()["execute_tool fail"].events
    assert dict(event.attributes) == {"exception.type": "LookupError"}


def test_a_program_that_is_cut_off_leaves_no_span_open(telemetry, passing_time):
    async def hang():
        passing_time.skip(61)
        await asyncio.Event().wait()

    options = {**telemetry.options(), "execution_policy": {"timeout_ms": 60_000}}
    with pytest.raises(CodeModeTimeoutError):
        create_code_mode_tool([hang], options).execute_sync({"js": "await tools.hang()"})
    spans = telemetry.spans()
    assert spans["execute_tool hang"].attributes["code_mode.status"] == "aborted"
    assert spans["execute_tool hang"].end_time <= spans["execute_tool codeMode"].end_time
    assert spans["execute_tool codeMode"].status.description == "the program did not end within 60000 ms"
    assert telemetry.points()["code_mode.workers.in_use"][0].value == 0


def test_replays_and_interrupts(telemetry):
    @tool(needs_approval=True)
    def refund(order: str) -> str:
        return order

    code_mode = create_code_mode_tool([*TOOLS, refund], {**telemetry.options(), "approval": {"mode": "interrupt"}})
    paused = code_mode.execute_sync({"js": "await tools.echo(1); return await tools.refund({order: 'a'})"})
    first = telemetry.spans()
    assert first["execute_tool refund"].attributes["code_mode.status"] == "interrupted"
    assert first["execute_tool codeMode"].attributes["code_mode.status"] == "interrupted"
    assert first["execute_tool codeMode"].status.status_code is StatusCode.UNSET
    assert [event.name for event in first["execute_tool codeMode"].events] == ["code_mode.interrupt"]
    telemetry.exporter.clear()
    code_mode.resume_sync(paused, {"approved": True})
    second = telemetry.spans()
    assert second["execute_tool echo"].attributes["code_mode.replayed"] is True
    assert second["execute_tool refund"].attributes["code_mode.replayed"] is False
    assert second["execute_tool refund"].attributes["code_mode.status"] == "fulfilled"
    assert telemetry.points()["code_mode.interrupts"][0].value == 1


def test_metrics(telemetry, caplog):
    code_mode = create_code_mode_tool(TOOLS, telemetry.options())
    for js in ("await tools.echo(1)", "await tools.echo(1); await tools.fail(2)", "throw 1"):
        with contextlib.suppress(CodeModeError):
            code_mode.execute_sync({"js": js})
    points = telemetry.points()
    durations = {json.dumps(dict(point.attributes), sort_keys=True): point.count for point in
                 points["code_mode.invocation.duration"]}  # fmt: skip
    assert durations == {
        '{"code_mode.status": "completed"}': 1,
        '{"code_mode.status": "failed", "error.type": "CODE_MODE_ERROR"}': 1,
        '{"code_mode.status": "failed", "error.type": "LookupError"}': 1,
    }
    calls = {point.attributes["code_mode.status"]: point.value for point in points["code_mode.bridge_requests"]}
    assert calls == {"fulfilled": 2, "rejected": 1}
    assert points["code_mode.worker.wait"][0].count == 3
    assert points["code_mode.workers.in_use"][0].value == 0
    assert "code_mode.interrupts" not in points
    assert [record.name for record in caplog.records] == ["codemode.tools"]  # what `fail` raised


def test_a_worker_counts_as_in_use_while_its_program_runs(telemetry):
    seen = []

    def look() -> None:
        seen.extend(point.value for point in telemetry.points()["code_mode.workers.in_use"])

    create_code_mode_tool([look], telemetry.options()).execute_sync({"js": "await tools.look()"})
    assert seen == [1]


def test_a_tracer_that_fails_changes_nothing():
    class Broken:
        def start_span(self, *_args, **_settings):
            raise RuntimeError("exporter")

    reports = []
    options = {
        "telemetry": {"is_enabled": True, "tracer": Broken()},
        "lifecycle": {"on_hook_error": lambda error, info: reports.append(info["hook"])},
    }
    assert create_code_mode_tool(TOOLS, options).execute_sync({"js": "return await tools.echo(1)"}) == 1
    assert set(reports) == {"telemetry"}


def test_without_opentelemetry_enabling_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *given):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"codemode-toolkit\[telemetry\]"):
        create_code_mode_tool(TOOLS, {"telemetry": {"is_enabled": True}})
    with pytest.raises(ValueError, match=r"codemode-toolkit\[telemetry\]"):
        run_code_mode_sync("return 1", TOOLS, options={"telemetry": {"is_enabled": True}})


def test_nothing_is_imported_or_recorded_unless_enabled(telemetry):
    create_code_mode_tool(TOOLS, telemetry.options(is_enabled=False)).execute_sync({"js": "await tools.echo(1)"})
    assert telemetry.exporter.get_finished_spans() == ()
    assert telemetry.reader.get_metrics_data() is None
    script = (
        "import sys, codemode\n"
        "codemode.run_code_mode_sync('return 1', {})\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_meta_tool_is_a_span_and_what_is_done_within_lies_below(telemetry):
    options = CodeModeOptions(**telemetry.options(function_id="f", metadata={"tenant": "t"}))

    async def asks():
        async with CatalogQueryRecorder(options, "codecall.search", "search", SECRET, "call_1"):
            telemetry.tracer.start_span("embed").end()
        with pytest.raises(LookupError):
            async with CatalogQueryRecorder(options, "codecall.describe", "describe", [SECRET]):
                raise LookupError(SECRET)

    with telemetry.tracer.start_as_current_span("agent") as agent:
        asyncio.run(asks())
        assert otel.get_current_span() is agent
    spans = telemetry.spans()
    search, describe = spans["execute_tool codecall.search"], spans["execute_tool codecall.describe"]
    assert {span.parent.span_id for span in (search, describe)} == {agent.get_span_context().span_id}
    assert spans["embed"].parent.span_id == search.context.span_id
    assert attributes(search, "code_mode.") == {"code_mode.function_id": "f", "code_mode.metadata.tenant": "t"}
    assert attributes(search, "gen_ai.")["gen_ai.tool.call.id"] == "call_1"
    assert (search.status.status_code, describe.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert describe.attributes["error.type"] == "LookupError"
    assert SECRET not in "".join(span.to_json() for span in spans.values())


def test_a_meta_tool_without_telemetry_is_no_span(telemetry):
    async def asks():
        async with CatalogQueryRecorder(CodeModeOptions(), "codecall.search", "search", "x"):
            pass

    asyncio.run(asks())
    assert telemetry.spans() == {}


def test_a_call_that_is_told_of_only_at_the_end_leaves_the_callers_span_alone(telemetry, passing_time):
    async def hangs(_call):
        passing_time.skip(61)
        await asyncio.Event().wait()

    async def runs():
        options = {**telemetry.options(), "pipeline": {"before": hangs}, "execution_policy": {"timeout_ms": 60_000}}
        with telemetry.tracer.start_as_current_span("agent") as agent:
            with pytest.raises(CodeModeTimeoutError):
                await run_code_mode("return await tools.echo({})", TOOLS, options=options)
            assert otel.get_current_span() is agent

    asyncio.run(runs())
    spans = telemetry.spans()
    assert spans["execute_tool echo"].parent.span_id == spans["execute_tool codeMode"].context.span_id
    assert spans["execute_tool echo"].attributes["code_mode.input_bytes"] == 0

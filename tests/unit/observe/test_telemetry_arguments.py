"""Arguments and results of calls in spans: by an option of their own, under the names of the GenAI conventions."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from codemode import create_code_mode_tool

# As opentelemetry.semconv._incubating.attributes.gen_ai_attributes has them.
GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result"

JS = """
const s = 'geheim';
await tools['nope' + s](s).catch(() => 0);
await tools.fail(s).catch(() => 0);
return tools.echo({ s });
"""


def echo(s: str) -> dict[str, Any]:
    """Say it again."""
    return {"said": s, "n": 1}


def fail(s: str) -> None:
    """Fail."""
    raise ValueError(s)


def recorded(js: str = JS, **options: Any) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = {"is_enabled": True, "tracer": provider.get_tracer("test"), **options.pop("telemetry", {})}
    create_code_mode_tool([echo, fail], {"telemetry": telemetry, **options}).execute_sync({"js": js})
    return {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}


def test_arguments_and_results_are_recorded_where_that_is_asked_for() -> None:
    spans = recorded(telemetry={"record_arguments": True})
    of_echo = spans["execute_tool echo"]
    assert json.loads(of_echo[GEN_AI_TOOL_CALL_ARGUMENTS]) == {"s": "geheim"}
    assert json.loads(of_echo[GEN_AI_TOOL_CALL_RESULT]) == {"said": "geheim", "n": 1}
    assert GEN_AI_TOOL_CALL_RESULT not in spans["execute_tool fail"]
    # What no tool has, and the program itself, stay out.
    for name in ("execute_tool", "execute_tool codeMode"):
        assert not {GEN_AI_TOOL_CALL_ARGUMENTS, GEN_AI_TOOL_CALL_RESULT} & spans[name].keys(), name


def test_without_the_option_there_are_none() -> None:
    for telemetry in ({}, {"record_arguments": False}, {"record_inputs": True, "record_outputs": True}):
        assert "gen_ai.tool.call.arguments" not in str(recorded(telemetry=telemetry)), telemetry
        assert "gen_ai.tool.call.result" not in str(recorded(telemetry=telemetry)), telemetry


def test_inputs_and_outputs_can_be_left_out_each() -> None:
    spans = recorded(telemetry={"record_arguments": True, "record_inputs": False})
    assert GEN_AI_TOOL_CALL_ARGUMENTS not in spans["execute_tool echo"]
    assert GEN_AI_TOOL_CALL_RESULT in spans["execute_tool echo"]
    spans = recorded(telemetry={"record_arguments": True, "record_outputs": False})
    assert GEN_AI_TOOL_CALL_ARGUMENTS in spans["execute_tool echo"]
    assert GEN_AI_TOOL_CALL_RESULT not in spans["execute_tool echo"]


def test_long_values_are_cut() -> None:
    spans = recorded("return tools.echo({ s: 'x'.repeat(100_000) })", telemetry={"record_arguments": True})
    for name in (GEN_AI_TOOL_CALL_ARGUMENTS, GEN_AI_TOOL_CALL_RESULT):
        assert len(spans["execute_tool echo"][name]) == 8_003, name
        assert spans["execute_tool echo"][name].endswith("x..."), name


def test_what_a_pipeline_lets_through_is_what_is_recorded() -> None:
    def before(call: Any) -> Any:
        return {"s": "hidden"}

    spans = recorded(
        "return tools.echo({ s: 'geheim' })", telemetry={"record_arguments": True}, pipeline={"before": before}
    )
    assert "geheim" not in str(spans)
    assert json.loads(spans["execute_tool echo"][GEN_AI_TOOL_CALL_ARGUMENTS]) == {"s": "hidden"}

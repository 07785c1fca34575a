"""What exec and wait tell of themselves: in results, as metrics, in spans, to hooks and to the log; and what never."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from resting_surface import Slow

from codemode import CallContext, Tool, ToolSource, create_exec_wait_tools, plan_surface

SECRET = "hunter2"
SCOPE = "s"


class Telemetry:
    """A tracer and a meter that keep everything in memory."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.metrics = MeterProvider([self.reader], shutdown_on_exit=False)
        self.options = {
            "is_enabled": True, "tracer": provider.get_tracer("test"), "meter": self.metrics.get_meter("test")
        }  # fmt: skip

    def values(self) -> dict[tuple[str, ...], int]:
        """Each point of the metrics of the pair, by its name and the values of its attributes."""
        data = self.reader.get_metrics_data()
        return {
            (metric.name.removeprefix("code_mode.exec_wait."), *map(str, point.attributes.values())): point.value
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            if metric.name.startswith("code_mode.exec_wait.")
            for point in metric.data.data_points
        }

    def everything(self) -> str:
        spans = "".join(span.to_json() for span in self.exporter.get_finished_spans())
        return spans + str(self.reader.get_metrics_data())


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.metrics.shutdown()


def fail(_value: Any, _context: Any) -> None:
    raise LookupError(f"the tool said {SECRET}")


def sources(*more: Tool) -> list[ToolSource]:
    echo = Tool("echo", execute=lambda value, _: value)
    return [ToolSource([echo, Tool("fail", execute=fail), *more]), ToolSource([echo], source="plugin", owner="p")]


async def run_all(pair: Any) -> list[Any]:
    """A program that looks, calls and yields, with the secret wherever a program can have one; and failures."""
    code = f"""
        // {SECRET}
        await tools.search("{SECRET}"); await tools.search("echo"); await tools.describe("host:core:echo");
        await tools.call("host:core:echo", {{a: "{SECRET}"}}); await tools.call("host:core:echo", 2);
        await tools.call("plugin:p:echo", 3); await tools.fail("{SECRET}").catch(() => 0);
        await tools.call("host:core:{SECRET}", 1).catch(() => 0);
        text("{SECRET}"); console.log("{SECRET}"); await yield_control("{SECRET}");
        return "{SECRET}";"""
    first = await pair.exec.execute({"code": code}, call=CallContext(conversation_id=SCOPE))
    second = await pair.wait.execute({"runId": first["runId"]}, call=CallContext(conversation_id=SCOPE))
    failing = [
        f"throw new Error('{SECRET}')",
        f"{SECRET} {SECRET}",
        f"text('{SECRET}'.repeat(20_000))",
        f"await tools.fail('{SECRET}')",
        f"await yield_control('{SECRET}'); // {'x' * 50_000}",
    ]
    results = [await pair.exec.execute({"code": one}, call=CallContext(conversation_id=SCOPE)) for one in failing]
    refused = await pair.wait.execute({"runId": f"run_{SECRET}"}, call=CallContext(conversation_id=SCOPE))
    return [
        first,
        second,
        *results,
        refused,
        await pair.exec.execute({"code": "1", SECRET: 1}, call=CallContext(conversation_id=SCOPE)),
    ]


OPTIONS = {"maxWarmRuns": 0, "maxSnapshotBytes": 20_000}


def closing(pair: Any, work: Any) -> Any:
    async def main():
        try:
            return await work
        finally:
            await pair.aclose()

    return main()


@pytest.fixture
def told(within: Any, pool: Any, telemetry: Telemetry, caplog: Any, monkeypatch: Any) -> Any:
    """The results of all of that, the pair, and every event of a hook."""
    monkeypatch.setenv("A_SECRET", SECRET)
    events: list[Any] = []
    hooks = {"on_invocation_start": events.append, "on_trace": events.append}
    settings = {"telemetry": telemetry.options, "lifecycle": hooks}
    pair = create_exec_wait_tools(sources(), OPTIONS, settings=settings, pool=pool)
    with caplog.at_level(logging.DEBUG):
        return within(closing(pair, run_all(pair))), pair, events


def test_each_result_tells_of_its_run(told):
    (first, second, *rest), _pair, _events = told
    called = ["host:core:echo", "plugin:p:echo", "host:core:fail"]
    assert first["telemetry"] == {
        "visibleTools": ["exec", "wait"],
        "catalog": {"size": 3, "bySource": {"host": 2, "plugin": 1}},
        "calledTools": called,
        "rests": 1,
        "counts": {"exec": 1, "search": 2, "describe": 1, "call": 4},
    }
    assert second["telemetry"]["counts"] == {
        "exec": 1, "wait": 1, "search": 2, "describe": 1, "call": 4, "wakesCold": 1, "evictions": 1
    }  # fmt: skip
    assert [one["telemetry"].get("cap") for one in rest] == [
        None, None, "output_limit_exceeded", None, "snapshot_limit_exceeded", None, None
    ]  # fmt: skip
    for one in (first, second, *rest):
        assert SECRET not in json.dumps(one["telemetry"])


COUNTED = {
    ("calls", "exec"): 7,
    ("calls", "wait"): 2,
    ("lookups", "search"): 2,
    ("lookups", "describe"): 1,
    ("tool_calls", "host:core:echo"): 2,
    ("tool_calls", "plugin:p:echo"): 1,
    ("tool_calls", "host:core:fail"): 2,
    ("rests",): 1,
    ("wakes", "cold"): 1,
    ("evictions",): 1,
    ("caps", "output_limit_exceeded"): 1,
    ("caps", "snapshot_limit_exceeded"): 1,
}
CLOSED = {
    ("catalog.tools", "host"): 0,
    ("catalog.tools", "plugin"): 0,
    ("visible_tools", "exec"): 0,
    ("visible_tools", "wait"): 0,
}


def test_metrics_are_the_counts_of_the_pair(told, telemetry):
    _results, pair, _events = told
    assert telemetry.values() == COUNTED | CLOSED
    shown = pair.telemetry
    assert {name: shown[name] for name in ("exec", "wait", "search", "describe", "call", "rests", "wakesCold")} == {
        "exec": 7, "wait": 2, "search": 2, "describe": 1, "call": 5, "rests": 1, "wakesCold": 1
    }  # fmt: skip
    assert shown["calledTools"] == ["host:core:echo", "host:core:fail", "plugin:p:echo"]
    assert shown["caps"] == {"output_limit_exceeded": 1, "snapshot_limit_exceeded": 1}


def test_metrics_tell_what_there_is_while_the_pair_is_there(within, pool, telemetry):
    settings = {"telemetry": telemetry.options}
    surface = plan_surface(sources(), True, direct=["ask"], settings=settings, pool=pool)
    there = telemetry.values()
    assert (there["catalog.tools", "host"], there["catalog.tools", "plugin"]) == (2, 1)
    assert [there["visible_tools", name] for name in ("exec", "wait", "ask")] == [1, 1, 1]
    result = within(closing(surface.pair, surface.pair.exec.execute({"code": "return 1"})))
    assert result["telemetry"]["visibleTools"] == ["exec", "wait", "ask"]
    assert telemetry.values()["visible_tools", "ask"] == 0


def test_a_warm_wake_and_an_expiry_are_counted(within, pool, telemetry):
    slow = Slow()
    options = {"maxWarmRuns": 4, "waitTimeoutMs": 100}
    settings = {"telemetry": telemetry.options}
    pair = create_exec_wait_tools([slow.tool], options, settings=settings, pool=pool)

    async def main():
        first = await pair.exec.execute(
            {"code": "await yield_control(); await tools.slow(1)"}, call=CallContext(conversation_id=SCOPE)
        )
        await pair.wait.execute({"runId": first["runId"]}, call=CallContext(conversation_id=SCOPE))
        runs = pair._runner.runs
        (one,) = runs.list_active()
        runs._expire_suspended(one, one.execution)  # as its timer does
        await runs.wait_for_background_work()

    within(closing(pair, main()))
    values = telemetry.values()
    assert (values["wakes", "warm"], values["rests",], values["expiries",]) == (1, 2, 1)


def test_nothing_of_a_program_is_in_spans_metrics_and_debug_lines(told, telemetry, caplog):
    assert SECRET not in telemetry.everything()
    records = caplog.get_records("setup")
    lines = [one for one in records if one.name.startswith("codemode") and one.levelno == logging.DEBUG]
    assert any("host:core:echo" in one.getMessage() for one in lines)
    assert any("rests" in one.getMessage() for one in lines)
    for one in lines:
        assert SECRET not in caplog.handler.format(one)


def test_a_log_does_not_tell_enough_to_go_on_with_a_run(within, pool, caplog):
    pair = create_exec_wait_tools([], pool=pool)
    with caplog.at_level(logging.DEBUG):
        result = within(closing(pair, pair.exec.execute({"code": "await yield_control()"})))
    assert result["runId"] not in caplog.text


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"code": "return 1"}, "javascript"),
        ({"command": "return 1", "language": "javascript"}, "javascript"),
        ({"code": "const a: number = 1; return a", "language": "typescript"}, "typescript"),
        ({"code": "throw 1"}, "javascript"),
    ],
)
def test_the_outer_call_says_what_it_is(within, pool, telemetry, given, kind):
    events: list[Any] = []
    hooks = {"on_invocation_start": events.append, "on_trace": events.append}
    settings = {"telemetry": telemetry.options, "lifecycle": hooks}
    pair = create_exec_wait_tools([], settings=settings, pool=pool)
    within(closing(pair, pair.exec.execute(given)))
    assert [(one.tool_kind, one.tool_input_kind) for one in events] == [("code_mode_exec", kind)] * 2
    for one in events:
        plain = one.to_dict()
        assert (plain["toolKind"], plain["toolInputKind"]) == ("code_mode_exec", kind)
    (span,) = (one for one in telemetry.exporter.get_finished_spans() if one.name == "execute_tool exec")
    assert (span.attributes["toolKind"], span.attributes["toolInputKind"]) == ("code_mode_exec", kind)


def test_codemode_says_nothing_of_it(run, telemetry):
    events: list[Any] = []
    hooks = {"on_invocation_start": events.append, "on_trace": events.append}
    run("return 1", options={"telemetry": telemetry.options, "lifecycle": hooks})
    for one in events:
        assert not {"toolKind", "toolInputKind"} & one.to_dict().keys()
    for span in telemetry.exporter.get_finished_spans():
        assert not {"toolKind", "toolInputKind"} & span.attributes.keys()


def test_many_calls_at_once_are_counted_once_each(within, pool, telemetry):
    settings = {"telemetry": telemetry.options}
    pair = create_exec_wait_tools(sources(), settings=settings, pool=pool)
    code = "await Promise.all([1, 2, 3].map((n) => tools.call('host:core:echo', n))); await yield_control()"

    async def one() -> None:
        first = await pair.exec.execute({"code": code}, call=CallContext(conversation_id=SCOPE))
        await pair.wait.execute({"runId": first["runId"]}, call=CallContext(conversation_id=SCOPE))

    async def main():
        for _ in range(3):
            await asyncio.gather(one(), one())

    within(closing(pair, main()))
    assert telemetry.values()["tool_calls", "host:core:echo"] == 18
    assert pair.telemetry["call"] == 18

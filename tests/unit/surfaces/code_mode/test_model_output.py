"""What the model is shown beside a result, and which run a result is taken to belong to (A156 to A158)."""

from __future__ import annotations

import dataclasses

import pytest
from suite import each_row

from codemode import Interrupt, ModelOutput, PendingRequest
from codemode.surfaces.code_mode.model_output import MAX_RETAINED_RUNS, ModelOutputFormatter
from codemode.types import ConsoleEvent, FetchResultEvent, NestedToolResultEvent, Trace

IDS = {"invocation_id": "i", "outer_tool_call_id": "outer"}
TIMES = {"started_at_ms": 0.0, "completed_at_ms": 1.0, "duration_ms": 1.0, "input_bytes": 2}
SUMMARY = {"include_nested_tool_summary": True}


def call(index=1, name="pay", status="fulfilled", output=None, **more):
    return NestedToolResultEvent(
        **IDS, **TIMES, bridge_index=index, tool_name=name, tool_call_id=f"outer:tool-{index}", input={"secret": 1},
        status=status, output=output, replayed=more.pop("replayed", False), **more,
    )  # fmt: skip


def fetched(url="https://example.com/"):
    return FetchResultEvent(
        **IDS, **TIMES, bridge_index=9, url=url, method="GET", status="fulfilled", replayed=False, http_status=200
    )


def trace(*requests, console=()):
    lines = tuple(ConsoleEvent(**IDS, level="log", text=text) for text in console)
    return Trace(
        **IDS, status="completed", started_at_ms=0, completed_at_ms=1, duration_ms=1, bridge_requests=requests,
        console=lines,
    )  # fmt: skip


def outputs(show=None, **options):
    return ModelOutputFormatter(ModelOutput(**options), lambda name: show)


def shown(result, run, *, show=None, **options):
    """Keep one run and show its result."""
    made = outputs(show, **options)
    made.remember_run("outer", result, run)
    return made.format(result, "outer")


def entry(name="pay", index=1, status="fulfilled", **more):
    return {
        "kind": "tool", "toolName": name, "toolCallId": f"outer:tool-{index}", "status": status, "replayed": False,
        **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("text", {"type": "text", "value": "text"}),
        ({"a": [1]}, {"type": "json", "value": {"a": [1]}}),
        (None, {"type": "json", "value": None}),
        (7, {"type": "json", "value": 7}),
    ],
)
def test_without_options_the_result_is_shown_as_it_is(result, expected):
    assert shown(result, trace(call())) == expected


def test_a_summary_lists_the_calls_without_their_inputs():
    run = trace(call(), call(2, "fail", "rejected"), call(3, replayed=True), fetched())
    result = {"a": 1}
    value = shown(result, run, **SUMMARY)["value"]
    assert value["result"] is result
    assert value["nestedTools"] == [entry(), entry("fail", 2, "rejected"), {**entry(index=3), "replayed": True}]
    assert "secret" not in str(value)
    assert "console" not in value


def test_outputs_and_fetches_come_only_when_asked():
    run = trace(call(output={"id": 1}), call(2, output="t"), call(3, status="rejected"), fetched(), console=["a", "b"])
    options = {"include_nested_tool_outputs": True, "include_fetch_summary": True, "include_console": True}
    assert shown(None, run, **SUMMARY, **options) == {
        "type": "json",
        "value": {
            "result": None,
            "nestedTools": [
                entry(output={"type": "json", "value": {"id": 1}}),
                entry(index=2, output={"type": "text", "value": "t"}),
                entry(index=3, status="rejected"),
                {
                    "kind": "fetch",
                    "method": "GET",
                    "url": "https://example.com/",
                    "status": "fulfilled",
                    "replayed": False,
                },
            ],
            "console": "a\nb",
        },
    }


def test_only_what_was_asked_for_is_there():
    run = trace(call(), fetched(), console=["a"])
    assert shown({}, run, include_console=True)["value"] == {"result": {}, "console": "a"}
    (only,) = shown({}, run, include_fetch_summary=True)["value"]["nestedTools"]
    assert only["kind"] == "fetch"


@each_row(
    "show, expected",
    [
        (lambda output: f"number {output['id']}", {"type": "text", "value": "number 1"}),
        (lambda output: {"type": "text", "value": "own"}, {"type": "text", "value": "own"}),
        (lambda output: {"short": True}, {"type": "json", "value": {"short": True}}),
        (lambda output: 1 / 0, {"type": "text", "value": "(this output cannot be shown)"}),
        (lambda output: object(), {"type": "text", "value": "(this output cannot be shown)"}),
    ],
)
def test_a_tool_may_show_its_output_its_own_way(show, expected):
    run = trace(call(output={"id": 1}))
    (one,) = shown({}, run, show=show, include_nested_tool_outputs=True)["value"]["nestedTools"]
    assert one["output"] == expected


def test_long_summaries_are_cut_and_say_so():
    run = trace(*(call(index) for index in range(1, 41)))
    value = shown({}, run, **SUMMARY)["value"]
    assert (len(value["nestedTools"]), value["nestedToolsLeftOut"]) == (32, 8)
    value = shown({}, run, **SUMMARY, max_summary_entries=-1)["value"]
    assert (value["nestedTools"], value["nestedToolsLeftOut"]) == ([], 40)


def interrupt():
    pending = PendingRequest(interrupt_id="i", tool_name="pay", tool_call_id="t", input={}, payload={"kind": "k"})
    return Interrupt(requests=(pending,), outer_tool_call_id="outer", continuation={})


def test_interrupts_are_not_wrapped():
    paused = interrupt()
    made = outputs(**SUMMARY)
    assert made.format(paused, "outer") == {"type": "json", "value": paused.to_dict()}
    assert made.format(paused.to_dict(), "outer") == {"type": "json", "value": paused.to_dict()}
    posing = {"type": "code-mode-interrupt", "mine": True}
    assert made.format(posing, "outer")["value"]["result"] is posing


# --- which run a result belongs to: never a stale one, never another's


def names(made, result, tool_call_id=None):
    return [one["toolName"] for one in made.format(result, tool_call_id)["value"]["nestedTools"]]


def test_a_result_finds_its_run_by_being_the_same_object():
    made = outputs(**SUMMARY)
    first, second = {"a": 1}, {"a": 1}
    made.remember_run("one", first, trace(call(name="first")))
    made.remember_run("two", second, trace(call(name="second")))
    assert (names(made, first), names(made, second)) == (["first"], ["second"])
    assert names(made, {"a": 1}) == []
    assert names(made, first, "two") == [], "an id does not make another object's run its own"
    assert names(made, {"a": 2}, "two") == []


@each_row("result", [None, True, 7, 10**20, 1.5, "", "x"])
def test_values_that_are_one_object_everywhere_need_the_id(result):
    made = outputs(**SUMMARY)
    made.remember_run("one", result, trace(call(name="first")))
    assert names(made, result) == []
    assert names(made, result, "one") == ["first"]
    assert names(made, result, "two") == []


def test_an_id_that_two_runs_share_binds_to_neither_unless_the_object_tells():
    made = outputs(**SUMMARY)
    made.remember_run("call_1", 7, trace(call(name="first")))
    made.remember_run("call_1", 7, trace(call(name="second")))
    made.remember_run("call_1", 8, trace(call(name="third")))
    assert names(made, 7, "call_1") == []
    assert names(made, 8, "call_1") == ["third"]


def test_one_and_true_are_two_values():
    made = outputs(**SUMMARY)
    made.remember_run("one", 1, trace(call()))
    assert names(made, True, "one") == []
    assert names(made, 1.0, "one") == []


def test_a_result_that_was_changed_since_is_still_its_runs():
    made = outputs(**SUMMARY)
    result = [1]
    made.remember_run("one", result, trace(call(name="first")))
    result.append(2)
    assert names(made, result) == ["first"]
    assert names(made, [1, 2], "other") == []


def test_only_the_newest_runs_are_kept():
    made = outputs(**SUMMARY)
    results = [{"n": n} for n in range(MAX_RETAINED_RUNS + 1)]
    for n, result in enumerate(results):
        made.remember_run(str(n), result, trace(call(name=f"run{n}")))
    assert names(made, results[0]) == []
    assert names(made, results[1]) == ["run1"]


def test_nothing_is_kept_that_will_not_be_shown():
    made = outputs()
    made.remember_run("one", {}, trace(call()))
    assert not made._runs
    made = outputs(**SUMMARY)
    made.remember_run("one", {}, trace(call(output={"large": True})))
    (kept,) = made._runs
    (request,) = kept.trace.bridge_requests
    assert (request.input, request.output) == (None, None)
    assert dataclasses.is_dataclass(kept)

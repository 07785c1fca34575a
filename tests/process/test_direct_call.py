"""One call without a script: it comes to what the script that makes it comes to, also after a pause, and once."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pausing import PAUSING, Spy, through_json
from strict_surface import call_strict, go_on_strict, run_strict
from suite import each_row
from test_strict_codes import NUMBER, OWN, raising
from waiting import within

from codemode import CodeModeAbortedError, CodeModeTimeoutError, Tool, create_code_call_tools
from codemode.execution.direct_call import DirectCall, _format_ecmascript_number
from codemode.protocol.messages import CallRequested

KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}
OK, NO = {"approved": True}, {"approved": False}
LIMITS = {"execution_policy": {"max_tool_input_bytes": 100, "max_result_bytes": 200, "tool_timeout_ms": 60_000}}


async def hang(_value: Any) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def late(passing_time: Any) -> Tool:
    """A tool that has begun when its time is over."""

    async def hang_late(value: Any) -> None:
        passing_time.skip(61)
        await hang(value)

    return Tool("do", execute=hang_late)


def said(outcome: Any) -> Any:
    if outcome.status == "failed":
        # How late a deadline rang is measured, of each run by itself.
        message = re.sub(r"stood still for \d+ ms", "stood still", outcome.error.message)
        return type(outcome.error), outcome.error.code, message, outcome.error.details.get("call")
    return outcome.status, outcome.value


CASES: dict[str, tuple[Any, Any]] = {
    "a value": (Tool("do", execute=lambda value: {"got": value}), {"n": 1}),
    "nothing": (Tool("do", execute=lambda _value: None), {"n": 1}),
    "validated": (Tool("do", execute=lambda value: value, input_schema=NUMBER), {"n": 3.0}),
    "wrong input": (Tool("do", execute=hang, input_schema=NUMBER), {"n": "x"}),
    "wrong output": (Tool("do", execute=lambda _value: 5, output_schema=NUMBER), {}),
    "own error": (raising(OWN), [1]),
    "host error": (raising(OSError("/etc/shadow")), [1]),
    "large input": (Tool("do", execute=hang), "x" * 200),
    "large input in bytes": (Tool("do", execute=hang), "\u00fc" * 80),
    "large output": (Tool("do", execute=lambda _value: "x" * 300), 1),
    "too late": (None, 1),
    "unapproved": (Tool("do", execute=hang, needs_approval=True), 1),
    "unknown": (Tool("other", execute=hang), 1),
}


@each_row("case", CASES)
def test_it_comes_to_what_its_script_comes_to(case, late):
    tool, value = CASES[case]
    tool = tool or late
    name = "do" if tool.name == "other" else tool.name
    call = DirectCall.from_value(name, value)
    as_script = within(run_strict(call.js, [tool], LIMITS, given={"source": "invoke"}))
    assert said(within(call_strict(name, value, [tool], LIMITS))) == said(as_script)


def test_it_takes_no_worker(make_pool):
    pool = make_pool(max_workers=1)
    release, reached = [], asyncio.Event

    async def busy() -> Any:
        at, free = reached(), reached()

        async def hold(_value: Any) -> None:
            at.set()
            await free.wait()

        running = asyncio.ensure_future(run_strict("await callTool('hold')", [Tool("hold", execute=hold)], pool=pool))
        await at.wait()
        outcome = await call_strict("echo", 1, [Tool("echo", execute=lambda value: value)], pool=pool)
        free.set()
        release.append(await running)
        return outcome

    assert within(busy()).value == 1
    assert release[0].status == "completed"


@pytest.mark.parametrize("answer", [OK, NO, {"approved": True, "input": {"n": 5}}])
def test_a_pause_goes_on_as_it_would_have_gone_and_once(answer):
    spy = Spy()
    tools = [spy.tool("pay", lambda value, _: value, needs_approval=True)]
    paused = within(call_strict("pay", {"n": 1}, tools, KEYED))
    assert paused.status == "interrupted"
    assert paused.interrupt.input == {"n": 1}
    interrupt = through_json(paused.interrupt)
    first = within(go_on_strict(interrupt, tools, answer, options=KEYED))
    again = within(go_on_strict(interrupt, tools, answer, options=KEYED))
    assert said(first) == said(again)
    if answer is NO:
        assert first.error.details["call"]["code"] == "No"
        assert spy.ran == []
    else:
        expected = answer.get("input", {"n": 1})
        assert (first.value, spy.ran) == (expected, [("pay", expected)])


def test_nothing_is_cut_of_it_after_a_pause_either():
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    tools = [Tool("deep", execute=lambda _value: deep, needs_approval=True)]
    paused = within(call_strict("deep", 1, tools, KEYED))
    assert within(go_on_strict(paused.interrupt, tools, OK, options=KEYED)).value == deep


def test_a_timeout_leaves_a_way_on(late):
    error = within(call_strict("do", 1, [late], {**KEYED, "execution_policy": {"timeout_ms": 60_000}})).error
    assert type(error) is CodeModeTimeoutError
    assert [(one["name"], one["status"]) for one in error.calls] == [("do", "unknown")]
    assert within(go_on_strict(error.recovery, [late], {"value": 7}, options=KEYED)).value == 7


def test_a_cancelled_call_is_aborted():
    async def cancelled() -> Any:
        reached, aborted = asyncio.Event(), asyncio.Event()

        async def wait(_value: Any, _context: Any) -> None:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                aborted.set()

        task = asyncio.ensure_future(call_strict("wait", 1, [Tool("wait", execute=wait)], KEYED))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__, aborted.is_set()

    cause, was_aborted = within(cancelled())
    assert type(cause) is CodeModeAbortedError
    assert cause.recovery is not None
    assert was_aborted


def test_it_is_told_of_as_any_call():
    heard: list[str] = []
    hooks = {"on_nested_tool_call": lambda event: heard.append(event.tool_name)}
    outcome = within(call_strict("echo", 1, [Tool("echo", execute=lambda value: value)], {"lifecycle": hooks}))
    assert (outcome.value, heard) == (1, ["echo"])
    assert [one.tool_name for one in outcome.trace.bridge_requests] == ["echo"]


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
keys = st.text(max_size=5) | st.sampled_from(["__proto__", "0", "10", "9", "01", "4294967294", "4294967295", "-1", "n"])
inputs = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(inputs, min_size=12, max_size=12))
def test_whatever_is_passed_a_replay_makes_the_same_call(values):
    """The engine's own words for each input are those that were recorded."""
    calls = [DirectCall.from_value("echo", value) for value in values]
    seen: list[Any] = []
    literals = ",".join(
        call.js.removeprefix("return await ").replace('callTool("echo", ', "[", 1)[:-1] + "]" for call in calls
    )
    js = f"for (const [one] of [{literals}]) await callTool('echo', one)"
    options = {"execution_policy": {"max_bridge_requests": 50, "check_program": False}}
    outcome = within(run_strict(js, [Tool("echo", execute=seen.append)], options))
    assert outcome.status == "completed", outcome.error
    for entry, call in zip(outcome.ledger.entries, calls, strict=True):
        assert entry.matches_request(CallRequested(entry.id, "tool", "echo", call.input_json, None))


def one_by_one(value: Any, *, is_literal: bool) -> str:
    """A second reading: each value written for itself."""
    if isinstance(value, dict):
        indices = [key for key in value if re.fullmatch("0|[1-9][0-9]{0,9}", key) and int(key) < 2**32 - 1]
        keys = [*sorted(indices, key=int), *(key for key in value if key not in indices)]
        names = [f"[{json.dumps(key)}]" if is_literal and key == "__proto__" else _text(key) for key in keys]
        texts = [one_by_one(value[key], is_literal=is_literal) for key in keys]
        return "{" + ",".join(f"{name}:{text}" for name, text in zip(names, texts, strict=True)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(one_by_one(one, is_literal=is_literal) for one in value) + "]"
    if type(value) is int and abs(value) > 2**53 and is_literal:
        return f"{value}n"
    return _format_ecmascript_number(value) if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@given(st.lists(inputs, max_size=6) | st.dictionaries(keys, inputs, max_size=6))
def test_what_is_written_at_once_is_written_as_one_by_one(value):
    call = DirectCall.from_value("echo", value)
    assert call.input_json == one_by_one(value, is_literal=False)
    assert call.js == f'return await callTool("echo", {one_by_one(value, is_literal=True)})'


@each_row(
    "value",
    ["x" * 99, "\u00fc" * 50, {"a": [1] * 50}, [{"10": 1, "9": [2.5]}] * 20, "\u6587" * 33 + "\U0001f600"],
    ids=["letters", "bytes", "numbers", "objects", "marks"],
)
@each_row("most", [10, 25, 26, 36, 60, 101, 102, 103, 104, 200])
def test_an_input_over_the_limit_is_refused_as_that_of_a_script(value, most):
    limits = {"execution_policy": {"max_tool_input_bytes": most}}
    seen: list[Any] = []
    code_call = create_code_call_tools(
        [Tool("echo", execute=lambda given: len(seen.append(given) or "1"))],
        {"settings": limits, "direct_calls": {"enabled": True}},
    )
    answer = code_call.invoke_sync({"tool": "echo", "input": value})
    assert answer == code_call.execute_sync({"script": DirectCall.from_value("echo", value).js})
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > most:
        assert (answer["status"], answer["error"]["code"]) == ("tool_error", "VALIDATION")
        units = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-16-le")) // 2
        is_sent = units <= most
        assert answer["error"]["toolInput"] == (value if is_sent else {"bytes": size})
    assert seen == ([] if size > most else [value, value])


@pytest.mark.parametrize("value", [2.0**-24, -(2.0**-44), 6.10987272699921e-151, 0.1, 1e-7])
def test_a_number_that_is_between_two_goes_on_after_a_pause(value):
    """Of some the engine writes a digit more than is needed."""
    tools = [Tool("pay", execute=lambda given: given, needs_approval=True)]
    paused = within(call_strict("pay", {"n": value}, tools, KEYED))
    assert within(go_on_strict(paused.interrupt, tools, OK, options=KEYED)).value == {"n": value}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_stays_what_it_is(value):
    text = DirectCall.from_value("t", value).input_json
    assert text is not None
    assert math.isclose(json.loads(text), value, rel_tol=0) or json.loads(text) == value

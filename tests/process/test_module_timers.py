"""setTimeout and clearTimeout, on a worker with the real kernel and no host."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

ERRORS = [("@codemode/errors", "errors")]
RESULT = "globalThis.__codemode_result__ = "


@each_row("delay, sent",
    [
        ("5", "5"), ("", "0"), ("undefined", "0"), ("null", "0"), ("'7'", "7"), ("1.9", "1"), ("0.5", "0"), ("-5", "0"),
        ("NaN", "0"), ("Infinity", "0"), ("2147483647", "2147483647"), ("2147483648", "0"), ("1e300", "0"),
        ("{ valueOf() { return 9 } }", "9"), ("[3]", "3"), ("'x'", "0"), ("'0x10'", "16"), ("-0", "0"), ("true", "1"),
    ],
)  # fmt: skip
def test_a_timer_is_a_request_of_its_delay(kernel, delay, sent):
    said = kernel.module(f"clearTimeout(setTimeout(() => {{}}{delay and ','}{delay}))")
    assert said.of_kind("C") == [{"id": 1, "kind": "timer", "name": "setTimeout", "input": sent}]
    assert said.of_kind("W") == [{"id": 1}]


@each_row("call", ["()", "('code')", "('code', 1)", "(undefined)", "(null, 1)", "({})", ("(() "
"=> 1, 1n)"), "(() => 1, Symbol('x'))"])  # fmt: skip
def test_what_is_no_timer_is_a_type_error_and_no_request(kernel, call):
    said = kernel.module(f"setTimeout{call}")
    assert (said.error["name"], said.of_kind("C")) == ("TypeError", [])


def test_a_delay_that_throws_throws(kernel):
    said = kernel.module("setTimeout(() => 1, { valueOf() { throw new RangeError('mine') } })")
    assert (said.error["name"], said.of_kind("C")) == ("RangeError", [])


def test_callbacks_get_their_arguments_and_nothing_else(kernel):
    js = """
    const seen = await new Promise((resolve) => {
      setTimeout(function (...args) { resolve([typeof this, args, typeof id]) }, 1, 'a', { b: 1 }, undefined);
      var id = setTimeout(() => {}, 2);
    });
    """
    assert kernel.module(js + RESULT + "seen").value == ["undefined", ["a", {"b": 1}, None], "number"]


def test_an_answer_that_comes_fires_and_its_microtasks_run_before_the_next(kernel):
    js = """
    const log = [];
    for (const n of [1, 2, 3]) setTimeout(() => { log.push(n);
      Promise.resolve().then(() => log.push('after ' + n)) }, 1);
    await new Promise((resolve) => setTimeout(resolve, 2));
    """
    value = kernel.module(js + RESULT + "log").value
    assert value == [1, "after 1", 2, "after 2", 3, "after 3"]


@pytest.mark.parametrize("cleared", ["a", "String(a)", "`${a}`"])
def test_a_cleared_timer_is_withdrawn_once_and_does_not_fire(kernel, cleared):
    js = f"""
    let n = 0; const a = setTimeout(() => {{ n = 1 }}, 1); setTimeout(() => {{ n += 10 }}, 2);
    clearTimeout({cleared}); clearTimeout({cleared}); clearTimeout(a);
    await new Promise((resolve) => setTimeout(resolve, 5)); {RESULT}n;
    """
    said = kernel.module(js)
    assert (said.value, said.of_kind("W")) == (10, [{"id": 1}])


@each_row("id_",
    ["", "undefined", "null", "0", "-1", "99", "NaN", "'x'", "{}", "Symbol('x')", "1n", "[1]", ("{ valueOf() "
    "{ throw 1 } }"), "true", "fired"],
)  # fmt: skip
def test_clearing_what_is_no_timer_does_nothing(kernel, id_):
    js = f"""
    let n = 0, fired; await new Promise((resolve) => {{ fired = setTimeout(resolve, 1) }});
    const a = setTimeout(() => {{ n = 1 }}, 1);
    clearTimeout({id_}); await new Promise((resolve) => setTimeout(resolve, 2)); {RESULT}n;
    """
    said = kernel.module(js)
    assert (said.value, said.of_kind("W")) == (1, [])


def test_a_callback_may_clear_itself_and_others(kernel):
    js = """
    const log = []; const a = setTimeout(() => { clearTimeout(a); clearTimeout(b); log.push('a') }, 1);
    const b = setTimeout(() => log.push('b'), 2); await new Promise((resolve) => setTimeout(resolve, 3));
    """
    said = kernel.module(js + RESULT + "log")
    assert (said.value, said.of_kind("W")) == (["a"], [{"id": 2}])


@pytest.mark.parametrize(
    ("thrown", "name"),
    [("new RangeError('late')", "RangeError"), ("'text'", "Error"), ("undefined", "Error"), (("new "
    "errors.ToolCallError('late')"), "ToolCallError")],
)  # fmt: skip
def test_what_a_callback_throws_ends_the_program(kernel, thrown, name):
    js = f"{RESULT}1; setTimeout(() => {{ throw {thrown} }}, 1); try {{ await new Promise(() => {{}}) }} catch {{}}"
    error = kernel.module(js, imports=ERRORS).error
    assert error["name"] == name
    assert error.get("class") == (name if name == "ToolCallError" else None)


def test_the_place_of_an_error_in_a_callback_is_the_programs(kernel):
    error = kernel.module("setTimeout(() => {\n  nothing() }, 1); await new Promise(() => {})").error
    assert error["stack"] == "    at <anonymous> (program.js:2:3)"


def test_memory_that_runs_out_in_a_callback_ends_the_program(kernel):
    js = "setTimeout(() => { const a = []; for (;;) a.push(new Array(1000).fill(1)) }, 1); await new Promise(() => {})"
    assert "out of memory" in kernel.module(js, memory_limit_bytes=8 << 20).error["message"]


def test_timers_that_have_not_fired_are_dropped_without_a_word(kernel):
    said = kernel.module("for (let i = 0; i < 50; i++) setTimeout(() => { throw 1 }, i);" + RESULT + "1")
    assert (said.value, said.body["unobserved"]) == (1, [])


def test_timers_are_no_calls(kernel):
    js = "for (let i = 0; i < 50; i++) setTimeout(() => {}, 1); await new Promise((resolve) => setTimeout(resolve, 2));"
    said = kernel.module(js + RESULT + "1", max_bridge_requests=0, max_in_flight_bridge_requests=0)
    assert said.value == 1
    assert {turn["in_flight"] for turn in said.of_kind("T")} == {0}


@pytest.mark.parametrize("more", ["", "clearTimeout(id);"])
def test_there_are_a_thousand_timers_and_no_more(kernel, more):
    js = f"""
    let error;
    for (let i = 0; i < 1001; i++)
      try {{ const id = setTimeout(() => {{}}, 1); {more} }} catch (caught) {{ error = caught }}
    """
    said = kernel.module(js + RESULT + "[error instanceof errors.SandboxLimitError, error]", imports=ERRORS)
    is_one, error = said.value
    assert (is_one, error["limit"], len(said.of_kind("C"))) == (True, "max_timers", 1000)
    uncaught = kernel.module("for (;;) setTimeout(() => {})", imports=ERRORS).error
    assert (uncaught["limit"], uncaught["class"]) == ("max_timers", "SandboxLimitError")


def test_timers_set_while_a_delay_is_read_are_counted_in_their_order(kernel):
    js = """
    let inner; const outer = setTimeout(() => {}, { valueOf() { inner = setTimeout(() => {}, 3); return 4 } });
    """
    said = kernel.module(js + RESULT + "[inner, outer]")
    assert said.value == [1, 2]
    assert [call["input"] for call in said.of_kind("C")] == ["3", "4"]


@settings(max_examples=rounds(15, 30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(delays=st.lists(st.integers(0, 60_000), min_size=1, max_size=8), reads=st.integers(0, 5))
def test_the_clock_is_never_behind_a_timer_that_has_fired(kernel, delays, reads):
    js = f"""
    const late = [];
    const after = (ms) => {{
      const begun = Date.now();
      for (let i = 0; i < {reads}; i++) Date.now();
      return new Promise((resolve) => setTimeout(() => {{ late.push(Date.now() - begun >= ms); resolve() }}, ms));
    }};
    await Promise.all({delays}.map(after)); for (const ms of {delays}) await after(ms);
    {RESULT}late;
    """
    assert kernel.module(js).value == [True] * (2 * len(delays))

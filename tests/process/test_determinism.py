"""The guest's clock and random numbers: deterministic in a run, different between runs (A129 to A133)."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from suite import each_row

from codemode import CodeModeError, Tool

TICK = Tool("tick", execute=lambda: None)


def test_random_numbers_are_spread_over_the_unit_interval(run):
    values = run("return Array.from({length: 20000}, () => Math.random())", max_result_bytes=2 << 20)
    assert all(0 <= value < 1 for value in values)
    buckets = [0] * 20
    for value in values:
        buckets[int(value * 20)] += 1
    # Expected 1000 each; nine standard deviations.
    assert all(abs(count - 1000) < 280 for count in buckets)
    assert len(set(values)) == len(values)
    pairs = sum((a - 0.5) * (b - 0.5) for a, b in pairwise(values)) / len(values)
    assert abs(pairs) < 0.006


def test_low_bits_of_random_numbers_are_random_too(run):
    low = run("return Array.from({length: 4000}, () => Math.floor(Math.random() * 2 ** 53) % 8)")
    assert all(380 < low.count(n) < 620 for n in range(8))


def test_two_runs_differ(run):
    js = "return [Math.random(), Math.random()]"
    runs = [tuple(run(js)) for _ in range(5)]
    assert len(set(runs)) == 5


def test_the_clock_starts_at_the_hosts_time_and_advances_with_each_read(run):
    before = time.time() * 1000
    first, second, third = run("return [Date.now(), +new Date(), Date.now()]")
    after = time.time() * 1000
    assert before - 1 <= first <= after + 1
    assert (second, third) == (first + 1, first + 2)


def test_the_clock_stands_still_while_the_program_computes(run):
    assert run("const a = Date.now(); for (let i = 0; i < 3e6; i++); return Date.now() - a") == 1


def test_the_clock_follows_the_host_at_each_answer(run):
    def wait():
        time.sleep(0.06)

    js = "const a = Date.now(); await tools.wait(); const b = Date.now(); return [b - a, b]"
    started = time.time_ns() // 1_000_000
    elapsed, now = run(js, [Tool("wait", execute=wait)])
    ended = time.time_ns() // 1_000_000
    assert 55 <= elapsed <= ended - started
    assert started <= now <= ended


def test_the_clock_is_the_same_for_branches_after_one_answer(run):
    js = """
      const p = tools.tick();
      const [a, b] = await Promise.all([p.then(() => Date.now()), p.then(() => Date.now())]);
      return b - a;
    """
    assert run(js, [TICK]) == 1


@each_row(
    "js, value",
    [
        ("typeof Date()", "string"),
        ("new Date(5).getTime()", 5),
        ("new Date(2020, 1, 3).toISOString()", "2020-02-03T00:00:00.000Z"),
        ("new Date('2020-02-03T00:00:00Z').getTime()", 1580688000000),
        ("Date.UTC(2020, 1, 3)", 1580688000000),
        ("Date.parse('2020-02-03')", 1580688000000),
        ("new Date(new Date(7)).getTime()", 7),
        ("new Date(NaN).getTime()", None),
        ("new Date(undefined).getTime()", None),
        ("new Date().constructor === Date", True),
        ("Date.prototype.constructor === Date", True),
        ("new Date() instanceof Date", True),
        ("Object.prototype.toString.call(new Date())", "[object Date]"),
        ("Date.name + Date.length", "Date7"),
        ("new (class D extends Date { x() { return this.getTime() } })(9).x()", 9),
        ("new Date(0).getTimezoneOffset()", 0),
        ("new Date(0).toString()", "Thu Jan 01 1970 00:00:00 GMT+0000"),
        ("Reflect.construct(Date, [3]).getTime()", 3),
        ("Reflect.construct(Date, [], Object) instanceof Date", False),
        ("new Date(2000, 0).getTime() === Date.UTC(2000, 0)", True),
    ],
)
def test_every_other_form_of_date_is_ordinary(run, js, value):
    result = run(f"return {js}")
    assert (result[: len(value)] if isinstance(value, str) else result) == value


def test_date_as_a_function_tells_the_programs_clock(run):
    text, parsed, now = run("const text = Date(); return [text, Date.parse(text), Date.now()]")
    assert re.match(r"\w{3} \w{3} \d\d \d{4} \d\d:\d\d:\d\d GMT\+0000", text)
    assert 0 <= now - parsed <= 1001


@each_row("name",
    ["crypto", "performance", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics", "setTimeout",
     "setInterval", "structuredClone", "process",
     "require", "module", "fetch", "URL", "TextEncoder", "Buffer", "Intl", "eval",
     "print", "std", "os", "scriptArgs", "navigator", "Worker", "Temporal"],
)  # fmt: skip
def test_what_would_tell_the_time_or_the_machine_is_absent(run, name):
    assert run(f"return typeof {name}") == "undefined"


@pytest.mark.parametrize("js", ["Math.random = () => 1", "Date.now = () => 1", "Date = 1", "Math = {}"])
def test_the_sources_of_time_and_chance_cannot_be_replaced(fails, js):
    assert fails(CodeModeError, f"'use strict'; {js}").details["name"] == "TypeError"

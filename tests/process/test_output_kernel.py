"""What the kernel does with items of output, yields, and the end of a program whose calls are in flight."""

from __future__ import annotations

import json
from typing import Any

import pytest
from suite import each_row

from codemode.protocol.guest_output import MAX_YIELDS

GLOBALS = ["tools", "console", "text", "json", "yield_control", "setTimeout", "clearTimeout"]
FACE: dict[str, Any] = {"wrapper": "sloppy", "globals": GLOBALS, "drains": True, "max_output_bytes": 1000}
TOO_MUCH = ',"limit":"max_output_bytes"'


@pytest.fixture
def run(kernel):
    def run_program(js: str, answer: Any = None, **config: Any) -> Any:
        given = {} if answer is None else {"answer": answer}
        return kernel.run(js, **given, **{**FACE, **config})

    return run_program


def items(said: Any) -> list[tuple[str, str]]:
    return [(one["kind"], one["text"]) for one in said.of_kind("O")]


def test_items_come_in_their_order_with_lines_of_the_console_between(run):
    said = run("text('a'); console.log('line'); json({b: [1]}); text({c: 1}); return 2")
    assert [(kind, body["text"]) for kind, body in said.frames if kind in "OL"] == [
        ("O", "a"), ("L", "line"), ("O", '{"b":[1]}'), ("O", '{"c":1}')
    ]  # fmt: skip
    assert items(said) == [("text", "a"), ("json", '{"b":[1]}'), ("text", '{"c":1}')]
    assert said.value == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("undefined", "undefined"),
        ("null", "null"),
        ("12n", "12"),
        ("Symbol('s')", "Symbol()"),
        ("[1,'a',null]", '[1,"a",null]'),
        ("new TypeError('bad')", "TypeError: bad"),
        ("{toJSON() { return {b: 2n ** 60n} }}", '{"b":1152921504606846976}'),
    ],
)
def test_text_makes_text_of_anything(run, value, text):
    assert items(run(f"text({value})")) == [("text", text)]


@pytest.mark.parametrize("value", ["undefined", "() => 1", "Symbol()", "{toJSON() {}}"])
def test_json_takes_json_alone(run, value):
    said = run(f"try {{ json({value}) }} catch (error) {{ return error.name }}")
    assert (said.value, items(said)) == ("TypeError", [])


def test_a_cycle_is_no_item(run):
    said = run("const a = {}; a.a = a; for (const write of [text, json]) try { write(a) } catch { text('no') }")
    assert items(said) == [("text", "no"), ("text", "no")]


@each_row(
    "js",
    [
        "for (;;) text('x'.repeat(100))",
        "for (let i = 0; i < 1e5; i++) try { text('x'.repeat(100)) } catch {}",
        "for (let i = 0; i < 1e5; i++) try { json('x'.repeat(100)) } catch {}",
        "for (let i = 0; i < 1e5; i++) try { console.log('x'.repeat(100)) } catch {}",
        "for (let i = 0; i < 1e5; i++) try { text('') } catch {}",
        "text('x'.repeat(600)); return 'y'.repeat(600)",
        "return 'y'.repeat(1001)",
        "text('\u20ac'.repeat(334))",
        "try { text('x'.repeat(1001)) } finally { await new Promise(() => {}) }",
        "try { text('x'.repeat(1001)) } catch { throw new Error('mine') }",
        "try { await tools.echo(1); text('x'.repeat(1001)) } catch { return 'caught' } finally { return 'caught' }",
        "tools.echo(1).then(() => text('x'.repeat(1001))); return 1",
        "Promise.resolve().then(() => { text('x'.repeat(990)) }); return 'fifteen bytes..'",
        "text({toJSON() { try { text('x'.repeat(1001)) } catch {} return 1 }})",
    ],
)
def test_too_much_output_ends_the_program_and_cannot_be_caught(run, js):
    said = run(js)
    assert said.error["limit"] == "max_output_bytes"
    assert sum(len(text) for _, text in items(said)) <= 1000


def test_as_much_as_there_may_be_is_not_too_much(run):
    said = run("text('x'.repeat(400)); json('y'.repeat(98)); console.log('z'.repeat(99)); return 'w'.repeat(398)")
    assert said.value == "w" * 398


def test_a_program_that_has_returned_lives_until_its_calls_have_their_answers(run):
    said = run("tools.a(1).then((one) => tools.b(one + 1)).then((two) => text(two)); text('end'); return 'value'")
    assert (said.value, items(said)) == ("value", [("text", "end"), ("text", "2")])
    assert said.body["unobserved"] == []


def test_timers_and_yields_hold_no_program_that_has_returned(run):
    said = run("setTimeout(() => text('late'), 5); yield_control(); return 1")
    assert (said.value, items(said)) == (1, [])


def test_a_call_that_fails_unseen_does_not_fail_a_program_that_has_returned(run):
    error = {"error": {"name": "CodeModeToolError", "message": "no", "code": "C"}}
    said = run("tools.a(1); return 1", answer=lambda _: error)
    assert said.value == 1


def test_what_is_thrown_ends_a_program_whatever_is_in_flight(run):
    assert run("tools.a(1); throw new Error('mine')").error["message"] == "mine"


def test_a_yield_is_a_request_without_a_value_that_counts_as_no_call(run):
    asked = []

    def answer(request):
        asked.append((request["kind"], request["name"], request.get("input")))
        return {}

    js = "return [await yield_control(), await yield_control('look'), await yield_control({a: 1})]"
    said = run(js, answer=answer, max_bridge_requests=0, max_in_flight_bridge_requests=0)
    assert said.value == [None, None, None]
    assert asked == [
        ("yield", "yield_control", None),
        ("yield", "yield_control", '"look"'),
        ("yield", "yield_control", '"[object Object]"'),
    ]


def test_a_program_yields_so_often_and_no_more(run):
    said = run(f"for (let i = 0; i < {MAX_YIELDS}; i++) await yield_control(); await yield_control()")
    assert said.error["limit"] == "max_yields"
    caught = f"for (let i = 0; i < {MAX_YIELDS}; i++) await yield_control(); return yield_control().catch(() => 'no')"
    assert run(caught).value == "no"


def test_too_many_timers_are_refused_in_the_words_of_a_script(run):
    said = run("for (let i = 0; i < 1001; i++) setTimeout(() => {}, 5)")
    assert (said.error["limit"], said.error["name"]) == ("max_timers", "CodeModeBridgeLimitError")


def test_nothing_is_written_once_the_program_has_ended(run):
    said = run("setTimeout(() => text('late'), 1); tools.a(1).then(() => { throw new Error() }); return 1")
    assert (json.loads(said.body["value"]), items(said)) == (1, [])

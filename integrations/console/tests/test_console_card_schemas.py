"""Schemas and inputs of strangers on real pages: any value comes back as it was, and nothing hostile holds it up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from card_pages import CardDesk, CardForm, call, keeping
from codemode_console import decisions
from console_visitors import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from suite import each_row, full_only, rounds
from test_console_forms_round import Pair, exact, pairs

_kept: list[Any] = []  # one paused record, shown by each example as it likes


class Shown:
    """A desk on whose page one request has any schema and input; what is decided about it is kept."""

    def __init__(self, desk: CardDesk, record: Any, **asked: Any) -> None:
        (one,) = record.requests
        self.one = replace(one, **asked)
        self.record, self.decided = replace(record, requests=(self.one,)), list[Any]()
        store: Any = desk.store

        async def load_visible_record(*_: Any, **__: Any) -> Any:
            return self.record

        async def decide(decisions: Any, *, actor: str, **_: Any) -> Any:
            ((name, said),) = decisions.items()
            self.decided.append(said)
            return {name: replace(self.one, state="decided", actor=actor)}

        store.record, store.decide = load_visible_record, decide

    @property
    def path(self) -> str:
        return f"/records/{self.record.id}"


async def shown(**asked: Any) -> tuple[CardDesk, Shown]:
    desk = CardDesk([keeping({"type": "object"}, [])])
    if not _kept:
        _kept.append(await desk.store.record(await desk.pause(call({})), tenant="acme"))
    return desk, Shown(desk, _kept[0], **asked)


@settings(max_examples=rounds(6, 30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs, pairs)
def test_any_value_goes_through_the_page_as_it_is(pair: Pair, other: Pair) -> None:
    async def work() -> None:
        (schema, value), (_, typed) = pair, other
        desk, seen = await shown(input_schema=schema, input=value)
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text)
            for label in ("Approve", "Approve with changes"):
                answer = await form.press(ana, label)
                assert answer.status_code == 303, answer.text
                assert seen.decided.pop() == {"approved": True}
            again = CardForm((await form.press(ana, "Show changes")).text)
            assert (await again.press(ana, "Approve")).status_code == 303
            assert seen.decided.pop() == {"approved": True}
            seen.one = replace(seen.one, input_schema={})
            seen.record = replace(seen.record, requests=(seen.one,))
            form = CardForm((await ana.get(seen.path)).text).fill("json", json.dumps(typed))
            answer = await form.press(ana, "Approve with changes")
            assert answer.status_code == 303, answer.text
            assert exact(seen.decided.pop().get("input", value)) == exact(typed) or _is_same(typed, value)

    run(work)


def _is_same(one: Any, other: Any) -> bool:
    from codemode.interrupts.interrupt import is_same_json

    return is_same_json(one, other)


@settings(max_examples=rounds(6, 30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs, st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3), st.data())
def test_whatever_is_sent_is_answered(pair: Pair, more: list[tuple[str, str]], data: st.DataObject) -> None:
    async def work() -> None:
        schema, value = pair
        desk, seen = await shown(input_schema=schema, input=value)
        words = st.one_of(st.text(max_size=9), st.sampled_from(["set", "absent", "null", "set text -", "1", "{", ""]))
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text)
            safe = {"form_token", "version", "shown"}
            items = [
                (name, text if name in safe else data.draw(st.one_of(st.just(text), words)))
                for name, text in form.items()
            ]
            said = data.draw(st.sampled_from(["approve", "edit", "deny", "preview"]))
            answer = await _send(ana, form, [*items, *more, ("decision", said)])
            assert answer.status_code in (200, 303, 400, 422), answer.text
            if said in ("approve", "deny") and seen.decided:
                assert "input" not in seen.decided[0]

    run(work)


async def _send(browser: Any, form: CardForm, items: list[tuple[str, str]]) -> Any:
    from urllib.parse import urlencode

    kind = {"content-type": "application/x-www-form-urlencoded"}
    return await browser.post(form.action, content=urlencode(items), headers=kind)


def _deep(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


LONG = "a" * 20_000 + "!"
TREE = {"$ref": "#/$defs/t"}
HOSTILE: dict[str, tuple[Any, Any]] = {
    "pattern": ({"type": "string", "pattern": "^(a+)+$"}, LONG),
    "pattern of a name": ({"type": "object", "patternProperties": {"^(a|a)*$": {"type": "integer"}}}, {LONG: 1}),
    "patterns of alternatives": ({"anyOf": [{"type": "string", "pattern": f"^(a+)+{n}$"} for n in range(150)]}, LONG),
    "remote": ({"$ref": "http://127.0.0.1:9/schema.json"}, {"a": 1}),
    "file": ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, {"a": 1}),
    "remote dialect": ({"$schema": "http://127.0.0.1:9/meta", "type": "object"}, {}),
    "circle": ({"$ref": "#"}, {"a": 1}),
    "circles": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
    "tree": ({"$defs": {"t": {"properties": {"l": TREE, "r": TREE}}}, "$ref": "#/$defs/t"}, {"l": {"r": {}}}),
    "deep": (_deep(90), {}),
    "wide": ({"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}, {f"p{n}": "" for n in range(5_000)}),
    "many choices": ({"enum": list(range(20_000))}, 7),
    "exponential": (
        {
            "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(8)} | {"d8": False},
            "$ref": "#/$defs/d0",
        },
        1,
    ),
    "unique": ({"type": "array", "uniqueItems": True}, [{"a": n} for n in range(3_000)]),
    "long number": ({"type": "number", "multipleOf": 1e-300}, 10**300),
    "a text": ("javascript:alert(1)", {}),
    "a list": ([{"type": "object"}], {}),
    "nothing fits": (False, {}),
    "wrong": ({"type": 7, "properties": [], "required": {}, "enum": 1, "anyOf": {}}, {"a": 1}),
}  # fmt: skip


def some_of(names: Iterable[str], first: int) -> list[Any]:
    """Return every third name, from this one on, for the default suite, and the others for the full one."""
    own = [*names]
    return [*own[first::3], *full_only(*(name for at, name in enumerate(own) if at % 3 != first))]


@pytest.mark.parametrize("name", some_of(HOSTILE, 0))
def test_a_hostile_schema_neither_hides_its_request_nor_keeps_the_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    for function in ("create_form", "read_form"):
        real = getattr(decisions, function)

        def noting(*args: Any, _real: Any = real) -> Any:
            threads.add(threading.get_ident())
            return _real(*args)

        monkeypatch.setattr(decisions, function, noting)

    async def work() -> None:
        schema, value = HOSTILE[name]
        desk, seen = await shown(input_schema=schema, input=value)
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text)
            assert (await form.press(ana, "Show changes")).status_code in (200, 422)
            assert (await form.press(ana, "Deny")).status_code == 303
        assert threads
        assert threading.get_ident() not in threads

    run(work)


@each_row("name", some_of(HOSTILE, 1))
def test_a_hostile_schema_of_a_question_is_answered(name: str) -> None:
    async def work() -> None:
        schema, value = HOSTILE[name]
        desk, seen = await shown(kind="ask", payload={"kind": "ask", "schema": schema}, input=None)
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text)
            if "json" not in {one.get("name") for one in form.controls}:
                return
            answer = await form.fill("json", json.dumps(value)).press(ana, "Answer")
            assert answer.status_code in (303, 422), answer.text

    run(work)


def test_what_strangers_write_is_text_in_every_place_of_a_card() -> None:
    bad = "<script>alert(1)</script>\u202e'\"><img src=x onerror=alert(1)>javascript:alert(1)"
    schema = {
        "title": bad,
        "description": bad,
        "properties": {bad: {"title": bad, "description": bad, "enum": [bad, "b"]}},
    }

    async def work() -> None:
        for asked in (
            {"input_schema": schema, "input": {bad: bad}},
            {"kind": bad, "payload": {"kind": bad, "question": bad, "schema": schema}, "input": bad},
            {"input": bad, "state": "decided", "decision": {"approved": True, "input": [bad], "reason": bad}},
            {"input": {bad: bad}, "state": "superseded"},
        ):
            common = {"tool_name": bad, "description": bad, "annotations": {bad: bad}, "refusal": bad, "actor": bad}
            desk, seen = await shown(**common, **asked)
            seen.record = replace(seen.record, labels={bad: bad}, app=bad, outer_tool=bad)
            async with desk.browser() as ana:
                pages = [(await ana.get(seen.path)).text]
                if seen.one.state == "waiting":
                    form = CardForm(pages[0])
                    pages += [(await form.press(ana, form.buttons[0][0])).text]
            for page in pages:
                assert "<script>alert" not in page
                assert "<img" not in page
                assert "\u202e" not in page
                assert "\\u202e" in page
                assert page.count(" autofocus") <= 1

    run(work)


@pytest.mark.full
def test_a_page_of_very_many_requests_still_takes_each_decision() -> None:
    async def work() -> None:
        schema = {"properties": {f"p{n}": {"type": "string"} for n in range(200)}}
        desk, seen = await shown(input_schema=schema, input={f"p{n}": "x" for n in range(200)})
        seen.record = replace(seen.record, requests=tuple(replace(seen.one, interrupt_id=f"r{n}") for n in range(40)))
        async with desk.browser() as ana:
            page = (await ana.get(seen.path)).text
            forms = [CardForm(page, number) for number in range(40)]
            assert "/p0" in {one.get("name") for one in forms[0].controls}
            last = forms[-1]
            assert "/p0" not in {one.get("name") for one in last.controls}
            assert 'href="/records/' in page
            opened = CardForm((await ana.get(f"{seen.path}?request=40")).text, 39)
            assert "/p0" in {one.get("name") for one in opened.controls}
            assert (await last.press(ana, "Approve")).status_code == 303
            answer = await last.fill("json", '{"p1": 7}').press(ana, "Approve with changes")
            assert answer.status_code == 422
            assert '"p1": 7' in CardForm(answer.text, 39).control("json")["value"]
            assert (await last.fill("json", '{"p1": "7"}').press(ana, "Approve with changes")).status_code == 303
            assert seen.decided == [{"approved": True}, {"approved": True, "input": {"p1": "7"}}]

    run(work)


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@each_row("schema, value", [
    ({"properties": {"a": {"type": "string", "maxLength": 1}}, "required": ["a", "b"]}, {"a": "long"}),
    ({"properties": {"a": {"type": "integer"}}}, {"a": "a text"}),
    ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}),
    ({"properties": {"day": {"type": "string", "format": "date"}}}, {"day": "soon"}),
    ({"properties": {"a": {"const": 1}}}, {"a": 2}),
    ({"type": "array"}, {"a": 1}),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, [1.5]),
    (False, {"a": 1}),
    (None, {"a": _nested(400)}),
    ({"properties": {"a": {}}}, {"a": _nested(400)}),
    ({"properties": {"a": {"type": "string"}}}, {"a": "x" * 150_000}),
    (None, "x" * 300_000),
])  # fmt: skip
def test_what_was_asked_can_be_approved_whatever_its_schema_says(schema: Any, value: Any) -> None:
    async def work() -> None:
        desk, seen = await shown(input_schema=schema, input=value)
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text)
            for label in ("Approve", "Approve with changes"):
                answer = await form.press(ana, label)
                assert answer.status_code == 303, answer.text[:2000]
                assert seen.decided.pop() == {"approved": True}
            assert (await form.press(ana, "Show changes")).status_code == 200

    run(work)


@pytest.mark.parametrize("typed", ["nonsense", "1.5.5", "{"])
def test_what_cannot_be_read_is_no_approval_of_what_was_asked(typed: str) -> None:
    async def work() -> None:
        schema = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
        desk, seen = await shown(input_schema=schema, input={"a": "x"})
        async with desk.browser() as ana:
            form = CardForm((await ana.get(seen.path)).text).fill("/b", typed)
            for label in ("Approve", "Approve with changes", "Show changes"):
                answer = await form.press(ana, label)
                assert answer.status_code == 422
                assert CardForm(answer.text).control("/b")["value"] == typed
            assert seen.decided == []

    run(work)


def test_a_schema_is_compiled_once_and_a_long_one_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from codemode_console.forms import parser

    compiled: list[Any] = []
    real = parser.repair_schema

    def counting(schema: Any) -> Any:
        compiled.append(schema)
        return real(schema)

    monkeypatch.setattr(parser, "repair_schema", counting)
    short = {"properties": {"compiled once": {"type": "string"}}}
    for _ in range(3):
        parser.create_form(json.loads(json.dumps(short)), {"compiled once": "x"})
    assert len(compiled) == 1
    long = {"properties": {"a": {"description": "x" * 70_000}}}
    for _ in range(2):
        parser.create_form(long, {"a": 1})
    assert len(compiled) == 3

"""What a schema says once may stand in a page many times: pages of hostile requests are bounded all the same."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

from codemode_console.forms import create_form, read_form
from console_houses import House
from console_visitors import run
from page_forms import page_of
from stored_pauses import Catalog, paused, request
from suite import each_row, full_only

MOST_BYTES = 13_000_000
LONG = "p" * 50_000


def an_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def many(schema: Any, count: int = 300) -> dict[str, Any]:
    return an_object({f"x{at}": schema for at in range(count)})


def referring(schema: Any) -> dict[str, Any]:
    return {**many({"$ref": "#/$defs/one"}), "$defs": {"one": schema}}


def of_all(value: Any, count: int = 300) -> dict[str, Any]:
    return {f"x{at}": value for at in range(count)}


MANY_FOLD: list[tuple[Any, Any]] = [
    (an_object({LONG: many({"type": "string"})}), {LONG: of_all("")}),
    (an_object({"\u202e" * 9_000: many({"type": "string"})}), {"\u202e" * 9_000: of_all("")}),
    (referring({"enum": [f"{at} {LONG[:900]}" for at in range(200)]}), of_all(f"0 {LONG[:900]}")),
    (referring({"enum": [*range(200), *"\u202e\u202d"]}), of_all(1)),
    (referring({"const": LONG}), of_all(LONG[:10])),
    (referring({"anyOf": [{"const": at, "title": LONG[:290]} for at in range(100)]}), of_all(1)),
    (referring({"type": "string", "default": LONG}), of_all("")),
    (referring({"type": "string", "title": LONG, "description": LONG, "pattern": LONG}), of_all("")),
]


@each_row("schema, value", MANY_FOLD)
def test_a_form_is_no_larger_than_a_page_may_be(schema: Any, value: Any) -> None:
    form = create_form(schema, value)
    page = page_of(form)
    assert sum(map(len, page.texts)) + sum(len(str(one)) for _, one in page.tags) < MOST_BYTES
    said = [("json", form.json_text)] if form.is_editable else []
    edited = read_form(said, schema, value)
    assert edited.is_unchanged or edited.problems
    assert sum(len(words) for one in edited.problems.values() for words in one) < MOST_BYTES


def test_what_was_typed_into_fields_that_are_too_many_by_now_is_never_passed_over() -> None:
    schema = {"type": "array", "items": referring({"enum": [f"{at} {LONG[:100]}" for at in range(200)]})}
    typed = [("was:#", "set array -"), ("count:#", "1"), ("was:/0", "set object -"), ("/0/x1", "other")]
    shown = [of_all("0")]
    edited = read_form([*typed, ("json", "[]"), ("was", "x y")], schema, shown)
    assert edited.value is None
    assert not edited.is_valid


@each_row("said", ["description", *full_only("schema", "tool", "input", "labels")])
def test_a_page_of_many_requests_is_bounded(said: str) -> None:
    async def work() -> None:
        house, count = House(), 150
        catalog: Any = Catalog(None)
        catalog.get = lambda _name: catalog
        given, tool, labels = {"order": "a"}, "refund", dict[str, str]()
        if said == "description":
            catalog.description = "<\u202e" * 9_000
        elif said == "tool":
            tool = "<\u202e" * 9_000
        elif said == "schema":
            catalog.input_json_schema = an_object({"order": {"enum": [f"{at} {LONG[:1_000]}" for at in range(199)]}})
        elif said == "input":
            given = {"order": "<" * 100_000}
        else:
            labels = {f"{at:x}": "<" for at in range(1_300)}
        waiting = [request(f"q{at}", tool, given) for at in range(count)]
        record = await house.store.put(paused(*waiting), tenant="acme", tool=catalog, labels=labels)
        async with house.browser() as ana:
            page = await ana.get(f"/records/{record}")
            assert page.status_code == 200
            assert len(page.content) < MOST_BYTES
            # What the page has no place for is there for whoever opens it, and may be decided as it is.
            assert page.text.count('value="approve"') == count
            last = await ana.get(f"/records/{record}?request={count}")
            assert f'id="c{count}-json"' in last.text

    run(work)


def test_an_input_of_many_small_things_is_read_without_looking_at_all_of_them_again_and_again() -> None:
    async def work() -> None:
        house = House()
        record = await house.store.put(paused(request("q", given={"a": [{} for _ in range(100_000)]})), tenant="acme")
        begun: list[int] = []

        def count(phase: str, _info: Any) -> None:
            begun.extend([1] if phase == "start" else [])

        gc.callbacks.append(count)
        try:
            await house.store.record(record, tenant="acme")
        finally:
            gc.callbacks.remove(count)
        assert len(begun) < 20

    run(work)


@each_row(
    "path", ["/sign-in", "/records/{}/requests/q", *full_only("/sign-out", "/records/{}/ending", "/audit/verify")]
)
@each_row("kind", ["application/x-www-form-urlencoded", *full_only("application/json", "multipart/form-data")])
def test_whoever_sends_too_much_is_heard_out_within_bounds_and_told(path: str, kind: str) -> None:
    async def work() -> None:
        house, sent = House(), list[int]()
        record = await house.put("q")

        async def chunks(count: int) -> AsyncIterator[bytes]:
            for _ in range(count):
                sent.append(1)
                yield b"x" * 500_000

        async with house.browser() as ana:
            for count, most in ((10, 10), (400, 100)):
                sent.clear()
                answer = await ana.post(path.format(record), content=chunks(count), headers={"content-type": kind})
                assert answer.status_code == 413
                assert min(count, 10) <= len(sent) <= most

    run(work)

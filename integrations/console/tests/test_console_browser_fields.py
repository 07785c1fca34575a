"""Each kind of field, changed by hand in a real browser: exactly that value arrives in the tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Desk, Visitor, button, cards, follow, open_record

from codemode import Tool, ToolCallContext, request_interrupt

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = pytest.mark.full

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "big", "cents", "rate", "urgent", "quiet", "kind", "version", "tags", "lines", "deep"],
    "properties": {
        "name": {"type": "string", "title": "Name of the customer"},
        "text": {"type": "string", "maxLength": 5000},
        "big": {"type": "integer"},
        "cents": {"type": "integer", "minimum": 1},
        "rate": {"type": "number"},
        "urgent": {"type": "boolean"},
        "quiet": {"type": "boolean"},
        "kind": {"enum": ["mail", "letter", 3, None]},
        "version": {"const": 3},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "note": {"type": "string"},
        "left": {"type": "string"},
        "memo": {"type": ["string", "null"]},
        "empty": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "to": {"oneOf": [{"$ref": "#/$defs/mail"}, {"$ref": "#/$defs/phone"}]},
        "deep": {
            "type": "object",
            "properties": {"a": {"type": "object", "properties": {"b/c": {"$ref": "#/$defs/b"}}}},
        },
        "free": True,
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku", "count"],
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
        },
        "mail": {
            "type": "object",
            "title": "Mail",
            "required": ["mail"],
            "properties": {"mail": {"type": "string"}},
            "additionalProperties": False,
        },
        "phone": {
            "type": "object",
            "title": "Phone",
            "required": ["number"],
            "properties": {"number": {"type": "string"}},
            "additionalProperties": False,
        },
        "a": {"type": "object", "properties": {"b/c": {"$ref": "#/$defs/b"}}},
        "b": {"type": "object", "properties": {"d": {"type": "string"}, "~e": {"type": "number"}}},
    },
}
ASKED: dict[str, Any] = {
    "name": "Ada",
    "text": "one line\nand another",
    "big": 1_152_921_504_606_847_000,
    "cents": 90000,
    "rate": 0.1,
    "urgent": False,
    "quiet": True,
    "kind": "mail",
    "version": 3,
    "day": "2026-11-22",
    "tags": ["a", "b", "c"],
    "lines": [{"sku": "x", "count": 1}],
    "left": "stays not",
    "memo": "becomes null",
    "empty": None,
    "either": "7",
    "to": {"mail": "ada@example.com"},
    "deep": {"a": {"b/c": {"d": "deep", "~e": 1.5}}},
    "free": {"any": ["thing", None]},
}
CHANGED: dict[str, Any] = {
    **{key: value for key, value in ASKED.items() if key != "left"},
    "name": " Ada Lovelace \u00e9\U0001f600 <b>&amp;</b> ",
    "text": "\nfirst\n\n  last \n",
    "cents": 9000,
    "rate": 2.5e-7,
    "urgent": True,
    "quiet": False,
    "kind": 3,
    "day": "2028-02-29",
    "tags": ["a", "c", ""],
    "lines": [{"sku": "x", "count": 2}, {"sku": "y", "count": -1}],
    "note": "now given",
    "memo": None,
    "empty": "",
    "either": 8,
    "to": {"number": "0049 1"},
    "deep": {"a": {"b/c": {"d": "deeper", "~e": 2}}},
    "free": {"any": [1, 1.0, "1", {"": []}]},
}
QUESTION = {
    "type": "object",
    "required": ["what"],
    "properties": {"what": {"enum": ["repair", "replace"]}, "days": {"type": "integer"}},
}


class Given:
    """What arrived in the tools."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def tools(self) -> Sequence[Any]:
        def fill(value: Any) -> str:
            self.values.append(value)
            return "filled"

        def ask(value: Any, context: ToolCallContext) -> Any:
            if context.interrupt is None:
                request_interrupt({"kind": "shop/question", "message": "What now?", "schema": QUESTION})
            return context.interrupt.resolution

        return [
            Tool("fill", execute=fill, input_schema=SCHEMA, needs_approval=True),
            Tool("ask", execute=ask, input_schema={"type": "object"}),
        ]


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def tools(given: Given) -> Sequence[Any]:
    return given.tools()


ASK = f"return await tools.fill(JSON.parse({json.dumps(json.dumps(ASKED))}))"


def field(page: Page, pointer: str) -> Locator:
    """The control that is named by a JSON Pointer."""
    return page.locator(f'[name="{pointer}"]')


async def press(page: Page, name: str, pointer: str) -> None:
    """Press a button that shows the form again, and wait for it."""
    await follow(page, page.locator(f'button[name={name}][value="{pointer}"]'))


async def change_all(page: Page) -> None:
    """Make of what was asked what is expected, field by field."""
    await press(page, "remove", "/tags/1")
    await press(page, "add", "/tags")
    await press(page, "add", "/lines")
    await field(page, "/to").select_option(label="Phone")
    await press(page, "choose", "/to")
    for name in ("name", "text", "cents", "rate", "day", "note"):
        await field(page, f"/{name}").fill(str(CHANGED[name]))
    await field(page, "/urgent").check()
    await field(page, "/quiet").uncheck()
    await field(page, "/kind").select_option(label="3")
    await field(page, "/lines/0/count").fill("2")
    await field(page, "/lines/1/sku").fill("y")
    await field(page, "/lines/1/count").fill("-1")
    await field(page, "state:/left").select_option("absent")
    await field(page, "state:/memo").select_option("null")
    await field(page, "state:/empty").select_option("set")
    await field(page, "choice:/either").select_option(label="integer")
    await field(page, "/either").fill("8")
    await field(page, "/to/number").fill("0049 1")
    await field(page, "/deep/a/b~1c/d").fill("deeper")
    await field(page, "/deep/a/b~1c/~0e").fill("2")
    await field(page, "/free").fill(json.dumps(CHANGED["free"]))


async def expect_one_way_to_approve(page: Page, name: str) -> None:
    from playwright.async_api import expect

    for other in ("Approve", "Approve with changes"):
        await expect(button(page, other)).to_have_count(1 if other == name else 0)


def exact(value: Any) -> str:
    """Say what a value is, 1 and 1.0 and true apart."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("settings", [{}, {"java_script_enabled": False}], ids=["script", "no script"])
async def test_each_kind_of_field_arrives_as_it_was_changed(desk: Desk, visitor: Visitor, given: Given) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await change_all(page)
    await button(page, "Approve with changes").click()
    assert await desk.outcome(record_id) == "filled"
    assert [exact(one) for one in given.values] == [exact(CHANGED)]


async def test_what_nobody_touched_arrives_as_it_was_asked(desk: Desk, visitor: Visitor, given: Given) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await expect_one_way_to_approve(page, "Approve")
    await button(page, "Approve").click()
    assert await desk.outcome(record_id) == "filled"
    assert [exact(one) for one in given.values] == [exact(ASKED)]


async def test_what_does_not_fit_is_said_at_its_field_and_nothing_typed_is_lost(
    desk: Desk, visitor: Visitor, given: Given
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await field(page, "/cents").fill("9 thousand")
    await field(page, "/name").fill("Grace")
    await field(page, "/lines/0/count").fill("1.5")
    await page.locator("[name=reason]").fill("a typo")
    async with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        await button(page, "Approve with changes").click()
    assert (await answered.value).status == 422
    for pointer, typed in (("/cents", "9 thousand"), ("/name", "Grace"), ("/lines/0/count", "1.5")):
        await expect(field(page, pointer)).to_have_value(typed)
    await expect(page.locator("[name=reason]")).to_have_value("a typo")
    for pointer in ("/cents", "/lines/0/count"):
        await expect(field(page, pointer)).to_have_attribute("aria-invalid", "true")
        described = await field(page, pointer).get_attribute("aria-describedby")
        assert described
        said = page.locator(f'[id="{described.split()[-1]}"]')
        await expect(said).not_to_be_empty()
    await expect(field(page, "/name")).not_to_have_attribute("aria-invalid", "true")
    # The page came as the answer to a form: loading it again sends the form again, which decides nothing either.
    await page.reload()
    await expect(field(page, "/cents")).to_have_value("9 thousand")
    await field(page, "/cents").fill("9000")
    await field(page, "/lines/0/count").fill("1")
    await button(page, "Approve with changes").click()
    assert await desk.outcome(record_id) == "filled"
    assert [exact(one) for one in given.values] == [exact({**ASKED, "cents": 9000, "name": "Grace"})]


async def test_a_change_is_shown_as_a_difference_before_it_is_decided(
    desk: Desk, visitor: Visitor, given: Given
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await field(page, "/cents").fill("9000")
    await field(page, "/cents").press("Enter")
    await expect(cards(page)).to_contain_text("90000")
    await expect(field(page, "/cents")).to_have_value("9000")
    await expect_one_way_to_approve(page, "Approve with changes")
    assert given.values == []
    assert (await desk.until(record_id, lambda _: True)).requests[0].state == "waiting"


async def test_a_tool_s_own_question_is_answered_in_its_form(desk: Desk, visitor: Visitor) -> None:
    record_id = await desk.pause("return await tools.ask({})")
    page = await open_record(visitor, desk, record_id)
    await field(page, "/what").select_option(label="replace")
    await field(page, "/days").fill("3")
    await button(page, "Answer").click()
    assert exact(await desk.outcome(record_id)) == exact({"what": "replace", "days": 3})

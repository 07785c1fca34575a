"""What people do in a form arrives as exactly that, and what does not fit is said at its field."""

from __future__ import annotations

from typing import Any

import pytest
from codemode_console.forms import ABSENT, MalformedFormError, create_form, read_form
from page_forms import Page, page_of
from suite import each_row

LINE = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}, "required": ["sku", "n"]}
CARD = {"title": "Card", "type": "object", "properties": {"card": {"type": "string"}}, "required": ["card"]}
BANK = {"title": "Bank", "type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "description": "which <order>"},
        "cents": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "share": {"type": "number"},
        "express": {"type": "boolean"},
        "speed": {"enum": ["slow", "fast"]},
        "level": {"enum": [1, "1", None]},
        "version": {"const": 2},
        "day": {"type": "string", "format": "date"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "pay": {"anyOf": [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Bank"}]},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "sent_to": {"anyOf": [{"$ref": "#/$defs/Card"}, {"type": "null"}]},
    },
    "required": ["order", "cents", "share", "express", "speed", "version", "day", "tags", "pay", "either"],
    "$defs": {"Line": LINE, "Card": CARD, "Bank": BANK},
}
VALUE: dict[str, Any] = {
    "order": "A-17", "cents": 90000, "share": 0.5, "express": True, "speed": "slow", "level": 1, "version": 2,
    "day": "2026-01-31", "note": None, "count": 3, "tags": ["a", "b", "c"], "lines": [{"sku": "x", "n": 1}],
    "pay": {"card": "42"}, "either": "7",
}  # fmt: skip


def shown() -> Page:
    return page_of(create_form(SCHEMA, VALUE))


def decided(page: Page) -> Any:
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.problems == {}
    assert edited.is_valid
    assert not edited.is_unchanged
    return edited.value


def pressed(page: Page, name: str, value: str) -> Page:
    edited = read_form(page.items(name, value), SCHEMA, VALUE)
    assert edited.needs_redisplay
    assert edited.value is None
    assert edited.problems == {}
    return page_of(edited.form)


@each_row(
    "name, text, changes",
    [
        ("/cents", "9000", {"cents": 9000}),
        ("/cents", " 9000 ", {"cents": 9000}),
        ("/share", "1", {"share": 1}),
        ("/share", "1.0", {"share": 1.0}),
        ("/share", "12345678901234567890123", {"share": 12345678901234567890123}),
        ("/order", "", {"order": ""}),
        ("/order", " 9000 ", {"order": " 9000 "}),
        ("/order", "null", {"order": "null"}),
        ("/day", "2026-12-24", {"day": "2026-12-24"}),
        ("/speed", "fast", {"speed": "fast"}),
        ("/level", '"1"', {"level": "1"}),
        ("/note", "typed at once", {"note": "typed at once"}),
        ("/tags/1", "<b>", {"tags": ["a", "<b>", "c"]}),
        ("/lines/0/n", "-4", {"lines": [{"sku": "x", "n": -4}]}),
        ("/pay/card", "43", {"pay": {"card": "43"}}),
        ("/either", "8", {"either": "8"}),
    ],
)
def test_what_is_typed_into_a_control_arrives(name: str, text: str, changes: dict[str, Any]):
    value = decided(shown().fill(name, text))
    assert value == {**VALUE, **changes}
    (key,) = changes
    assert type(value[key]) is type(changes[key])


def test_an_input_with_dates_bytes_and_sets_is_edited_in_their_tags():
    properties = {"room": {"type": "string"}, "at": {"type": "string"}, "tags": {"type": "array"}}
    schema = {"type": "object", "properties": properties}
    day, tags = {"$rich": ["Date", "2026-01-31T00:00:00.000Z"]}, {"$rich": ["Set", ["a"]]}
    value = {"room": "a", "at": day, "tags": tags}
    page = page_of(create_form(schema, value)).fill("/room", "b").fill("/tags", '{"$rich": ["Set", ["a", "b"]]}')
    edited = read_form(page.items(), schema, value)
    assert (edited.value, edited.problems) == ({**value, "room": "b", "tags": {"$rich": ["Set", ["a", "b"]]}}, {})
    for wrong in ('{"$rich": ["Date", "soon"]}', '{"day": 3}'):
        page = page_of(create_form(schema, value)).fill("/at", wrong)
        assert read_form(page.items(), schema, value).problems == {"/at": ["expected string, got object"]}
    plain = {"room": "a", "at": "2026-01-31", "tags": []}
    page = page_of(create_form(schema, plain)).fill("/tags", '{"$rich": ["Set", ["a"]]}')
    assert not read_form(page.items(), schema, plain).is_valid


def test_a_box_arrives_with_and_without_its_tick():
    assert decided(shown().tick("/express", is_ticked=False)) == {**VALUE, "express": False}
    away = {**VALUE, "express": False}
    page = page_of(create_form(SCHEMA, away)).tick("/express", is_ticked=True)
    assert read_form(page.items(), SCHEMA, away).value == VALUE


@pytest.mark.parametrize("name", ["/note", "/count", "/level", "/lines"])
def test_what_is_left_out_is_absent_and_null_is_null(name: str):
    key = name[1:]
    without = {one: value for one, value in VALUE.items() if one != key}
    assert decided(shown().fill(f"state:{name}", "absent")) == without
    if name != "/lines":
        page = page_of(create_form(SCHEMA, without)).fill(f"state:{name}", "null")
        assert read_form(page.items(), SCHEMA, without).value == {**without, key: None}
    assert read_form(page_of(create_form(SCHEMA, without)).items(), SCHEMA, without).value == without


def test_an_optional_number_that_is_cleared_is_absent_and_an_empty_text_is_a_text():
    assert "count" not in decided(shown().fill("/count", ""))
    assert decided(shown().fill("/note", "x").fill("state:/note", "set"))["note"] == "x"
    assert decided(shown().fill("/note", "").fill("state:/note", "set"))["note"] == ""


def test_items_are_added_and_removed_by_buttons_and_nothing_typed_is_lost():
    page = pressed(shown().fill("/cents", "nonsense").fill("/tags/2", "C"), "remove", "/tags/0")
    assert [page.control(f"/tags/{at}")["value"] for at in (0, 1)] == ["b", "C"]
    assert page.control("/cents")["value"] == "nonsense"
    page = pressed(page.fill("/cents", "9"), "add", "/tags")
    page = pressed(page.fill("/tags/2", "new"), "add", "/lines")
    page.fill("/lines/1/sku", "y")
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.problems == {"/lines/1/n": ["is required"]}
    page = page_of(edited.form).fill("/lines/1/n", "2")
    lines = [{"sku": "x", "n": 1}, {"sku": "y", "n": 2}]
    assert decided(page) == {**VALUE, "cents": 9, "tags": ["b", "C", "new"], "lines": lines}


def test_another_choice_opens_its_fields_and_decides_nothing_before_they_are_seen():
    page = shown().select("/pay", "Bank")
    for again in (pressed(page, "choose", "/pay"), page_of(read_form(page.items(), SCHEMA, VALUE).form)):
        assert read_form(page.items(), SCHEMA, VALUE).needs_redisplay
        assert decided(again.fill("/pay/iban", "DE1")) == {**VALUE, "pay": {"iban": "DE1"}}


def test_choices_that_read_the_same_are_told_apart():
    labels = [one["label"] for one in shown().control("/level")["options"]]
    assert labels == ["(none)", "1", '"1"']
    assert [one["label"] for one in shown().control("/speed")["options"]] == ["slow", "fast"]


def test_a_question_with_choices_is_answered_only_once_one_is_chosen():
    schema = {"type": "object", "properties": {"speed": {"enum": ["slow", "fast"]}}, "required": ["speed"]}
    page, form = page_of(create_form(schema)), create_form(schema)
    assert [one["label"] for one in page.control("/speed")["options"]] == ["Choose…", "slow", "fast"]
    assert (page.control("/speed")["value"], form.problems) == ("", {})
    assert read_form(page.items(), schema).problems == {"/speed": ["is required: choose one"]}
    assert read_form(page.select("/speed", "fast").items(), schema).value == {"speed": "fast"}


def test_one_text_is_a_number_when_that_is_chosen():
    assert decided(shown().select("choice:/either", "integer")) == {**VALUE, "either": 7}


def test_an_absent_object_opens_before_it_is_decided():
    page = shown().fill("state:/sent_to", "set")
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.needs_redisplay
    assert decided(page_of(edited.form).fill("/sent_to/card", "1")) == {**VALUE, "sent_to": {"card": "1"}}
    assert decided(shown().fill("state:/sent_to", "null")) == {**VALUE, "sent_to": None}


def test_every_problem_stands_at_its_field_and_nothing_typed_is_lost():
    page = shown().fill("/cents", "0").fill("/share", "much").fill("/order", "kept \u202e").fill("/day", "tomorrow")
    page.fill("/lines/0/n", "1.5")
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.value is None
    assert {pointer: len(words) for pointer, words in edited.problems.items()} == {
        "/cents": 1, "/share": 1, "/day": 1, "/lines/0/n": 1,
    }  # fmt: skip
    again = page_of(edited.form)
    for name, text in [("/cents", "0"), ("/share", "much"), ("/day", "tomorrow"), ("/lines/0/n", "1.5")]:
        control = again.control(name)
        assert control["value"] == text
        assert control["aria-invalid"] == "true"
        told = control["aria-describedby"].split()
        assert [one for one in told if one.endswith("-problem")]
        assert set(told) <= {attributes.get("id") for _, attributes in again.tags}
    assert again.control("/order")["value"] == "kept \\u202e"
    assert "aria-invalid" not in again.control("/order")
    again.fill("/cents", "1").fill("/share", "1").fill("/day", "2026-02-01").fill("/lines/0/n", "1")
    assert decided(again)["order"] == "kept \u202e"


def test_a_problem_of_what_is_missing_stands_where_it_belongs():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/Line"}}}
    schema |= {"required": ["a", "b"], "$defs": {"Line": LINE}}
    edited = read_form(page_of(create_form(schema, {"b": {"sku": "x"}})).items(), schema, {"b": {"sku": "x"}})
    assert edited.problems == {"/a": ["is required"], "/b/n": ["is required"]}


def test_a_caller_sends_what_it_changes_alone():
    assert read_form([("/cents", "9000"), ("reason", "ok")], SCHEMA, VALUE).value == {**VALUE, "cents": 9000}
    assert read_form([("reason", "ok")], SCHEMA, VALUE).is_unchanged
    assert read_form([("/cents", "x")], SCHEMA, VALUE).problems.keys() == {"/cents"}


def test_both_halves_changed_is_asked_about_and_the_answer_counts():
    page = shown().fill("/cents", "1").fill("json", '{"cents": 2}')
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.problems.keys() == {""}
    again = page_of(edited.form)
    assert again.control("json")["value"] == '{"cents": 2}'
    assert decided(again) == {**VALUE, "cents": 1}
    as_json = [("mode", "json") if one == ("mode", "form") else one for one in again.items()]
    assert "/order" in read_form(as_json, SCHEMA, VALUE).problems


@each_row("text", ["", "{", '{"a": 1} x', "NaN", "1e999", "[" * 129 + "]" * 129, "9" * 1001, '{"a": undefined}'])
def test_json_text_that_is_none_is_said_and_kept(text: str):
    page = shown().fill("json", text)
    edited = read_form(page.items(), SCHEMA, VALUE)
    assert edited.problems.keys() == {"json"}
    again = page_of(edited.form)
    assert again.control("json")["value"] == text
    assert again.control("json")["aria-invalid"] == "true"


def test_a_question_without_a_value_is_filled_in():
    edited = read_form(page_of(create_form(SCHEMA)).items(), SCHEMA)
    assert {"/cents", "/share", "/day"} <= edited.problems.keys()
    page = page_of(create_form(LINE)).fill("/sku", "x").fill("/n", "2")
    assert read_form(page.items(), LINE).value == {"sku": "x", "n": 2}
    assert read_form([("json", "true")], None).value is True
    assert read_form([], None, ABSENT).problems


@each_row(
    "items",
    [
        [("/cents", "1"), ("/cents", "2")],
        [("/cents/nowhere", "1")],
        [("/tags/7", "1")],
        [("was:/cents", "set")],
        [("was:/cents", "set enum -"), ("/cents", "1")],
        [("was:/cents", "null number -"), ("/cents", "")],
        [("was:/pay", "set object 7")],
        [("was:/tags", "set array -"), ("count:/tags", "100000")],
        [("was:x", "set text -")],
        [("add", "/cents"), ("/cents", "1")],
        [("remove", "/tags/9"), ("count:/tags", "3")],
        [("remove", "/tags/x"), ("count:/tags", "3")],
        [("add", "/tags"), ("add", "/tags")],
        [("#%ff", "1"), ("state:#%ff", "1")],
        [("json", "{}"), ("json", "{}")],
    ],
)
def test_items_of_no_form_are_refused(items: list[tuple[str, str]]):
    with pytest.raises(MalformedFormError):
        read_form(items, SCHEMA, VALUE)


def nested(levels: int) -> tuple[Any, Any, str]:
    schema: Any = {"type": "string"}
    value: Any = "deep"
    for _ in range(levels):
        schema, value = {"type": "object", "properties": {"a": schema}, "required": ["a"]}, {"a": value}
    return schema, value, "/a" * levels


def test_four_levels_are_fields_and_what_is_deeper_is_json_text():
    schema, value, pointer = nested(4)
    assert page_of(create_form(schema, value)).control(pointer)["tag"] == "input"
    schema, value, pointer = nested(5)
    page = page_of(create_form(schema, value))
    control = page.control(pointer[: -len("/a")])
    assert control["tag"] == "textarea"
    control["value"] = '{"a": "new"}'
    assert read_form(page.items(), schema, value).value == {"a": {"a": {"a": {"a": {"a": "new"}}}}}


@each_row(
    "rules",
    [
        {"if": {"const": 1}},
        {"x-widget": "slider"},
        {"patternProperties": {"^a": {}}},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "#"},
        {"allOf": [{"type": "object"}, {"minProperties": 1}]},
        {"prefixItems": [{"type": "string"}]},
        {"type": "nonsense"},
    ],
)
def test_what_no_form_can_show_is_json_text(rules: dict[str, Any]):
    for schema in (rules, {"properties": {"a": rules}, "type": "object"}):
        value = {"a": {"b": [1.0, None]}}
        page = page_of(create_form(schema, value))
        assert read_form(page.items(), schema, value).is_unchanged or "$ref" in rules
        page.fill("json", '{"a": null}')
        assert read_form(page.items(), schema, value).form is not None

"""A form of any value under any schema of the supported kinds, sent back as it is, says exactly that value."""

from __future__ import annotations

import json
from typing import Any

from codemode_console.forms import ABSENT, create_form, read_form
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_forms import page_of
from suite import rounds

HOSTILE = ["\u202e", "\r", "\n", "\t", "\x00", "\\", "<b>", '"', "'", "&", "\u200b", "\ufeff", " ", "\\u202e"]
texts = st.one_of(
    st.text(max_size=20),
    st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join),
    st.text(alphabet="ab \n", min_size=100, max_size=200),
)
names = st.one_of(st.text(max_size=8), st.sampled_from(["a", "b/c", "d~e", "", "x\ny", "\u202e", "was:", "#", "json"]))
numbers = st.one_of(st.integers(), st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
Pair = tuple[Any, Any]  # a schema, and a value that fits it


@st.composite
def leaves(draw: st.DrawFn) -> Pair:
    kind = draw(st.sampled_from(["string", "number", "integer", "boolean", "enum", "const", "date", "any", "types"]))
    if kind == "string":
        return {"type": "string"}, draw(texts)
    if kind == "number":
        return {"type": "number"}, draw(numbers)
    if kind == "integer":
        return {"type": "integer"}, draw(st.integers(-(10**30), 10**30))
    if kind == "boolean":
        return {"type": "boolean"}, draw(st.booleans())
    if kind == "enum":
        options = draw(st.lists(st.one_of(st.none(), numbers, texts), min_size=1, max_size=4))
        return {"enum": options}, draw(st.sampled_from(options))
    if kind == "const":
        value = draw(anything)
        return {"const": value}, value
    if kind == "date":
        return {"type": "string", "format": "date"}, draw(st.one_of(st.dates().map(str), texts))
    if kind == "types":
        return {"type": ["string", "integer", "null"]}, draw(st.one_of(texts, st.integers(), st.none()))
    return draw(st.sampled_from([True, {}, {"not": {"const": "never"}}])), draw(anything)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    ways = st.sampled_from(["required", "given", "absent"])
    members = draw(st.dictionaries(names, st.tuples(inner, ways), max_size=4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: pair[0] for name, (pair, _) in members.items()},
        "required": [name for name, (_, how) in members.items() if how == "required"],
    }
    value = {name: pair[1] for name, (pair, how) in members.items() if how != "absent"}
    further = draw(st.dictionaries(names, anything, max_size=1))
    return schema, {**{name: one for name, one in further.items() if name not in members}, **value}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    schema, value = draw(inner)
    return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 3))


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    pairs = draw(st.lists(inner, min_size=1, max_size=3))
    value = draw(st.sampled_from([pair[1] for pair in pairs]))
    alternatives = [pair[0] for pair in pairs]
    if draw(st.booleans()):
        alternatives.append({"type": "null"})
        value = draw(st.sampled_from([value, None]))
    return {"anyOf": alternatives}, value


def wrapped(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.one_of(objects(inner), arrays(inner), unions(inner))


pairs = st.one_of(objects(leaves()), st.recursive(leaves(), wrapped, max_leaves=8))


def exact(value: Any) -> str:
    """Write a value with all that tells it from others: 1 from 1.0, 0.0 from -0.0."""
    return json.dumps(value, sort_keys=True)


def read(items: Any, schema: Any, shown: Any) -> Any:
    edited = read_form(items, schema, shown)
    assert edited.problems == {}
    assert not edited.needs_redisplay
    return edited


@settings(max_examples=rounds(24, 120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs)
def test_a_form_says_the_value_that_it_shows(pair: Pair):
    schema, value = pair
    page = page_of(create_form(schema, value))
    assert read(page.items(), schema, value).is_unchanged
    # Nothing is known of what was shown: all of it is in the form.
    other = {"nothing": "of this"}
    edited = read_form(page.items(), schema, other)
    assert edited.problems == {}
    assert exact(edited.value) == exact(value)


@settings(max_examples=rounds(24, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs)
def test_the_json_text_says_the_value_too(pair: Pair):
    schema, value = pair
    text = page_of(create_form(schema, value)).control("json")["value"]
    for items in ([("json", text)], [("mode", "json"), ("json", text.replace("\n", "\r\n"))]):
        assert exact(read_form(items, schema).value) == exact(value)


@settings(max_examples=rounds(24, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs, pairs)
def test_an_edited_json_text_counts_whatever_tab_is_open(pair: Pair, other: Pair):
    schema, value = {"anyOf": [pair[0], other[0]]}, pair[1]
    page = page_of(create_form(schema, value))
    page.fill("json", json.dumps(other[1]))
    assert exact(read(page.items(), schema, value).value) in (exact(other[1]), exact(value))
    assert read(page.items(), schema, ABSENT).value == other[1]


@settings(max_examples=rounds(24, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs)
def test_a_page_shown_again_says_the_same(pair: Pair):
    schema, value = pair
    again = read(page_of(create_form(schema, value)).items(), schema, value).form
    assert exact(read_form(page_of(again).items(), schema, None).value) == exact(value)


@settings(max_examples=rounds(32, 80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs, st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=4), st.data())
def test_no_items_do_anything_but_say_what_is_wrong(pair: Pair, more: list[tuple[str, str]], data: st.DataObject):
    from codemode_console.forms import MalformedFormError

    schema, value = pair
    items = page_of(create_form(schema, value)).items()
    words = st.one_of(st.text(max_size=9), st.sampled_from(["set", "absent", "null", "1", "set text -", "set json -"]))
    changed = [(name, data.draw(st.one_of(st.just(text), words))) for name, text in items]
    try:
        edited = read_form([*changed, *more], schema, value)
    except MalformedFormError:
        return
    page_of(edited.form)

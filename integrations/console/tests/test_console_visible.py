"""Hostile text is text, all of it seen; nothing of it is markup, in pages, attributes, JSON or diffs."""

from __future__ import annotations

import json
import sys
from typing import Any

from codemode_console.forms import create_form
from codemode_console.record_view import MAX_DIFF_LINES, diff_values
from codemode_console.visible_text import (
    MAX_EXCERPT_CHARACTERS,
    create_excerpt,
    is_all_visible,
    to_visible_html,
    to_visible_json,
    to_visible_text,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from page_forms import Page, page_of, rendered
from suite import each_row, rounds

ATTACKS = [
    "<script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</option></select><img src=x onerror=alert(1)>",
    '" onfocus="alert(1)" autofocus="',
    "' onclick='alert(1)",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "]]><!--",
    "&lt;script&gt;",
    "\u202egnp.exe",
    "a\x00b\x1b[31m",
    "\r\n</form><form action=//evil>",
    "![x](http://evil/x.png) [y](javascript:1)",
]
UNSEEN = [
    "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\x00", "\x7f", "\x9f", "\u2028", "\u00a0", "\u3164",
    "\u2800", "\ufe0f", "\U000e0041", "\U000e0100", "\ud800", "\U0010ffff", "\r", "\u115f", "\u3000",
]  # fmt: skip
LEGIBLE_TAGS = {
    "form", "input", "div", "fieldset", "legend", "label", "p", "ul", "li", "select", "option", "textarea", "button",
    "details", "summary", "code",
}  # fmt: skip


@each_row("character", UNSEEN)
def test_what_is_not_seen_is_an_escape(character: str):
    assert not is_all_visible(f"a{character}b")
    shown = to_visible_text(f"a{character}b", one_line=True)
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert json.loads(to_visible_json(f"a{character}b")) == f"a{character}b"
    assert to_visible_json(f"a{character}b").isascii()


def test_ordinary_text_of_any_language_stays():
    text = "na\u00efve \u65e5\u672c\u8a9e \u0395\u03bb \U0001f600 e\u0301 \u05e9\u05dc\u05d5\u05dd"
    assert to_visible_text(text) == text
    assert to_visible_text("a\n\tb") == "a\n\tb"
    assert to_visible_text("a\n\tb", one_line=True) == "a\\n\\tb"


def test_marks_that_would_paint_over_other_lines_are_escapes():
    assert to_visible_text("a" + "\u0301" * 50).count("\u0301") <= 3
    assert to_visible_text("\u0301a") == "\\u0301a"


def test_every_character_of_unicode_is_seen_or_an_escape():
    for code in range(0, sys.maxunicode + 1, rounds(7, 1)):
        shown = to_visible_text(chr(code), one_line=True)
        assert shown.isprintable(), hex(code)


@settings(max_examples=rounds(66, 200), deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(ATTACKS + UNSEEN)).map("".join)))
def test_nothing_but_text_comes_out(text: str):
    page = Page(f'<p title="{to_visible_html(text)}">{to_visible_html(text)}</p>')
    (tag,) = page.tags
    assert tag[0] == "p"
    assert list(tag[1]) == ["title"]
    assert "".join(page.texts) == to_visible_text(text)


@settings(max_examples=rounds(33, 100), deadline=None)
@given(st.lists(st.sampled_from(ATTACKS), min_size=9, max_size=9))
def test_a_form_of_hostile_texts_is_a_form_and_nothing_else(texts: list[str]):
    name, title, about, option, value, key, reference, constant, pattern = texts
    schema: dict[str, Any] = {
        "type": "object",
        "title": title,
        "description": about,
        "properties": {
            name: {"type": "string", "title": title, "description": about, "default": value, "format": pattern},
            f"{name}2": {"enum": [option, constant]},
            f"{name}3": {"const": constant},
            f"{name}4": {"anyOf": [{"type": "string", "title": title}, {"$ref": f"#/$defs/{key}"}]},
            f"{name}5": {"type": "array", "items": {"type": "string", "title": title}},
        },
        "$defs": {key: {"type": "integer"}},
    }
    shown = {name: value, f"{name}2": option, f"{name}4": value, f"{name}5": [value], key: {reference: value}}
    form = create_form(schema, shown)
    page = page_of(form)
    assert {tag for tag, _ in page.tags} <= LEGIBLE_TAGS
    for tag, attributes in page.tags:
        assert not [one for one in attributes if one.startswith("on") or one in ("src", "href", "style", "action")], tag
    assert page.items()[0][0] == "was"
    for line in rendered(form).split("\n"):
        assert line.isprintable()
    assert len({one["id"] for one in page.controls if "id" in one}) == len([o for o in page.controls if "id" in o])


def test_what_is_long_is_cut():
    assert create_excerpt("x" * MAX_EXCERPT_CHARACTERS).is_whole
    assert not create_excerpt("x" * (MAX_EXCERPT_CHARACTERS + 1)).is_whole
    assert len(create_excerpt("x" * 10**6).text) == MAX_EXCERPT_CHARACTERS
    shown = create_excerpt({"a": ["<b>"] * 10**5}, 20)
    assert not shown.is_whole
    assert "<" not in shown.text
    assert create_excerpt({"a": 1}).text == "{\n  &#34;a&#34;: 1\n}"


def lines(before: Any, after: Any) -> list[tuple[str, str, str]]:
    return [(one.sign, str(one.pointer), str(one.text)) for one in diff_values(before, after)]


def test_a_diff_says_what_goes_and_what_comes():
    before = {"cents": 90000, "tags": ["a", "b"], "same": [1], "gone": None}
    after = {"cents": 9000, "tags": ["a", "c", "d"], "same": [1], "new/er": True}
    assert lines(before, after) == [
        ("-", "/cents", "90000"), ("+", "/cents", "9000"),
        ("-", "/tags/1", "&#34;b&#34;"), ("+", "/tags/1", "&#34;c&#34;"), ("+", "/tags/2", "&#34;d&#34;"),
        ("-", "/gone", "null"), ("+", "/new~1er", "true"),
    ]  # fmt: skip
    assert lines({"a": 1}, {"a": 1.0}) == [("-", "/a", "1"), ("+", "/a", "1.0")]
    assert lines({"a": 1}, {"a": True}) == [("-", "/a", "1"), ("+", "/a", "true")]
    assert lines(before, before) == []


def test_a_diff_is_bounded_and_escaped():
    found = lines({}, {f"<b>\u202e{at}": "<i>\u202e" * 10**4 for at in range(1000)})
    assert len(found) == MAX_DIFF_LINES + 1
    assert all("<" not in pointer + text and "\u202e" not in pointer + text for _, pointer, text in found)
    assert all(len(text) < 1500 for _, _, text in found)
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    assert len(lines([], deep)) == 1


def test_a_schema_with_a_catastrophic_pattern_or_too_much_of_everything_is_bounded():
    from codemode_console.forms import read_form

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"pattern": "(?=a)b\\1(x*)*y"}},
    }
    value = {"a": "a" * 5000 + "!", "b": "x" * 5000}
    assert create_form(schema, value).root is not None
    read_form(page_of(create_form(schema, value)).items(), schema, value)
    wide = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(3000)}}
    form = create_form(wide, {"p1": "x"})
    assert form.root is None
    assert form.notes
    assert read_form(page_of(form).items(), wide, {"p1": "x"}).is_unchanged
    many = {"anyOf": [{"type": "object", "required": [f"k{at}"]} for at in range(150)] + [{"type": "object"}]}
    rows = {"type": "array", "items": many}
    assert create_form(rows, [{}] * 100).root is None
    tree: dict[str, Any] = {"type": "object", "properties": {f"c{at}": {"$ref": "#"} for at in range(50)}}
    tree["required"] = list(tree["properties"])
    assert create_form(tree).root is None
    long = create_form({"type": "string"}, "\u65e5" * 10**6)
    assert not long.is_editable
    assert read_form([], {"type": "string"}, "\u65e5" * 10**6).is_unchanged

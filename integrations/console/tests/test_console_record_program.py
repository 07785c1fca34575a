"""The program on a record's page: the lines of waiting calls are marked, and no other; every character is seen."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from codemode_console import source_view
from codemode_console.source_view import (
    MAX_HIGHLIGHTED_CHARACTERS,
    CallLocation,
    CallSites,
    ProgramView,
    create_program_view,
    is_source_of_compiled_js,
)
from codemode_console.visible_text import to_visible_text
from console_visitors import run
from hypothesis import given
from hypothesis import strategies as st
from record_desk import Element, Page, RecordDesk
from suite import each_row, full_only

TYPED = """interface Order {
  id: string;
}
const wanted: Order[] = [{ id: "A-17" } as Order];
const ask = async (one: Order):
  Promise<string> =>
  tools.refund({ order: one.id, cents: 90000 });
return await ask(wanted[0]!);"""


def marked(page: Page) -> dict[int, list[str]]:
    """Return the calls that each marked line leads to, by its number."""
    found: dict[int, list[str]] = {}
    for mark in page.all("mark"):
        line = mark.within("li")
        assert line is not None
        assert "waits" in mark.text
        links = page.all("a", lambda one, mark=mark: one.within("mark") is mark)
        found[int(line.attributes["value"] or 0)] = [str(link.attributes["href"]) for link in links]
    return found


def line_text(page: Page, number: int) -> str:
    def is_of_line(one: Element) -> bool:
        line = one.within("li")
        return line is not None and line.attributes.get("id") == f"line-{number}"

    (code,) = page.all("code", is_of_line)
    return code.text


def unmarked(view: ProgramView) -> str:
    return "\n".join(html.unescape(re.sub("<[^>]*>", "", str(line.code))) for line in view.lines)


def waiting_at(view: ProgramView) -> list[int]:
    return [line.number for line in view.lines if line.pending_calls]


@pytest.mark.parametrize("source", [None, TYPED])
def test_the_line_of_a_call_that_waits_is_marked_with_types_and_without(source: str | None) -> None:
    async def work() -> None:
        desk = RecordDesk()
        page = await desk.page(await desk.pause(TYPED, source=source))
        assert marked(page) == {7: ["#request-1"]}
        assert "tools.refund({ order: one.id, cents: 90000 });" in line_text(page, 7)
        assert "interface Order" in line_text(page, 1)  # as the model wrote it, kept beside the record or not
        assert "refund" in page.by_id("request-1").text
        assert line_text(page, 8) == "return await ask(wanted[0]!);"

    run(work)


def test_two_calls_of_one_line_lead_to_two_cards() -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = 'const both = [\n  tools.refund({ order: "A" }), tools.refund({ order: "B" })];\nreturn Promise.all(both);'
        record_id = await desk.pause(js)
        assert marked(await desk.page(record_id)) == {2: ["#request-1", "#request-2"]}
        await desk.answer(record_id, {"approved": True})
        assert marked(await desk.page(record_id)) == {2: ["#request-2"]}

    run(work)


def test_a_call_whose_line_nobody_knows_is_said_so() -> None:
    view = create_program_view(
        "return 1", [CallLocation("refund", "request-1", None), CallLocation("send", "request-2", 9)]
    )
    assert waiting_at(view) == []
    assert [one.name for one in view.unlocated_calls] == ["refund", "send"]


@each_row("before", [
    "// nothing\r", "// nothing\u2028", "/* a\rb */", "/* a\u2029b */ ", "`a\n\rb\u2028`;", "'a\\\r\\\u2028b';\n",
    "\r\r", "\n\r", "\u2028\u2029\n\n", "/* \r\r\r\n\n */",
])  # fmt: skip
def test_ends_of_lines_that_few_see_mark_no_other_line(before: str) -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = f'{before}return await tools.refund({{ order: "A" }});\n// refund\n// refund\n// refund\n// refund'
        page = await desk.page(await desk.pause(js))
        right = js[: js.index("return")].count("\n") + 1
        assert marked(page) in ({right: ["#request-1"]}, {})
        told = page.section("Program").text
        assert marked(page) or "Calls whose line is unknown" in told
        assert "unusual line ends" in told
        assert not set("\r\u2028\u2029") & set(page.text)

    run(work)


def test_plain_ends_of_lines_are_counted_as_the_engine_does() -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = "/* a\r\nb */ const s = `x\n\ny`;\r\n\v\f // \x85\u200b\nreturn await tools.refund({ order: s });\r\n"
        page = await desk.page(await desk.pause(js))
        assert list(marked(page)) == [6]
        assert "few people see" not in page.section("Program").text

    run(work)


def test_what_follows_an_end_of_a_line_is_no_comment() -> None:
    for end in "\r\u2028\u2029":
        (line,) = create_program_view(f"// nothing{end}steal()").lines
        comment, _, rest = str(line.code).partition("</span>")
        assert "nothing" in comment
        assert "steal" in rest


def test_another_text_than_what_runs_is_not_shown() -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = 'return await tools.refund({ order: "A" })'
        page = await desk.page(await desk.pause(js, source=js.replace("refund", "lookup")))
        assert "lookup" not in page.section("Program").text
        assert line_text(page, 1) == js

    run(work)


@each_row("source, js, same", [
    ("a: b", "a   ", True), ("a", "a", True), ("a<T>()", "a   ()", True), ("x as \U0001f600", "x      ", True),
    ("a", "b", False), ("a", "a ", False), ("f(a)", "f(b)", False), ("\ud800", " ", True),
])  # fmt: skip
def test_a_program_without_its_types_is_the_same_program(source: str, js: str, same: bool) -> None:
    assert is_source_of_compiled_js(source, js) is same


HOSTILE = "ab \n\r\t\"'`/*\\${}()[]<>&;1\u202e\u2028\u0301\U0001f600\ud800?.:@#!-"


@given(st.text(st.sampled_from(HOSTILE) | st.characters(), max_size=200))
def test_every_character_of_a_program_is_seen_and_none_is_markup(text: str) -> None:
    view = create_program_view(text)
    assert len(view.lines) == max(1, text.count("\n") + (not text.endswith("\n")))
    for line, shown in zip(view.lines, unmarked(view).split("\n"), strict=True):
        assert set(re.findall("<[^>]*>", str(line.code))) <= {
            "</span>",
            *(f'<span class="tok-{one}">' for one in "csmk"),
        }
        assert to_visible_text(shown) == shown
    if text.isascii() and text.replace("\t", "").replace("\n", "").isprintable():
        assert unmarked(view) == text.removesuffix("\n")


def test_of_a_long_program_the_beginning_and_the_lines_that_wait_are_shown() -> None:
    text = "\n".join(f"line{number}();" for number in range(1, 50_001))
    assert len(text) > MAX_HIGHLIGHTED_CHARACTERS
    view = create_program_view(text, [CallLocation("refund", "request-1", 40_000)])
    numbers = [line.number for line in view.lines]
    assert numbers[:500] == list(range(1, 501))
    assert numbers[500:] == list(range(39_990, 40_011))
    assert (waiting_at(view), view.is_whole, view.lines_omitted) == ([40_000], False, 9_990)
    assert view.lines[500].lines_omitted == 39_489
    one_line = create_program_view("x" * 100_000 + " tools.refund()", [CallLocation("refund", "request-1", 1, 100_008)])
    (line,) = one_line.lines
    assert "tools.refund()" in line.code
    assert len(line.code) < 5_000


def test_a_machine_that_stands_still_takes_neither_colours_nor_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    js = "const o = { id: 'x' };\nreturn await tools.refund({\n  order: o.id });"
    lines, lexer = [str(one.code) for one in create_program_view(js).lines], source_view.LEXER
    assert "tok-k" in lines[1]

    def late(text: str) -> Iterator[Any]:
        for one in lexer.get_tokens_unprocessed(text):
            time.sleep(0.01)
            yield one

    for module in (source_view, source_view):
        monkeypatch.setattr(module, "LEXER", SimpleNamespace(get_tokens_unprocessed=late))
    monkeypatch.setattr(source_view, "LEXER_SECONDS", 0.1)
    assert [str(one.code) for one in create_program_view(js).lines] == lines
    assert CallSites(js).find_start_line("refund", 3, 13) == 2


@pytest.mark.parametrize("piece", ["/*", "`${", "a :", *full_only('\\"', "a?", "/[", "(super) ", "?", "1;", "\u0301")])
def test_no_program_takes_the_lexer_long(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_view, "LEXER_SECONDS", 0.05)
    text = (piece * MAX_HIGHLIGHTED_CHARACTERS)[:MAX_HIGHLIGHTED_CHARACTERS]
    view = create_program_view(text)
    assert len(unmarked(view).replace("\\u0301", "\u0301")) == len(text)

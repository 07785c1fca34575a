"""The line that a page marks is the one in which a call begins, wherever in its arguments the engine was last."""

from __future__ import annotations

import re
from typing import Any

from codemode_console.source_view import MAX_HIGHLIGHTED_CHARACTERS, CallSites, find_call_sites
from console_visitors import run
from hypothesis import given
from hypothesis import strategies as st
from record_desk import RecordDesk
from suite import each_row
from test_console_record_program import marked

ONE = "const o = { id: 'x' };\n"
PROGRAMS = [
    (ONE + "return await tools.refund({\n  order: o.id,\n  cents: 2,\n});", 2),
    (ONE + "return await tools.refund(\n  { order: 'y',\n    cents: 2 }\n);", 2),
    (ONE + "const g = (x) => x;\nreturn await tools.refund({\n  order: g(o.id),\n  cents: 2,\n});", 3),
    (ONE + "return await tools\n  .refund({\n    order: `${o.id}`,\n  });", 3),
    (ONE + "const { refund } = tools;\nreturn await refund({\n  order: o.id });", 3),
    ("return await tools['refund']({\n  order: [1, 2].map((x) => {\n    return String(x)\n  }).join(','),\n});", 1),
    ("for (const one of ['x'].map((s) => s)) {\n  const z = (one.trim());\n  await tools.refund({ order: z });\n}", 3),
    (ONE + "return await tools.refund({ // ) }\n  order: o.id + ')' + \"refund(\", /* ( */ // refund({\n});", 2),
]  # fmt: skip


@each_row("js, line", PROGRAMS)
def test_the_line_in_which_a_call_begins_is_marked(js: str, line: int) -> None:
    async def work() -> None:
        desk = RecordDesk()
        page = await desk.page(await desk.pause(js))
        assert list(marked(page)) == [line]
        assert f"Line {line}." in page.section("Calls so far").text

    run(work)


def told_in(text: str, mark: str = "@") -> tuple[str, int, int]:
    """Return a program without its mark, and where that stood."""
    before, _, after = text.partition(mark)
    return before + after, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@each_row(
    "text, line",
    [
        ("tools.refund({\n a: tools.@refund({ a: 1 }) })", 2),  # its own place, in the arguments of another
        ("tools.refund({\n a: tools.find({ a: o.@id }) })", 1),  # the other's is no place of this one
        ("callTool(\n'refund',\n { a: o.@id })", 1),
        ("const t = tools.refund;\nt({\n a: o.@id })", 3),  # by a name that nobody knows
        ("@", 1),
        (")))}}}]]]\n@)", 2),
        ("(((\n@", 2),
    ],
)
def test_a_place_that_leads_to_no_call_stays(text: str, line: int) -> None:
    js, told, column = told_in(text)
    assert CallSites(js).find_start_line("refund", told, column) == line


@given(
    st.text("refund({['`$})];.\n\\/*x ", max_size=60), st.integers(-1, 8), st.none() | st.integers(-1, 20), st.text()
)
def test_whatever_a_program_says_a_line_of_it_comes_out(text: str, line: int, column: Any, name: str) -> None:
    found = CallSites(text).find_start_line(name, line, column)
    assert found == line or 1 <= found <= line


def test_what_is_too_long_or_of_unusual_ends_is_left_as_it_was_told() -> None:
    assert find_call_sites(None) is None
    assert find_call_sites("x" * (MAX_HIGHLIGHTED_CHARACTERS + 1)) is None
    assert find_call_sites("a\u2028b") is None
    assert re.search("CallSites", repr(find_call_sites("a")))

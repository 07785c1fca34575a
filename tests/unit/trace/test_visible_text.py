"""Text made safe to look at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.trace.unseen import has_only_visible_characters
from codemode.trace.visible_text import (
    align_columns,
    clip_to_visible_line,
    escape_invisible,
    format_count,
    split_program_lines_if_unambiguous,
)


@given(st.text())
def test_visible_text_is_printable_and_printable_text_is_left_alone(text):
    shown = escape_invisible(text)
    assert shown.isprintable()
    assert escape_invisible(shown) == shown
    assert shown == text or not has_only_visible_characters(text)


@each_row(
    "text, shown",
    [
        ("plain, ünï, 漢字", "plain, ünï, 漢字"),
        ("\x1b[2J", "\\u001b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\u{e0041}"),
        ("\ud800", "\\ud800"),
        ("a\nb", "a\\u000ab"),
        ("delete\u3164\ufe0f", "delete\\u3164\\ufe0f"),
        ("\U000e0141", "\\u{e0141}"),
    ],
)
def test_what_moves_the_cursor_or_hides_is_escaped(text, shown):
    assert escape_invisible(text) == shown


def test_some_characters_can_be_kept():
    assert escape_invisible("a\n\tb\r", keep="\n\t") == "a\n\tb\\u000d"


@given(st.text(), st.integers(1, 50))
def test_one_line_is_no_longer_than_asked(text, maximum):
    shown = clip_to_visible_line(text, maximum)
    assert len(shown) <= maximum
    assert shown.isprintable()
    assert shown == escape_invisible(text) or shown.endswith("…")


def test_rows_are_aligned_without_spaces_at_the_end():
    assert align_columns([("a", "bb", "c"), ("aaa", "b", "")]) == ["a    bb  c", "aaa  b"]
    assert align_columns([]) == []


def test_counts():
    assert [format_count(n, "call") for n in (0, 1, 1200)] == ["0 calls", "1 call", "1,200 calls"]


def test_the_lines_of_a_program_are_those_that_its_engine_counts():
    assert split_program_lines_if_unambiguous("a\x0b\x0c\x85b\r\nc\n") == ["a\x0b\x0c\x85b", "c"]
    assert [split_program_lines_if_unambiguous(text) for text in ("a\rb", "a\u2028b\n", "a\u2029")] == [[], [], []]

"""Bodies are bounded before they are read, and what is no form is said to be none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from codemode_console.bodies import (
    MAX_BODY_BYTES,
    MAX_FIELDS,
    BodyTooLargeError,
    MalformedBodyError,
    parse_form,
    parse_json_body,
    read_body,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

FORM = "application/x-www-form-urlencoded; charset=utf-8"
BOUNDARY = "x0123456789abcdef"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


def multipart(items: list[tuple[str, str]], more: str = "") -> bytes:
    parts = [
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
        f'"{name.replace(chr(13), "%0D").replace(chr(10), "%0A").replace(chr(34), "%22")}"{more}\r\n\r\n{text}\r\n'
        for name, text in items
    ]
    return "".join([*parts, f"--{BOUNDARY}--\r\n"]).encode()


texts = st.text(max_size=20)
names = st.one_of(st.text(alphabet="/abc~01 \u65e5", min_size=1, max_size=10), st.sampled_from(["/x y", '/a"b', "#"]))


@settings(max_examples=rounds(33, 100), deadline=None)
@given(st.lists(st.tuples(names, texts), max_size=8))
def test_fields_arrive_in_both_encodings(items: list[tuple[str, str]]):
    assert parse_form(FORM, urlencode(items).encode()) == items
    if not any(BOUNDARY in text for _, text in items):
        assert parse_form(MULTIPART, multipart(items)) == items


async def _chunks(taken: list[int], chunk: bytes, count: int) -> AsyncIterator[bytes]:
    for at in range(count):
        taken.append(at)
        yield chunk


def test_a_body_that_is_too_large_is_not_read_to_its_end():
    taken: list[int] = []
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_body({}, _chunks(taken, b"x" * 65536, 1000)))
    assert len(taken) == MAX_BODY_BYTES // 65536 + 1
    taken.clear()
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_body({"content-length": "5000000"}, _chunks(taken, b"x", 1)))
    assert taken == []
    assert asyncio.run(read_body({"content-length": "2"}, _chunks(taken, b"x", 2))) == b"xx"


@each_row("length", ["-1", "1e9", "x", "\u0661", "9" * 20, ""])
def test_a_length_that_is_none_is_refused(length: str):
    with pytest.raises(MalformedBodyError):
        asyncio.run(read_body({"content-length": length}, _chunks([], b"x", 1)))


def test_a_form_of_too_many_fields_is_refused():
    items = [("a", "b")] * MAX_FIELDS
    assert len(parse_form(FORM, urlencode(items).encode())) == MAX_FIELDS
    assert len(parse_form(MULTIPART, multipart(items))) == MAX_FIELDS
    for kind, body in [(FORM, urlencode([*items, ("a", "b")]).encode()), (MULTIPART, multipart([*items, ("a", "b")]))]:
        with pytest.raises(BodyTooLargeError):
            parse_form(kind, body)
    with pytest.raises(BodyTooLargeError):
        parse_form(FORM, b"x" * (MAX_BODY_BYTES + 1))


@each_row(
    "kind, body",
    [
        ("application/json", b"{}"),
        ("", b"a=b"),
        (FORM, b"a=%ff"),
        (FORM, b"\xff=a"),
        ("multipart/form-data", b""),
        (f"multipart/form-data; boundary={'x' * 300}", b""),
        (MULTIPART, b"nonsense"),
        (MULTIPART, multipart([("a", "b")])[:-10]),
        (MULTIPART, multipart([("a", "b")], '; filename="x.exe"')),
        (MULTIPART, multipart([("a", "b")]).replace(b"form-data;", b"attachment;")),
        (MULTIPART, b""),
    ],
)
def test_what_is_no_form_is_refused(kind: str, body: bytes):
    with pytest.raises(MalformedBodyError):
        parse_form(kind, body)


def test_json_is_bounded_in_levels():
    assert parse_json_body(b"[" * 128 + b"]" * 128) is not None
    assert parse_json_body(b' {"a": 12345678901234567890} ') == {"a": 12345678901234567890}
    for body in (b"[" * 129 + b"]" * 129, b"[" * 10**6, b"{", b"NaN", b"\xff", b"1e999"):
        with pytest.raises(MalformedBodyError):
            parse_json_body(body)

"""Parts of content as values: what they are made of, where they stand in others, and what describes them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import MediaContent
from codemode.data.content import (
    may_hold_content,
    replace_content_with_references,
    resolve_content_references,
    split_content,
)
from codemode.errors import CodeModeSerializationError
from codemode.host.steps import run_with_step_budget
from codemode.protocol.references import ContentRegistry
from codemode.types import ContentResult

PICTURE = MediaContent(b"\x89PNG", "image/png", name="a.png")


def contents(tag: str = "$content:1") -> ContentRegistry:
    made = ContentRegistry()
    made.reference_key = tag
    return made


@each_row(
    "mime_type, kind",
    [("image/png", "image"), ("AUDIO/wav", "audio"), ("video/mp4", "video"), ("text/plain", "file"), ("a/b", "file")],
)
def test_a_kind_follows_from_the_type(mime_type: str, kind: str):
    assert MediaContent(b"", mime_type).kind == kind


@each_row("mime_type", ["", "image", "image/", "/png", "image/png; a=b", "a/b\n", "a b/c", "x" * 99 + "/y"])
def test_what_is_no_type_is_refused(mime_type: str):
    with pytest.raises(ValueError, match="mime_type"):
        MediaContent(b"", mime_type)


def test_wrong_fields_are_named():
    with pytest.raises(TypeError, match="must be bytes, not str"):
        MediaContent("text", "text/plain")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind"):
        MediaContent(b"", "a/b", kind="picture")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name"):
        MediaContent(b"", "a/b", name="x" * 257)
    assert MediaContent(bytearray(b"x"), "a/b").data == b"x"  # type: ignore[arg-type]


def test_an_id_is_of_all_that_tells_parts_apart():
    ones = [
        PICTURE,
        MediaContent(b"\x89PNH", "image/png", name="a.png"),
        MediaContent(b"\x89PNG", "image/gif", name="a.png"),
        MediaContent(b"\x89PNG", "image/png", name="b.png"),
        MediaContent(b"\x89PNG", "image/png", name="a.png", kind="file"),
        MediaContent(b"\x89PNG", "image/png", name="a.png", origin="{}"),
    ]
    assert len({one.id for one in ones}) == len(ones)
    assert MediaContent(b"\x89PNG", "image/png", name="a.png").id == PICTURE.id


@dataclasses.dataclass
class Found:
    pictures: list[MediaContent]
    count: int = 1


def test_places_stand_for_parts_and_come_back():
    given = contents()
    found = Found([PICTURE])
    value = {"a": [PICTURE, 1], "b": (PICTURE,), "c": found, "d": {"e": None}}
    plain = replace_content_with_references(value, given)
    place = {"$content:1": PICTURE.id, "kind": "image", "mimeType": "image/png", "bytes": 4, "name": "a.png"}
    assert plain == {"a": [place, 1], "b": [place], "c": Found([place]), "d": {"e": None}}
    assert found.pictures == [PICTURE]  # what a tool keeps is its own
    assert plain["d"] is value["d"]
    assert resolve_content_references(plain["a"], given) == [PICTURE, 1]


def test_only_what_was_given_comes_back():
    given, other = contents(), contents()
    place = other.register(PICTURE)
    with pytest.raises(CodeModeSerializationError, match="that this program did not receive"):
        resolve_content_references([place], given)
    given.register(PICTURE)
    for forged in ({**place, "$content:1": 1}, {**place, "$content:1": [PICTURE.id]}, {"$content:1": "f" * 32}):
        with pytest.raises(CodeModeSerializationError):
            resolve_content_references({"x": forged}, given)
    # The tag of another run, and what has none, are data.
    data = [{"$content:2": PICTURE.id}, PICTURE.description]
    assert resolve_content_references(data, given) is data
    # Whatever else stands in a place, the host's own words count.
    assert resolve_content_references([{**place, "name": "b.png", "bytes": 1}], given, given.register) == [place]


def test_each_part_is_told_once_by_its_number():
    sound = MediaContent(b"x", "audio/wav")
    plain, parts = split_content(
        ContentResult({"a": PICTURE, "b": [sound, PICTURE]}, (sound, MediaContent(b"y", "audio/wav")))
    )
    numbers = plain["a"]["content"], plain["b"][0]["content"], plain["b"][1]["content"]
    assert (numbers, [part.data for part in parts]) == ((1, 2, 1), [PICTURE.data, b"x", b"y"])
    assert plain["a"] == {"content": 1, **PICTURE.description}
    assert split_content({"a": 1}) == ({"a": 1}, [])


def test_a_handle_is_a_part_however_deep_it_lies():
    made = contents()
    value = made.register(PICTURE)
    for _ in range(500):
        value = [{"x": value, "y": 1}]
    found = resolve_content_references(value, made)
    while isinstance(found, list):
        assert [*found[0]] == ["x", "y"]
        found = found[0]["x"]
    assert found is PICTURE
    plain = [{"x": (1, [2])}]
    assert resolve_content_references(plain, made) is plain


LISTS: list[Any] = [[] for _ in range(4000)]
_LEAVES = st.none() | st.integers() | st.text(max_size=2) | st.just(PICTURE) | st.just(ContentResult(1, (PICTURE,)))
VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(OrderedDict, st.dictionaries(st.text(max_size=2), inner, max_size=2))
        | st.builds(SimpleNamespace, of=inner)
    ),
)


@given(VALUES)
def test_a_search_misses_no_part(value: Any):
    plain, parts = split_content([value])
    assert (PICTURE in parts) == (plain != [value])
    assert may_hold_content([value]) or parts == []


@pytest.mark.parametrize(
    "value", [LISTS, [[[one]] for one in LISTS[:1500]], {str(at): {} for at in range(4000)}], ids=len
)
def test_a_result_without_content_is_looked_through_in_few_steps(value: Any):
    assert run_with_step_budget(lambda: split_content(value)) == (value, [])


def test_what_is_there_many_times_over_is_looked_through_all_the_same():
    value: Any = [1]
    for _ in range(22):
        value = [value, value]
    assert may_hold_content(value)


def test_a_part_from_another_process_is_one_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pickle.dumps(PICTURE)
    for copied in (lambda: pickle.loads(text), lambda: copy.deepcopy(PICTURE), lambda: copy.copy(PICTURE)):
        monkeypatch.setattr(MediaContent, "has_instances", False)
        assert copied() == PICTURE
        assert MediaContent.has_instances

"""The content of one invocation: its bounds, its tag, and how a continuation carries it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from invocation_settings import SETTINGS, limited
from suite import each_row

from codemode import CodeModeProtocolError, MediaContent
from codemode.errors import CodeModeSerializationError
from codemode.execution.call_content import replace_part_names_in_ledger
from codemode.protocol.continuation import (
    Continuation,
    continuation_from_texts,
    continuation_to_texts,
    encode_content_parts,
    read_content_parts,
)
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry
from codemode.protocol.references import CONTENT_LIMIT, MAX_CARRIED_BYTES, ContentRegistry, get_content_tag

WITH = SETTINGS
WITHOUT = dataclasses.replace(SETTINGS, profile=dataclasses.replace(SETTINGS.profile, has_content=False))
PICTURE = MediaContent(b"\x89PNG", "image/png", name="a.png", origin='{"detail":"low"}')


@pytest.mark.parametrize(
    ("limit", "maximum"), [("max_content_part_bytes", 3), ("max_content_bytes", 5), ("max_content_parts", 1)]
)
def test_the_option_of_a_limit_is_named(limit: str, maximum: int):
    contents = ContentRegistry().assign_to_invocation(limited(WITH, **{limit: maximum}).limits, WITH.salt)
    contents.register(MediaContent(b"abc", "text/plain"))
    with pytest.raises(CodeModeSerializationError, match=rf"execution_policy\.{limit} is {maximum}") as raised:
        contents.register(MediaContent(b"abcd", "text/plain"))
    assert (raised.value.code, raised.value.details["limit"]) == (CONTENT_LIMIT, limit)
    assert len(contents) == 1
    contents.register(MediaContent(b"abc", "text/plain"))  # what it has counts no second time


def test_a_tag_is_of_one_run_and_of_profiles_that_have_content():
    assert "content" not in WITHOUT.to_worker_fields()
    tag = get_content_tag(WITH.salt)
    assert WITH.to_worker_fields()["content"] == tag
    assert tag != get_content_tag("another")
    assert WITH.salt not in tag


def carried(contents: ContentRegistry) -> ContentRegistry:
    made = Continuation.from_ledger("js", "engine", WITH, Ledger(contents=contents)).to_dict()
    read = Continuation.from_dict(continuation_from_texts(continuation_to_texts(made))).ledger.contents
    assert read is not None
    return read


def test_a_continuation_carries_content():
    contents = ContentRegistry().assign_to_invocation(WITH.limits, WITH.salt)
    for part in (PICTURE, MediaContent(b"", "text/plain")):
        contents.register(part)
    assert [*carried(contents)] == [*contents]


def test_a_continuation_carries_so_much_and_names_what_to_give():
    contents = ContentRegistry().assign_to_invocation(WITH.limits, WITH.salt)
    contents.register(MediaContent(b"x" * MAX_CARRIED_BYTES, "a/b"))
    assert carried(contents).total_bytes == MAX_CARRIED_BYTES
    contents.register(MediaContent(b"x", "a/b"))
    with pytest.raises(CodeModeSerializationError, match=r"continuation\.content_store"):
        Continuation.from_ledger("js", "engine", WITH, Ledger(contents=contents))
    kept = Continuation.from_ledger("js", "engine", WITH, Ledger(contents=contents), carries_content=False)
    assert kept.to_dict()["contents"] == []


def one(part: MediaContent) -> dict[str, object]:
    contents = ContentRegistry()
    contents.add_admitted_part(part)
    return encode_content_parts(contents)[0]


@each_row(
    "changed",
    [
        {"data": "*"},
        {"data": 1},
        {"kind": "picture"},
        {"mimeType": "x"},
        {"name": 5},
        {"origin": []},
        {"more": 1},
        {"at": "0" * 32},
        {"at": "#"},
        {"at": 1},
        {"data": "AAAA"},  # of other bytes than its id says
    ],
)
def test_content_that_could_not_have_been_is_refused(changed: dict[str, object]):
    with pytest.raises(CodeModeProtocolError):
        read_content_parts([{**one(PICTURE), **changed}])
    for twice in ([one(PICTURE)] * 2, [one(PICTURE) | {"at": "#1"}] * 2):
        with pytest.raises(CodeModeProtocolError):
            read_content_parts(twice)


def numbered(*parts: MediaContent) -> ContentRegistry:
    contents = ContentRegistry().assign_to_invocation(WITH.limits, WITH.salt)
    contents.uses_ids = False
    for part in parts:
        contents.register(part)
    return contents


def has_digest(part: MediaContent) -> bool:
    return "digest" in vars(part)


def test_numbers_take_no_digest_where_nothing_is_alike_and_tell_parts_apart_where_it_is():
    first, longer, same, other = (MediaContent(data, "a/b") for data in (b"abc", b"abcd", b"abc", b"abd"))
    contents = numbered(first, longer)
    assert contents.register(first) == {contents.reference_key: "#1", **first.description}
    assert [name for name, _ in contents.items()] == ["#1", "#2"]
    assert not has_digest(first)
    assert contents.list_parts_to_hash(first) == contents.list_parts_to_hash(MediaContent(b"", "a/b")) == []
    assert contents.list_parts_to_hash(same) == [same, first]
    assert contents.register(same)[contents.reference_key] == "#1"
    assert contents.register(other)[contents.reference_key] == "#3"
    assert not has_digest(longer)


def test_what_people_are_shown_has_ids_and_an_answer_may_bring_them_back():
    part = MediaContent(b"abc", "a/b")
    contents = numbered(PICTURE, part)
    place = contents.register(part)
    quoted = json.dumps({"text": json.dumps(place)})
    text = json.dumps([{"of": place}, place, quoted], separators=(",", ":"))
    shown = json.loads(contents.replace_names_with_ids(text) or "")
    assert shown == [
        {"of": place | {contents.reference_key: part.id}},
        place | {contents.reference_key: part.id},
        quoted,
    ]
    assert contents.get(shown[1][contents.reference_key]) is part
    assert contents.register(contents.get(part.id)) == place
    for unknown in ("#0", "#3", "0" * 32, 1, None):
        with pytest.raises(CodeModeSerializationError, match="that this program did not receive"):
            contents.get(unknown)
    unknown = json.dumps(place | {contents.reference_key: "#9"}, separators=(",", ":"))
    assert [contents.replace_names_with_ids(one) for one in (None, unknown)] == [None, unknown]
    assert ContentRegistry().replace_names_with_ids('{"":"#1"}') == '{"":"#1"}'


def test_a_continuation_carries_parts_under_their_numbers_and_a_run_goes_on_counting():
    contents = numbered(PICTURE, MediaContent(b"abc", "a/b"))
    read = carried(contents)
    assert [*read.items()] == [*contents.items()]
    on = ContentRegistry().assign_to_invocation(WITH.limits, WITH.salt, read)
    on.uses_ids = False
    assert on.register(MediaContent(b"abc", "a/b"))[on.reference_key] == "#2"
    assert on.register(MediaContent(b"new", "c/d"))[on.reference_key] == "#3"


def test_a_ledger_for_a_store_has_ids_in_place_of_numbers():
    part = MediaContent(b"abc", "a/b")
    contents = numbered(PICTURE, part)
    text = json.dumps(contents.register(part), separators=(",", ":"))
    entries = [
        LedgerEntry(1, "tool", "t", "{}", outcome=Fulfilled(text)),
        LedgerEntry(2, "tool", "t", f'{{"of":{text}}}', executed_input_json=text, outcome=Fulfilled(None)),
        LedgerEntry(3, "tool", "t", "{}"),
    ]
    ledger = replace_part_names_in_ledger(Ledger(entries, contents=contents))
    said = json.dumps(part.description | {contents.reference_key: part.id})
    assert json.loads(ledger[1].outcome.value_json) == json.loads(said)  # type: ignore[union-attr]
    assert json.loads(ledger[2].input_json or "") == {"of": json.loads(said)}
    assert json.loads(ledger[2].executed_input_json or "") == json.loads(said)
    assert ledger.contents is not None
    assert [name for name, _ in ledger.contents.items()] == [PICTURE.id, part.id]
    assert replace_part_names_in_ledger(ledger) is ledger

"""The content of one invocation: its bounds, its tag, and how a continuation carries it."""

from __future__ import annotations

import dataclasses

import pytest
from invocation_settings import SETTINGS, limited

from codemode import CodeModeProtocolError, CodeModeSerializationError, Content
from codemode.protocol.contents import CONTENT_LIMIT, MAX_CARRIED_BYTES, Contents, tag_of
from codemode.protocol.continuation import Continuation, body_of, texts_of
from codemode.protocol.kept_contents import part_to_dict, read_contents
from codemode.protocol.ledger import Ledger

WITH = SETTINGS
WITHOUT = dataclasses.replace(SETTINGS, profile=dataclasses.replace(SETTINGS.profile, has_content=False))
PICTURE = Content(b"\x89PNG", "image/png", name="a.png", origin='{"detail":"low"}')


@pytest.mark.parametrize(
    ("limit", "maximum"), [("max_content_part_bytes", 3), ("max_content_bytes", 5), ("max_content_parts", 1)]
)
def test_the_option_of_a_limit_is_named(limit: str, maximum: int):
    contents = Contents().under(limited(WITH, **{limit: maximum}).limits, WITH.salt)
    contents.take(Content(b"abc", "text/plain"))
    with pytest.raises(CodeModeSerializationError, match=rf"execution_policy\.{limit} is {maximum}") as raised:
        contents.take(Content(b"abcd", "text/plain"))
    assert (raised.value.code, raised.value.details["limit"]) == (CONTENT_LIMIT, limit)
    assert len(contents) == 1
    contents.take(Content(b"abc", "text/plain"))  # what it has counts no second time


def test_a_tag_is_of_one_run_and_of_profiles_that_have_content():
    assert "content" not in WITHOUT.for_worker()
    tag = tag_of(WITH.salt)
    assert WITH.for_worker()["content"] == tag
    assert tag != tag_of("another")
    assert WITH.salt not in tag


def carried(contents: Contents) -> Contents:
    made = Continuation.of("js", "engine", WITH, Ledger(contents=contents)).to_dict()
    read = Continuation.from_dict(body_of(texts_of(made))).ledger.contents
    assert read is not None
    return read


def test_a_continuation_carries_content():
    contents = Contents().under(WITH.limits, WITH.salt)
    for part in (PICTURE, Content(b"", "text/plain")):
        contents.take(part)
    assert [*carried(contents)] == [*contents]


def test_a_continuation_carries_so_much_and_names_what_to_give():
    contents = Contents().under(WITH.limits, WITH.salt)
    contents.take(Content(b"x" * MAX_CARRIED_BYTES, "a/b"))
    assert carried(contents).bytes == MAX_CARRIED_BYTES
    contents.take(Content(b"x", "a/b"))
    with pytest.raises(CodeModeSerializationError, match=r"continuation\.content_store"):
        Continuation.of("js", "engine", WITH, Ledger(contents=contents))
    kept = Continuation.of("js", "engine", WITH, Ledger(contents=contents), carries_content=False)
    assert kept.to_dict()["contents"] == []


@pytest.mark.parametrize(
    "changed",
    [{"data": "*"}, {"data": 1}, {"kind": "picture"}, {"mimeType": "x"}, {"name": 5}, {"origin": []}, {"more": 1}],
)
def test_content_that_could_not_have_been_is_refused(changed: dict[str, object]):
    with pytest.raises(CodeModeProtocolError):
        read_contents([{**part_to_dict(PICTURE), **changed}])
    with pytest.raises(CodeModeProtocolError):
        read_contents([part_to_dict(PICTURE)] * 2)

"""What a client is answered: the whole of a response as text and as structured content, media as blocks."""

from __future__ import annotations

import base64
import json
from typing import Any

from codemode_gateway.gateway.mcp_server import to_call_tool_result
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

PNG = base64.b64encode(b"an image").decode()
EMPTY: dict[str, Any] = {"logs": [], "diagnostics": []}


def image(data: str = PNG, mime_type: str = "image/png", kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "data": data, "mimeType": mime_type}


def said(result: Any, output: Any = "both", **more: Any) -> tuple[Any, Any, list[Any]]:
    """Return the text as JSON, the structured content, and the other blocks."""
    answer = to_call_tool_result({**EMPTY, "result": result, **more}, output)
    assert not answer.is_error
    text, *blocks = answer.content or [None]
    return (None if text is None else json.loads(text.text)), answer.structured_content, blocks  # type: ignore[union-attr]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_text_and_structured_content_both_say_the_whole_result(result: Any):
    text, structured, blocks = said(result)
    assert text == {"result": result}
    assert structured == {**EMPTY, "result": result}
    assert not blocks


def test_the_text_is_compact_and_leaves_out_what_is_empty():
    answer = to_call_tool_result({**EMPTY, "result": {"a": [1, "ä"]}, "declarations": ""})
    assert answer.content[0].text == '{"result":{"a":[1,"ä"]}}'  # type: ignore[union-attr]


@each_row("empty", [None, [], {}, "", 0, False])
def test_a_result_is_told_even_where_it_says_little(empty: Any):
    text, *_ = said(empty)
    assert "result" in text
    assert text["result"] == empty


def test_an_operator_chooses_one_of_the_two():
    assert said(7, "text")[:2] == ({"result": 7}, None)
    assert said(7, "structured")[:2] == (None, {**EMPTY, "result": 7})


def test_a_failing_program_is_a_normal_answer():
    wrong = [{"severity": "error", "code": "UNCAUGHT_EXCEPTION", "message": "no"}]
    text, structured, _ = said(None, diagnostics=wrong)
    assert text["diagnostics"] == structured["diagnostics"] == wrong


def test_images_and_audio_become_blocks_with_a_reference_in_their_place():
    sound = image(kind="audio", mime_type="audio/wav")
    text, structured, blocks = said({"shots": [image(), {"deep": sound}], "same": image()})
    assert structured is None, "a client that has any shows its model nothing else"
    reference = {"type": "image", "mimeType": "image/png", "block": 1}
    heard = {"type": "audio", "mimeType": "audio/wav", "block": 2}
    assert text["result"] == {"shots": [reference, {"deep": heard}], "same": reference}
    assert [(one.type, one.data, one.mime_type) for one in blocks] == [
        ("image", PNG, "image/png"),
        ("audio", PNG, "audio/wav"),
    ]


def test_a_client_that_is_given_structured_content_alone_still_sees_images():
    text, structured, blocks = said(image(), "structured")
    assert structured is None
    assert text["result"]["block"] == 1
    assert len(blocks) == 1


@each_row(
    "odd",
    [
        image(data="no base64!"),
        image(data=""),
        image(data="abc"),
        image(mime_type="text/html"),
        image(mime_type="image/png; evil\n"),
        image(kind="audio"),
        {"type": "image", "data": 7, "mimeType": "image/png"},
        {"type": "image"},
        {"type": "text", "text": "words"},
        {"type": "resource", "resource": {"uri": "a:b", "blob": PNG}},
        {"type": "resource_link", "uri": "a:b", "name": "b"},
    ],
)
def test_what_is_no_image_stays_json(odd: Any):
    text, structured, blocks = said([odd])
    assert text["result"] == structured["result"] == [odd]
    assert not blocks


def test_there_are_no_more_blocks_than_anybody_shows():
    shots = [image(base64.b64encode(b"%d" % at).decode()) for at in range(200)]
    text, _, blocks = said(shots)
    assert len(blocks) == 64
    assert len(text["result"]) == 200
    assert text["result"][64:] == shots[64:]


def test_a_deep_result_is_answered():
    deep: Any = image()
    for _ in range(400):
        deep = [deep]
    assert len(said(deep)[2]) == 1

"""Images and files of the SDK as handles in programs, and back. Starts nothing."""

from __future__ import annotations

import json
from typing import Any

from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from codemode_openai_agents.content import (
    from_media_content,
    replace_content_schemas,
    to_media_content,
    to_program_value,
    to_tool_output,
)
from suite import each_row

HELLO = "aGVsbG8="
IMAGE: dict[str, Any] = {"type": "image", "image_url": f"data:image/png;base64,{HELLO}"}
PDF: dict[str, Any] = {"type": "file", "file_data": f"data:application/pdf;base64,{HELLO}", "filename": "a.pdf"}


@each_row(
    "given, described",
    [
        (IMAGE, ("image", "image/png", 5, None)),
        ({**IMAGE, "detail": "low"}, ("image", "image/png", 5, None)),
        ({"type": "image", "image_url": "https://a/b.png"}, ("image", "application/octet-stream", 0, None)),
        ({"type": "image", "file_id": "file-1", "detail": "high"}, ("image", "application/octet-stream", 0, None)),
        (PDF, ("file", "application/pdf", 5, "a.pdf")),
        ({"type": "file", "file_url": "https://a/b"}, ("file", "application/octet-stream", 0, None)),
    ],
)
def test_there_and_back(given: dict[str, Any], described: tuple[Any, ...]) -> None:
    part = to_media_content(given)
    assert part is not None
    assert tuple(part.description.values()) == described
    assert from_media_content(part) == given
    assert to_tool_output(part).model_dump(exclude_none=True) == given
    model = ToolOutputImage if given["type"] == "image" else ToolOutputFileContent
    assert to_media_content(model(**given)) == part


def test_a_file_of_bare_base64_is_of_the_type_that_its_name_says() -> None:
    part = to_media_content({"type": "file", "file_data": HELLO, "filename": "a.pdf"})
    assert part is not None
    assert from_media_content(part) == PDF


@each_row(
    "given",
    [
        3,
        {"type": "text", "text": "x"},
        {"type": "image"},
        {"type": "image", "image_url": "data:image/png,hello"},
        {"type": "image", "image_url": "data:image/png;base64,???"},
        {"type": "image", "image_url": f"data:no type;base64,{HELLO}"},
        {"type": "file", "file_data": "???"},
        {"type": ["image"]},
    ],
)
def test_what_is_no_content(given: Any) -> None:
    assert to_media_content(given) is None


@each_row(
    "output, is_of_server, value",
    [
        (ToolOutputText(text="x"), False, "x"),
        ([{"type": "text", "text": "x"}, ToolOutputText(text="y")], False, ["x", "y"]),
        ('{"n": 1}', False, '{"n": 1}'),
        ('{"n": 1}', True, {"n": 1}),
        ({"type": "text", "text": "[1]"}, True, [1]),
        ("{not JSON", True, "{not JSON"),
        ("17", True, "17"),
        ({"type": "text", "text": "x", "more": 1}, False, {"type": "text", "text": "x", "more": 1}),
        ({1, 2}, False, [1, 2]),
    ],
)
def test_values(output: Any, is_of_server: bool, value: Any) -> None:
    assert to_program_value(output, parses_json=is_of_server) == value


def test_schemas_of_the_sdk_are_content() -> None:
    made = replace_content_schemas(ToolOutputImage.model_json_schema() | {"title": "x"})
    assert made["x-codemode"] == "content"
    listed = replace_content_schemas({"anyOf": [ToolOutputFileContent.model_json_schema(), {"type": "string"}]})
    assert json.dumps(listed).count("x-codemode") == 1

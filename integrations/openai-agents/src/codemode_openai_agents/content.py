"""Convert the SDK's images, files and tool outputs to program values and back."""

from __future__ import annotations

import binascii
import json
import mimetypes
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, cast

from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from codemode import MediaContent
from codemode.plugins import replace_content, run_off_loop_if_large

_UNKNOWN_MIME_TYPE = "application/octet-stream"
_CONTENT_TYPES = ("image", "file")  # a tuple: a tool's "type" may be unhashable


def to_media_content(value: Any) -> MediaContent | None:
    """Convert an image or a file of the SDK, object or dict, to `MediaContent`; None for any other value."""
    if isinstance(value, ToolOutputImage | ToolOutputFileContent):
        value = value.model_dump(exclude_none=True)
    item = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if item.get("type") not in _CONTENT_TYPES:
        return None
    return _image_to_media_content(item) if item["type"] == "image" else _file_to_media_content(item)


def _image_to_media_content(item: dict[str, Any]) -> MediaContent | None:
    url: Any = item.get("image_url")
    if isinstance(url, str) and url.startswith("data:"):
        decoded = _decode_data_url(url)
        if decoded is None:
            return None
        detail = item.get("detail")
        return MediaContent(*decoded, kind="image", origin=None if detail is None else json.dumps({"detail": detail}))
    return (
        _create_remote_content(item, "image") if isinstance(url, str) or isinstance(item.get("file_id"), str) else None
    )


def _file_to_media_content(item: dict[str, Any]) -> MediaContent | None:
    data: Any = item.get("file_data")
    name: Any = item.get("filename")
    filename = name[:256] if isinstance(name, str) else None
    if isinstance(data, str):
        mime_type = mimetypes.guess_type(filename or "")[0] or _UNKNOWN_MIME_TYPE
        decoded = _decode_data_url(data if data.startswith("data:") else f"data:{mime_type};base64,{data}")
        return None if decoded is None else MediaContent(*decoded, kind="file", name=filename)
    sources = (item.get("file_url"), item.get("file_id"))
    return (
        _create_remote_content(item, "file", filename) if any(isinstance(source, str) for source in sources) else None
    )


def _create_remote_content(item: dict[str, Any], kind: Any, filename: str | None = None) -> MediaContent:
    """Return content without bytes for an image or a file that only the provider has."""
    texts = {key: text for key, text in item.items() if isinstance(text, str)}
    return MediaContent(b"", _UNKNOWN_MIME_TYPE, kind=kind, name=filename, origin=json.dumps(texts, sort_keys=True))


def _decode_data_url(url: str) -> tuple[bytes, str] | None:
    header, _, text = url[len("data:") :].partition(",")
    mime_type, *parameters = header.split(";")
    if "base64" not in parameters:
        return None
    try:
        data = b64decode(text, validate=True)
        return data, MediaContent(b"", mime_type or _UNKNOWN_MIME_TYPE).mime_type
    except (binascii.Error, ValueError):
        return None


def from_media_content(part: MediaContent) -> dict[str, Any]:
    """Convert `MediaContent` to the SDK's dict, as tools accept it and models read it."""
    item: dict[str, Any] = json.loads(part.origin) if part.origin is not None else {}
    if "type" in item:
        return item
    url = f"data:{part.mime_type};base64,{b64encode(part.data).decode()}"
    if part.kind == "image":
        return {"type": "image", "image_url": url, **item}
    suffix = mimetypes.guess_extension(part.mime_type) or ""
    return {"type": "file", "file_data": url, "filename": part.name or f"file{suffix}"}


def to_tool_output(part: MediaContent) -> ToolOutputImage | ToolOutputFileContent:
    """Convert `MediaContent` to the SDK's object, as a tool returns it."""
    item = from_media_content(part)
    return ToolOutputImage(**item) if item["type"] == "image" else ToolOutputFileContent(**item)


def describe_content(part: MediaContent) -> dict[str, Any]:
    """Return the description that approvers and rules get instead of the bytes."""
    return part.description


def to_program_value(output: Any, *, parses_json: bool) -> Any:
    """Convert a tool's output to the plain JSON that a program gets.

    Dataclasses, pydantic models and the JSON text of MCP tools become JSON values, where the SDK would send a model
    ``str(output)``.
    """
    replaced = _unwrap_text_outputs(replace_content(output, to_media_content), parses_json)
    try:
        return to_jsonable_python(replaced, by_alias=True, fallback=str)
    except ValueError:  # undecodable bytes or a reference cycle: the core converts what it can
        return replaced


def _unwrap_text_outputs(output: Any, parses_json: bool) -> Any:
    if isinstance(output, list):
        return [_unwrap_text_outputs(item, parses_json) for item in cast("list[Any]", output)]
    if isinstance(output, ToolOutputText):
        return _parse_json_or_keep_text(output.text, parses_json)
    if isinstance(output, dict) and set(cast("dict[str, Any]", output)) == {"type", "text"}:
        fields = cast("dict[str, Any]", output)
        return _parse_json_or_keep_text(fields["text"], parses_json) if fields["type"] == "text" else fields
    return _parse_json_or_keep_text(output, parses_json)


def _parse_json_or_keep_text(text: Any, parses_json: bool) -> Any:
    if not parses_json or not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def replace_content_schemas(schema: Any) -> Any:
    """Replace the schemas of the SDK's images and files by that of `MediaContent`."""
    if isinstance(schema, list):
        return [replace_content_schemas(value) for value in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    mapping = cast("dict[str, Any]", schema)
    if _is_content_schema(mapping):
        return dict(MediaContent.json_schema)
    return {key: replace_content_schemas(value) for key, value in mapping.items()}


def is_image_or_file_type(annotation: Any) -> bool:
    """Return whether a type is an image or a file of the SDK."""
    return annotation in (ToolOutputImage, ToolOutputFileContent)


def is_sdk_output_type(annotation: Any) -> bool:
    """Return whether a type is one of the SDK's output types."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation in _OUTPUT_TYPES


_OUTPUT_TYPES = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


def _is_content_schema(schema: Mapping[str, Any]) -> bool:
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict):
        return False
    fields = cast("dict[str, Any]", properties)
    kind: Any = fields.get("type")
    return (
        isinstance(kind, dict) and cast("dict[str, Any]", kind).get("const") in _CONTENT_TYPES and "file_id" in fields
    )


def make_function_call(
    name: str, call_id: str, arguments: Any, serialize_content: Callable[[MediaContent], Any] = describe_content
) -> ResponseFunctionToolCall:
    """Return a call as a model makes one; ``serialize_content`` replaces the media in its arguments."""
    text = json.dumps(arguments, ensure_ascii=False, default=serialize_content)
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=text, type="function_call")


async def make_function_call_async(
    name: str, call_id: str, arguments: Any, serialize_content: Callable[[MediaContent], Any] = describe_content
) -> ResponseFunctionToolCall:
    """Return a call as `make_function_call` does; large arguments are serialized in a thread."""
    return await run_off_loop_if_large(
        arguments, lambda: make_function_call(name, call_id, arguments, serialize_content)
    )

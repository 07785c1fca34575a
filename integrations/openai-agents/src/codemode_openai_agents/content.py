"""The SDK's images and files as content of a program, and back; and what a tool gives as a value. Runs nothing."""

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
from codemode.plugins import replace_content, run_bounded

_UNKNOWN = "application/octet-stream"
_KINDS = ("image", "file")  # looked for by equality: what a tool gives need not have a hash


def content_of(one: Any) -> MediaContent | None:
    """Return the content that an image or a file of the SDK is, as an object or as a dict; None for anything else."""
    if isinstance(one, ToolOutputImage | ToolOutputFileContent):
        one = one.model_dump(exclude_none=True)
    said = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
    if said.get("type") not in _KINDS:
        return None
    return _image(said) if said["type"] == "image" else _file(said)


def _image(said: dict[str, Any]) -> MediaContent | None:
    url: Any = said.get("image_url")
    if isinstance(url, str) and url.startswith("data:"):
        read = _of_data_url(url)
        if read is None:
            return None
        detail = said.get("detail")
        return MediaContent(*read, kind="image", origin=None if detail is None else json.dumps({"detail": detail}))
    return _elsewhere(said, "image") if isinstance(url, str) or isinstance(said.get("file_id"), str) else None


def _file(said: dict[str, Any]) -> MediaContent | None:
    data: Any = said.get("file_data")
    name: Any = said.get("filename")
    named = name[:256] if isinstance(name, str) else None
    if isinstance(data, str):
        guessed = mimetypes.guess_type(named or "")[0] or _UNKNOWN
        read = _of_data_url(data if data.startswith("data:") else f"data:{guessed};base64,{data}")
        return None if read is None else MediaContent(*read, kind="file", name=named)
    given = (said.get("file_url"), said.get("file_id"))
    return _elsewhere(said, "file", named) if any(isinstance(one, str) for one in given) else None


def _elsewhere(said: dict[str, Any], kind: Any, name: str | None = None) -> MediaContent:
    """Return the handle of something whose bytes only the provider has."""
    plain = {key: value for key, value in said.items() if isinstance(value, str)}
    return MediaContent(b"", _UNKNOWN, kind=kind, name=name, origin=json.dumps(plain, sort_keys=True))


def _of_data_url(url: str) -> tuple[bytes, str] | None:
    head, _, text = url[len("data:") :].partition(",")
    mime_type, *settings = head.split(";")
    if "base64" not in settings:
        return None
    try:
        data = b64decode(text, validate=True)
        return data, MediaContent(b"", mime_type or _UNKNOWN).mime_type
    except (binascii.Error, ValueError):
        return None


def object_of(part: MediaContent) -> dict[str, Any]:
    """Return the SDK's dict for a part: what a tool takes, and what the model is shown."""
    told: dict[str, Any] = json.loads(part.origin) if part.origin is not None else {}
    if "type" in told:
        return told
    url = f"data:{part.mime_type};base64,{b64encode(part.data).decode()}"
    if part.kind == "image":
        return {"type": "image", "image_url": url, **told}
    suffix = mimetypes.guess_extension(part.mime_type) or ""
    return {"type": "file", "file_data": url, "filename": part.name or f"file{suffix}"}


def shown(part: MediaContent) -> ToolOutputImage | ToolOutputFileContent:
    """Return the SDK's object for a part, as a tool returns it."""
    made = object_of(part)
    return ToolOutputImage(**made) if made["type"] == "image" else ToolOutputFileContent(**made)


def described(part: MediaContent) -> dict[str, Any]:
    """Return what people and rules read of a part: no bytes."""
    return part.described


def value_of(output: Any, *, is_of_server: bool) -> Any:
    """Return the plain JSON that a program gets of what a tool returned.

    What the model would read as ``str(output)`` is JSON here: of dataclasses, pydantic models and the like, and in the
    text of a server's tool too.
    """
    placed = _texts(replace_content(output, content_of), is_of_server)
    try:
        return to_jsonable_python(placed, by_alias=True, fallback=str)
    except ValueError:  # bytes that are no text, or a circle: the core reads what it can
        return placed


def _texts(output: Any, is_of_server: bool) -> Any:
    if isinstance(output, list):
        return [_texts(one, is_of_server) for one in cast("list[Any]", output)]
    if isinstance(output, ToolOutputText):
        return _read(output.text, is_of_server)
    if isinstance(output, dict) and set(cast("dict[str, Any]", output)) == {"type", "text"}:
        said = cast("dict[str, Any]", output)
        return _read(said["text"], is_of_server) if said["type"] == "text" else said
    return _read(output, is_of_server)


def _read(said: Any, is_of_server: bool) -> Any:
    if not is_of_server or not isinstance(said, str) or not said.lstrip().startswith(("{", "[")):
        return said
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said


def with_content_schemas(schema: Any) -> Any:
    """Return a JSON Schema in which the SDK's images and files are content of a program."""
    if isinstance(schema, list):
        return [with_content_schemas(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    if _is_object_schema(known):
        return dict(MediaContent.json_schema)
    return {key: with_content_schemas(one) for key, one in known.items()}


def is_content(annotation: Any) -> bool:
    """Tell whether a type is an image or a file of the SDK."""
    return annotation in (ToolOutputImage, ToolOutputFileContent)


def is_output(annotation: Any) -> bool:
    """Tell whether a type is one of those that the SDK reads as an output for a model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation in _OUTPUTS


_OUTPUTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


def _is_object_schema(schema: Mapping[str, Any]) -> bool:
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict):
        return False
    said = cast("dict[str, Any]", properties)
    kind: Any = said.get("type")
    return isinstance(kind, dict) and cast("dict[str, Any]", kind).get("const") in _KINDS and "file_id" in said


def call_of(
    name: str, call_id: str, arguments: Any, written: Callable[[MediaContent], Any] = described
) -> ResponseFunctionToolCall:
    """Return a call in the shape in which a model makes one. ``written`` says what stands for content in it."""
    text = json.dumps(arguments, ensure_ascii=False, default=written)
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=text, type="function_call")


async def made_call(
    name: str, call_id: str, arguments: Any, written: Callable[[MediaContent], Any] = described
) -> ResponseFunctionToolCall:
    """Return the same; arguments that take their time to be written do so in a thread."""
    return await run_bounded(arguments, lambda: call_of(name, call_id, arguments, written))

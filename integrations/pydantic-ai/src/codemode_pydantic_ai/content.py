"""The framework's media as content of a program and back, and values as plain JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import chain, count
from typing import Any, cast
from uuid import UUID

from pydantic import AliasChoices, BaseModel, RootModel, Secret, SecretBytes, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    MultiModalContent,
    ToolReturn,
    UploadedFile,
    VideoUrl,
    tool_return_ta,
)

from codemode import MediaContent
from codemode.plugins import list_items, replace_content, restore_content, split_content

_TYPES = (BinaryContent, ImageUrl, AudioUrl, DocumentUrl, VideoUrl, UploadedFile)
_KINDS = frozenset({"binary", "image-url", "audio-url", "document-url", "video-url", "uploaded-file"})
_KIND_OF_URLS: dict[str, Any] = {"image-url": "image", "audio-url": "audio", "video-url": "video"}
_UNKNOWN = "application/octet-stream"
_MAX_BESIDE = 64


def content_of(one: Any) -> MediaContent | None:
    """Return the content that an object of the framework is; None for any other."""
    if not isinstance(one, _TYPES):
        return None
    if isinstance(one, BinaryContent):
        name = _own_identifier(one)
        said = {"vendor_metadata": one.vendor_metadata, "identifier": name}
        told = {key: value for key, value in said.items() if value is not None}
        origin = json.dumps(told, sort_keys=True, default=str) if told else None
        return MediaContent(one.data, one.media_type, name=_name(name), origin=origin)
    plain = _objects().dump_python(one, mode="json")
    try:
        mime_type = one.media_type or _UNKNOWN
    except ValueError:  # nothing in the address says it
        mime_type = _UNKNOWN
    kind = _KIND_OF_URLS.get(one.kind, "file")
    return MediaContent(b"", mime_type, kind=kind, origin=json.dumps(plain, sort_keys=True))


def object_of(part: MediaContent) -> Any:
    """Return the framework's object of a part: one that it was made of, or the bytes."""
    told: dict[str, Any] = json.loads(part.origin) if part.origin is not None else {}
    if "kind" in told:
        return _objects().validate_python(told)
    return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.mime_type, **told))


def with_objects(arguments: Any) -> Any:
    """Return the same with the framework's objects in those places."""
    return restore_content(arguments, object_of) if isinstance(arguments, Mapping) else arguments


def taken(output: Any) -> Any:
    """Return what a tool gave with what stands for it in place of each image, audio and file."""
    return replace_content(output, content_of)


def place_of(one: Any) -> dict[str, Any] | None:
    """Return what stands for an object of the framework in what people are shown; None for any other."""
    part = content_of(one)
    place = replace_content(part)
    return None if place is part else place


def shown_with_content(answer: Any) -> tuple[Any, list[Any]]:
    """Return an answer as JSON, and the objects that go with it, for the model to see."""
    plain, parts = split_content(answer)
    return plain, [object_of(part) for part in parts]


class Beside:
    """What results of nested calls have beside their values, for the result of the outer call."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.content: list[Any] = []

    def note(self, name: str, tool_call_id: str, result: ToolReturn[Any]) -> None:
        """Note the metadata of a result, and what it wants a model to be shown."""
        if result.metadata is not None:
            self.calls.append({"tool": name, "tool_call_id": tool_call_id, "metadata": result.metadata})
        if result.content is not None:
            more = [result.content] if isinstance(result.content, str) else list(result.content)
            self.content += more[: _MAX_BESIDE - len(self.content)]

    def on(self, shown: Any) -> Any:
        """Return the outer result with all of that."""
        if not self.calls and not self.content:
            return shown
        given: ToolReturn[Any] = cast("ToolReturn[Any]", shown) if isinstance(shown, ToolReturn) else ToolReturn(shown)
        metadata: Any = given.metadata
        if self.calls:
            metadata = {**_mapping(metadata), "nested_metadata": self.calls}
        return ToolReturn(given.return_value, content=self.content or None, metadata=metadata)


def with_content_schemas(schema: Any) -> Any:
    """Return a JSON Schema in which the framework's images, audio and files are content of a program."""
    if isinstance(schema, list):
        return [with_content_schemas(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    if _is_object_schema(known):
        return dict(MediaContent.json_schema)
    made = {key: with_content_schemas(one) for key, one in known.items()}
    # Several of the framework's classes are the same to a program.
    if "oneOf" in made and _refers_to_content(known):
        made["anyOf"] = made.pop("oneOf")
        made.pop("discriminator", None)
    return made


def _is_object_schema(schema: Mapping[str, Any]) -> bool:
    properties = _mapping(schema.get("properties"))
    return _mapping(properties.get("kind")).get("const") in _KINDS


def _refers_to_content(schema: Mapping[str, Any]) -> bool:
    return not _KINDS.isdisjoint(_mapping(_mapping(schema.get("discriminator")).get("mapping")))


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _own_identifier(one: BinaryContent) -> str | None:
    """Return the identifier that somebody gave it: the framework makes one of the bytes where nobody did."""
    given = one.identifier
    return None if given == BinaryContent(one.data, media_type=one.media_type).identifier else given


def _name(identifier: Any) -> str | None:
    return str(identifier)[:256] if identifier else None


@cache
def _objects() -> TypeAdapter[Any]:
    return TypeAdapter(MultiModalContent)


_PLAIN = (str, bool, int, type(None))
_SIMPLE = (*_PLAIN, float, Decimal, date, time, timedelta, UUID, Enum)


def shown_arguments(validated: Mapping[str, Any], flattened: str | None) -> dict[str, Any]:
    """Return a tool's validated arguments as plain JSON, keyed as its schema keys them.

    ``flattened`` names the one parameter that is shown as the input itself. What runs is shown whole: fields that a
    model leaves out when it is serialised, and what a serialiser would hide.
    """
    shown = json.loads(json.dumps(plain_arguments(validated), sort_keys=True))
    only = shown.get(flattened) if flattened is not None and len(shown) == 1 else None
    return cast("dict[str, Any]", only) if isinstance(only, dict) else shown


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as plain values, nothing hidden."""
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return _plain(cast("Any", value).get_secret_value())
    if isinstance(value, RootModel):
        return _plain(cast("Any", value).root)
    if isinstance(value, BaseModel):
        return _plain_model(value)
    if (place := place_of(value)) is not None:
        return place
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields: dict[str, FieldInfo] = getattr(value, "__pydantic_fields__", {})
        names = [one.name for one in dataclasses.fields(value)]
        return _object((_key(name, fields.get(name)), getattr(value, name)) for name in names)
    return _plain_container(value)


def _object(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object in which nothing stands in the place of what is written alike."""
    shown: dict[str, Any] = {}
    for name, value in items:
        key = next(key for key in _names_like(name) if key not in shown)
        shown[key] = _plain(value)
    return shown


def _names_like(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({number})" for number in count(2))


def _plain_model(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    known = ((_key(name, field), getattr(model, name)) for name, field in fields.items())
    return _object(chain(known, (model.model_extra or {}).items()))


def _key(name: str, field: FieldInfo | None) -> str:
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) else name


def _plain_container(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return _object((str(_plain(key)), one) for key, one in items)
    if isinstance(value, AbstractSet):
        return sorted((_plain(one) for one in cast("AbstractSet[Any]", value)), key=_text_of)
    if (items := list_items(value)) is not None:
        return [_plain(one) for one in items]
    try:
        return value.decode() if isinstance(value, bytes) else tool_return_ta.dump_python(value, mode="json")
    except UnicodeDecodeError:
        return tool_return_ta.dump_python(value, mode="json")
    except ValueError:
        return _of_unknown_kind(value)


def _text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _of_unknown_kind(value: Any) -> Any:
    """Show what a class of the tool's author holds, when that is simple; else its kind is all that can be said."""
    kind, name = type(value).__qualname__, getattr(value, "__qualname__", None)
    if isinstance(name, str):  # a function or a class
        return f"<{kind} {getattr(value, '__module__', '')}.{name}>"
    slots = [one for base in type(value).__mro__ for one in _slots_of(base) if hasattr(value, one)]
    held: dict[str, Any] = {one: getattr(value, one) for one in slots} | getattr(value, "__dict__", {})
    is_simple = held and all(isinstance(one, _SIMPLE) for one in held.values())
    return {f"<{kind}>": _object(held.items())} if is_simple else f"<{kind}>"


def _slots_of(kind: type) -> list[str]:
    slots: Any = kind.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [one for one in slots if not one.startswith("__")]

"""Convert pydantic-ai's media to `MediaContent` and back, and values to plain JSON."""

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

_MEDIA_TYPES = (BinaryContent, ImageUrl, AudioUrl, DocumentUrl, VideoUrl, UploadedFile)
_MEDIA_KINDS = frozenset({"binary", "image-url", "audio-url", "document-url", "video-url", "uploaded-file"})
_MEDIA_KIND_BY_URL_KIND: dict[str, Any] = {"image-url": "image", "audio-url": "audio", "video-url": "video"}
_UNKNOWN_MIME_TYPE = "application/octet-stream"
_MAX_ATTACHMENTS = 64


def to_media_content(value: Any) -> MediaContent | None:
    """Convert a media object of the framework to `MediaContent`; None for any other value."""
    if not isinstance(value, _MEDIA_TYPES):
        return None
    if isinstance(value, BinaryContent):
        name = _get_explicit_identifier(value)
        origin_fields = {"vendor_metadata": value.vendor_metadata, "identifier": name}
        present_fields = {key: value for key, value in origin_fields.items() if value is not None}
        origin = json.dumps(present_fields, sort_keys=True, default=str) if present_fields else None
        return MediaContent(value.data, value.media_type, name=_make_media_name(name), origin=origin)
    serialized = _get_media_adapter().dump_python(value, mode="json")
    try:
        mime_type = value.media_type or _UNKNOWN_MIME_TYPE
    except ValueError:  # the URL does not tell
        mime_type = _UNKNOWN_MIME_TYPE
    kind = _MEDIA_KIND_BY_URL_KIND.get(value.kind, "file")
    return MediaContent(b"", mime_type, kind=kind, origin=json.dumps(serialized, sort_keys=True))


def from_media_content(part: MediaContent) -> Any:
    """Convert `MediaContent` to the framework's object: the original one, or one with the bytes."""
    origin: dict[str, Any] = json.loads(part.origin) if part.origin is not None else {}
    if "kind" in origin:
        return _get_media_adapter().validate_python(origin)
    return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.mime_type, **origin))


def restore_media(arguments: Any) -> Any:
    """Replace media placeholders in arguments with the framework's objects."""
    return restore_content(arguments, from_media_content) if isinstance(arguments, Mapping) else arguments


def replace_media_with_media_content(output: Any) -> Any:
    """Replace the images, audio and files of an output with `MediaContent`."""
    return replace_content(output, to_media_content)


def to_media_placeholder(value: Any) -> dict[str, Any] | None:
    """Return the placeholder of a media object that approvers see; None for any other value."""
    part = to_media_content(value)
    place = replace_content(part)
    return None if place is part else place


def split_media(result: Any) -> tuple[Any, list[Any]]:
    """Split a result into JSON and media objects for the model."""
    plain, parts = split_content(result)
    return plain, [from_media_content(part) for part in parts]


class ResultAttachments:
    """Metadata and content of nested results, to attach to the outer result."""

    def __init__(self) -> None:
        self.call_metadata: list[dict[str, Any]] = []
        self.content: list[Any] = []

    def add(self, name: str, tool_call_id: str, result: ToolReturn[Any]) -> None:
        """Add the metadata and the model content of a nested result."""
        if result.metadata is not None:
            self.call_metadata.append({"tool": name, "tool_call_id": tool_call_id, "metadata": result.metadata})
        if result.content is not None:
            items = [result.content] if isinstance(result.content, str) else list(result.content)
            self.content += items[: _MAX_ATTACHMENTS - len(self.content)]

    def attach_to(self, result: Any) -> Any:
        """Return the outer result with the metadata and content added."""
        if not self.call_metadata and not self.content:
            return result
        tool_return: ToolReturn[Any] = (
            cast("ToolReturn[Any]", result) if isinstance(result, ToolReturn) else ToolReturn(result)
        )
        metadata: Any = tool_return.metadata
        if self.call_metadata:
            metadata = {**_mapping_or_empty(metadata), "nested_metadata": self.call_metadata}
        return ToolReturn(tool_return.return_value, content=self.content or None, metadata=metadata)


def replace_media_schemas(schema: Any) -> Any:
    """Replace the schemas of the framework's images, audio and files with that of `MediaContent`."""
    if isinstance(schema, list):
        return [replace_media_schemas(value) for value in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    mapping = cast("dict[str, Any]", schema)
    if _is_media_schema(mapping):
        return dict(MediaContent.json_schema)
    replaced = {key: replace_media_schemas(value) for key, value in mapping.items()}
    # Several classes have the same schema now, so that oneOf would match none.
    if "oneOf" in replaced and _refers_to_media(mapping):
        replaced["anyOf"] = replaced.pop("oneOf")
        replaced.pop("discriminator", None)
    return replaced


def _is_media_schema(schema: Mapping[str, Any]) -> bool:
    properties = _mapping_or_empty(schema.get("properties"))
    return _mapping_or_empty(properties.get("kind")).get("const") in _MEDIA_KINDS


def _refers_to_media(schema: Mapping[str, Any]) -> bool:
    return not _MEDIA_KINDS.isdisjoint(_mapping_or_empty(_mapping_or_empty(schema.get("discriminator")).get("mapping")))


def _mapping_or_empty(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _get_explicit_identifier(content: BinaryContent) -> str | None:
    """Return the identifier unless the framework derived it from the bytes."""
    identifier = content.identifier
    return None if identifier == BinaryContent(content.data, media_type=content.media_type).identifier else identifier


def _make_media_name(identifier: Any) -> str | None:
    return str(identifier)[:256] if identifier else None


@cache
def _get_media_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(MultiModalContent)


_JSON_TYPES = (str, bool, int, type(None))
_DISPLAYABLE_TYPES = (*_JSON_TYPES, float, Decimal, date, time, timedelta, UUID, Enum)


def to_displayed_arguments(validated: Mapping[str, Any], flattened_name: str | None) -> dict[str, Any]:
    """Return a tool's validated arguments as plain JSON with the keys of its schema.

    ``flattened_name``: the parameter whose fields are the input. Fields that a model excludes or hides when it is
    serialised are included: approvers must see everything that runs.
    """
    displayed = json.loads(json.dumps(to_plain_arguments_with_secrets(validated), sort_keys=True))
    flattened_value = displayed.get(flattened_name) if flattened_name is not None and len(displayed) == 1 else None
    return cast("dict[str, Any]", flattened_value) if isinstance(flattened_value, dict) else displayed


def to_plain_arguments_with_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as plain values, including excluded and secret fields."""
    return {name: _to_plain_value_with_secrets(value) for name, value in arguments.items()}


def _to_plain_value_with_secrets(value: Any) -> Any:
    if isinstance(value, Enum):
        return _to_plain_value_with_secrets(value.value)
    if isinstance(value, _JSON_TYPES):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return _to_plain_value_with_secrets(cast("Any", value).get_secret_value())
    if isinstance(value, RootModel):
        return _to_plain_value_with_secrets(cast("Any", value).root)
    if isinstance(value, BaseModel):
        return _model_to_plain_object(value)
    if (placeholder := to_media_placeholder(value)) is not None:
        return placeholder
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields: dict[str, FieldInfo] = getattr(value, "__pydantic_fields__", {})
        names = [field.name for field in dataclasses.fields(value)]
        return _to_plain_object((_get_schema_key(name, fields.get(name)), getattr(value, name)) for name in names)
    return _to_plain_container(value)


def _to_plain_object(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; keys with the same text get numbers, so that none is lost."""
    displayed: dict[str, Any] = {}
    for name, value in items:
        key = next(key for key in _iter_candidate_keys(name) if key not in displayed)
        displayed[key] = _to_plain_value_with_secrets(value)
    return displayed


def _iter_candidate_keys(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({number})" for number in count(2))


def _model_to_plain_object(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    declared_items = ((_get_schema_key(name, field), getattr(model, name)) for name, field in fields.items())
    return _to_plain_object(chain(declared_items, (model.model_extra or {}).items()))


def _get_schema_key(name: str, field: FieldInfo | None) -> str:
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) else name


def _to_plain_container(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return _to_plain_object((str(_to_plain_value_with_secrets(key)), item) for key, item in items)
    if isinstance(value, AbstractSet):
        return sorted((_to_plain_value_with_secrets(item) for item in cast("AbstractSet[Any]", value)), key=_sort_key)
    if (items := list_items(value)) is not None:
        return [_to_plain_value_with_secrets(item) for item in items]
    try:
        return value.decode() if isinstance(value, bytes) else tool_return_ta.dump_python(value, mode="json")
    except UnicodeDecodeError:
        return tool_return_ta.dump_python(value, mode="json")
    except ValueError:
        return _describe_object(value)


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _describe_object(value: Any) -> Any:
    """Describe an object of an unknown class by its simple attributes, else by its type alone."""
    type_name, name = type(value).__qualname__, getattr(value, "__qualname__", None)
    if isinstance(name, str):  # a function or a class
        return f"<{type_name} {getattr(value, '__module__', '')}.{name}>"
    slots = [
        attribute_name
        for cls in type(value).__mro__
        for attribute_name in _list_slot_names(cls)
        if hasattr(value, attribute_name)
    ]
    attributes: dict[str, Any] = {attribute_name: getattr(value, attribute_name) for attribute_name in slots} | getattr(
        value, "__dict__", {}
    )
    is_simple = attributes and all(
        isinstance(attribute_name, _DISPLAYABLE_TYPES) for attribute_name in attributes.values()
    )
    return {f"<{type_name}>": _to_plain_object(attributes.items())} if is_simple else f"<{type_name}>"


def _list_slot_names(cls: type) -> list[str]:
    slots: Any = cls.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [slot for slot in slots if not slot.startswith("__")]

"""Convert LangChain's content blocks to `MediaContent` and back, and values to plain JSON."""

from __future__ import annotations

import binascii
import dataclasses
import json
import math
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, cast

from pydantic import AliasChoices, BaseModel, RootModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from codemode import MediaContent
from codemode.plugins import SchemaMismatchError, replace_content, restore_content

# Paths of the bytes and the media type: LangChain, its earlier versions, Anthropic, MCP, OpenAI.
_DATA_PATHS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("base64",), ("mime_type",)),
    (("data",), ("mime_type",)),
    (("source", "data"), ("source", "media_type")),
    (("data",), ("mimeType",)),
    (("image_url", "url"), ()),
)
_MEDIA_KIND_BY_BLOCK_TYPE: dict[str, Any] = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "video": "video",
    "file": "file",
    "document": "file",
}
_DATA_URL_PREFIX = "data:"
_BASE64_MARKER = ";base64,"


def to_media_content(block: Any) -> MediaContent | None:
    """Convert a block with bytes to `MediaContent`; None for any other value, such as a block with a URL."""
    if (
        type(block) is not dict
        or (kind := _MEDIA_KIND_BY_BLOCK_TYPE.get(str(cast("dict[str, Any]", block).get("type")))) is None
    ):
        return None
    fields = cast("dict[str, Any]", block)
    for data_path, mime_type_path in _DATA_PATHS:
        text, mime_type = _get_at_path(fields, data_path), _get_at_path(fields, mime_type_path)
        if isinstance(text, str) and text.startswith(_DATA_URL_PREFIX) and _BASE64_MARKER in text:
            mime_type, text = text[len(_DATA_URL_PREFIX) :].split(_BASE64_MARKER, 1)
        elif not mime_type_path:
            continue
        if isinstance(text, str) and isinstance(mime_type, str):
            return _make_media_content(fields, kind, data_path, mime_type, text)
    return None


def _make_media_content(
    block: dict[str, Any], kind: Any, data_path: tuple[str, ...], mime_type: str, text: str
) -> MediaContent | None:
    is_url = str(_get_at_path(block, data_path)).startswith(_DATA_URL_PREFIX)
    origin_fields = {
        "block": _replace_at_path(block, data_path, None),
        "at": [*data_path],
        **({"url": True} if is_url else {}),
    }
    name = next((value for value in (block.get("filename"), block.get("name")) if isinstance(value, str)), None)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        origin = json.dumps(origin_fields, sort_keys=True)
        return MediaContent(data, mime_type, kind=kind, name=None if name is None else name[:256], origin=origin)
    except (ValueError, TypeError):  # not base64
        return None


def from_media_content(part: MediaContent) -> dict[str, Any]:
    """Convert `MediaContent` to its original block, or to a LangChain block."""
    text = b64encode(part.data).decode()
    if part.origin is None:
        name_field = {} if part.name is None else {"filename": part.name}
        return {"type": part.kind, "base64": text, "mime_type": part.mime_type, **name_field}
    origin_fields: dict[str, Any] = json.loads(part.origin)
    text = f"{_DATA_URL_PREFIX}{part.mime_type}{_BASE64_MARKER}{text}" if origin_fields.get("url") else text
    return _replace_at_path(origin_fields["block"], tuple(origin_fields["at"]), text)


def replace_blocks_with_media_content(value: Any) -> Any:
    """Replace blocks with bytes in an output by `MediaContent`."""
    return replace_content(value, to_media_content)


def restore_media(values: dict[str, Any]) -> dict[str, Any]:
    """Replace media placeholders in arguments by blocks."""
    return restore_content(values, from_media_content)


def to_media_placeholder(value: Any) -> dict[str, Any] | None:
    """Return the placeholder that approvers see for `MediaContent`; None for any other value."""
    placeholder = replace_content(value) if isinstance(value, MediaContent) else value
    return None if placeholder is value else placeholder


def make_message_content(text: str, blocks: Sequence[Mapping[str, Any]]) -> Any:
    """Return message content with this text and these blocks."""
    return [{"type": "text", "text": text}, *map(dict, blocks)] if blocks else text


def to_model_block(part: MediaContent) -> dict[str, Any]:
    """Return a block for the model: the original one, or LangChain's for an MCP block."""
    block = from_media_content(part)
    if "mimeType" not in block:
        return block
    return from_media_content(MediaContent(part.data, part.mime_type, kind=part.kind, name=part.name))


def _get_at_path(block: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = block
    for key in path:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value


def _replace_at_path(block: Mapping[str, Any], path: tuple[str, ...], text: str | None) -> dict[str, Any]:
    key, *rest = path
    return {**block, key: text if not rest else _replace_at_path(block[key], tuple(rest), text)}


# Approvers see everything that runs, including fields that a model excludes. A secret is displayed if the program
# passed it, and hidden if it comes from the host.

NO_SOURCE: Any = object()
HIDDEN_SECRET: Any = object()
_JSON_TYPES = (str, bool, int, type(None))


class _EnclosingListSource:
    """The source of a value of which only the enclosing list is known."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._texts: set[str] | None = None

    @property
    def scalar_texts(self) -> set[str]:
        """All scalar values of the list as texts."""
        if self._texts is None:
            self._texts = set(_iterate_scalars_as_text(self._source))
        return self._texts


@dataclasses.dataclass(frozen=True, slots=True)
class _ListItemSource:
    """The source of a list item by position, and the enclosing list in case a validator moved it."""

    source: Any
    surrounding_list: _EnclosingListSource


def _unwrap_source(source: Any) -> Any:
    return source.source if isinstance(source, _ListItemSource) else source


def _wrap_part_source(source: Any, part: Any) -> Any:
    """Return a part of a source, with the same enclosing list."""
    return _ListItemSource(part, source.surrounding_list) if isinstance(source, _ListItemSource) else part


def _get_enclosing_list_or_no_source(source: Any) -> Any:
    """Return what is known of a value whose path has no source: the enclosing list, or `NO_SOURCE`."""
    if isinstance(source, _ListItemSource):
        return source.surrounding_list
    return source if isinstance(source, _EnclosingListSource) else NO_SOURCE


def to_displayed_value(value: Any, source: Any = NO_SOURCE) -> Any:
    """Convert a value to plain JSON, a host's secret to `HIDDEN_SECRET`; ``source``: the JSON it was made from."""
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return to_displayed_value(value.value, source)
    if hasattr(value, "get_secret_value"):
        return HIDDEN_SECRET if source is NO_SOURCE else _to_displayed_secret(value, source)
    if isinstance(value, RootModel):
        return to_displayed_value(cast("Any", value).root, source)
    if isinstance(value, BaseModel):
        return _to_displayed_model(value, source)
    if (placeholder := to_media_placeholder(value)) is not None:
        return placeholder
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        field_values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _to_displayed_mapping(field_values.items(), source)
    return _to_displayed_container_or_leaf(value, source)


def _to_displayed_secret(value: Any, source: Any) -> Any:
    source = _unwrap_source(source)
    if isinstance(source, _EnclosingListSource):
        text = str(to_displayed_value(value.get_secret_value()))
        return text if text in source.scalar_texts else HIDDEN_SECRET
    # A validator may have replaced it with a host's secret, which must not be displayed.
    if str(to_displayed_value(value.get_secret_value())) != str(source):
        raise _make_display_error("validation changes a secret")
    return source


def _make_display_error(reason: str) -> SchemaMismatchError:
    return SchemaMismatchError([{"path": "", "message": reason}])


def to_displayed_fields(model: BaseModel, names: Iterable[str], source: Any) -> dict[str, Any]:
    """Return fields of a model, and its extra fields, as an approver sees them."""
    return {
        **_to_displayed_declared_fields(model, names, source),
        **_to_displayed_mapping((model.model_extra or {}).items(), source),
    }


def _to_displayed_declared_fields(model: BaseModel, names: Iterable[str], source: Any) -> dict[str, Any]:
    fields = type(model).model_fields
    displayed = {
        name: to_displayed_value(
            _materialize_and_read_field(model, name), find_field_source(source, name, fields[name])
        )
        for name in names
    }
    return {name: value for name, value in displayed.items() if value is not HIDDEN_SECRET}


def _materialize_and_read_field(model: BaseModel, name: str) -> Any:
    """Return a field; lazily validated items are validated now."""
    value = getattr(model, name)
    if isinstance(value, Iterator):
        try:
            value = vars(model)[name] = list(cast("Iterator[Any]", value))
        except ValidationError as error:
            raise _make_display_error(f"{name}: {error.errors()[0]['msg']}") from None
    return value


def _to_displayed_model(model: BaseModel, source: Any) -> dict[str, Any]:
    fields = type(model).model_fields
    displayed_fields = {
        _list_input_keys(name, fields[name])[0]: value
        for name, value in _to_displayed_declared_fields(model, fields, source).items()
    }
    # An extra field may have the name of a field with an alias.
    return {**_to_displayed_mapping((model.model_extra or {}).items(), source), **displayed_fields}


def find_field_source(source: Any, name: str, field: FieldInfo) -> Any:
    """Return the source of a model's field in a JSON object."""
    source_value = _unwrap_source(source)
    if not isinstance(source_value, dict):
        return _get_enclosing_list_or_no_source(source)
    values = cast("dict[str, Any]", source_value)
    matches = (
        _wrap_part_source(source, values[key]) for key in (*_list_input_keys(name, field), name) if key in values
    )
    return next(matches, _get_enclosing_list_or_no_source(source))


def _list_input_keys(name: str, field: FieldInfo) -> list[str]:
    """Return the keys that a field is validated from, the preferred one first."""
    alias = field.validation_alias
    aliases: Sequence[Any] = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [alias for alias in aliases if isinstance(alias, str)] or [name]


def _to_displayed_mapping(items: Iterable[tuple[Any, Any]], source: Any) -> dict[str, Any]:
    source_value = _unwrap_source(source)
    values = cast("dict[str, Any]", source_value) if isinstance(source_value, dict) else {}
    unplaced_source = _get_enclosing_list_or_no_source(source)
    displayed: dict[str, Any] = {}
    for key, value in items:
        name = _key_to_text(key)
        if name in displayed:
            raise _make_display_error(f"two keys are both written {name!r}")
        displayed[name] = to_displayed_value(
            value, _wrap_part_source(source, values[name]) if name in values else unplaced_source
        )
    return {name: value for name, value in displayed.items() if value is not HIDDEN_SECRET}


def _key_to_text(key: Any) -> str:
    if isinstance(key, str) and not isinstance(key, Enum):
        return key
    return next(iter(cast("dict[str, Any]", to_jsonable_python({key: None}, fallback=repr))))


def _to_displayed_container_or_leaf(value: Any, source: Any) -> Any:
    if isinstance(value, Mapping):
        return _to_displayed_mapping(cast("Mapping[Any, Any]", value).items(), source)
    if isinstance(value, AbstractSet):
        return sorted((_to_displayed_list_item(item) for item in cast("AbstractSet[Any]", value)), key=_sort_key)
    if isinstance(value, list | tuple | deque):
        items = list(cast("Iterable[Any]", value))
        return [
            _to_displayed_list_item(item, item_source)
            for item, item_source in zip(items, _make_item_sources(source, len(items)), strict=True)
        ]
    return _to_displayed_leaf(value, source)


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _make_item_sources(source: Any, count: int) -> Iterable[Any]:
    """Return the source of each of ``count`` items."""
    source_value = _unwrap_source(source)
    if not isinstance(source_value, list):
        return [_get_enclosing_list_or_no_source(source)] * count
    source_items = cast("list[Any]", source_value)
    # A validator may drop, repeat or move items: a text anywhere in the program's list is no host secret.
    surrounding = source.surrounding_list if isinstance(source, _ListItemSource) else _EnclosingListSource(source_items)
    return (
        [_ListItemSource(item, surrounding) for item in source_items]
        if len(source_items) == count
        else [surrounding] * count
    )


def _iterate_scalars_as_text(source: Any) -> Iterator[str]:
    pending = [source]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending += cast("dict[str, Any]", current).values()
        elif isinstance(current, list):
            pending += cast("list[Any]", current)
        else:
            yield str(current)


def _to_displayed_list_item(value: Any, source: Any = NO_SOURCE) -> Any:
    # None does not validate as a secret.
    displayed = to_displayed_value(value, source)
    return None if displayed is HIDDEN_SECRET else displayed


def _to_displayed_leaf(value: Any, source: Any) -> Any:
    if isinstance(value, Iterator):
        raise _make_display_error("an iterator inside a list or a mapping cannot be shown")
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    try:
        return to_jsonable_python(value, inf_nan_mode="strings", serialize_unknown=False)
    except (PydanticSerializationError, TypeError, ValueError):
        # An object of an unknown class: its source describes it best.
        source = _unwrap_source(source)
        return (
            f"<{type(value).__qualname__}>"
            if source is NO_SOURCE or isinstance(source, _EnclosingListSource)
            else source
        )

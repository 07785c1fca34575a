"""LangChain's content blocks as media of a program and back, and values as plain JSON."""

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
from codemode.plugins import SchemaMismatch, replace_content, restore_content

# Where the bytes stand in a block: those of LangChain, of its earlier versions, of Anthropic, of OpenAI, of MCP.
_PLACES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("base64",), ("mime_type",)),
    (("data",), ("mime_type",)),
    (("source", "data"), ("source", "media_type")),
    (("data",), ("mimeType",)),
    (("image_url", "url"), ()),
)
_KINDS: dict[str, Any] = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "video": "video",
    "file": "file",
    "document": "file",
}
_DATA_URL = "data:"
_BASE64 = ";base64,"


def content_of(block: Any) -> MediaContent | None:
    """Return the content that a block holds the bytes of; None for any other value, such as one with an address."""
    if type(block) is not dict or (kind := _KINDS.get(str(cast("dict[str, Any]", block).get("type")))) is None:
        return None
    known = cast("dict[str, Any]", block)
    for place, type_place in _PLACES:
        text, mime_type = _at(known, place), _at(known, type_place)
        if isinstance(text, str) and text.startswith(_DATA_URL) and _BASE64 in text:
            mime_type, text = text[len(_DATA_URL) :].split(_BASE64, 1)
        elif not type_place:
            continue
        if isinstance(text, str) and isinstance(mime_type, str):
            return _made(known, kind, place, mime_type, text)
    return None


def _made(block: dict[str, Any], kind: Any, place: tuple[str, ...], mime_type: str, text: str) -> MediaContent | None:
    is_url = str(_at(block, place)).startswith(_DATA_URL)
    told = {"block": _with(block, place, None), "at": [*place], **({"url": True} if is_url else {})}
    name = next((one for one in (block.get("filename"), block.get("name")) if isinstance(one, str)), None)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        origin = json.dumps(told, sort_keys=True)
        return MediaContent(data, mime_type, kind=kind, name=None if name is None else name[:256], origin=origin)
    except (ValueError, TypeError):  # it only looks like one
        return None


def block_of(part: MediaContent) -> dict[str, Any]:
    """Return a part as the block that it came as, or as LangChain writes one."""
    text = b64encode(part.data).decode()
    if part.origin is None:
        named = {} if part.name is None else {"filename": part.name}
        return {"type": part.kind, "base64": text, "mime_type": part.mime_type, **named}
    told: dict[str, Any] = json.loads(part.origin)
    text = f"{_DATA_URL}{part.mime_type}{_BASE64}{text}" if told.get("url") else text
    return _with(told["block"], tuple(told["at"]), text)


def taken(value: Any) -> Any:
    """Return what a tool gave with what stands for it in place of each block with bytes."""
    return replace_content(value, content_of)


def with_blocks(values: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with blocks in the places of parts."""
    return restore_content(values, block_of)


def place_of(value: Any) -> dict[str, Any] | None:
    """Return what stands for a part in what people are shown; None for any other value."""
    place = replace_content(value) if isinstance(value, MediaContent) else value
    return None if place is value else place


def message_content(text: str, blocks: Sequence[Mapping[str, Any]]) -> Any:
    """Return the content of a message that says this and has these blocks."""
    return [{"type": "text", "text": text}, *map(dict, blocks)] if blocks else text


def shown_block(part: MediaContent) -> dict[str, Any]:
    """Return a part as a model is shown it: as the block that it came as, but for those of MCP."""
    block = block_of(part)
    if "mimeType" not in block:
        return block
    return block_of(MediaContent(part.data, part.mime_type, kind=part.kind, name=part.name))


def _at(block: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    found: Any = block
    for key in place:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found


def _with(block: Mapping[str, Any], place: tuple[str, ...], text: str | None) -> dict[str, Any]:
    key, *rest = place
    return {**block, key: text if not rest else _with(block[key], tuple(rest), text)}


# What runs is shown whole, also what a model leaves out when it is serialised. A secret is shown as the program gave
# it, and not at all where the host gave it.

NOT_GIVEN: Any = object()
LEFT_OUT: Any = object()
_PLAIN = (str, bool, int, type(None))


class _Somewhere:
    """Stands for what a value was made from, of which only the list that it stood in is known."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._texts: set[str] | None = None

    @property
    def texts(self) -> set[str]:
        """All that is given in that list, as texts."""
        if self._texts is None:
            self._texts = set(_texts(self._given))
        return self._texts


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """What a value was made from if nobody has moved it, and the list around it."""

    given: Any
    around: _Somewhere


def _plain(given: Any) -> Any:
    return given.given if isinstance(given, _Placed) else given


def _part(given: Any, part: Any) -> Any:
    """Return a part of what is given, in the same place."""
    return _Placed(part, given.around) if isinstance(given, _Placed) else part


def _elsewhere(given: Any) -> Any:
    """Return what is known of a value that was not given where it stands."""
    if isinstance(given, _Placed):
        return given.around
    return given if isinstance(given, _Somewhere) else NOT_GIVEN


def shown(value: Any, given: Any = NOT_GIVEN) -> Any:
    """Return a value as plain JSON, `LEFT_OUT` for a secret of the host; ``given`` is the JSON it was made from."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return shown(value.value, given)
    if hasattr(value, "get_secret_value"):
        return LEFT_OUT if given is NOT_GIVEN else _shown_secret(value, given)
    if isinstance(value, RootModel):
        return shown(cast("Any", value).root, given)
    if isinstance(value, BaseModel):
        return _shown_model(value, given)
    if (place := place_of(value)) is not None:
        return place
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return _shown_items(found.items(), given)
    return _shown_container(value, given)


def _shown_secret(value: Any, given: Any) -> Any:
    given = _plain(given)
    if isinstance(given, _Somewhere):
        text = str(shown(value.get_secret_value()))
        return text if text in given.texts else LEFT_OUT
    # What a validator has put in its place may be the host's, so that nobody can be shown what would run.
    if str(shown(value.get_secret_value())) != str(given):
        raise _unshowable("a secret comes out differently from what was given")
    return given


def _unshowable(why: str) -> SchemaMismatch:
    return SchemaMismatch([{"path": "", "message": why}])


def shown_fields(model: BaseModel, names: Iterable[str], given: Any) -> dict[str, Any]:
    """Return fields of a model by their names, and what came beside them."""
    return {**_shown_own(model, names, given), **_shown_items((model.model_extra or {}).items(), given)}


def _shown_own(model: BaseModel, names: Iterable[str], given: Any) -> dict[str, Any]:
    fields = type(model).model_fields
    found = {name: shown(_settled(model, name), given_for(given, name, fields[name])) for name in names}
    return {name: one for name, one in found.items() if one is not LEFT_OUT}


def _settled(model: BaseModel, name: str) -> Any:
    """Return a field. Items that pydantic would validate while the tool takes them are validated now."""
    value = getattr(model, name)
    if isinstance(value, Iterator):
        try:
            value = vars(model)[name] = list(cast("Iterator[Any]", value))
        except ValidationError as error:
            raise _unshowable(f"{name}: {error.errors()[0]['msg']}") from None
    return value


def _shown_model(model: BaseModel, given: Any) -> dict[str, Any]:
    fields = type(model).model_fields
    own = {_keys(name, fields[name])[0]: one for name, one in _shown_own(model, fields, given).items()}
    # What came beside may have the name of a field that is given by another.
    return {**_shown_items((model.model_extra or {}).items(), given), **own}


def given_for(given: Any, name: str, field: FieldInfo) -> Any:
    """Return what a JSON object gives for a field of a model."""
    plain = _plain(given)
    if not isinstance(plain, dict):
        return _elsewhere(given)
    values = cast("dict[str, Any]", plain)
    found = (_part(given, values[key]) for key in (*_keys(name, field), name) if key in values)
    return next(found, _elsewhere(given))


def _keys(name: str, field: FieldInfo) -> list[str]:
    """Return the keys that a field is validated from, the usual one first."""
    alias = field.validation_alias
    aliases: Sequence[Any] = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [one for one in aliases if isinstance(one, str)] or [name]


def _shown_items(items: Iterable[tuple[Any, Any]], given: Any) -> dict[str, Any]:
    plain = _plain(given)
    values = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}
    elsewhere = _elsewhere(given)
    found: dict[str, Any] = {}
    for key, value in items:
        name = _key(key)
        if name in found:
            raise _unshowable(f"two keys are both written {name!r}")
        found[name] = shown(value, _part(given, values[name]) if name in values else elsewhere)
    return {name: one for name, one in found.items() if one is not LEFT_OUT}


def _key(key: Any) -> str:
    if isinstance(key, str) and not isinstance(key, Enum):
        return key
    return next(iter(cast("dict[str, Any]", to_jsonable_python({key: None}, fallback=repr))))


def _shown_container(value: Any, given: Any) -> Any:
    if isinstance(value, Mapping):
        return _shown_items(cast("Mapping[Any, Any]", value).items(), given)
    if isinstance(value, AbstractSet):
        return sorted((_in_list(one) for one in cast("AbstractSet[Any]", value)), key=_text_of)
    if isinstance(value, list | tuple | deque):
        items = list(cast("Iterable[Any]", value))
        return [_in_list(one, made_from) for one, made_from in zip(items, _givens(given, len(items)), strict=True)]
    return _shown_leaf(value, given)


def _text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _givens(given: Any, count: int) -> Iterable[Any]:
    """Return what each of so many items was made from."""
    plain = _plain(given)
    if not isinstance(plain, list):
        return [_elsewhere(given)] * count
    some = cast("list[Any]", plain)
    # A validator may drop, double or move items: what the program gave one of them is no secret of the host.
    around = given.around if isinstance(given, _Placed) else _Somewhere(some)
    return [_Placed(one, around) for one in some] if len(some) == count else [around] * count


def _texts(given: Any) -> Iterator[str]:
    pending = [given]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += cast("dict[str, Any]", one).values()
        elif isinstance(one, list):
            pending += cast("list[Any]", one)
        else:
            yield str(one)


def _in_list(value: Any, given: Any = NOT_GIVEN) -> Any:
    # None is no secret: where a secret was it does not validate again.
    found = shown(value, given)
    return None if found is LEFT_OUT else found


def _shown_leaf(value: Any, given: Any) -> Any:
    if isinstance(value, Iterator):
        raise _unshowable("an iterator inside a list or a mapping cannot be shown")
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    try:
        return to_jsonable_python(value, inf_nan_mode="strings", serialize_unknown=False)
    except (PydanticSerializationError, TypeError, ValueError):
        # An object of the tool author's own class: what it was made from says most about it.
        given = _plain(given)
        return f"<{type(value).__qualname__}>" if given is NOT_GIVEN or isinstance(given, _Somewhere) else given

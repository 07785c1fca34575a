"""Media content of tools: its bytes stay on the host; programs and JSON get references."""

from __future__ import annotations

import binascii
import gc
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast, get_args

from ..cached_property import cached_property
from ..host.imports import importing
from ..records import record
from .json_shape import SCALARS
from .narrowing import is_mapping, mapping_or_empty

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

NameT = TypeVar("NameT")
ContentKind = Literal["image", "audio", "video", "file"]
KINDS: tuple[str, ...] = get_args(ContentKind)
CONTENT_KEYWORD = "x-codemode"
"""With the value "content", a JSON Schema describes media content; declarations call it ``MediaContent``."""

_MIME_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}")
_MAX_NAME_CHARACTERS = 256
_MAX_DEPTH = 64
_MAX_LEVEL_VALUES = 1 << 20
_MAX_PLACEHOLDER_BYTES = 1 << 28
_REFERENCE_KEY = re.compile(r"\$content:[0-9a-f]{24}")
CONTENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An image, audio or a file.",
    "properties": {
        "kind": {"enum": list(KINDS)},
        "mimeType": {"type": "string"},
        "bytes": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "base64": {"type": "string", "description": "The bytes, only where programs have no handles."},
    },
    "required": ["kind", "mimeType", "bytes"],
    CONTENT_KEYWORD: "content",
}


@dataclass(frozen=True)
class MediaContent:
    """An image, audio, a video or a file, as tools return and take it. Programs get a frozen handle.

    ``kind`` follows from ``mime_type`` unless given. ``origin`` is JSON text with which a plugin restores the
    framework's own object. Raises `TypeError` if the data are not bytes, `ValueError` for an invalid MIME type, kind or
    name.
    """

    has_instances: ClassVar[bool] = False
    """True once this process has created any: before, outputs are not searched for content."""
    json_schema: ClassVar[dict[str, Any]] = CONTENT_SCHEMA
    """The JSON Schema of the handle in a program's input or output."""

    data: bytes = field(repr=False)
    mime_type: str
    kind: ContentKind = field(default=cast("ContentKind", ""), kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    origin: str | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Check the fields."""
        data: Any = self.data
        if not isinstance(data, bytes):
            if not isinstance(data, bytearray | memoryview):
                raise TypeError(f"the data of a MediaContent must be bytes, not {type(data).__name__}")
            object.__setattr__(self, "data", bytes(cast("Any", data)))
        if not isinstance(self.mime_type, str) or not _MIME_TYPE.fullmatch(self.mime_type):  # pyright: ignore[reportUnnecessaryIsInstance]
            mime_type = str(self.mime_type)[:80]
            raise ValueError(f"the mime_type of a MediaContent must be one like 'image/png', not {mime_type!r}")
        if not self.kind:
            object.__setattr__(self, "kind", get_content_kind(self.mime_type))
        if self.kind not in KINDS:
            raise ValueError(
                f"the kind of a MediaContent must be one of {', '.join(KINDS)}, not {str(self.kind)[:80]!r}"
            )
        if self.name is not None and (not isinstance(self.name, str) or len(self.name) > _MAX_NAME_CHARACTERS):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the name of a MediaContent must be a text of at most {_MAX_NAME_CHARACTERS} characters")
        MediaContent.has_instances = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # already validated, perhaps in another process
        MediaContent.has_instances = True

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"MediaContent({self.mime_type!r}, {len(self.data)} bytes, kind={self.kind!r}{name})"

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the bytes, in hexadecimal."""
        return _sha256(self.data).hexdigest()

    @cached_property
    def id(self) -> str:
        """A digest of bytes, type, kind and name."""
        texts = self.digest, *self.comparison_key[1:]
        return _sha256(repr(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def comparison_key(self) -> tuple[object, ...]:
        """A key that equal contents share; different ones may too. Reads no bytes."""
        return len(self.data), self.mime_type, self.kind, self.name, self.origin

    @property
    def description(self) -> dict[str, Any]:
        """The handle's data for a program and a model, as plain JSON."""
        return {"kind": self.kind, "mimeType": self.mime_type, "bytes": len(self.data), "name": self.name}

    @property
    def description_with_base64(self) -> dict[str, Any]:
        """Its description and its bytes, for programs that have no handles."""
        return {**self.description, "base64": binascii.b2a_base64(self.data, newline=False).decode("ascii")}

    @property
    def size(self) -> int:
        """Its size for limits, in bytes."""
        return len(self.data) + len(self.origin or "")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> Any:
        """Validate a parameter or field of this type: a program's handle becomes its content."""
        from pydantic_core import core_schema

        serializer = core_schema.plain_serializer_function_ser_schema(_register_or_describe_content)
        return core_schema.no_info_plain_validator_function(_resolve_handle, serialization=serializer)

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe it."""
        return {**CONTENT_SCHEMA}


def get_content_kind(mime_type: str) -> ContentKind:
    """Return the kind of content for a MIME type."""
    return cast("ContentKind", kind) if (kind := mime_type.split("/", 1)[0].lower()) in KINDS else "file"


class ContentRegistry(Protocol):
    """The media contents of one run, by id and by the names that its program sees."""

    @property
    def reference_key(self) -> str:
        """The key that marks an object as a reference to content."""
        ...

    def get(self, part_id: object) -> MediaContent:
        """Return one. Raises `CodeModeSerializationError` for any other id."""
        ...

    def register(self, part: MediaContent) -> dict[str, Any]:
        """Take a part, and return the object that stands for it."""
        ...

    def replace_names_with_ids(self, text: str | None) -> str | None:
        """Return JSON text with the ids of parts in place of their names in this run."""
        ...


current_registry: ContextVar[ContentRegistry | None] = ContextVar("codemode_content", default=None)
"""The content of the run whose call is in progress."""


def resolve_content_references(
    value: Any, registry: ContentRegistry, convert: Callable[[MediaContent], Any] = lambda part: part
) -> Any:
    """Return plain JSON with each reference replaced by ``convert`` of its content.

    Raises `CodeModeSerializationError` for a reference that is not this run's.
    """
    root: list[Any] = [value]
    pending: list[tuple[Any, Any]] = [(root, 0)]  # a container and a key in it
    is_same = True
    while pending:  # unlimited depth: an unchecked reference would be trusted
        holder, key = pending.pop()
        item = holder[key]
        replacement = _resolve_reference(item, registry, convert)
        if replacement is not _UNCHANGED:
            is_same = is_same and replacement is item
            holder[key] = replacement
        elif is_mapping(item) or isinstance(item, list | tuple):
            holder[key] = copied = dict(item) if is_mapping(item) else list(cast("list[Any]", item))
            members = copied.items() if isinstance(copied, dict) else enumerate(copied)
            pending.extend((copied, key) for key, member in members if type(member) not in SCALARS)
    return value if is_same else root[0]


def replace_content_with_references(
    value: Any, registry: ContentRegistry, part_of: Callable[[Any], MediaContent | None] | None = None
) -> Any:
    """Return a value with each `MediaContent` replaced by a reference.

    ``part_of`` returns the content of other objects. Raises as the registry does.
    """

    def to_reference(item: Any) -> Any:
        content = item if isinstance(item, MediaContent) else None if part_of is None else part_of(item)
        return _UNCHANGED if content is None else registry.register(content)

    return _replace_nested_values(value, to_reference, 0)


@record
class ContentResult:
    """The return value of a program, and the content that it displayed with ``content(handle)``, in order."""

    value: Any
    content: tuple[MediaContent, ...]


def replace_content(value: Any, part_of: Callable[[Any], MediaContent | None] | None = None) -> Any:
    """Return a tool's output with each `MediaContent` replaced by a reference.

    ``part_of`` returns the content of a framework's object, None for any other. Outside a program's call the value
    stays as it is.
    """
    registry = current_registry.get()
    return value if registry is None else replace_content_with_references(value, registry, part_of)


def restore_content(value: Any, object_of: Callable[[MediaContent], Any] = lambda part: part) -> Any:
    """Return plain JSON with each reference replaced by ``object_of`` of its content.

    Outside a program's call the value stays as it is. Raises `CodeModeSerializationError` for content that is not this
    program's.
    """
    registry = current_registry.get()
    return value if registry is None else resolve_content_references(value, registry, object_of)


class _DisplayedContents:
    """The contents of a displayed input outside its run: placeholders of the same length, as the bytes are unknown."""

    def __init__(self, displayed: Any) -> None:
        self.reference_key = ""
        self._handles: dict[str, Mapping[str, Any]] = {}
        self._parts: dict[str, MediaContent] = {}
        _replace_nested_values(displayed, self._collect_handle, 0)

    def _collect_handle(self, item: Any) -> Any:
        if is_mapping(item):
            key = self.reference_key or next((str(key) for key in item if _REFERENCE_KEY.fullmatch(str(key))), "")
            if key and isinstance(name := item.get(key), str):
                self.reference_key = key
                self._handles[name] = item
        return _UNCHANGED

    def get(self, part_id: object) -> MediaContent:
        """Return a part. Raises `ValueError` for one that was not displayed."""
        name = part_id if isinstance(part_id, str) else ""
        if name not in self._parts:
            handle = self._handles.get(name, {})
            size = handle.get("bytes")
            if type(size) is not int or not 0 <= size <= _MAX_PLACEHOLDER_BYTES:
                raise ValueError("must be a handle of the displayed input")
            self._parts[name] = MediaContent(
                bytes(size), handle.get("mimeType", ""), kind=handle.get("kind", ""), name=handle.get("name")
            )
        return self._parts[name]

    def register(self, part: MediaContent) -> dict[str, Any]:
        name = next((name for name, known in self._parts.items() if known is part), None) or part.id
        self._parts[name] = part
        return {self.reference_key: name, **part.description}

    def replace_names_with_ids(self, text: str | None) -> str | None:
        return text


@contextmanager
def using_displayed_contents(displayed: Any) -> Generator[None, None, None]:
    """Make the handles of a displayed input valid in the block, outside the run that displayed it."""
    contents = _DisplayedContents(displayed)
    token = current_registry.set(contents if contents.reference_key else current_registry.get())
    try:
        yield
    finally:
        current_registry.reset(token)


def split_content(value: Any) -> tuple[Any, list[MediaContent]]:
    """Return a value with each `MediaContent` replaced by a description, and the distinct contents in order.

    A description also has ``content``: the number of the content in the list, from 1.
    """
    if not MediaContent.has_instances:
        return value, []
    numbers: DistinctContents[int] = DistinctContents()
    parts: list[MediaContent] = []

    def number_and_describe_content(item: Any) -> Any:
        if not isinstance(item, MediaContent):
            return _UNCHANGED
        number = numbers.find_name(item)
        if number is None:
            parts.append(item)
            numbers.add(item, number := len(parts))
        return {"content": number, **item.description}

    if not isinstance(value, ContentResult):
        return _replace_nested_values(value, number_and_describe_content, 0) if may_hold_content(
            value
        ) else value, parts
    plain = _replace_nested_values(value.value, number_and_describe_content, 0)
    _replace_nested_values(value.content, number_and_describe_content, 0)
    return plain, parts


class DistinctContents(Generic[NameT]):
    """Maps equal contents to one name. Bytes are compared only if all other properties are equal."""

    def __init__(self) -> None:
        self._names: dict[int, NameT] = {}  # by identity, while they exist
        self._by_comparison_key: dict[tuple[object, ...], list[tuple[MediaContent, NameT]]] = {}

    def find_name(self, part: MediaContent) -> NameT | None:
        """Return the name of an equal content, or None. May take as long as `MediaContent.id`."""
        name = self._names.get(id(part))
        if name is not None:
            return name
        return next(
            (name for other, name in self._by_comparison_key.get(part.comparison_key, ()) if other.id == part.id), None
        )

    def find_contents_to_compare(self, part: MediaContent) -> list[MediaContent]:
        """Return the contents that `find_name` would compare by bytes, with this one first; empty if it needs none."""
        found = () if id(part) in self._names else self._by_comparison_key.get(part.comparison_key, ())
        return [part, *(other for other, _ in found)] if found else []

    def add(self, part: MediaContent, name: NameT) -> None:
        """Add a content that equals none of the others."""
        self._names[id(part)] = name
        self._by_comparison_key.setdefault(part.comparison_key, []).append((part, name))


def may_hold_content(value: Any) -> bool:
    """Return whether a value contains anything but plain JSON, as deep as content is searched for.

    Level by level in C: a quarter of a million lists take some milliseconds.
    """
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if kinds <= SCALARS:
            return False
        if not kinds <= _PLAIN:
            return True
        level = gc.get_referents(*(value for value in level if value and type(value) in _CONTAINERS))
        if len(level) > _MAX_LEVEL_VALUES:  # very wide: left to the thorough search
            break
    return True


_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = SCALARS | _CONTAINERS
_UNCHANGED: Any = object()


def _resolve_reference(item: Any, registry: ContentRegistry, convert: Callable[[MediaContent], Any]) -> Any:
    if type(item) is not dict or registry.reference_key not in item:
        return item if isinstance(item, MediaContent) else _UNCHANGED
    return convert(registry.get(cast("dict[str, Any]", item)[registry.reference_key]))


def _replace_nested_values(value: Any, replace: Callable[[Any], Any], depth: int) -> Any:
    """Return a value with some nested values replaced, also in objects. Unchanged parts stay the same objects."""
    if type(value) in SCALARS or depth > _MAX_DEPTH:
        return value
    replacement = replace(value)
    if replacement is not _UNCHANGED:
        return replacement
    if is_mapping(value):
        members = {key: _replace_nested_values(item, replace, depth + 1) for key, item in value.items()}
        is_same = all(members[key] is item for key, item in value.items())
        return value if is_same else members
    if isinstance(value, list | tuple):
        items = [_replace_nested_values(item, replace, depth + 1) for item in cast("list[Any]", value)]
        is_same = all(new is item for new, item in zip(items, cast("list[Any]", value), strict=True))
        return cast("Any", value) if is_same else items
    return _replace_field_values(value, replace, depth)


def _replace_field_values(value: Any, replace: Callable[[Any], Any], depth: int) -> Any:
    kind = cast("Any", type(value))
    fields: Any = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if not isinstance(fields, Mapping):
        return value
    members: dict[str, Any] = {name: getattr(value, name, None) for name in cast("Mapping[str, Any]", fields)}
    replaced = {name: _replace_nested_values(item, replace, depth + 1) for name, item in members.items()}
    changed = {name: item for name, item in replaced.items() if item is not members[name]}
    if not changed:
        return value
    import copy

    value = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(value, name, item)
    return value


def _sha256(data: bytes = b"") -> Any:
    with importing:
        import hashlib  # late: loads OpenSSL, and this module is imported before the first worker starts

    return hashlib.sha256(data)


def _resolve_handle(value: Any) -> MediaContent:
    if isinstance(value, MediaContent):
        return value
    registry = current_registry.get()
    if registry is None:
        return _decode_description_with_base64(value)
    if is_mapping(value) and registry.reference_key in value:
        return registry.get(value[registry.reference_key])
    raise ValueError("must be the handle of an image, audio or a file that a tool of this program has given")


def _decode_description_with_base64(value: Any) -> MediaContent:
    fields = mapping_or_empty(value)
    text, mime_type = fields.get("base64"), fields.get("mimeType")
    if not isinstance(text, str) or not isinstance(mime_type, str):
        raise ValueError(  # noqa: TRY004 - pydantic reports a ValueError as a problem of the input
            "must be an image, audio or a file as a tool returns it: an object with mimeType and base64"
        )
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"base64 is invalid: {error}") from None
    return MediaContent(data, mime_type, kind=fields.get("kind") or cast("ContentKind", ""), name=fields.get("name"))


def _register_or_describe_content(part: MediaContent) -> dict[str, Any]:
    registry = current_registry.get()
    return part.description_with_base64 if registry is None else registry.register(part)

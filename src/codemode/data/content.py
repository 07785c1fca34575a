"""Content that is no JSON: an image, audio or a file of a tool. Its bytes stay on the host; programs have handles.

Where such a part stands in JSON text there is an object of the host's own: a tag that belongs to one run, with the
part's id, beside what a program reads of it. Knows no run.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast, get_args

from ..cached_property import cached_property
from ..host.imports import importing
from ..records import record
from .json_shape import SCALARS
from .narrowing import is_mapping

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

NameT = TypeVar("NameT")
ContentKind = Literal["image", "audio", "video", "file"]
KINDS: tuple[str, ...] = get_args(ContentKind)
CONTENT_KEYWORD = "x-codemode"
"""With the value "content" a JSON Schema describes a part of content, and declarations call it ``MediaContent``."""

_MIME_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}")
_MAX_NAME = 256
_MAX_DEPTH = 64
_MOST_ABREAST = 1 << 20
CONTENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A handle of an image, audio or a file.",
    "properties": {
        "kind": {"enum": list(KINDS)},
        "mimeType": {"type": "string"},
        "bytes": {"type": "integer"},
        "name": {"type": ["string", "null"]},
    },
    "required": ["kind", "mimeType", "bytes"],
    CONTENT_KEYWORD: "content",
}


@dataclass(frozen=True)
class MediaContent:
    """An image, audio, a video or a file, as a tool gives it and takes it. A program has a frozen handle of it.

    ``kind`` follows from ``mime_type`` when it is not given. ``origin`` is JSON text with which a plugin makes the
    framework's own object of it again.
    Raises `TypeError` for data that are no bytes, `ValueError` for what is no MIME type, kind or name.
    """

    exist: ClassVar[bool] = False
    """True once there is any in this process: outputs are not searched for them before."""
    json_schema: ClassVar[dict[str, Any]] = CONTENT_SCHEMA
    """The JSON Schema of what stands for content in a program's input or output."""

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
            said = str(self.mime_type)[:80]
            raise ValueError(f"the mime_type of a MediaContent must be one like 'image/png', not {said!r}")
        if not self.kind:
            object.__setattr__(self, "kind", kind_of(self.mime_type))
        if self.kind not in KINDS:
            raise ValueError(
                f"the kind of a MediaContent must be one of {', '.join(KINDS)}, not {str(self.kind)[:80]!r}"
            )
        if self.name is not None and (not isinstance(self.name, str) or len(self.name) > _MAX_NAME):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the name of a MediaContent must be a text of at most {_MAX_NAME} characters")
        MediaContent.exist = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # of one that was checked; perhaps in another process
        MediaContent.exist = True

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"MediaContent({self.mime_type!r}, {len(self.data)} bytes, kind={self.kind!r}{name})"

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the bytes, in hexadecimal."""
        return _sha256(self.data).hexdigest()

    @cached_property
    def id(self) -> str:
        """What is the same for the same bytes, type, kind and name, and for nothing else."""
        texts = self.digest, *self.likeness[1:]
        return _sha256(repr(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def likeness(self) -> tuple[object, ...]:
        """What is the same for the same parts, and may be for others: it takes no look at the bytes."""
        return len(self.data), self.mime_type, self.kind, self.name, self.origin

    @property
    def described(self) -> dict[str, Any]:
        """What a program, and a model, reads of it: plain JSON."""
        return {"kind": self.kind, "mimeType": self.mime_type, "bytes": len(self.data), "name": self.name}

    @property
    def size(self) -> int:
        """The bytes that it is counted with."""
        return len(self.data) + len(self.origin or "")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> Any:
        """Let a parameter or a field be a `MediaContent`: a program's handle comes as the part that it stands for."""
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(_written)
        return core_schema.no_info_plain_validator_function(_validated, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe it."""
        return {**CONTENT_SCHEMA}


def kind_of(mime_type: str) -> ContentKind:
    """Return of which kind data of a MIME type are."""
    return cast("ContentKind", kind) if (kind := mime_type.split("/", 1)[0].lower()) in KINDS else "file"


class Parts(Protocol):
    """The parts that one run was given."""

    @property
    def tag(self) -> str:
        """The key that an object has which stands for one of them."""
        ...

    def get(self, part_id: object) -> MediaContent:
        """Return one. Raises `CodeModeSerializationError` for any other id."""
        ...

    def register(self, part: MediaContent) -> dict[str, Any]:
        """Take a part, and return the object that stands for it."""
        ...

    def replace_numbers(self, text: str | None) -> str | None:
        """Return JSON text with the ids of parts in place of their names in this run."""
        ...


current: ContextVar[Parts | None] = ContextVar("codemode_content", default=None)
"""The parts of the run whose call is being performed."""


def with_parts(value: Any, parts: Parts, made: Callable[[MediaContent], Any] = lambda part: part) -> Any:
    """Return plain JSON with what ``made`` makes of a part in each place that stands for one.

    Raises `CodeModeSerializationError` for one that this run was not given.
    """
    root: list[Any] = [value]
    pending: list[tuple[Any, Any]] = [(root, 0)]  # a container, and where in it something is to be looked at
    is_same = True
    while pending:  # of any depth: what is not looked at would be the program's own word
        holder, at = pending.pop()
        one = holder[at]
        put = _of_place(one, parts, made)
        if put is not _SAME:
            is_same = is_same and put is one
            holder[at] = put
        elif is_mapping(one) or isinstance(one, list | tuple):
            holder[at] = new = dict(one) if is_mapping(one) else list(cast("list[Any]", one))
            members = new.items() if isinstance(new, dict) else enumerate(new)
            pending.extend((new, key) for key, member in members if type(member) not in SCALARS)
    return value if is_same else root[0]


def places_for(value: Any, parts: Parts, part_of: Callable[[Any], MediaContent | None] | None = None) -> Any:
    """Return a value with the object that stands for it in place of each `MediaContent` in it.

    ``part_of`` gives the part that something else is. Raises as `Parts.take`.
    """

    def place(one: Any) -> Any:
        part = one if isinstance(one, MediaContent) else None if part_of is None else part_of(one)
        return _SAME if part is None else parts.register(part)

    return _replaced(value, place, 0)


@record
class ContentResult:
    """What a program returned, and beside it what it has shown with ``content(handle)``, in its order."""

    value: Any
    content: tuple[MediaContent, ...]


def replace_content(value: Any, part_of: Callable[[Any], MediaContent | None] | None = None) -> Any:
    """Return what a tool gave with the object that stands for it in place of each `MediaContent` in it.

    ``part_of`` returns the content that an object of a framework is, None for any other. Outside a program's call the
    value stays as it is.
    """
    parts = current.get()
    return value if parts is None else places_for(value, parts, part_of)


def restore_content(value: Any, object_of: Callable[[MediaContent], Any] = lambda part: part) -> Any:
    """Return plain JSON with what ``object_of`` makes of the content in each place that stands for one.

    Outside a program's call the value stays as it is. Raises `CodeModeSerializationError` for content that the program
    was not given.
    """
    parts = current.get()
    return value if parts is None else with_parts(value, parts, object_of)


def split_content(value: Any) -> tuple[Any, list[MediaContent]]:
    """Return a value with a description in place of each `MediaContent` in it, and these, each once, in their order.

    A description has beside the rest a ``content``: the number of the part in the list, from 1.
    """
    if not MediaContent.exist:
        return value, []
    found: Distinct[int] = Distinct()
    parts: list[MediaContent] = []

    def described(one: Any) -> Any:
        if not isinstance(one, MediaContent):
            return _SAME
        number = found.name_of(one)
        if number is None:
            parts.append(one)
            found.add(one, number := len(parts))
        return {"content": number, **one.described}

    if not isinstance(value, ContentResult):
        return _replaced(value, described, 0) if may_hold(value) else value, parts
    plain = _replaced(value.value, described, 0)
    _replaced(value.content, described, 0)
    return plain, parts


class Distinct(Generic[NameT]):
    """Tells parts apart and the same ones not. Looks at bytes only of such as are alike in all else."""

    def __init__(self) -> None:
        self._names: dict[int, NameT] = {}  # by their identity, for as long as they are here
        self._alike: dict[tuple[object, ...], list[tuple[MediaContent, NameT]]] = {}

    def name_of(self, part: MediaContent) -> NameT | None:
        """Return the name of the same part; None where there is none. May take as long as `MediaContent.id`."""
        name = self._names.get(id(part))
        if name is not None:
            return name
        return next((name for one, name in self._alike.get(part.likeness, ()) if one.id == part.id), None)

    def alike(self, part: MediaContent) -> list[MediaContent]:
        """Return those whose bytes `name_of` looks at, and the part itself; none where it takes no look."""
        found = () if id(part) in self._names else self._alike.get(part.likeness, ())
        return [part, *(one for one, _ in found)] if found else []

    def add(self, part: MediaContent, name: NameT) -> None:
        """Take a part that is none of the others."""
        self._names[id(part)] = name
        self._alike.setdefault(part.likeness, []).append((part, name))


def may_hold(value: Any) -> bool:
    """Tell whether a value holds anything that is no plain JSON, as far down as parts are looked for.

    Level by level and in C: on the event loop, a quarter of a million lists are looked through in some milliseconds.
    """
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if kinds <= SCALARS:
            return False
        if not kinds <= _PLAIN:
            return True
        level = gc.get_referents(*(one for one in level if one and type(one) in _HOLDERS))
        if len(level) > _MOST_ABREAST:  # what is there many times over, perhaps, and is looked for with care
            break
    return True


_HOLDERS = frozenset({dict, list, tuple})
_PLAIN = SCALARS | _HOLDERS
_SAME: Any = object()


def _of_place(one: Any, parts: Parts, made: Callable[[MediaContent], Any]) -> Any:
    if type(one) is not dict or parts.tag not in one:
        return one if isinstance(one, MediaContent) else _SAME
    return made(parts.get(cast("dict[str, Any]", one)[parts.tag]))


def _replaced(value: Any, replace: Callable[[Any], Any], depth: int) -> Any:
    """Return a value with others in some places, also in objects. What has none in it stays the same object."""
    if type(value) in SCALARS or depth > _MAX_DEPTH:
        return value
    put = replace(value)
    if put is not _SAME:
        return put
    if is_mapping(value):
        members = {key: _replaced(one, replace, depth + 1) for key, one in value.items()}
        is_same = all(members[key] is one for key, one in value.items())
        return value if is_same else members
    if isinstance(value, list | tuple):
        items = [_replaced(one, replace, depth + 1) for one in cast("list[Any]", value)]
        is_same = all(new is one for new, one in zip(items, cast("list[Any]", value), strict=True))
        return cast("Any", value) if is_same else items
    return _of_object(value, replace, depth)


def _of_object(value: Any, replace: Callable[[Any], Any], depth: int) -> Any:
    kind = cast("Any", type(value))
    fields: Any = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if not isinstance(fields, Mapping):
        return value
    members: dict[str, Any] = {name: getattr(value, name, None) for name in cast("Mapping[str, Any]", fields)}
    new = {name: _replaced(one, replace, depth + 1) for name, one in members.items()}
    changed = {name: one for name, one in new.items() if one is not members[name]}
    if not changed:
        return value
    import copy

    value = copy.copy(value)
    for name, one in changed.items():
        object.__setattr__(value, name, one)
    return value


def _sha256(data: bytes = b"") -> Any:
    with importing:
        import hashlib  # late: it loads OpenSSL, and this module is imported before a first worker is started

    return hashlib.sha256(data)


def _validated(given: Any) -> MediaContent:
    if isinstance(given, MediaContent):
        return given
    parts = current.get()
    if parts is not None and is_mapping(given) and parts.tag in given:
        return parts.get(given[parts.tag])
    raise ValueError("must be the handle of an image, audio or a file that a tool of this program has given")


def _written(part: MediaContent) -> dict[str, Any]:
    parts = current.get()
    return part.described if parts is None else parts.register(part)

"""Prints shapes as TypeScript, with shared declarations. Knows no JSON Schema, no prompts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from ..data.rich_values import is_rich
from .literals import to_comment_lines, to_member_name
from .shapes import (
    CONTENT,
    MAX_DESCRIPTION_CHARACTERS,
    Array,
    BuiltinType,
    Intersection,
    JsDoc,
    Literal,
    Object,
    Pointer,
    Property,
    Reference,
    Shape,
    ShapeDefinition,
    ShapeDocument,
    Tuple,
    Union,
    find_circular_references,
)

MAX_LINE_CHARACTERS = 120
MAX_INLINE_DEPTH = 12
MAX_INDEX_MEMBERS = 6
MAX_SMALL_MEMBERS = 3

_WORD = re.compile(r"[A-Za-z0-9]+")
# Names that the printed text itself relies on.
_RESERVED = frozenset({"Promise", "Record", "Array", CONTENT.name})
_RESERVED_WITH_RICH_VALUES = _RESERVED | {"Date", "Uint8Array", "Set"}
_CONTENT_DECLARATION = """\
/** An image, audio or a file, frozen: pass it to tools, return it, or show it with content(handle). */
type Content = { kind: "image" | "audio" | "video" | "file"; mimeType: string; bytes: number; name: string | null };
declare function content(handle: Content): void;"""
_BASE64_CONTENT_DECLARATION = """\
/** An image, audio or a file, with its bytes in base64: pass it to tools. */
type Content = {
  kind: "image" | "audio" | "video" | "file";
  mimeType: string;
  bytes: number;
  name: string | null;
  base64: string;
};"""


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A document that declarations are printed from, and the name to give its root if it needs one."""

    document: ShapeDocument
    root_name: str


@dataclass(frozen=True, slots=True)
class _PrintScope:
    part: NamedDocument
    owner: Pointer
    depth: int = 0

    def create_nested_scope(self, owner: Pointer | None = None) -> _PrintScope:
        return _PrintScope(self.part, self.owner if owner is None else owner, self.depth + 1)


def format_jsdoc(doc: JsDoc) -> str:
    """``/** ... */`` and a newline, or nothing."""
    lines = to_comment_lines(doc.description, MAX_DESCRIPTION_CHARACTERS) if doc.description else []
    tags = " ".join(doc.tags)
    if tags and len(lines) == 1 and len(lines[0]) + len(tags) < MAX_LINE_CHARACTERS:
        lines = [f"{lines[0]} {tags}"]
    elif tags:
        lines.append(tags)
    if not any(lines):
        return ""
    if len(lines) == 1:
        return f"/** {lines[0]} */\n"
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _omit_jsdoc(_doc: JsDoc) -> str:
    return ""


def indent_lines(text: str) -> str:
    """``text`` two spaces further in."""
    return "\n".join(f"  {line}" if line else line for line in text.split("\n"))


class TypePrinter:
    """Prints the types of many documents; what several places refer to becomes one alias.

    Without ``has_handles`` images, audio and files are objects with base64.
    """

    def __init__(self, parts: Iterable[NamedDocument], *, has_comments: bool = True, has_handles: bool = True) -> None:
        self._parts = list(parts)
        self._content_declaration = _CONTENT_DECLARATION if has_handles else _BASE64_CONTENT_DECLARATION
        self._jsdoc = format_jsdoc if has_comments else _omit_jsdoc
        self._identities: dict[tuple[int, Pointer], str] = {}
        self._texts: dict[tuple[int, Pointer], str] = {}
        self._endless = {id(part): find_circular_references(part.document) for part in self._parts}
        self._uses = self._count_references()
        self._names: dict[str, str] = {}
        self._taken_names: set[str] = set(_RESERVED_WITH_RICH_VALUES if is_rich.get() else _RESERVED)
        self._pending: deque[tuple[str, _PrintScope]] = deque()
        self._has_content = False

    def print_root(self, part: NamedDocument) -> str:
        """The type of the whole document."""
        definition = part.document.definitions[()]
        scope = _PrintScope(part, ())
        if _refers_to_root(part.document):
            return self._get_or_create_alias(scope, ())
        return self._print_shape(definition.shape, scope)

    def print_aliases(self) -> list[str]:
        """The declarations that the types printed so far rely on."""
        declarations: list[str] = []
        while self._pending:
            name, scope = self._pending.popleft()
            definition = scope.part.document.definitions[scope.owner]
            declarations.append(
                f"{self._jsdoc(definition.doc)}type {name} = {self._print_shape(definition.shape, scope)};"
            )
        return [*([self._content_declaration] if self._has_content else []), *declarations]

    def _count_references(self) -> Counter[str]:
        uses: Counter[str] = Counter()
        counted: set[str] = set()
        for part in self._parts:
            for pointer, definition in part.document.definitions.items():
                if not definition.references:
                    continue
                identity = self._compute_identity(part, pointer)
                if pointer and identity in counted:
                    continue
                counted.add(identity)
                uses.update(self._compute_identity(part, reference.pointer) for reference in definition.references)
        return uses

    def _compute_identity(self, part: NamedDocument, pointer: Pointer) -> str:
        """The same for the same definition in two documents, however far its references reach."""
        key = (id(part), pointer)
        if key not in self._identities:
            reachable = _find_reachable_pointers(part.document, pointer)
            self._identities[key] = _compute_value_digest(
                (
                    pointer,
                    sorted(
                        (reached_pointer, self._compute_digest(part, reached_pointer)) for reached_pointer in reachable
                    ),
                )
            )
        return self._identities[key]

    def _compute_digest(self, part: NamedDocument, pointer: Pointer) -> str:
        key = (id(part), pointer)
        if key not in self._texts:
            self._texts[key] = _compute_value_digest(part.document.definitions[pointer])
        return self._texts[key]

    def _print_shape(self, shape: Shape, scope: _PrintScope) -> str:
        match shape:
            case BuiltinType(name, comment):
                self._has_content = self._has_content or shape == CONTENT
                return f"/* {comment} */ {name}" if comment else name
            case Literal(text):
                return text
            case Array(item, is_set):
                return (
                    f"Set<{self._print_shape(item, scope.create_nested_scope())}>"
                    if is_set
                    else f"{self._print_operand(item, scope)}[]"
                )
            case Tuple():
                return self._print_tuple(shape, scope)
            case Object():
                return self._print_object(shape, scope)
            case Union(members):
                return " | ".join(
                    _deduplicate_texts(self._print_shape(member, scope.create_nested_scope()) for member in members)
                )
            case Intersection(members):
                return " & ".join(_deduplicate_texts(self._print_operand(member, scope) for member in members))
            case Reference():
                return self._print_reference(shape, scope)

    def _print_operand(self, shape: Shape, scope: _PrintScope) -> str:
        text = self._print_shape(shape, scope.create_nested_scope())
        is_compound = isinstance(self._resolve_references(shape, scope), Union | Intersection)
        return f"({text})" if is_compound and not _WORD.fullmatch(text) else text

    def _resolve_references(self, shape: Shape, scope: _PrintScope) -> Shape:
        definitions = scope.part.document.definitions
        for _ in range(len(definitions)):
            if not isinstance(shape, Reference):
                break
            shape = definitions[shape.pointer].shape
        return shape

    def _print_tuple(self, shape: Tuple, scope: _PrintScope) -> str:
        inner = scope.create_nested_scope()
        optional = [*shape.items[shape.required :], *([] if shape.rest is None else [Array(shape.rest)])]
        if any(self._refers_to_owner(item, scope) for item in optional):
            return self._print_labelled_tuple(shape, inner)
        items = [self._print_shape(item, inner) for item in shape.items[: shape.required]]
        items += [f"{self._print_operand(item, scope)}?" for item in shape.items[shape.required :]]
        if shape.rest is not None:
            items.append(f"...{self._print_operand(shape.rest, scope)}[]")
        return f"[{', '.join(items)}]"

    def _print_labelled_tuple(self, shape: Tuple, inner: _PrintScope) -> str:
        # TypeScript puts off what is inside of `label?: T[]`, not of `T[]?`: an alias may refer to itself there.
        marks = [""] * shape.required + ["?"] * (len(shape.items) - shape.required)
        items = [
            f"item{at}{mark}: {self._print_shape(item, inner)}"
            for at, (item, mark) in enumerate(zip(shape.items, marks, strict=True))
        ]
        if shape.rest is not None:
            items.append(f"...rest: {self._print_shape(Array(shape.rest), inner)}")
        return f"[{', '.join(items)}]"

    def _refers_to_owner(self, shape: Shape, scope: _PrintScope) -> bool:
        """Return whether a tuple or array, with no object around it, leads back to the definition that it stands in."""
        pending: list[Shape] = [shape] if isinstance(shape, Array | Tuple | Union | Intersection) else []
        while pending:
            match pending.pop():
                case Array(item):
                    pending.append(item)
                case Tuple(items, _, rest):
                    pending += [*items, *([] if rest is None else [rest])]
                case Union(members) | Intersection(members):
                    pending += members
                case Reference(pointer):
                    if scope.owner in _find_reachable_pointers(scope.part.document, pointer):
                        return True
                case _:
                    pass
        return False

    def _print_object(self, shape: Object, scope: _PrintScope) -> str:
        inner = scope.create_nested_scope()
        members = [self._print_property(prop, inner) for prop in shape.properties]
        if shape.index is not None:
            if not members and not shape.index_comment and isinstance(shape.index, BuiltinType):
                return f"Record<string, {self._print_shape(shape.index, inner)}>"
            comment = f"/* {shape.index_comment} */ " if shape.index_comment else ""
            members.append(f"{comment}[key: string]: {self._print_index_type(shape, shape.index, inner)}")
        if not members:
            return "{}"
        line = f"{{ {'; '.join(members)} }}"
        if len(line) <= MAX_LINE_CHARACTERS and "\n" not in line:
            return line
        return "{\n" + "".join(f"{indent_lines(member)};\n" for member in members) + "}"

    def _print_property(self, prop: Property, scope: _PrintScope) -> str:
        mark = "" if prop.required else "?"
        doc = prop.doc or self._find_inlined_doc(prop.shape, scope)
        return f"{self._jsdoc(doc)}{to_member_name(prop.name)}{mark}: {self._print_shape(prop.shape, scope)}"

    def _find_inlined_doc(self, shape: Shape, scope: _PrintScope) -> JsDoc:
        if isinstance(shape, Reference) and self._is_inlined(shape, scope):
            return scope.part.document.definitions[shape.pointer].doc
        return JsDoc()

    def _print_index_type(self, shape: Object, index: Shape, scope: _PrintScope) -> str:
        """TypeScript wants every listed property to fit the index signature, JSON Schema does not."""
        index_text = self._print_shape(index, scope)
        if not shape.properties or index == BuiltinType("unknown"):
            return index_text
        texts = [index_text, *(self._print_shape(prop.shape, scope) for prop in shape.properties)]
        if not all(prop.required for prop in shape.properties):
            texts.append("undefined")
        members = _deduplicate_texts(texts)
        widened = " | ".join(members)
        if len(members) > MAX_INDEX_MEMBERS or len(widened) > MAX_LINE_CHARACTERS or "\n" in widened:
            return "/* narrower than TypeScript can express */ unknown"
        return widened

    def _print_reference(self, shape: Reference, scope: _PrintScope) -> str:
        if not shape.guarded and (scope.owner, shape.pointer) in self._endless[id(scope.part)]:
            return "/* refers to itself */ unknown"
        if self._is_inlined(shape, scope):
            definition = scope.part.document.definitions[shape.pointer]
            return self._print_shape(definition.shape, scope.create_nested_scope(shape.pointer))
        return self._get_or_create_alias(scope, shape.pointer)

    def _is_inlined(self, shape: Reference, scope: _PrintScope) -> bool:
        definition = scope.part.document.definitions[shape.pointer]
        if _is_small_shape(definition.shape):
            return True
        uses = self._uses[self._compute_identity(scope.part, shape.pointer)]
        return bool(shape.pointer) and uses < 2 and scope.depth < MAX_INLINE_DEPTH

    def _get_or_create_alias(self, scope: _PrintScope, pointer: Pointer) -> str:
        identity = self._compute_identity(scope.part, pointer)
        if identity not in self._names:
            definition = scope.part.document.definitions[pointer]
            self._names[identity] = self._reserve_free_name(
                _create_alias_name(pointer, definition, scope.part.root_name)
            )
            self._pending.append((self._names[identity], _PrintScope(scope.part, pointer)))
        return self._names[identity]

    def _reserve_free_name(self, preferred_name: str) -> str:
        name, number = preferred_name, 2
        while name in self._taken_names:
            name, number = f"{preferred_name}{number}", number + 1
        self._taken_names.add(name)
        return name


def _deduplicate_texts(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _is_small_shape(shape: Shape) -> bool:
    if isinstance(shape, Union):
        return len(shape.members) <= MAX_SMALL_MEMBERS and all(map(_is_small_shape, shape.members))
    return isinstance(shape, BuiltinType | Literal)


def _refers_to_root(document: ShapeDocument) -> bool:
    return any(
        not reference.pointer for definition in document.definitions.values() for reference in definition.references
    )


def _find_reachable_pointers(document: ShapeDocument, pointer: Pointer) -> set[Pointer]:
    reached = {pointer}
    pending = [pointer]
    while pending:
        for reference in document.definitions[pending.pop()].references:
            if reference.pointer not in reached:
                reached.add(reference.pointer)
                pending.append(reference.pointer)
    return reached


def _compute_value_digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


def to_pascal_case(text: str) -> str:
    """``read_file`` and ``read-file`` as ``ReadFile``; empty when there is no ASCII letter or digit."""
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(text[:100]))


def _create_alias_name(pointer: Pointer, definition: ShapeDefinition, root_name: str) -> str:
    alias = to_pascal_case(pointer[-1]) if pointer else to_pascal_case(definition.title) or root_name
    if not alias:
        return "Shared"
    return alias if alias[0].isalpha() else f"Type{alias}"

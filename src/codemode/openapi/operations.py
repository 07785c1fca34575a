"""Reads operations of an OpenAPI document, with copies of the schemas that they refer to."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..cached_property import cached_property
from ..data.content import CONTENT_SCHEMA
from ..data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty, string_or_empty
from ..schemas.keyword_repair import Side
from ..trace.visible_text import clip_text, clip_to_visible_line
from .spec import Spec, format_names

MAX_INPUT_VALUES = 10_000
MAX_OUTPUT_VALUES = 1_000
"""Output types get less: a program can read a field that is not declared, and a model reads every declaration."""
_MAX_DEPTH = 60
_MAX_INPUT_DESCRIPTION_CHARACTERS = 300
_MAX_OUTPUT_DESCRIPTION_CHARACTERS = 80
_MAX_DEFAULT_CHARACTERS = 80
_MAX_SCHEMA_NAME_CHARACTERS = 60
_MAX_ALTERNATIVES = 50
_SUBSCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else", "items"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_SUBSCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SUBSCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
# All others are left out: `x-codemode` would make content of text, `$id` would move references.
_COPIED_KEYWORDS = frozenset(
    {"type", "enum", "const", "format", "pattern", "nullable", "readOnly", "writeOnly", "deprecated", "uniqueItems"}
    | {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains", "required"}
    | {"dependentRequired", "contentEncoding", "contentMediaType"}
)


class SchemaCondenser:
    """Copies schemas of one document into one new document, breadth first.

    ``side`` input: a default becomes a part of the description. Filled in by a validator, those of a PATCH would
    overwrite fields that the program never named.
    """

    def __init__(self, spec: Spec, side: Side, max_values: int) -> None:
        self._references = spec.reference_resolver
        self._side: Side = side
        self._values_left = max_values
        self._names: dict[tuple[str, ...], str] = {}
        self._unique_names = UniqueNames()
        self._pending_pointers: deque[tuple[str, ...]] = deque()

    def copy_schema(self, schema: Any, description: str = "") -> Any:
        """Return the copy of a schema, in which references point to `definitions`, with this description if any."""
        if description and not isinstance(schema, bool):
            schema = {**mapping_or_empty(schema), "description": description}
        return self._copy_subschema_and_count_limit(schema, 0)

    def copy_referenced_definitions(self) -> dict[str, Any]:
        """Copy what the copies refer to. Beyond the budget it accepts anything."""
        copied: dict[str, Any] = {}
        while self._pending_pointers:
            pointer = self._pending_pointers.popleft()
            copied[self._names[pointer]] = self._copy_subschema_and_count_limit(
                self._references.look_up_pointer(pointer), 0
            )
        return {"$defs": copied} if copied else {}

    def _copy_subschema_and_count_limit(self, schema: Any, depth: int) -> Any:
        if not is_mapping(schema):
            return schema if isinstance(schema, bool) else {}
        self._values_left -= 1
        if self._values_left <= 0 or depth > _MAX_DEPTH:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._copy_reference(reference, schema)
        if schema.get("type") == "file":
            return dict(CONTENT_SCHEMA)
        rules = {str(keyword): self._copy_rule(keyword, rule, depth) for keyword, rule in schema.items()}
        copied = {keyword: rule for keyword, rule in rules.items() if rule is not _OMITTED and rule is not None}
        if self._side == "input" and "default" in schema:
            copied = add_default_to_description(copied, schema["default"])
        return copied

    def _copy_rule(self, keyword: Any, rule: Any, depth: int) -> Any:
        if keyword in _SUBSCHEMA_KEYWORDS and not is_array(rule):
            return self._copy_subschema_and_count_limit(rule, depth + 1)
        if keyword in _SUBSCHEMA_LIST_KEYWORDS or keyword == "items":
            return (
                [self._copy_subschema_and_count_limit(item, depth + 1) for item in rule] if is_array(rule) else _OMITTED
            )
        if keyword in _SUBSCHEMA_MAP_KEYWORDS:
            if not is_mapping(rule):
                return _OMITTED
            return {str(name): self._copy_subschema_and_count_limit(item, depth + 1) for name, item in rule.items()}
        if keyword == "description":
            return shorten_description(rule, self._side) or _OMITTED
        if keyword == "format" and self._side == "output":
            return _OMITTED  # a program does nothing with it, and a model reads it
        if keyword == "discriminator":
            name = mapping_or_empty(rule).get("propertyName")
            return {"propertyName": name} if isinstance(name, str) else _OMITTED
        if keyword in _COPIED_KEYWORDS or (keyword == "default" and self._side == "output"):
            self._values_left -= len(rule) if is_array(rule) or is_object(rule) else 0
            return rule
        return _OMITTED

    def _copy_reference(self, reference: str, schema: Any) -> dict[str, Any]:
        pointer = self._references.resolve_to_pointer(reference)
        if pointer is None:
            # Another document: it is not fetched. Also what leads nowhere.
            return {"description": f"not described here: {clip_text(reference, 100)}"}
        if pointer not in self._names:
            name = re.sub(r"[^A-Za-z0-9_]+", "_", pointer[-1] if pointer else "")[:_MAX_SCHEMA_NAME_CHARACTERS]
            self._names[pointer] = self._unique_names.reserve_unique_name(name or "Type")
            self._pending_pointers.append(pointer)
        copied: dict[str, Any] = {"$ref": f"#/$defs/{self._names[pointer]}"}
        if description := shorten_description(schema.get("description"), self._side):
            copied["description"] = description
        return copied


class UniqueNames:
    """Gives out names, each once. ``renamed`` are those that got a suffix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.renamed: list[str] = []

    def reserve_unique_name(self, preferred_name: str) -> str:
        """Return the name, with a suffix if it is in use, and mark it as in use."""
        name = preferred_name
        while name in self._counts:
            self._counts[preferred_name] += 1
            name = f"{preferred_name}_{self._counts[preferred_name]}"
        self._counts[name] = 1
        if name != preferred_name:
            self.renamed.append(name)
        return name


_OMITTED: Any = object()


def shorten_description(text: Any, side: Side = "input") -> str:
    """Return a description as it is declared: shortened, most of all that of a result, on one line."""
    max_characters = _MAX_INPUT_DESCRIPTION_CHARACTERS if side == "input" else _MAX_OUTPUT_DESCRIPTION_CHARACTERS
    return clip_text(" ".join(string_or_empty(text)[: 4 * max_characters].split()), max_characters)


def add_default_to_description(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Return a schema that says in words what the API does without a value."""
    try:
        text = json.dumps(default, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return schema
    if default is None or len(text) > _MAX_DEFAULT_CHARACTERS:
        return schema
    return {**schema, "description": f"{schema.get('description', '')} Default: {text}".strip()}


METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
READ_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT = READ_ONLY | {"PUT", "DELETE"}
BodyKind = Literal["json", "form", "multipart", "text", "binary"]
_LOCATIONS = ("path", "query", "header", "cookie")
# The client's business, or that of the connection.
_RESERVED_HEADERS = """accept accept-encoding authorization connection content-length content-type cookie expect host
keep-alive proxy-authorization te trailer transfer-encoding upgrade"""
_RESERVED_PARAMETERS = frozenset(("header", name) for name in _RESERVED_HEADERS.split())
_HEADER_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_PLACEHOLDER = re.compile(r"\{([^{}/]{1,200})\}")
_UNUSABLE_PATH = re.compile(r"[\x00-\x20\x7f\\]|//|(?:^|/)(?:\.|%2e){1,2}(?:/|$)|%2f|%5c", re.IGNORECASE)
MAX_OPERATIONS = 50_000
_MAX_PROBLEMS = 1_000
_MAX_PATH_CHARACTERS = 2_000
_MAX_PARAMETERS = 500
_MAX_NAME_CHARACTERS = 100
_MAX_DESCRIPTION_CHARACTERS = 600
_MAX_ALL_OF_MEMBERS = 100  # of `allOf`, at all levels
_TEXT_MEDIA_TYPES = ("text/", "application/xml", "application/yaml", "application/x-yaml", "application/javascript")


ParameterIdentity = tuple[str, str]
"""Where a parameter is, and its name; that of a header in lower case."""


class OperationParameter(NamedTuple):
    """A parameter: ``name`` in the request, ``key`` in the input of the tool. ``is_json``: it is sent as JSON."""

    name: str
    key: str
    location: str
    schema: Any
    required: bool
    description: str
    style: str
    explode: bool
    allow_reserved: bool
    is_json: bool


class ObjectProperties(NamedTuple):
    """The properties of an object: their schemas, the required ones, and the schema of all others."""

    properties: dict[str, Any]
    required: set[str]
    extra: Any


class RequestBody(NamedTuple):
    """The body of a request. ``keys`` are those of the input by property; without ``parts`` that of ``""`` is all."""

    media_type: str
    kind: BodyKind
    schema: Any
    required: bool
    description: str
    keys: Mapping[str, str]
    parts: ObjectProperties | None
    encoding: Mapping[str, Any]


class RequestDefinition(NamedTuple):
    """The parts of a request."""

    parameters: tuple[OperationParameter, ...]
    body: RequestBody | None


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a document. ``id`` is its ``operationId``, empty without one; ``name`` is that of its tool."""

    id: str
    name: str
    method: str
    path: str
    tags: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)
    item: Mapping[str, Any] = field(repr=False)
    spec: Spec = field(repr=False)
    hidden: Collection[ParameterIdentity] = field(default=(), repr=False)

    @property
    def is_read_only(self) -> bool:
        """True for GET, HEAD and OPTIONS."""
        return self.method in READ_ONLY

    @property
    def is_idempotent(self) -> bool:
        """True where the same request may be sent twice without harm, by its method."""
        return self.method in IDEMPOTENT

    @property
    def description(self) -> str:
        """The model's description: summary, description, method and path."""
        summary = clip_to_visible_line(string_or_empty(self.raw.get("summary")).strip(), 300)
        long_description = clip_text(string_or_empty(self.raw.get("description")).strip(), _MAX_DESCRIPTION_CHARACTERS)
        long_description = "" if long_description.rstrip(".") == summary.rstrip(".") else long_description
        summary += "." if summary and summary[-1] not in ".!?" else ""
        note = "Deprecated." if self.raw.get("deprecated") is True else ""
        return "\n\n".join(filter(None, (note, summary, long_description, f"{self.method} {self.path}")))

    @property
    def annotations(self) -> dict[str, Any]:
        """The hints of the method, as MCP names them."""
        hints = {"readOnlyHint": READ_ONLY, "idempotentHint": IDEMPOTENT, "destructiveHint": ("DELETE",)}
        return {name: True for name, methods in hints.items() if self.method in methods}

    @cached_property
    def request_definition(self) -> RequestDefinition:
        """Parameters and body."""
        return read_request_definition(self)

    @property
    def search_input_schema(self) -> dict[str, Any]:
        """Names and descriptions of the inputs, for a search. Nothing is compiled, and nothing is kept."""
        form = read_request_definition(self)
        properties_by_key = {
            parameter.key: {"description": parameter.description, **_select_type_and_format(parameter.schema)}
            for parameter in form.parameters
        }
        if form.body is not None and form.body.parts is not None:
            for name, key in form.body.keys.items():
                schema = self.spec.follow_references(form.body.parts.properties[name])
                properties_by_key[key] = {
                    "description": shorten_description(schema.get("description")),
                    **_select_type_and_format(schema),
                }
        return {"type": "object", "properties": properties_by_key}

    @cached_property
    def schema_digest(self) -> str:
        """A digest of all that its schemas are made of."""
        parts = [self.method, self.path, self.raw, self.item.get("parameters"), sorted(self.hidden)]
        return self.spec.compute_digest(parts)

    def input_schema(self, max_values: int = MAX_INPUT_VALUES, *, has_content: bool = True) -> dict[str, Any]:
        """Return the JSON Schema of the one input object. Without ``has_content`` files are texts."""
        copies, form = SchemaCondenser(self.spec, "input", max_values), self.request_definition
        file = _FILE if has_content else {"type": "string"}
        properties: dict[str, Any] = {}
        for parameter in form.parameters:
            properties[parameter.key] = copies.copy_schema(parameter.schema, parameter.description)
        required = [parameter.key for parameter in form.parameters if parameter.required]
        extra: Any = False
        if form.body is not None:
            required += _add_body_properties_and_get_required(form.body, copies, properties, self.spec, file)
            extra = copies.copy_schema(form.body.parts.extra) if form.body.parts is not None else False
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": extra}
        return {**schema, **copies.copy_referenced_definitions()}

    def output_schema(self, max_values: int = MAX_OUTPUT_VALUES) -> dict[str, Any] | None:
        """Return the JSON Schema of the results of all success responses; None where the document says nothing."""
        copies = SchemaCondenser(self.spec, "output", max_values)
        branches: list[Any] = []
        for response in self.success_or_default_responses():
            for branch in _iterate_result_schemas(
                response, copies, has_links=_is_list_with_link_header(response, self.spec)
            ):
                if branch not in branches:
                    branches.append(branch)
        if not branches:
            return None
        schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
        return {**schema, **copies.copy_referenced_definitions()}

    @cached_property
    def has_pagination_links(self) -> bool:
        """True when a success response that is a list documents a ``Link`` header."""
        return any(_is_list_with_link_header(response, self.spec) for response in self.success_or_default_responses())

    def success_or_default_responses(self) -> list[Mapping[str, Any]]:
        """Return the responses that are results: those of 2xx, or else the default."""
        responses = mapping_or_empty(self.raw.get("responses"))
        selected = [
            response for code, response in responses.items() if re.match(r"2(\d\d|XX)\Z", str(code), re.IGNORECASE)
        ]
        if not selected and "default" in responses:
            selected = [responses["default"]]
        return [self.spec.follow_references(response) for response in selected]


def read_operations(spec: Spec, hidden: Iterable[ParameterIdentity] = ()) -> tuple[list[Operation], list[str]]:
    """Return the operations of a document under unique names, by their first tags, and what was left out and why.

    ``hidden`` are parameters, by place and name, that the client fills in by itself.
    """
    rows: list[tuple[str, str, Mapping[str, Any], Mapping[str, Any], tuple[str, ...]]] = []
    problems: list[str] = []
    for path, path_item in mapping_or_empty(spec.document.get("paths")).items():
        item = spec.follow_references(path_item)
        for method in (method_name for method_name in METHODS if method_name in item):
            reason = _find_operation_problem(path, item[method], len(rows))
            if reason is None:
                raw = mapping_or_empty(item[method])
                tags = tuple(
                    clip_to_visible_line(tag, 100)
                    for tag in list_or_empty(raw.get("tags"))[:20]
                    if isinstance(tag, str)
                )
                rows.append((path, method, raw, item, tags))
            elif len(problems) < _MAX_PROBLEMS:
                problems.append(f"{method.upper()} {clip_to_visible_line(str(path), 200)} is left out: {reason}")
    position_by_tag = {
        tag: position for position, tag in enumerate(dict.fromkeys(row[-1][0] for row in rows if row[-1]))
    }
    rows.sort(key=lambda row: position_by_tag[row[-1][0]] if row[-1] else len(position_by_tag))
    names, hidden, operations = (
        UniqueNames(),
        _find_credential_parameters(spec) | _RESERVED_PARAMETERS | {*hidden},
        list[Operation](),
    )
    for path, method, raw, item, tags in rows:
        operation_id = clip_to_visible_line(string_or_empty(raw.get("operationId")).strip(), 200)
        name = names.reserve_unique_name(create_tool_name(operation_id, method, path))
        operations.append(Operation(operation_id, name, method.upper(), path, tags, raw, item, spec, hidden))
    if names.renamed:
        problems.append(f"operations with equal names got a suffix: {format_names(names.renamed, 10)}")
    return operations, problems


def _find_operation_problem(path: Any, raw: Any, count: int) -> str | None:
    """Return why an operation cannot be a tool."""
    if not is_mapping(raw):
        return f"expected an object, got {type(raw).__name__}"
    if not isinstance(path, str) or not path.startswith("/"):
        return "its path does not begin with a slash"
    if len(path) > _MAX_PATH_CHARACTERS or _UNUSABLE_PATH.search(re.split("[?#]", path)[0]):
        return "its path could lead elsewhere (dot segments, double slashes, backslashes, encoded slashes or spaces)"
    return f"there are more than {MAX_OPERATIONS} operations" if count >= MAX_OPERATIONS else None


def create_tool_name(operation_id: str, method: str, path: str) -> str:
    """Return the name that an operation asks for: of its id, else of method and path."""
    text = operation_id or f"{method} {re.split('[?#]', path)[0]}"
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_MAX_NAME_CHARACTERS] or method
    return f"_{name}" if name[0].isdigit() or name == "then" else name


# --- parameters and bodies ---


def read_request_definition(operation: Operation) -> RequestDefinition:
    """Return what a request of an operation is made of. Never raises: what is malformed is left out."""
    keys: set[str] = set()
    parameters = tuple(
        parameter._replace(key=_reserve_unique_key(parameter.name, parameter.location, keys))
        for parameter in _read_parameters(operation)[:_MAX_PARAMETERS]
    )
    return RequestDefinition(parameters, _read_request_body(operation, keys))


def _reserve_unique_key(name: str, location: str, keys: set[str]) -> str:
    key = name
    while key in keys:
        key = f"{location}_{key}"
    keys.add(key)
    return key


def _read_parameters(operation: Operation) -> list[OperationParameter]:
    spec = operation.spec
    parameters: dict[tuple[str, str], OperationParameter] = {}
    definitions = [*list_or_empty(operation.item.get("parameters")), *list_or_empty(operation.raw.get("parameters"))]
    placeholders = _PLACEHOLDER.findall(re.split("[?#]", operation.path)[0])
    for raw in map(spec.follow_references, definitions):
        name, location = raw.get("name"), raw.get("in")
        if not isinstance(name, str) or not name or len(name) > 200 or location not in _LOCATIONS:
            continue
        identity = (location, name.lower() if location == "header" else name)
        is_usable = name in placeholders if location == "path" else location == "query" or _HEADER_TOKEN.match(name)
        if is_usable and identity not in operation.hidden:
            parameters[identity] = _read_parameter(name, location, raw)
    for name in placeholders:
        if ("path", name) not in parameters:
            parameters["path", name] = _read_parameter(name, "path", {"schema": {"type": "string"}})
    return sorted(parameters.values(), key=lambda parameter: _LOCATIONS.index(parameter.location))


def _read_parameter(name: str, location: str, raw: Mapping[str, Any]) -> OperationParameter:
    contents = mapping_or_empty(raw.get("content"))
    content = next(iter(contents.items()), None)
    schema = raw.get("schema") if content is None else mapping_or_empty(content[1]).get("schema")
    style = raw.get("style")
    if style not in ("form", "simple", "label", "matrix", "spaceDelimited", "pipeDelimited", "deepObject"):
        style = "form" if location in ("query", "cookie") else "simple"
    explode = raw["explode"] if isinstance(raw.get("explode"), bool) else style in ("form", "deepObject")
    is_required = location == "path" or raw.get("required") is True
    is_json = content is not None and classify_media_type(str(content[0])) == "json"
    description = shorten_description(raw.get("description"))
    is_reserved = raw.get("allowReserved") is True
    return OperationParameter(
        name, name, location, schema, is_required, description, style, explode, is_reserved, is_json
    )


def _find_credential_parameters(spec: Spec) -> set[ParameterIdentity]:
    """Return the parameters that carry credentials: they are the client's, and no program's."""
    schemes = mapping_or_empty(mapping_or_empty(spec.document.get("components")).get("securitySchemes"))
    identities: set[ParameterIdentity] = set()
    for scheme in map(spec.follow_references, schemes.values()):
        name, location = scheme.get("name"), scheme.get("in")
        if scheme.get("type") == "apiKey" and isinstance(name, str) and location in _LOCATIONS:
            identities.add((location, name.lower() if location == "header" else name))
    return identities


def classify_media_type(media_type: str) -> BodyKind:
    """Return how a body of a media type is written and read."""
    name = media_type.partition(";")[0].strip().lower()
    if "json" in name or name == "*/*":
        return "json"
    if name.startswith(("multipart/", "application/x-www-form-urlencoded")):
        return "multipart" if name.startswith("multipart/") else "form"
    return "text" if name.startswith(_TEXT_MEDIA_TYPES) or name.endswith(("+xml", "+yaml")) else "binary"


_BODY_KINDS_BY_PREFERENCE: tuple[BodyKind, ...] = ("json", "form", "multipart", "text", "binary")


def _read_request_body(operation: Operation, keys_in_use: set[str]) -> RequestBody | None:
    raw = operation.spec.follow_references(operation.raw.get("requestBody"))
    contents = [(str(name), mapping_or_empty(media)) for name, media in mapping_or_empty(raw.get("content")).items()]
    if not contents:
        return None
    media_type, content = min(
        contents, key=lambda media: _BODY_KINDS_BY_PREFERENCE.index(classify_media_type(media[0]))
    )
    kind = classify_media_type(media_type)
    schema = content.get("schema")
    parts = _read_writable_properties(schema, operation.spec, set()) if kind in ("json", "form", "multipart") else None
    names = {"": "body"} if parts is None else {name: name for name in parts.properties}
    keys = {name: _reserve_unique_key(key, "body", keys_in_use) for name, key in names.items()}
    is_required, description = raw.get("required") is True, shorten_description(raw.get("description"))
    media_type_sent = _select_sent_media_type(media_type, kind)
    return RequestBody(
        media_type_sent, kind, schema, is_required, description, keys, parts, mapping_or_empty(content.get("encoding"))
    )


def _select_sent_media_type(media_type: str, kind: BodyKind) -> str:
    """Return the type that is sent: a range names none, and what is no header value is not sent."""
    is_valid = re.fullmatch(r"[\w.!#$&^+-]{1,80}/[\w.!#$&^+-]{1,80}(?:; ?[\w=.\"-]{1,80})?", media_type)
    if is_valid and "*" not in media_type:
        return media_type
    return {"json": "application/json", "text": "text/plain; charset=utf-8"}.get(kind, "application/octet-stream")


def _read_writable_properties(schema: Any, spec: Spec, seen_ids: set[int]) -> ObjectProperties | None:
    """Return the properties of a body that is an object; None for any other, and for unions of objects."""
    schema = spec.follow_references(schema)
    if schema.get("type") not in (None, "object", ["object"], ["object", "null"]):
        return None
    seen_ids.add(id(schema))
    properties = {
        str(name): schema_or_property for name, schema_or_property in mapping_or_empty(schema.get("properties")).items()
    }
    unions = [*list_or_empty(schema.get("oneOf")), *list_or_empty(schema.get("anyOf"))]
    if any(
        not properties or mapping_or_empty(spec.follow_references(schema_or_property)).get("properties")
        for schema_or_property in unions
    ):
        return None
    required = {name for name in list_or_empty(schema.get("required")) if isinstance(name, str)}
    extra: Any = schema.get("additionalProperties", False)
    for member in map(spec.follow_references, list_or_empty(schema.get("allOf"))):
        if id(member) in seen_ids:  # one that is there twice, or a circle
            continue
        parts = _read_writable_properties(member, spec, seen_ids) if len(seen_ids) < _MAX_ALL_OF_MEMBERS else None
        if parts is None:
            return None
        properties = {**parts.properties, **properties}
        required |= parts.required
        extra = extra or parts.extra
    writable = {
        name: schema_or_property
        for name, schema_or_property in properties.items()
        if spec.follow_references(schema_or_property).get("readOnly") is not True
    }
    return ObjectProperties(writable, required & writable.keys(), extra) if writable else None


def list_alternatives(schema: Any, spec: Spec) -> list[Mapping[str, Any]]:
    """Return a schema and the members of its unions and of its `allOf`, references followed, at most 50 in all."""
    pending = deque[Any]([schema])
    alternatives: list[Mapping[str, Any]] = []
    while pending and len(alternatives) < _MAX_ALTERNATIVES:
        alternative = spec.follow_references(pending.popleft())
        alternatives.append(alternative)
        for keyword in ("anyOf", "oneOf", "allOf"):
            pending += list_or_empty(alternative.get(keyword))[:_MAX_ALTERNATIVES]
    return alternatives


def get_types(alternatives: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the types that schemas name."""
    types: set[str] = set()
    for schema in alternatives:
        named = schema.get("type")
        types |= {name for name in (named if is_array(named) else [named]) if isinstance(name, str)}
        types |= {"null"} if schema.get("nullable") is True else set()
    return types


def _create_file_schema(schema: Any, spec: Spec, file: Any) -> Any:
    """Return the input schema of a file, or of a list of files, in a multipart body; None for any other property."""
    alternatives = list_alternatives(schema, spec)
    others = [alternative for alternative in alternatives if not _is_file(alternative)]
    items = [list_alternatives(other.get("items"), spec) for other in others if "array" in get_types([other])]
    if any(not any(map(_is_file, members)) for members in items) or get_types(others) - {"string", "array", "null"}:
        return None
    choices = [file] if len(others) < len(alternatives) else []
    choices += [{"type": "array", "items": _create_union([file], members)} for members in items]
    return _create_union(choices, alternatives) if choices else None


def _create_union(choices: list[Any], alternatives: list[Mapping[str, Any]]) -> Any:
    """Return a schema of these choices, and of null where an alternative is null."""
    if "null" in get_types(alternatives):
        choices = [*choices, {"type": "null"}]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _is_file(schema: Mapping[str, Any]) -> bool:
    is_media = "contentMediaType" in schema and "contentEncoding" not in schema
    return schema.get("format") == "binary" or schema.get("type") == "file" or is_media


_FILE: dict[str, Any] = {"anyOf": [CONTENT_SCHEMA, {"type": "string"}]}


def _add_body_properties_and_get_required(
    body: RequestBody, copies: SchemaCondenser, properties: dict[str, Any], spec: Spec, file: Any
) -> list[str]:
    """Add the properties of a body to those of the input. Returns the required ones."""
    if body.parts is None:
        description = {"description": body.description} if body.description else {}
        plain_schema = {"binary": {**file, **description}, "text": {"type": "string", **description}}.get(body.kind)
        properties[body.keys[""]] = plain_schema or copies.copy_schema(body.schema, body.description)
        return [*body.keys.values()] if body.required else []
    for name, key in body.keys.items():
        schema = body.parts.properties[name]
        file_schema = _create_file_schema(schema, spec, file) if body.kind == "multipart" else None
        properties[key] = file_schema or copies.copy_schema(schema)
    return [key for name, key in body.keys.items() if name in body.parts.required] if body.required else []


def _select_type_and_format(schema: Any) -> dict[str, Any]:
    schema = mapping_or_empty(schema)
    return {key: schema[key] for key in ("type", "format") if isinstance(schema.get(key), str)}


# --- results ---


def _iterate_result_schemas(response: Mapping[str, Any], copies: SchemaCondenser, *, has_links: bool) -> Iterator[Any]:
    contents = {str(name): mapping_or_empty(media) for name, media in mapping_or_empty(response.get("content")).items()}
    if not contents:
        yield {"type": "null"}
        return
    kinds = {classify_media_type(name) for name in contents}
    for name, content in contents.items():
        if classify_media_type(name) == "json":
            schema = copies.copy_schema(content.get("schema"))
            yield _wrap_with_links(schema) if has_links else schema
        elif "json" not in kinds:  # JSON is asked for where there is a choice
            yield {"type": "string"} if classify_media_type(name) == "text" else CONTENT_SCHEMA


def _is_list_with_link_header(response: Mapping[str, Any], spec: Spec) -> bool:
    """Tell whether a response is a list that documents a ``Link`` header."""
    if not any(isinstance(name, str) and name.lower() == "link" for name in mapping_or_empty(response.get("headers"))):
        return False
    schemas = [mapping_or_empty(media).get("schema") for media in mapping_or_empty(response.get("content")).values()]
    return any(spec.follow_references(schema).get("type") == "array" for schema in schemas)


def _wrap_with_links(branch: Any) -> Any:
    link = {
        "type": "object",
        "properties": {"url": {"type": "string"}, "input": {"type": "object", "additionalProperties": True}},
        "required": ["url"],
    }
    description = "By relation: next, prev, first, last. Pass `input` to the same tool for that page."
    links = {"type": "object", "description": description, "additionalProperties": link}
    return {"type": "object", "properties": {"items": branch, "links": links}, "required": ["items", "links"]}

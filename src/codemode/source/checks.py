"""Check the facts that a worker reported about a program against the tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ..data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..data.references import LocalReferenceResolver
from ..data.rich_values import is_rich
from ..data.similar_names import find_nearest_names

if TYPE_CHECKING:
    from ..data.program_facts import ProgramProblem


# Only what fails whenever it is reached is a problem; the rest is left to run time. Malformed facts are ignored.

MAX_PROBLEMS = 32
MAX_CHECKED_CALLS = 512
MAX_NAME_LENGTH = 256
MAX_DEPTH = 8
MAX_KEYS = 256
MAX_POSITION = 2**31
# A recursive schema may have exponentially many paths.
MAX_VISITS = 20_000
# Any list of a server's schema may be very long: this many names count as one visit.
NAMES_PER_VISIT = 16
MAX_LISTED_NAMES = 10
# Comparing a name with a thousand others takes milliseconds on the event loop.
MAX_SUGGESTIONS = 8
MAX_MESSAGE_LENGTH = 400
_WRITTEN_INTEGER = re.compile(r"-?(?:[0-9]+|0[xob][0-9a-f]+)", re.ASCII | re.IGNORECASE)

# Other names on `tools`: catalog queries, or inherited by every object.
INHERITED_NAMES = frozenset(
    (
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "then",
        "toJSON",
        "toLocaleString",
        "toString",
        "valueOf",
    )
)
MODULE_USES = {
    "import": "`import` is not available: a program has no modules; what it can call is on `tools`",
    "export": "`export` is not available: a program has no modules; end it with `return value`",
    "import()": "`import()` is not available: a program has no modules; what it can call is on `tools`",
    "require()": "`require` is not available: a program has no modules; what it can call is on `tools`",
}
# A tuple: the value looked up may be unhashable.
KNOWN_LITERAL_TYPES = ("object", "array", "string", "number", "boolean", "null", "undefined")
_NO_INPUT: dict[str, Any] = {"type": "object", "keys": {}, "open": False}  # a call without an argument
_UNKNOWN_LITERAL = {"type": "unknown"}


def find_program_problems(
    facts: Any,
    catalog_names: Collection[str],
    get_input_schema: Callable[[str], Any],
    get_conversion: Callable[[str], str] = lambda _: "unknown",
) -> list[ProgramProblem]:
    """Return the certain errors of a program, each ``{"message", "line", "column"}``, in order of location.

    ``facts`` is what the worker reported, untrusted; ``get_input_schema`` returns a known tool's JSON Schema or None,
    ``get_conversion`` how its validator converts other scalars and names, as a `Conversion`.
    """
    found = chain(
        _find_module_problems(facts), _find_call_problems(facts, catalog_names, get_input_schema, get_conversion)
    )
    return sorted(islice(found, MAX_PROBLEMS), key=lambda problem: (problem["line"], problem["column"]))


def _find_module_problems(facts: Any) -> Iterator[ProgramProblem]:
    for use in list_located_facts(facts, "modules"):
        message = MODULE_USES.get(kind) if isinstance(kind := use.get("kind"), str) else None
        if message is not None:
            yield create_problem(use, message)


def _find_call_problems(
    facts: Any,
    names: Collection[str],
    get_input_schema: Callable[[str], Any],
    get_conversion: Callable[[str], str],
) -> Iterator[ProgramProblem]:
    missing_tool_messages: dict[str, str] = {}
    roots: dict[str, ToolSchema] = {}
    visits = SchemaVisitBudget()
    for call in list_located_facts(facts, "calls"):
        name = call.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
            continue
        if name not in names:
            if not _may_exist_without_tool(name, names):
                missing_tool_messages[name] = missing_tool_messages.get(name) or _describe_missing_tool(
                    name, names, may_suggest=len(missing_tool_messages) < MAX_SUGGESTIONS
                )
                yield create_problem(call, missing_tool_messages[name])
            continue
        if name not in roots:
            roots[name] = ToolSchema(get_input_schema(name), visits, get_conversion(name))
        literal = call.get("input", _UNKNOWN_LITERAL)
        if (keyword := _find_first_keyword_argument(literal)) is not None:
            example = f"{format_tool_reference(name)}({{ {keyword}: ... }})"
            yield create_problem(
                call, f"{format_tool_reference(name)} takes one object, not keyword arguments: write {example}"
            )
            continue
        if (
            literal is None
            and (resolve_schema_and_consume_visits(roots[name].schema, roots[name]) or {}).get("type") == "object"
        ):
            literal = _NO_INPUT
        for message in _find_input_mistakes(literal, roots[name].schema, roots[name], "input", 0):
            yield create_problem(call, f"{format_tool_reference(name)}: {message}")


class SchemaVisitBudget:
    """The remaining number of schema visits, after which nothing more is checked."""

    def __init__(self) -> None:
        self._left = MAX_VISITS

    def consume(self, count: int = 1) -> bool:
        self._left -= count
        return self._left >= 0


class ToolSchema:
    """A tool's whole schema, with the visits that it shares with others."""

    def __init__(self, schema: Any, visits: SchemaVisitBudget, conversion: str = "unknown") -> None:
        self.schema, self.visits, self.conversion = schema, visits, conversion
        self.local = LocalReferenceResolver(schema)
        self._folded_names: dict[str, str] = {}  # a name may be as long as the schema

    def consume_visit(self, schema: Mapping[str, Any]) -> bool:
        kinds, required = schema.get("type"), schema.get("required")
        many = (len(kinds) if is_array(kinds) else 0) + (len(required) if is_array(required) else 0)
        return self.visits.consume(1 + many // NAMES_PER_VISIT)

    def consume_property_visits(self, properties: Mapping[str, Any]) -> bool:
        return self.visits.consume(len(properties) // NAMES_PER_VISIT)

    def fold_property_name(self, name: str) -> str:
        if name not in self._folded_names:
            self._folded_names[name] = fold_name(name)
        return self._folded_names[name]


def list_located_facts(facts: Any, key: str) -> list[dict[str, Any]]:
    items = list_or_empty(mapping_or_empty(facts).get(key))
    return [item for item in items[:MAX_CHECKED_CALLS] if is_object(item) and _has_location(item)] if items else items


def _has_location(item: dict[str, Any]) -> bool:
    line, column = item.get("line"), item.get("column")
    return type(line) is int and type(column) is int and 0 < line < MAX_POSITION and 0 < column < MAX_POSITION


def create_problem(item: dict[str, Any], message: str) -> ProgramProblem:
    return {"message": message[:MAX_MESSAGE_LENGTH], "line": item["line"], "column": item["column"]}


def _may_exist_without_tool(name: str, names: Collection[str]) -> bool:
    """`tools.known.call(...)`, `tools.$search(...)` and names that every object inherits."""
    first = name.partition(".")[0]
    prefixes = [name[:index] for index, character in enumerate(name) if character == "."]
    return first.startswith("$") or first in INHERITED_NAMES or any(prefix in names for prefix in prefixes)


def _describe_missing_tool(name: str, names: Collection[str], *, may_suggest: bool) -> str:
    suggestions = find_nearest_names(name, names) if may_suggest else []
    if suggestions:
        known = " or ".join(map(format_tool_reference, suggestions))
        return f"{format_tool_reference(name)} does not exist; did you mean {known}?"
    if len(names) <= MAX_LISTED_NAMES:
        known = ", ".join(map(format_tool_reference, sorted(names)))
        return f"{format_tool_reference(name)} does not exist; there is {known or 'no tool'}"
    return f"{format_tool_reference(name)} does not exist"


def format_tool_reference(name: str) -> str:
    return f"tools.{name}" if name.isidentifier() and name.isascii() else f'tools["{name}"]'


def _find_input_mistakes(literal: Any, schema: Any, root: ToolSchema, path: str, depth: int) -> Iterator[str]:
    """Yield the certain errors of a ``literal`` against ``schema``."""
    if not is_object(literal) or depth > MAX_DEPTH:
        return
    schema = resolve_schema_and_consume_visits(schema, root)
    if schema is None or literal.get("type") not in KNOWN_LITERAL_TYPES:
        return
    if (integer_text := _find_unsafe_integer(literal)) and _takes_integers(schema, root, depth):
        yield f"{path} is {integer_text}, which a number does not hold exactly: write {integer_text}n"
    elif _is_wrong_type(literal, schema, root, depth):
        yield f"{path} is {_describe_literal(literal)}, expected {_describe_expected_type(schema, root)}"
    elif literal["type"] == "object":
        yield from _find_object_mistakes(literal, schema, root, path, depth)
    elif literal["type"] == "array" and "prefixItems" not in schema:
        items = list_or_empty(literal.get("items"))
        for index, item in enumerate(items[:MAX_KEYS]):
            yield from _find_input_mistakes(item, schema.get("items"), root, f"{path}[{index}]", depth + 1)


def _find_first_keyword_argument(literal: Any) -> str | None:
    """Return the first keyword argument of a call written as in Python."""
    name = literal.get("name") if is_object(literal) and literal.get("type") == "keyword" else None
    return name if isinstance(name, str) and name.isidentifier() and len(name) <= MAX_NAME_LENGTH else None


def _find_unsafe_integer(literal: dict[str, Any]) -> str | None:
    """Return an integer literal that the engine would round."""
    literal_text = literal.get("written")
    if not isinstance(literal_text, str) or len(literal_text) > MAX_NAME_LENGTH:
        return None
    return literal_text if _WRITTEN_INTEGER.fullmatch(literal_text) else None


def _takes_integers(schema: Mapping[str, Any], root: ToolSchema, depth: int) -> bool:
    allowed = schema.get("type")
    if allowed == "integer" or (is_array(allowed) and "integer" in allowed):
        return True
    for keyword in ("anyOf", "oneOf"):
        branches: Any = schema.get(keyword)
        if is_array(branches) and depth < MAX_DEPTH:
            known = [resolve_schema_and_consume_visits(branch, root) for branch in branches]
            if any(branch is not None and _takes_integers(branch, root, depth + 1) for branch in known):
                return True
    return False


def _find_object_mistakes(
    literal: dict[str, Any], schema: Mapping[str, Any], root: ToolSchema, path: str, depth: int
) -> Iterator[str]:
    keys = literal.get("keys")
    # The worker lists far fewer keys: each one costs a comparison with every property.
    if not is_object(keys) or len(keys) > MAX_KEYS:
        return
    properties = mapping_or_empty(schema.get("properties"))
    unknown = [key for key in keys if key not in properties]
    misspelled = _find_misspelled_keys(keys, unknown, properties, schema, root)
    for key, name in misspelled.items():
        yield f"{path}.{key} does not exist; did you mean {name}?"
    unknown = [key for key in unknown if key not in misspelled]
    if literal.get("open") is False:
        for key in _find_missing_keys(keys, unknown, schema, root):
            if key not in misspelled.values():
                yield f"{path}.{key} is required"
    if unknown and is_closed(schema) and root.consume_property_visits(properties):
        folded = set(map(root.fold_property_name, properties))
        for key in unknown:
            if fold_name(key) not in folded:
                yield f"{path}.{key} does not exist{describe_valid_keys(properties)}"
    for key, value in keys.items():
        if key in properties:
            yield from _find_input_mistakes(value, properties[key], root, f"{path}.{key}", depth + 1)


def _find_misspelled_keys(
    keys: Mapping[str, Any],
    unknown: list[str],
    properties: Mapping[str, Any],
    schema: Mapping[str, Any],
    root: ToolSchema,
) -> dict[str, str]:
    """Return the keys that differ from a property only in case and dashes, with that property's name."""
    # A pydantic model populated by name takes `from_date` where its schema says `fromDate`.
    may_have_more = schema.get("additionalProperties") or schema.get("patternProperties")
    if root.conversion == "unknown" or may_have_more or not unknown or not root.consume_property_visits(properties):
        return {}
    names = {root.fold_property_name(name): name for name in properties if name not in keys}
    return {key: names[fold_name(key)] for key in unknown if fold_name(key) in names}


def _find_missing_keys(
    keys: Mapping[str, Any], unknown: list[str], schema: Mapping[str, Any], root: ToolSchema
) -> Iterator[str]:
    aliases = {fold_name(key) for key in unknown}
    required: Any = schema.get("required")
    for key in list_or_empty(required):
        if isinstance(key, str) and key not in keys and root.fold_property_name(key) not in aliases:
            yield key


def is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


def fold_name(key: str) -> str:
    """Return a name in lower case without underscores and dashes."""
    return key.replace("_", "").replace("-", "").lower()


def describe_valid_keys(properties: Mapping[str, Any]) -> str:
    return f" (there is {', '.join(list(properties)[:MAX_LISTED_NAMES])})" if properties else ""


def resolve_schema_and_consume_visits(schema: Any, root: ToolSchema) -> Mapping[str, Any] | None:
    """Return the schema behind local references; None if it is unknown."""
    for _ in range(MAX_DEPTH):
        if not is_mapping(schema) or not root.consume_visit(schema):
            return None
        reference = schema.get("$ref")
        if reference is None:
            return schema
        schema = root.local.look_up_reference(reference)
    return None


def _is_wrong_type(literal: dict[str, Any], schema: Mapping[str, Any], root: ToolSchema, depth: int) -> bool:
    """Return whether neither ``schema`` nor a converting validator could accept the literal."""
    allowed = schema.get("type")
    types: list[Any] = allowed if is_array(allowed) else [allowed]
    if (
        allowed is not None
        and "nullable" not in schema
        and all(_is_certainly_not_of_type(kind, literal, schema, root) for kind in types)
    ):
        return True
    for keyword in ("anyOf", "oneOf"):
        branches: Any = schema.get(keyword)
        if is_array(branches) and branches and depth < MAX_DEPTH:
            known = [resolve_schema_and_consume_visits(branch, root) for branch in branches]
            if all(branch is not None and _is_wrong_type(literal, branch, root, depth + 1) for branch in known):
                return True
    return False


def _is_certainly_not_of_type(kind: Any, literal: dict[str, Any], schema: Mapping[str, Any], root: ToolSchema) -> bool:
    """Return whether a literal is certainly not of the JSON Schema type ``kind``.

    If the validator is unknown, most conversions between scalars exist somewhere ("1", 1 and true for each other; a
    number for a string in some models), so that only a non-numeric text is certainly wrong for a number.
    """
    literal_type = literal["type"]
    if kind == "object":
        return literal_type != "object"
    if kind == "array":
        # A named tuple has an array's schema and also takes an object.
        return literal_type != "array" and not (literal_type == "object" and "prefixItems" in schema)
    if kind not in ("integer", "number", "string", "boolean"):
        return kind == "null" and literal_type != "null"
    if literal_type in ("object", "array", "null", "undefined"):
        return True
    if kind in ("integer", "number") and _is_certainly_not_number(literal, kind):
        return True
    if root.conversion == "none":
        return literal_type != ("number" if kind == "integer" else kind)
    if root.conversion == "pydantic" and kind == "string":
        return literal_type != "string" and "format" not in schema  # a date may be a number
    return root.conversion == "pydantic" and kind == "boolean" and _is_certainly_not_boolean(literal)


def _is_certainly_not_boolean(literal: dict[str, Any]) -> bool:
    value = literal.get("value")
    if literal["type"] == "string":
        return isinstance(value, str) and value.strip().lower() not in BOOLEAN_WORDS
    return literal["type"] == "number" and isinstance(value, int | float) and value not in (0, 1)


def _is_certainly_not_number(literal: dict[str, Any], kind: str) -> bool:
    value = literal.get("value")
    if literal["type"] == "number":
        return kind == "integer" and isinstance(value, float) and not value.is_integer()
    if literal["type"] != "string" or not isinstance(value, str):
        return False
    return not any(character.isdigit() for character in value) and value.strip().lower() not in NUMBER_WORDS


BOOLEAN_WORDS = frozenset(("0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"))
NUMBER_WORDS = frozenset(sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")) | {
    "true",
    "false",
}


def _describe_literal(literal: dict[str, Any]) -> str:
    literal_type = literal["type"]
    article = "an" if literal_type[0] in "aeiou" else "a"
    return literal_type if literal_type in ("null", "undefined") else f"{article} {literal_type}"


_RICH_FORMATS = {"date-time": "Date", "date": "Date", "binary": "Uint8Array"}


def _describe_expected_type(schema: Mapping[str, Any], root: ToolSchema, depth: int = 0) -> str:
    allowed = schema.get("type")
    if is_rich.get() and root.conversion == "pydantic":  # as in the declaration
        if allowed == "array" and schema.get("uniqueItems") is True:
            return "Set"
        if isinstance(kind := schema.get("format"), str) and allowed == "string" and kind in _RICH_FORMATS:
            return _RICH_FORMATS[kind]
    if isinstance(allowed, str):
        return allowed
    if is_array(allowed):
        return " or ".join(str(kind) for kind in allowed)
    for keyword in ("anyOf", "oneOf"):
        branches: Any = schema.get(keyword)
        if is_array(branches) and depth < MAX_DEPTH:  # one of them may be the schema itself
            known = [resolve_schema_and_consume_visits(branch, root) for branch in branches]
            return " or ".join(
                dict.fromkeys(_describe_expected_type(branch or {}, root, depth + 1) for branch in known)
            )
    return "another type"


MAX_UNDEFINED_NAMES = 8
_OTHER_CALLS = ("tools", "callTool")  # how tools are called on other surfaces
_NO_NETWORK = "there is no network here: call a tool"
_NO_TIMER = "there are no timers here: leave it out, a call is awaited as long as it takes"
_NO_OTHER_HOST = "this is no Node.js and no browser: do without it, or call a tool"
_NO_LOCALES = "there are UTC and en-US alone: build the text in the program"
MISSING_GLOBALS = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios"), _NO_NETWORK),
    **dict.fromkeys(("Request", "Response", "Headers", "FormData", "AbortController"), _NO_NETWORK),
    **dict.fromkeys(("setTimeout", "setInterval", "setImmediate", "clearInterval"), _NO_TIMER),
    **dict.fromkeys(("process", "Buffer", "Bun", "Deno", "document", "window", "localStorage"), _NO_OTHER_HOST),
    **dict.fromkeys(("navigator", "crypto", "Blob"), _NO_OTHER_HOST),
    **dict.fromkeys(("Intl", "Temporal"), _NO_LOCALES),
    "performance": "use Date.now()",
    **dict.fromkeys(("print", "alert"), "write console.log(value)"),
    "structuredClone": "copy with JSON.parse(JSON.stringify(value))",
}
"""What to use instead of globals of other hosts."""


def find_fixable_undefined_name_problems(
    facts: Any, tools: Collection[str], globals_: Collection[str], tool_call: str
) -> list[ProgramProblem]:
    """Return the undefined names, each ``{"message", "line", "column"}``.

    ``facts`` is what the worker reported, untrusted; ``tools`` are the names that a program calls, ``globals_`` those
    of its surface. ``tool_call`` shows how a tool ``{name}`` is called there.
    """
    return list(islice(_iter_fixable_undefined_name_problems(facts, tools, globals_, tool_call), MAX_UNDEFINED_NAMES))


def _iter_fixable_undefined_name_problems(
    facts: Any, tools: Collection[str], globals_: Collection[str], tool_call: str
) -> Iterator[ProgramProblem]:
    tools_by_folded_name: dict[str, str] | None = None
    for use in list_located_facts(facts, "free"):
        name = use.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or name in globals_:
            continue
        tool = name if name in tools else None
        if tool is None and use.get("called") is True and name not in MISSING_GLOBALS:
            tools_by_folded_name = (
                {fold_name(tool_name): tool_name for tool_name in tools}
                if tools_by_folded_name is None
                else tools_by_folded_name
            )
            tool = tools_by_folded_name.get(fold_name(name))
        if tool is not None and use.get("called") is True:
            yield create_problem(use, f"`{name}` is not defined: write `{tool_call.format(name=tool)}`")
        elif name in _OTHER_CALLS:
            yield create_problem(use, f"`{name}` is not defined: write `{tool_call.format(name='name')}`")
        elif name in MISSING_GLOBALS:
            yield create_problem(use, f"`{name}` is not defined: {MISSING_GLOBALS[name]}")


# Facts are untrusted. Only a field that a closed output cannot have is a problem; open schemas are not checked.

_MAX_TESTED_FIELDS = 8
# The similarity of a suggestion, and of a certain misspelling if the program may have tested the field.
_SIMILARITY, _STRICT_SIMILARITY = 0.6, 0.8
# Other keywords that determine the fields.
_OTHER_KEYWORDS = ("allOf", "if", "dependentSchemas", "$dynamicRef", "not", "nullable")


def find_result_field_problems(
    facts: Any, catalog_names: Collection[str], get_output_schema: Callable[[str], Any]
) -> list[ProgramProblem]:
    """Return fields that a program reads and its tools never return, in the form of `find_program_problems`.

    ``facts`` is what the worker reported, untrusted; ``get_output_schema`` returns a known tool's JSON Schema or None.
    """
    return list(islice(_iter_result_field_problems(facts, catalog_names, get_output_schema), MAX_PROBLEMS))


def _iter_result_field_problems(
    facts: Any, names: Collection[str], get_output_schema: Callable[[str], Any]
) -> Iterator[ProgramProblem]:
    roots: dict[str, ToolSchema] = {}
    visits = SchemaVisitBudget()
    suggestions = iter(range(MAX_SUGGESTIONS))
    for read in list_located_facts(facts, "reads"):
        tool, name = read.get("tool"), read.get("name")
        if not isinstance(tool, str) or tool not in names or not isinstance(name, str):
            continue
        if not 0 < len(name) <= MAX_NAME_LENGTH or name in INHERITED_NAMES or name.startswith("__"):
            continue
        if tool not in roots:
            roots[tool] = ToolSchema(get_output_schema(tool), visits)
        declared_fields: dict[str, Any] = {}
        if (
            _lacks_field_and_collects_declared(name, roots[tool].schema, roots[tool], declared_fields, 0)
            and declared_fields
        ):
            is_sure = _is_read_certain(read, roots[tool])
            near = (
                find_nearest_names(name, declared_fields, _SIMILARITY if is_sure else _STRICT_SIMILARITY)
                if next(suggestions, None) is not None
                else []
            )
            if not near and not is_sure:
                continue
            hint = f"; did you mean {' or '.join(near)}?" if near else describe_valid_keys(declared_fields)
            yield create_problem(read, f"{format_tool_reference(tool)}: result.{name} does not exist{hint}")


def _is_read_certain(read: dict[str, Any], root: ToolSchema) -> bool:
    """Return whether a program reaches the read: the fields that it tests before may be missing too."""
    tested_fields = list_or_empty(read.get("asked"))[:_MAX_TESTED_FIELDS]
    return not read.get("doubtful") and not any(
        isinstance(name, str)
        and len(name) <= MAX_NAME_LENGTH
        and _lacks_field_and_collects_declared(name, root.schema, root, {}, 0)
        for name in tested_fields
    )


def _lacks_field_and_collects_declared(
    name: str, schema: Any, root: ToolSchema, declared_fields: dict[str, Any], depth: int
) -> bool:
    """Return whether no result has the field; ``declared_fields`` collects the others. Reads of null fail too."""
    resolved = resolve_schema_and_consume_visits(schema, root)
    if resolved is None or depth > MAX_DEPTH or any(keyword in resolved for keyword in _OTHER_KEYWORDS):
        return False
    if "anyOf" in resolved or "oneOf" in resolved:
        return _all_branches_lack_field(name, resolved, root, declared_fields, depth)
    kind: Any = resolved.get("type")
    kinds: list[Any] = kind if is_array(kind) else [kind]
    if not kinds or any(kind_name not in ("object", "null") for kind_name in kinds):
        return False
    if "object" not in kinds:
        return True
    properties = mapping_or_empty(resolved.get("properties"))
    if not is_closed(resolved) or name in properties or not root.consume_property_visits(properties):
        return False
    declared_fields.update(properties)
    return True


def _all_branches_lack_field(
    name: str, schema: Mapping[str, Any], root: ToolSchema, declared_fields: dict[str, Any], depth: int
) -> bool:
    if "properties" in schema or ("anyOf" in schema and "oneOf" in schema):
        return False
    branches: Any = schema.get("anyOf", schema.get("oneOf"))
    return bool(is_array(branches) and branches) and all(
        _lacks_field_and_collects_declared(name, branch, root, declared_fields, depth + 1) for branch in branches
    )

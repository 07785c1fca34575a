"""Convert pydantic-ai tools to tools of a program."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic_ai import RunContext
from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import GenerateToolJsonSchema, ToolDefinition
from pydantic_ai.toolsets import ToolsetTool

from codemode import Tool, ToolCallContext
from codemode.plugins import (
    CompiledSchema,
    FrameworkSchema,
    InferredOutput,
    PreparedTool,
    ValidatedInput,
    create_fork_safe_lock,
)

from .content import replace_media_schemas
from .framework_internals import get_function

# pydantic describes a model as open unless it forbids extra input, although serialization writes only its fields. With
# a closed schema, a program's reads of unknown fields are reported.

_SCHEMA_MODE: Any = "serialization"
# Serializers that omit items and add none.
_OMITTING_SERIALIZERS = ("include-exclude-sequence", "include-exclude-dict")


class _ClosedSchemaGenerator(GenerateToolJsonSchema):
    """Closes the schemas of classes without subclasses; an instance of a subclass may have more fields.

    ``closed_classes``: classes whose schemas were closed. ``opaque_serializers``: serializers without a schema.
    """

    closed_classes: list[type]
    opaque_serializers: list[str]

    def model_schema(self, schema: Any) -> dict[str, Any]:
        json_schema = super().model_schema(schema)
        return (
            json_schema if schema.get("root_model") else self._close_or_open_object_schema(json_schema, schema["cls"])
        )

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        json_schema, cls = super().dataclass_schema(schema), schema["cls"]
        # A standard dataclass is serialized with all its fields, by name.
        has_all_fields = {field.name for field in dataclasses.fields(cls)} <= set(json_schema.get("properties", ()))
        return self._close_or_open_object_schema(json_schema, cls) if has_all_fields else json_schema

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        json_schema = super().ser_schema(schema)
        if json_schema is None and schema["type"] not in _OMITTING_SERIALIZERS:
            self.opaque_serializers.append(schema["type"])
        return json_schema

    def _close_or_open_object_schema(self, json_schema: dict[str, Any], cls: type) -> dict[str, Any]:
        if json_schema.get("additionalProperties") is False and not _has_no_subclasses(cls):  # subclasses may have more
            return {name: value for name, value in json_schema.items() if name != "additionalProperties"}
        if json_schema.get("type") != "object" or "additionalProperties" in json_schema or not _has_no_subclasses(cls):
            return json_schema
        self.closed_classes.append(cls)
        return {**json_schema, "additionalProperties": False}


@dataclasses.dataclass(frozen=True)
class _ClosedSchema:
    declared_schema: dict[str, Any]
    closed_schema: dict[str, Any]
    closed_classes: list[weakref.ref[type]]


_excluding_return_types: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()
_closed_schemas: weakref.WeakKeyDictionary[Callable[..., Any], _ClosedSchema] = weakref.WeakKeyDictionary()


def get_closed_or_declared_output_schema(
    declared_schema: dict[str, Any] | None, function: Callable[..., Any] | None
) -> dict[str, Any] | None:
    """Return the output schema of a tool, closed where no other fields are possible.

    ``declared_schema``: the tool's schema; it is unchanged if it does not equal that of the function's annotation.
    """
    if not declared_schema or function is None or not ("properties" in declared_schema or "$defs" in declared_schema):
        return declared_schema
    try:
        cached = _closed_schemas.get(function)
        if cached is None:
            _closed_schemas[function] = cached = _make_closed_schema(declared_schema, function)
    except TypeError:  # no weak references to this callable
        return declared_schema
    is_same = cached.declared_schema == declared_schema and all(
        cls is not None and _has_no_subclasses(cls) for cls in _dereference_classes(cached)
    )
    return cached.closed_schema if is_same else declared_schema


def get_return_type_if_it_excludes_fields(declared_schema: Any, function: Callable[..., Any] | None) -> Any:
    """Return a function's return type if its JSON excludes fields, else None."""
    if function is None or not (
        isinstance(declared_schema, dict) and ("properties" in declared_schema or "$defs" in declared_schema)
    ):
        return None
    try:
        if function not in _excluding_return_types:
            return_type = _get_return_type(function)
            _excluding_return_types[function] = return_type if InferredOutput(return_type).excludes_fields else None
        return _excluding_return_types[function]
    except Exception:  # noqa: BLE001 - annotations may be anything, and some callables cannot be weak keys
        return None


class OutputSchema(FrameworkSchema):
    """A tool's declared output without the fields that the return type excludes."""

    def __init__(self, declared_schema: Any, return_type: Any) -> None:
        self._declared_schema = declared_schema
        self._return_type = return_type

    def compile(self, compile_schema: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        compiled_schema = compile_schema(self._declared_schema)
        if compiled_schema is None or self._return_type is None:
            return compiled_schema
        typed_schema: Any = compile_schema(InferredOutput(self._return_type))
        return (
            _FieldDroppingSchema(compiled_schema, typed_schema)
            if hasattr(typed_schema, "drop_excluded_fields")
            else compiled_schema
        )


class _FieldDroppingSchema:
    def __init__(self, compiled_schema: CompiledSchema, typed_schema: Any) -> None:
        self._compiled_schema = compiled_schema
        self._typed_schema = typed_schema
        self.json_schema = compiled_schema.json_schema
        self.is_nondeterministic = False

    def validate_input(self, value: Any) -> ValidatedInput:
        raise NotImplementedError

    def validate_output(self, value: Any, what: str) -> Any:
        return self._compiled_schema.validate_output(self._typed_schema.drop_excluded_fields(value), what)

    def read_leniently(self, value: Any) -> tuple[Any, list[Any]]:
        return self._typed_schema.drop_excluded_fields(value), []


def _dereference_classes(cached: _ClosedSchema) -> list[type | None]:
    return [reference() for reference in cached.closed_classes]


def _make_closed_schema(declared_schema: dict[str, Any], function: Callable[..., Any]) -> _ClosedSchema:
    class RecordingSchemaGenerator(_ClosedSchemaGenerator):
        closed_classes: list[type] = []  # noqa: RUF012 - of this reading
        opaque_serializers: list[str] = []  # noqa: RUF012 - likewise

    try:
        adapter = TypeAdapter[Any](_get_return_type(function))
        open_schema = adapter.json_schema(schema_generator=GenerateToolJsonSchema, mode=_SCHEMA_MODE)
        closed_schema = adapter.json_schema(schema_generator=RecordingSchemaGenerator, mode=_SCHEMA_MODE)
    except Exception:  # noqa: BLE001 - annotations may be anything
        return _ClosedSchema(declared_schema, declared_schema, [])
    if open_schema != declared_schema or RecordingSchemaGenerator.opaque_serializers:
        return _ClosedSchema(declared_schema, declared_schema, [])
    return _ClosedSchema(
        declared_schema, closed_schema, [weakref.ref(cls) for cls in RecordingSchemaGenerator.closed_classes]
    )


def _get_return_type(function: Callable[..., Any]) -> Any:
    annotation = get_type_hints(function, include_extras=True)["return"]
    return get_args(annotation)[0] if get_origin(annotation) is ToolReturn else annotation


def _has_no_subclasses(cls: type) -> bool:
    """Return whether a class is final or has no subclasses yet."""
    return getattr(cls, "__final__", False) is True or not cast("Any", cls).__subclasses__()


_DIRECT_ONLY_KINDS = ("tool-search", "capability-load")
_METADATA_KEYS = ("codecall", "toolKind")
_MAX_CACHED_TOOL_SETS = 8
_MIN_TOOLS_FOR_THREAD = 50

CompiledT = TypeVar("CompiledT")


class FrameworkTool(Tool):
    """A tool of the framework."""

    is_foreign = True
    is_gated_by_framework = True


class ApprovalRequiredTool(FrameworkTool):
    """A tool of the framework whose every call needs approval."""

    needs_person = True


def is_model_only(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Return whether only the model can call this tool.

    These are output tools, tool search and capability loading with the tools not revealed yet, local fallbacks of
    provider-native tools, and tools without a callable name.
    """
    return (
        definition.kind == "output"
        or definition.tool_kind in _DIRECT_ONLY_KINDS
        or definition.unless_native is not None
        or not ctx.is_tool_available(definition)
        or not Tool.is_callable_name(definition.name)
    )


class CompiledToolCache(Generic[CompiledT]):
    """Caches what a surface compiles from the latest sets of tools: schemas, descriptions, a search index.

    ``make`` gets the tools by the framework's names and the latest compiled object, or None.
    """

    def __init__(self, make: Callable[[Mapping[str, Tool], CompiledT | None], CompiledT]) -> None:
        self._make = make
        self._cache: OrderedDict[str, CompiledT] = OrderedDict()
        self._lock = create_fork_safe_lock()

    async def get_or_compile(self, tools: Mapping[str, ToolsetTool[Any]]) -> CompiledT:
        """Return the compiled object for these tools."""
        if len(tools) < _MIN_TOOLS_FOR_THREAD:
            return self._get_or_compile_blocking(tools)
        return await asyncio.to_thread(self._get_or_compile_blocking, tools)

    def _get_or_compile_blocking(self, tools: Mapping[str, ToolsetTool[Any]]) -> CompiledT:
        outputs = {
            name: (_find_output_schema(tool), _get_tool_return_type_if_it_excludes_fields(tool))
            for name, tool in tools.items()
        }
        description_key = [[name, *outputs[name], *_make_definition_key(tool.tool_def)] for name, tool in tools.items()]
        key = json.dumps(description_key, sort_keys=True, default=str)
        compiled, latest = self._get_cached_and_newest(key)
        if compiled is None:
            compiled = self._make(
                {name: _convert_tool_definition(name, tool.tool_def, *outputs[name]) for name, tool in tools.items()},
                latest,
            )
            with self._lock:
                self._cache[key] = compiled
                while len(self._cache) > _MAX_CACHED_TOOL_SETS:
                    self._cache.popitem(last=False)
        return compiled

    def _get_cached_and_newest(self, key: str) -> tuple[CompiledT | None, CompiledT | None]:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key), next(reversed(self._cache.values()), None)


def _make_definition_key(definition: ToolDefinition) -> list[Any]:
    return [
        definition.name,
        definition.description,
        definition.parameters_json_schema,
        get_annotations(definition),
        repr(get_surface_metadata(definition)),
        definition.kind,
    ]


def get_annotations(definition: ToolDefinition) -> dict[str, Any]:
    """Return a tool's hints: MCP annotations, or the same keys in the metadata of other tools."""
    metadata = definition.metadata or {}
    annotations = metadata.get("annotations")
    hints = cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else metadata
    return {
        key: value for key, value in hints.items() if value is not None and (key.endswith("Hint") or key == "title")
    }


def get_surface_metadata(definition: ToolDefinition) -> dict[str, Any]:
    """Return the metadata for CodeCall, and the tool kind for exec and wait."""
    metadata = definition.metadata or {}
    return {key: metadata[key] for key in _METADATA_KEYS if key in metadata}


def _convert_tool_definition(
    name: str, definition: ToolDefinition, output_schema: dict[str, Any] | None, return_type: Any
) -> Tool:
    tool_class = ApprovalRequiredTool if definition.kind == "unapproved" else FrameworkTool
    tool = tool_class(
        definition.name,
        execute=partial(_execute_nested_call, name),
        description=definition.description or "",
        input_schema=replace_media_schemas(definition.parameters_json_schema),
        output_schema=OutputSchema(replace_media_schemas(output_schema), return_type),
        output_validation="warn",  # the framework checks no outputs
        annotations=get_annotations(definition),
        metadata=get_surface_metadata(definition),
    )
    try:
        PreparedTool.from_tool(tool).compile_schemas()
    except ValueError:
        # The framework validates itself; without a readable schema only the declaration is lost.
        return tool_class(
            tool.name,
            execute=tool.execute,
            description=tool.description,
            annotations=tool.annotations,
            metadata=tool.metadata,
        )
    return tool


async def _execute_nested_call(name: str, arguments: Any, context: ToolCallContext) -> Any:
    return await context.context.call(name, arguments, context)


def _get_tool_return_type_if_it_excludes_fields(tool: ToolsetTool[Any]) -> Any:
    return get_return_type_if_it_excludes_fields(tool.tool_def.return_schema, get_function(tool))


def _find_output_schema(tool: ToolsetTool[Any]) -> dict[str, Any] | None:
    definition = tool.tool_def
    schema = get_closed_or_declared_output_schema(definition.return_schema, get_function(tool))
    is_from_server = {"meta", "annotations"} <= set(definition.metadata or {})
    if schema is None or not is_from_server or not (schema.get("x-fastmcp-wrap-result") or _is_wrapped_result(schema)):
        return schema
    # A server wraps values that are no objects into {"result": ...}, and the framework's MCP client unwraps them.
    inner = dict(schema["properties"]["result"])
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else inner


def _is_wrapped_result(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(cast("dict[str, Any]", properties)) == {"result"}

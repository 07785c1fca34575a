"""Framework tools as tools of a program: names, schemas, annotations, exact outputs."""

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
    forkable_lock,
)

from .content import with_content_schemas
from .framework_internals import get_function

# pydantic says of a model's schema that it is open unless the model forbids extra input, although an instance is
# written with its fields alone. What a program reads of a result is checked where the schema is closed.

_SCHEMA_MODE: Any = "serialization"
# What leaves fields out as it writes, and adds none.
_OMITTING_SERIALIZERS = ("include-exclude-sequence", "include-exclude-dict")


class _ClosedSchemaGenerator(GenerateToolJsonSchema):
    """Closes what classes are written as that nothing is a subclass of, for that may have more.

    ``classes`` are those that were closed. ``unsure`` is filled where a serializer does not say what it makes.
    """

    closed_classes: list[type]
    unknown_serializers: list[str]

    def model_schema(self, schema: Any) -> dict[str, Any]:
        json_schema = super().model_schema(schema)
        return json_schema if schema.get("root_model") else self._close(json_schema, schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        json_schema, cls = super().dataclass_schema(schema), schema["cls"]
        # One of the standard library is written with all that it has, by the names of its fields.
        has_all_fields = {field.name for field in dataclasses.fields(cls)} <= set(json_schema.get("properties", ()))
        return self._close(json_schema, cls) if has_all_fields else json_schema

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        json_schema = super().ser_schema(schema)
        if json_schema is None and schema["type"] not in _OMITTING_SERIALIZERS:
            self.unknown_serializers.append(schema["type"])
        return json_schema

    def _close(self, json_schema: dict[str, Any], cls: type) -> dict[str, Any]:
        if json_schema.get("additionalProperties") is False and not _has_no_subclasses(
            cls
        ):  # it forbids what its subclasses have
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


def close_output_schema(
    declared_schema: dict[str, Any] | None, function: Callable[..., Any] | None
) -> dict[str, Any] | None:
    """Return the schema of what a function returns, closed where that is sure.

    ``declared`` is what its tool says; another than the annotation of the function gives stays as it is.
    """
    if not declared_schema or function is None or not ("properties" in declared_schema or "$defs" in declared_schema):
        return declared_schema
    try:
        cached = _closed_schemas.get(function)
        if cached is None:
            _closed_schemas[function] = cached = _make_closed_schema(declared_schema, function)
    except TypeError:  # a callable of a kind that cannot be remembered
        return declared_schema
    is_same = cached.declared_schema == declared_schema and all(
        cls is not None and _has_no_subclasses(cls) for cls in _live_classes(cached)
    )
    return cached.closed_schema if is_same else declared_schema


def find_excluding_return_type(declared_schema: Any, function: Callable[..., Any] | None) -> Any:
    """Return a function's return type if it has fields that are excluded from its JSON, else None."""
    if function is None or not (
        isinstance(declared_schema, dict) and ("properties" in declared_schema or "$defs" in declared_schema)
    ):
        return None
    try:
        if function not in _excluding_return_types:
            return_type = _return_type(function)
            _excluding_return_types[function] = return_type if InferredOutput(return_type).excludes_fields else None
        return _excluding_return_types[function]
    except Exception:  # noqa: BLE001 - annotations may be anything, and some callables cannot be weak keys
        return None


class OutputSchema(FrameworkSchema):
    """A tool's declared output, without the fields that its function's return type excludes."""

    def __init__(self, declared_schema: Any, return_type: Any) -> None:
        self._declared_schema = declared_schema
        self._return_type = return_type

    def compile(self, compile_schema: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        compiled_schema = compile_schema(self._declared_schema)
        if compiled_schema is None or self._return_type is None:
            return compiled_schema
        typed_schema: Any = compile_schema(InferredOutput(self._return_type))
        return (
            _OutputWithoutExcludedFields(compiled_schema, typed_schema)
            if hasattr(typed_schema, "without_excluded")
            else compiled_schema
        )


class _OutputWithoutExcludedFields:
    def __init__(self, compiled_schema: CompiledSchema, typed_schema: Any) -> None:
        self._compiled_schema = compiled_schema
        self._typed_schema = typed_schema
        self.json_schema = compiled_schema.json_schema
        self.varies = False

    def validate_input(self, value: Any) -> ValidatedInput:
        raise NotImplementedError

    def validate_output(self, value: Any, what: str) -> Any:
        return self._compiled_schema.validate_output(self._typed_schema.without_excluded(value), what)

    def as_it_came(self, value: Any) -> tuple[Any, list[Any]]:
        return self._typed_schema.without_excluded(value), []


def _live_classes(cached: _ClosedSchema) -> list[type | None]:
    return [reference() for reference in cached.closed_classes]


def _make_closed_schema(declared_schema: dict[str, Any], function: Callable[..., Any]) -> _ClosedSchema:
    class Exact(_ClosedSchemaGenerator):
        closed_classes: list[type] = []  # noqa: RUF012 - of this reading
        unknown_serializers: list[str] = []  # noqa: RUF012 - likewise

    try:
        adapter = TypeAdapter[Any](_return_type(function))
        open_schema = adapter.json_schema(schema_generator=GenerateToolJsonSchema, mode=_SCHEMA_MODE)
        closed_schema = adapter.json_schema(schema_generator=Exact, mode=_SCHEMA_MODE)
    except Exception:  # noqa: BLE001 - annotations may hold anything: then what the tool says is all there is
        return _ClosedSchema(declared_schema, declared_schema, [])
    if open_schema != declared_schema or Exact.unknown_serializers:
        return _ClosedSchema(declared_schema, declared_schema, [])
    return _ClosedSchema(declared_schema, closed_schema, [weakref.ref(cls) for cls in Exact.closed_classes])


def _return_type(function: Callable[..., Any]) -> Any:
    annotation = get_type_hints(function, include_extras=True)["return"]
    return get_args(annotation)[0] if get_origin(annotation) is ToolReturn else annotation


def _has_no_subclasses(cls: type) -> bool:
    """Tell whether an instance of a class is of no other: it is final, or nobody has derived one so far."""
    return getattr(cls, "__final__", False) is True or not cast("Any", cls).__subclasses__()


_DIRECT_ONLY_KINDS = ("tool-search", "capability-load")
_METADATA_KEYS = ("codecall", "toolKind")
_MAX_CACHED_TOOL_SETS = 8
_MIN_TOOLS_FOR_THREAD = 50

CompiledT = TypeVar("CompiledT")


class FrameworkTool(Tool):
    """A tool of the framework."""

    is_foreign = True
    is_gated_elsewhere = True


def stays_native(definition: ToolDefinition, ctx: RunContext[Any]) -> bool:
    """Tell whether the model alone can call this tool, whatever an agent says.

    Native stay output tools, tool search and capability loading with what they have not revealed yet, the local
    stand-ins of provider-native tools, and tools whose name a program cannot write.
    """
    return (
        definition.kind == "output"
        or definition.tool_kind in _DIRECT_ONLY_KINDS
        or definition.unless_native is not None
        or not ctx.is_tool_available(definition)
        or not Tool.is_callable_name(definition.name)
    )


class CompiledToolCache(Generic[CompiledT]):
    """The last few sets of tools and what was made of them: schemas, descriptions and an index are worth making once.

    ``make`` gets the tools, by what the framework calls them, and what was made last, or None.
    """

    def __init__(self, make: Callable[[Mapping[str, Tool], CompiledT | None], CompiledT]) -> None:
        self._make = make
        self._cache: OrderedDict[str, CompiledT] = OrderedDict()
        self._lock = forkable_lock()

    async def get(self, tools: Mapping[str, ToolsetTool[Any]]) -> CompiledT:
        """Return what is made of these tools."""
        if len(tools) < _MIN_TOOLS_FOR_THREAD:
            return self._get_or_make(tools)
        return await asyncio.to_thread(self._get_or_make, tools)

    def _get_or_make(self, tools: Mapping[str, ToolsetTool[Any]]) -> CompiledT:
        outputs = {name: (_output_schema(tool), _excluding_return_type(tool)) for name, tool in tools.items()}
        description_key = [[name, *outputs[name], *_description_key(tool.tool_def)] for name, tool in tools.items()]
        key = json.dumps(description_key, sort_keys=True, default=str)
        compiled, latest = self._look_up(key)
        if compiled is None:
            compiled = self._make(
                {name: _convert_tool(name, tool.tool_def, *outputs[name]) for name, tool in tools.items()}, latest
            )
            with self._lock:
                self._cache[key] = compiled
                while len(self._cache) > _MAX_CACHED_TOOL_SETS:
                    self._cache.popitem(last=False)
        return compiled

    def _look_up(self, key: str) -> tuple[CompiledT | None, CompiledT | None]:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key), next(reversed(self._cache.values()), None)


def _description_key(definition: ToolDefinition) -> list[Any]:
    return [
        definition.name,
        definition.description,
        definition.parameters_json_schema,
        get_annotations(definition),
        repr(get_surface_metadata(definition)),
    ]


def get_annotations(definition: ToolDefinition) -> dict[str, Any]:
    """Return a tool's hints: an MCP tool's annotations, or the same keys in the metadata of any other tool."""
    metadata = definition.metadata or {}
    annotations = metadata.get("annotations")
    hints = cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else metadata
    return {
        key: value for key, value in hints.items() if value is not None and (key.endswith("Hint") or key == "title")
    }


def get_surface_metadata(definition: ToolDefinition) -> dict[str, Any]:
    """Return what a tool says of itself for CodeCall, and what kind of tool it is for exec and wait."""
    metadata = definition.metadata or {}
    return {key: metadata[key] for key in _METADATA_KEYS if key in metadata}


def _convert_tool(
    name: str, definition: ToolDefinition, output_schema: dict[str, Any] | None, return_type: Any
) -> Tool:
    tool = FrameworkTool(
        definition.name,
        execute=partial(_execute, name),
        description=definition.description or "",
        input_schema=with_content_schemas(definition.parameters_json_schema),
        output_schema=OutputSchema(with_content_schemas(output_schema), return_type),
        output_validation="warn",  # the framework checks no outputs
        annotations=get_annotations(definition),
        metadata=get_surface_metadata(definition),
    )
    try:
        PreparedTool.of(tool).compile()
    except ValueError:
        # The framework validates with its own validator; a schema that we cannot read only costs the declaration.
        return FrameworkTool(
            tool.name,
            execute=tool.execute,
            description=tool.description,
            annotations=tool.annotations,
            metadata=tool.metadata,
        )
    return tool


async def _execute(name: str, arguments: Any, context: ToolCallContext) -> Any:
    return await context.context.call(name, arguments, context)


def _excluding_return_type(tool: ToolsetTool[Any]) -> Any:
    return find_excluding_return_type(tool.tool_def.return_schema, get_function(tool))


def _output_schema(tool: ToolsetTool[Any]) -> dict[str, Any] | None:
    definition = tool.tool_def
    schema = close_output_schema(definition.return_schema, get_function(tool))
    is_from_server = {"meta", "annotations"} <= set(definition.metadata or {})
    if schema is None or not is_from_server or not (schema.get("x-fastmcp-wrap-result") or _is_wrapped_result(schema)):
        return schema
    # A server wraps what is no object into {"result": ...}, and the framework's MCP client unwraps it again.
    inner = dict(schema["properties"]["result"])
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else inner


def _is_wrapped_result(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(cast("dict[str, Any]", properties)) == {"result"}

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
from .framework_internals import function_of

# pydantic says of a model's schema that it is open unless the model forbids extra input, although an instance is
# written with its fields alone. What a program reads of a result is checked where the schema is closed.

_MODE: Any = "serialization"
# What leaves fields out as it writes, and adds none.
_LEAVES_OUT = ("include-exclude-sequence", "include-exclude-dict")


class _Exact(GenerateToolJsonSchema):
    """Closes what classes are written as that nothing is a subclass of, for that may have more.

    ``classes`` are those that were closed. ``unsure`` is filled where a serializer does not say what it makes.
    """

    classes: list[type]
    unsure: list[str]

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        return made if schema.get("root_model") else self._closed(made, schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made, cls = super().dataclass_schema(schema), schema["cls"]
        # One of the standard library is written with all that it has, by the names of its fields.
        is_whole = {field.name for field in dataclasses.fields(cls)} <= set(made.get("properties", ()))
        return self._closed(made, cls) if is_whole else made

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        made = super().ser_schema(schema)
        if made is None and schema["type"] not in _LEAVES_OUT:
            self.unsure.append(schema["type"])
        return made

    def _closed(self, made: dict[str, Any], cls: type) -> dict[str, Any]:
        if made.get("additionalProperties") is False and not _is_last(cls):  # it forbids what its subclasses have
            return {name: value for name, value in made.items() if name != "additionalProperties"}
        if made.get("type") != "object" or "additionalProperties" in made or not _is_last(cls):
            return made
        self.classes.append(cls)
        return {**made, "additionalProperties": False}


@dataclasses.dataclass(frozen=True)
class _Known:
    declared: dict[str, Any]
    exact: dict[str, Any]
    classes: list[weakref.ref[type]]


_excluding: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()
_known: weakref.WeakKeyDictionary[Callable[..., Any], _Known] = weakref.WeakKeyDictionary()


def exact_schema(declared: dict[str, Any] | None, function: Callable[..., Any] | None) -> dict[str, Any] | None:
    """Return the schema of what a function returns, closed where that is sure.

    ``declared`` is what its tool says; another than the annotation of the function gives stays as it is.
    """
    if not declared or function is None or not ("properties" in declared or "$defs" in declared):
        return declared
    try:
        known = _known.get(function)
        if known is None:
            _known[function] = known = _read(declared, function)
    except TypeError:  # a callable of a kind that cannot be remembered
        return declared
    is_same = known.declared == declared and all(cls is not None and _is_last(cls) for cls in _alive(known))
    return known.exact if is_same else declared


def excluding_type(declared: Any, function: Callable[..., Any] | None) -> Any:
    """Return a function's return type if it has fields that are excluded from its JSON, else None."""
    if function is None or not (isinstance(declared, dict) and ("properties" in declared or "$defs" in declared)):
        return None
    try:
        if function not in _excluding:
            returned = _return_type(function)
            _excluding[function] = returned if InferredOutput(returned).excludes_fields else None
        return _excluding[function]
    except Exception:  # noqa: BLE001 - annotations may be anything, and some callables cannot be weak keys
        return None


class Output(FrameworkSchema):
    """A tool's declared output, without the fields that its function's return type excludes."""

    def __init__(self, declared: Any, excluding: Any) -> None:
        self._declared = declared
        self._excluding = excluding

    def compiled(self, compiled: Callable[[Any], CompiledSchema | None]) -> CompiledSchema | None:
        described = compiled(self._declared)
        if described is None or self._excluding is None:
            return described
        typed: Any = compiled(InferredOutput(self._excluding))
        return _WithoutExcluded(described, typed) if hasattr(typed, "without_excluded") else described


class _WithoutExcluded:
    def __init__(self, described: CompiledSchema, typed: Any) -> None:
        self._described = described
        self._typed = typed
        self.json_schema = described.json_schema
        self.varies = False

    def validate_input(self, value: Any) -> ValidatedInput:
        raise NotImplementedError

    def validate_output(self, value: Any, what: str) -> Any:
        return self._described.validate_output(self._typed.without_excluded(value), what)

    def as_it_came(self, value: Any) -> tuple[Any, list[Any]]:
        return self._typed.without_excluded(value), []


def _alive(known: _Known) -> list[type | None]:
    return [one() for one in known.classes]


def _read(declared: dict[str, Any], function: Callable[..., Any]) -> _Known:
    class Exact(_Exact):
        classes: list[type] = []  # noqa: RUF012 - of this reading
        unsure: list[str] = []  # noqa: RUF012 - likewise

    try:
        adapter = TypeAdapter[Any](_return_type(function))
        plain = adapter.json_schema(schema_generator=GenerateToolJsonSchema, mode=_MODE)
        exact = adapter.json_schema(schema_generator=Exact, mode=_MODE)
    except Exception:  # noqa: BLE001 - annotations may hold anything: then what the tool says is all there is
        return _Known(declared, declared, [])
    if plain != declared or Exact.unsure:
        return _Known(declared, declared, [])
    return _Known(declared, exact, [weakref.ref(cls) for cls in Exact.classes])


def _return_type(function: Callable[..., Any]) -> Any:
    said = get_type_hints(function, include_extras=True)["return"]
    return get_args(said)[0] if get_origin(said) is ToolReturn else said


def _is_last(cls: type) -> bool:
    """Tell whether an instance of a class is of no other: it is final, or nobody has derived one so far."""
    return getattr(cls, "__final__", False) is True or not cast("Any", cls).__subclasses__()


_STAY_NATIVE_KINDS = ("tool-search", "capability-load")
_METADATA_KEYS = ("codecall", "toolKind")
_MAX_COMPILED = 8
_MANY = 50

MadeT = TypeVar("MadeT")


class HiddenTool(Tool):
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
        or definition.tool_kind in _STAY_NATIVE_KINDS
        or definition.unless_native is not None
        or not ctx.is_tool_available(definition)
        or not Tool.is_callable_name(definition.name)
    )


class CompiledTools(Generic[MadeT]):
    """The last few sets of tools and what was made of them: schemas, descriptions and an index are worth making once.

    ``make`` gets the tools, by what the framework calls them, and what was made last, or None.
    """

    def __init__(self, make: Callable[[Mapping[str, Tool], MadeT | None], MadeT]) -> None:
        self._make = make
        self._made: OrderedDict[str, MadeT] = OrderedDict()
        self._lock = forkable_lock()

    async def of(self, tools: Mapping[str, ToolsetTool[Any]]) -> MadeT:
        """Return what is made of these tools."""
        if len(tools) < _MANY:
            return self._of(tools)
        return await asyncio.to_thread(self._of, tools)

    def _of(self, tools: Mapping[str, ToolsetTool[Any]]) -> MadeT:
        outputs = {name: (_output_schema(tool), _excluding_type_of(tool)) for name, tool in tools.items()}
        said = [[name, *outputs[name], *_said(tool.tool_def)] for name, tool in tools.items()]
        key = json.dumps(said, sort_keys=True, default=str)
        made, newest = self._known(key)
        if made is None:
            made = self._make(
                {name: _hidden(name, tool.tool_def, *outputs[name]) for name, tool in tools.items()}, newest
            )
            with self._lock:
                self._made[key] = made
                while len(self._made) > _MAX_COMPILED:
                    self._made.popitem(last=False)
        return made

    def _known(self, key: str) -> tuple[MadeT | None, MadeT | None]:
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key), next(reversed(self._made.values()), None)


def _said(definition: ToolDefinition) -> list[Any]:
    return [
        definition.name,
        definition.description,
        definition.parameters_json_schema,
        annotations_of(definition),
        repr(metadata_of(definition)),
    ]


def annotations_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return a tool's hints: an MCP tool's annotations, or the same keys in the metadata of any other tool."""
    metadata = definition.metadata or {}
    given = metadata.get("annotations")
    hints = cast("dict[str, Any]", given) if isinstance(given, dict) else metadata
    return {
        key: value for key, value in hints.items() if value is not None and (key.endswith("Hint") or key == "title")
    }


def metadata_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return what a tool says of itself for CodeCall, and what kind of tool it is for exec and wait."""
    metadata = definition.metadata or {}
    return {key: metadata[key] for key in _METADATA_KEYS if key in metadata}


def _hidden(name: str, definition: ToolDefinition, output_schema: dict[str, Any] | None, excluding: Any) -> Tool:
    tool = HiddenTool(
        definition.name,
        execute=partial(_execute, name),
        description=definition.description or "",
        input_schema=with_content_schemas(definition.parameters_json_schema),
        output_schema=Output(with_content_schemas(output_schema), excluding),
        output_validation="warn",  # the framework checks no outputs
        annotations=annotations_of(definition),
        metadata=metadata_of(definition),
    )
    try:
        PreparedTool.of(tool).compile()
    except ValueError:
        # The framework validates with its own validator; a schema that we cannot read only costs the declaration.
        return HiddenTool(
            tool.name,
            execute=tool.execute,
            description=tool.description,
            annotations=tool.annotations,
            metadata=tool.metadata,
        )
    return tool


async def _execute(name: str, arguments: Any, context: ToolCallContext) -> Any:
    return await context.context.call(name, arguments, context)


def _excluding_type_of(tool: ToolsetTool[Any]) -> Any:
    return excluding_type(tool.tool_def.return_schema, function_of(tool))


def _output_schema(tool: ToolsetTool[Any]) -> dict[str, Any] | None:
    definition = tool.tool_def
    schema = exact_schema(definition.return_schema, function_of(tool))
    is_from_server = {"meta", "annotations"} <= set(definition.metadata or {})
    if schema is None or not is_from_server or not (schema.get("x-fastmcp-wrap-result") or _wraps_result(schema)):
        return schema
    # A server wraps what is no object into {"result": ...}, and the framework's MCP client unwraps it again.
    inner = dict(schema["properties"]["result"])
    return {**inner, "$defs": schema["$defs"]} if "$defs" in schema else inner


def _wraps_result(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and set(cast("dict[str, Any]", properties)) == {"result"}

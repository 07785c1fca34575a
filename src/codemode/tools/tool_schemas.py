"""Compile the schemas of a tool, and repair schemas of unknown origin."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

from ..cached_property import cached_property
from ..data.json_values import encode_json
from ..data.narrowing import is_mapping
from ..errors import CodeModeError
from ..options.checked_fields import WrongTypeError
from ..records import record
from ..schemas.compiled import CompiledSchema, require_bounded_schema_size
from ..schemas.patterns import PatternRefusedError, find_refused_patterns, remove_patterns, require_linear_patterns
from ..schemas.plain_types import PlainSchema, find_plain_type
from ..trace.failures import log_repaired_schema, log_unusable_schema
from .parameters import Parameters, create_plain_validator

Mode = Literal["input", "output"]
Compile: TypeAlias = Callable[[Any], CompiledSchema | None]
_Refuse: TypeAlias = Callable[[PatternRefusedError], None]

# Modules of type expressions that are not classes: unions, type variables, aliases.
_TYPING_MODULES = frozenset({"typing", "types", "typing_extensions", "annotationlib"})

_log = logging.getLogger("codemode.tools")


@record
class InferredOutput:
    """The return annotation of a function."""

    annotation: Any

    @property
    def excludes_fields(self) -> bool:
        """True if the type has fields that are not part of its JSON. Raises as pydantic for an invalid type."""
        from ..schemas.python_types import TypeSchema

        return TypeSchema(self.annotation, "output").excludes_fields


class FrameworkSchema(ABC):
    """A schema of a framework's tool that compiles itself. For plugins.

    With ``is_late`` it is compiled only when needed: it cannot be broken, and there may be thousands.
    """

    is_late: ClassVar[bool] = False

    @abstractmethod
    def compile(self, compile_schema: Compile) -> CompiledSchema | None:
        """Return the validator; None accepts anything. ``compile_schema`` compiles a type or a JSON Schema.

        Called for each tool when its schema is first needed; twice if two threads need it at once, and one result is
        used. Raises `ValueError`.
        """

    @property
    def outline(self) -> Mapping[str, Any] | None:
        """A JSON Schema with the property names, for a search, if available without compiling."""
        return None

    @property
    def definition(self) -> str:
        """The source of a late schema or a digest of it, which changes with the schema. Compiles nothing."""
        raise NotImplementedError


class ToolSchemas:
    """The two schemas of a tool as validators, each compiled on first use."""

    def __init__(self, tool_name: str, input_schema: Any, output_schema: Any, *, is_foreign: bool) -> None:
        self._schemas: dict[Mode, Any] = {"input": input_schema, "output": output_schema}
        self._tool_name = tool_name
        self.is_foreign = is_foreign

    @cached_property
    def input(self) -> CompiledSchema | None:
        """The validator of inputs; None accepts anything. Raises `ValueError` naming the tool of a broken schema."""
        return self._compile_side("input")

    @cached_property
    def output(self) -> CompiledSchema | None:
        """The validator of outputs, likewise."""
        return self._compile_side("output")

    @property
    def schema_kinds(self) -> set[str]:
        """Their kinds, "type" or "dict", for `import_schema_compiler`; plain types need nothing loaded."""
        return {kind for mode, schema in self._schemas.items() for kind in _list_schema_kinds(schema, mode)}

    @property
    def is_late(self) -> bool:
        """True if they are compiled on first use only."""
        return any(isinstance(schema, FrameworkSchema) and schema.is_late for schema in self._schemas.values())

    @property
    def outline(self) -> Mapping[str, Any] | None:
        """The outline of the input, if available without compiling; None: its JSON Schema."""
        schema = self._schemas["input"]
        return schema.outline if isinstance(schema, FrameworkSchema) else None

    def get_definition_text(self, mode: Mode) -> str:
        """Return a text that changes with the schema: its JSON Schema, or the definition of a late one."""
        schema = self._schemas[mode]
        if isinstance(schema, FrameworkSchema) and schema.is_late:
            return schema.definition
        compiled_schema: CompiledSchema | None = getattr(self, mode)
        try:
            return encode_json(None if compiled_schema is None else compiled_schema.json_schema, what="a schema")
        except (CodeModeError, ValueError):  # it has a default that is not JSON
            return ""

    def compile_schemas_to_check_patterns(self) -> None:
        """Compile schemas that may contain patterns now; other errors are reported later, except for a type's name."""
        for mode, schema in self._schemas.items():
            if schema is None or isinstance(schema, Mapping | bool | InferredOutput | FrameworkSchema):
                continue
            if "pydantic" not in sys.modules and not isinstance(
                schema, str
            ):  # without pydantic there are no such types
                continue
            try:
                getattr(self, mode)
            except Exception as error:
                if isinstance(error.__cause__, PatternRefusedError) or isinstance(schema, str):
                    raise

    def _compile_side(self, mode: Mode) -> CompiledSchema | None:
        return compile_schema(self._schemas[mode], mode, self._tool_name, is_foreign=self.is_foreign)


def check_or_repair_schema(schema: Any, mode: Mode, tool_name: str, *, is_foreign: bool) -> Any:
    """Return a schema for a tool, for a foreign tool None instead of an invalid one.

    Raises `ValueError` for a JSON Schema with an unusable pattern, and for a value that is not a schema.
    """
    if not is_foreign:
        return _require_bounded_linear_schema(schema, mode, tool_name)
    try:
        return _repair_foreign_schema(schema, mode, tool_name)
    except Exception as error:  # noqa: BLE001 - a stranger's values may do anything when they are looked at
        log_unusable_schema(mode, tool_name, error)
        return None


def _require_bounded_linear_schema(schema: Any, mode: Mode, tool_name: str) -> Any:
    if not is_mapping(schema):
        return _require_type(schema, mode, tool_name)
    try:
        require_bounded_schema_size(schema)
        require_linear_patterns(schema)
    except ValueError as error:
        raise ValueError(f"{mode}_schema of tool {tool_name!r}: {error}") from error
    return schema


def _repair_foreign_schema(schema: Any, mode: Mode, tool_name: str) -> Any:
    if not is_mapping(schema):
        return _require_type(schema, mode, tool_name)
    try:
        require_bounded_schema_size(schema)
    except ValueError:
        return schema  # `compile_schema` warns, and goes without it
    refusals = find_refused_patterns(schema)
    for reason in refusals.values():
        _log_pattern_warning(mode, tool_name, reason)
    return remove_patterns(schema, refusals) if refusals else schema


def _require_type(schema: Any, mode: Mode, tool_name: str) -> Any:
    if not _may_be_type(schema):
        raise WrongTypeError(
            f"{mode}_schema of tool {tool_name!r} must be a JSON Schema or a type, got {repr(schema)[:200]}"
        )
    return schema


def _may_be_type(schema: Any) -> bool:
    """Return False for a value that is certainly not a type. Imports nothing."""
    kinds = type(None) | bool | str | type | Parameters | InferredOutput | FrameworkSchema
    if isinstance(schema, kinds) or callable(schema) or type(schema).__module__ in _TYPING_MODULES:
        return True
    return hasattr(schema, "core_schema") or hasattr(schema, "__get_pydantic_core_schema__")


def compile_schema(schema: Any, mode: Mode, tool_name: str, *, is_foreign: bool) -> CompiledSchema | None:
    """Return the validator of a schema; None accepts anything. Raises `ValueError` naming the tool of a broken one."""
    if isinstance(schema, FrameworkSchema):
        return schema.compile(partial(compile_schema, mode=mode, tool_name=tool_name, is_foreign=is_foreign))
    if plain := _compile_plain_type(schema, mode):
        return plain

    def refuse_or_log_pattern(error: PatternRefusedError) -> None:
        if not is_foreign:
            raise error
        _log_pattern_warning(mode, tool_name, str(error))

    if isinstance(schema, InferredOutput):
        try:
            return _compile_type(schema.annotation, mode, refuse_or_log_pattern)
        except ValueError:
            # The annotation may be for readers only: a type that is not JSON is no error.
            return None

    try:
        if schema is None:
            return None
        if isinstance(schema, Parameters):
            return _compile_parameters(schema)
        if isinstance(schema, Mapping | bool):
            return _compile_json_schema(
                check_or_repair_schema(schema, mode, tool_name, is_foreign=True) if is_foreign else schema,
                mode,
                tool_name,
            )
        return _compile_type(schema, mode, refuse_or_log_pattern)
    except ValueError as error:
        if is_foreign and isinstance(schema, Mapping):
            log_unusable_schema(mode, tool_name, error)
            return compile_schema({"type": "object"} if mode == "input" else True, mode, tool_name, is_foreign=False)
        raise ValueError(f"{mode}_schema of tool {tool_name!r}: {error}") from error


def _list_schema_kinds(schema: Any, mode: Mode) -> set[str]:
    if isinstance(schema, FrameworkSchema):
        return {"dict", "type"}
    if isinstance(schema, Mapping | bool):
        return {"dict"}
    return set() if schema is None or _compile_plain_type(schema, mode) else {"type"}


def _compile_plain_type(schema: Any, mode: Mode) -> CompiledSchema | None:
    """Return the validator of a type that needs no pydantic."""
    if isinstance(schema, Parameters):
        return create_plain_validator(schema, partial(_compile_parameters, schema))
    annotation = schema.annotation if isinstance(schema, InferredOutput) else schema
    if schema is None or isinstance(annotation, Mapping | bool):
        return None
    plain = find_plain_type(annotation)
    return plain and PlainSchema(plain, partial(_compile_type, annotation, mode))


def _compile_parameters(parameters: Parameters) -> CompiledSchema:
    from .parameters_schema import ParametersSchema

    return ParametersSchema(parameters)


def _compile_json_schema(schema: Any, mode: Mode, tool_name: str) -> CompiledSchema:
    from ..schemas.json_schemas import CompiledJsonSchema

    compiled_schema = CompiledJsonSchema(schema, mode)
    if compiled_schema.notes:
        log_repaired_schema(mode, tool_name, compiled_schema.notes)
    return compiled_schema


def _compile_type(annotation: Any, mode: Mode, refuse: _Refuse | None = None) -> CompiledSchema:
    from ..schemas.python_types import TypeSchema

    return TypeSchema(annotation, mode, *([refuse] if refuse else []))


def import_schema_compiler(kind: str) -> None:
    """Import what compiles and validates schemas of a kind, which takes time and reads files."""
    if kind == "type":
        from ..schemas.python_types import TypeSchema

        TypeSchema(int, "input")  # also loads pydantic's plugins
    else:
        from ..schemas.json_schemas import CompiledJsonSchema

        CompiledJsonSchema(True).validate_input(None)


def _log_pattern_warning(mode: Mode, tool_name: str, reason: str) -> None:
    _log.warning("the %s schema of tool %r is used without a pattern: %s", mode, tool_name, reason)


def compile_foreign_schemas(name: str, input_schema: Any, output_schema: Any) -> ToolSchemas:
    """Return validators, compiled unless late; a side with an invalid schema accepts anything.

    Never raises.
    """
    remaining: dict[Mode, Any] = {"input": input_schema, "output": output_schema}
    while True:
        schemas = ToolSchemas(name, remaining["input"], remaining["output"], is_foreign=True)
        if schemas.is_late:  # late schemas cannot be broken
            return schemas
        broken: list[Mode] = [side for side in remaining if not _compile_or_warn(schemas, side, name)]
        if not broken:
            return schemas
        remaining |= dict.fromkeys(broken)


def _compile_or_warn(schemas: ToolSchemas, side: Mode, name: str) -> bool:
    try:
        _ = getattr(schemas, side)
    except ValueError as error:
        _log.warning("the %s schema of tool %r is invalid and not checked: %s", side, name, error)
        return False
    return True

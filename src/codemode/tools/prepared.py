"""Tools with compiled schemas, and validation errors without the values."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..cached_property import cached_property
from ..data.content import using_displayed_contents
from ..data.narrowing import is_array, mapping_or_empty
from ..data.references import resolve_reference
from ..data.rich_values import from_tagged_json, is_rich, tagged_to_plain_json, to_tagged_json
from ..errors import HOST_TOOL_ERROR, CodeModeError, CodeModeSerializationError, CodeModeToolError
from ..schemas.compiled import (
    CompiledSchema,
    Conversion,
    JsonSchema,
    SchemaMismatchError,
    SchemaProblem,
    ValidatedInput,
    copy_json,
    deduplicate_problems,
    is_container_schema,
    is_object_schema,
    wrap_unvalidated_input,
)
from ..schemas.json_schema.walk import iterate_subschemas
from .parameters import ExecuteKind, Parameters, classify_function, count_positional_parameters_or_two
from .tool import Tool
from .tool_schemas import Mode

if TYPE_CHECKING:
    from .context import ToolCallContext

# Also the error messages for failed tools.


class _MissingInput(Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return self.value


MISSING: Final = _MissingInput.MISSING
"""The input of a call without an argument."""


def prepare_tool(tool: Tool) -> PreparedTool:
    """Return the prepared tool of a `Tool`, created once. Nothing is compiled before it is needed."""
    attributes = vars(tool)
    tool_or_none: PreparedTool | None = attributes.get("_prepared")
    if tool_or_none is None:
        tool_or_none = attributes["_prepared"] = PreparedTool(tool)
    return tool_or_none


class ConvertedOutput(NamedTuple):
    """An output, its schema violations, and an exception of the author's code while reading it."""

    value: Any
    problems: Sequence[SchemaProblem] = ()
    failure: BaseException | None = None


class PreparedTool:
    """A `Tool` with compiled schemas, ready to be called."""

    id: str = ""
    """The name under which a catalog knows it, if another name is called; else empty."""

    @staticmethod
    def resolve_reference(schema: Any, root: Any) -> Any:
        """Return the schema behind a ``$ref`` into ``root``; None for a dead end or a cycle."""
        return resolve_reference(schema, root)

    @staticmethod
    def from_tool(tool: Tool) -> PreparedTool:
        """Return the prepared tool of a `Tool`, created once. Nothing is compiled before it is needed."""
        return prepare_tool(tool)

    def __init__(self, tool: Tool) -> None:
        self.name = tool.name
        self.input_what, self.output_what = f"the input of tool {tool.name!r}", f"the output of tool {tool.name!r}"
        self.description = tool.description
        self.execute = tool.execute
        self.needs_approval = tool.needs_approval
        self.may_wait_for_person = tool.needs_approval is not False or tool.is_gated_by_framework
        self.needs_person = tool.needs_approval is not False or tool.needs_person
        self.input_examples = tool.input_examples
        self.to_model_output = tool.to_model_output
        self.annotations = tool.annotations
        self.output_validation = tool.output_validation
        self.metadata = tool.metadata
        self.title, self.summary = tool.title, tool.summary
        self._parameters = tool.input_schema if isinstance(tool.input_schema, Parameters) else None
        self._schemas = tool.schemas

    def __repr__(self) -> str:
        return f"<PreparedTool {self.name!r}>"

    def compile_schemas(self) -> None:
        """Compile both schemas now, unless they are late. Raises `ValueError` naming the tool of a broken one."""
        if not self.has_late_schemas:
            _ = self._input, self._output

    @property
    def has_late_schemas(self) -> bool:
        """True if its schemas are compiled on first use only."""
        return self._schemas.is_late

    @property
    def schema_kinds(self) -> set[str]:
        """The kinds of its schemas, "type" or "dict", for `import_schema_compiler`."""
        return self._schemas.schema_kinds

    @property
    def input_json_schema(self) -> JsonSchema | None:
        """The input as JSON Schema; None if it takes anything."""
        return None if self._input is None else self._input.json_schema

    @property
    def input_outline(self) -> Mapping[str, Any] | None:
        """The part of the input that a search reads without compiling; None: its JSON Schema."""
        return self._schemas.outline

    @property
    def schema_texts(self) -> tuple[str, str]:
        """Texts that change with the input and output schema, for the digest of a catalog."""
        return self._schemas.get_definition_text("input"), self._schemas.get_definition_text("output")

    @property
    def conversion(self) -> Conversion:
        """How its validator converts scalars of another type and keys of another name."""
        return getattr(self._input, "conversion", "unknown")

    @cached_property
    def has_output_schema(self) -> bool:
        """True if the tool declares its output."""
        return self._output is not None

    @property
    def output_json_schema(self) -> JsonSchema | None:
        """The output as JSON Schema; None if it is not declared."""
        return None if self._output is None else self._output.json_schema

    @cached_property
    def is_input_nondeterministic(self) -> bool:
        """True if equal inputs may validate to different values."""
        return self._input is not None and self._input.is_nondeterministic

    @cached_property
    def execute_kind(self) -> ExecuteKind | None:
        """How `call` must be called; "sync" runs in a thread and may still return an awaitable."""
        return None if self.execute is None else classify_function(self.execute)

    @cached_property
    def takes_context(self) -> bool:
        """Whether ``execute`` takes the context, which is otherwise not created."""
        if self._parameters is not None:
            return self._parameters.context_name is not None
        return self.execute is not None and count_positional_parameters_or_two(self.execute) >= 2

    def evaluate_needs_approval(self, value: Any, context: ToolCallContext) -> Any:
        """Evaluate ``needs_approval`` for a validated value: a bool, or the function's result (maybe awaitable)."""
        return self._approval_function(value, context)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate, coerce and complete plain JSON from a guest, or `MISSING`.

        Raises `CodeModeToolError` with ``tool_name`` and ``problems``, each ``{"path", "message"}``.
        """
        schema = self._input
        if value is MISSING:
            value = {} if schema is not None and is_object_schema(schema.json_schema) else None
        try:
            if is_rich.get() and not getattr(schema, "takes_tags", False):
                return _validate_tagged_json(schema, value)
            return wrap_unvalidated_input(value) if schema is None else schema.validate_input(value)
        except SchemaMismatchError as mismatch:
            raise create_validation_error(self.name, "input", mismatch) from None
        except CodeModeError:
            raise
        except _get_caught_error_types() as error:
            raise create_tool_failed_error(self.name, error) from error

    def validate_edited_input(self, value: Any, displayed: Any) -> Any:
        """Validate an edit of a displayed input outside its run, and return it as plain JSON.

        The bytes of content are unknown here; its handles must be those of ``displayed``. Raises as `validate_input`
        does.
        """
        with using_displayed_contents(displayed):
            return self.validate_input(value).json_value

    def validate_output(self, value: Any) -> Any:
        """Validate an output, and return a value for `encode_json`.

        Raises `CodeModeToolError` as `validate_input` does, `CodeModeSerializationError` if it cannot be JSON.
        """
        if self._output is None:
            return value
        try:
            return self._output.validate_output(value, f'Output of tool "{self.name}"')
        except SchemaMismatchError as mismatch:
            raise create_validation_error(self.name, "output", mismatch) from None
        except CodeModeError:
            raise
        except _get_caught_error_types() as error:
            raise create_tool_failed_error(self.name, error) from error

    def convert_output_leniently(self, value: Any) -> ConvertedOutput:
        """Convert an output by its schema.

        A value that violates the schema is returned unconverted, without the fields that the schema excludes.
        """
        if self._output is None:
            return ConvertedOutput(value)
        failure: BaseException | None = None
        problems: list[SchemaProblem] = []
        try:
            return ConvertedOutput(self._output.validate_output(value, f'Output of tool "{self.name}"'))
        except SchemaMismatchError as mismatch:
            problems = mismatch.problems
        except CodeModeSerializationError:
            pass  # encoding the value reports where
        except _get_caught_error_types() as error:
            if isinstance(error, CodeModeError):
                raise
            failure = error
        read_leniently: Callable[[Any], tuple[Any, list[SchemaProblem]]] | None = getattr(
            self._output, "read_leniently", None
        )
        if read_leniently is not None:
            value, more = read_leniently(value)
            problems = [*problems, *more]
        return ConvertedOutput(value, problems, failure)

    @property
    def rich_sides(self) -> tuple[bool, bool]:
        """For input and output: True if dates, bytes and sets are Python values in rich mode."""
        takes, gives = getattr(self._input, "takes_tags", False), getattr(self._output, "takes_tags", False)
        return takes, gives

    @property
    def has_container_output(self) -> bool:
        """True if the declared output is an object or an array."""
        return self._output is not None and is_container_schema(self._output.json_schema)

    @cached_property
    def _input(self) -> CompiledSchema | None:
        return self._schemas.input

    @cached_property
    def _output(self) -> CompiledSchema | None:
        return self._schemas.output

    @cached_property
    def call(self) -> Callable[[Any, Any], Any]:
        """Call ``execute`` with a validated value and the context, None for a tool that does not take it.

        Returns the result of ``execute``: a value, an awaitable or an async iterator. Raises `CodeModeToolError` for a
        tool without ``execute``.
        """
        function = self.execute
        if function is None:
            raise create_not_executable_error(self.name)
        if self._parameters is None:
            return _adapt_to_two_arguments(function)
        context_name = self._parameters.context_name
        if context_name is None:
            return lambda value, _context: function(**value)
        return lambda value, context: function(**value, **{context_name: context})

    @cached_property
    def _approval_function(self) -> Callable[[Any, ToolCallContext], Any]:
        rule = self.needs_approval
        return (lambda _value, _context: rule) if isinstance(rule, bool) else _adapt_to_two_arguments(rule)


def _validate_tagged_json(schema: CompiledSchema | None, value: Any) -> ValidatedInput:
    """Validate tagged JSON against a schema for plain JSON, without the tags; without a schema accept all."""
    try:
        plain_value = from_tagged_json(value) if schema is None else tagged_to_plain_json(value)
    except ValueError as error:
        raise SchemaMismatchError([{"path": "", "message": f"holds {error}"}]) from None
    if schema is None:
        return ValidatedInput(plain_value, lambda: copy_json(value))
    validated = schema.validate_input(plain_value)
    return ValidatedInput(validated.value, lambda: to_tagged_json(validated.json_value))


def create_tool_failed_error(name: str, raised: BaseException, **more: Any) -> CodeModeToolError:
    """Return the error that a program may see for an exception of a tool, which becomes its cause."""
    failed = CodeModeToolError(f"tool {name!r} failed", code=HOST_TOOL_ERROR, details={"tool_name": name, **more})
    failed.__cause__ = raised
    return failed


def create_not_executable_error(name: str, **more: Any) -> CodeModeToolError:
    """Return the error for a call of a tool without ``execute``."""
    message = f"tool {name!r} is declared but cannot be executed"
    return CodeModeToolError(message, details={"tool_name": name, **more})


def create_validation_error(name: str, side: Mode, mismatch: SchemaMismatchError) -> CodeModeToolError:
    """Return the error for an input or output that violates its schema."""
    what = "Invalid input for" if side == "input" else "Invalid output of"
    lines = [f"{problem['path'] or 'value'}: {problem['message']}" for problem in mismatch.problems]
    error = CodeModeToolError(
        f'{what} tool "{name}": {"; ".join(lines)}',
        details={"tool_name": name, "schema": side, "problems": mismatch.problems},
    )
    error.reason = "validation" if side == "input" else "output"
    return error


def format_mismatch_warning(name: str, problems: Iterable[SchemaProblem]) -> str:
    """Return the warning for an output that violates its schema and is passed on."""
    lines = [f"{problem['path'] or 'value'}: {problem['message']}" for problem in problems]
    return f"the output of tool {name!r} misses its schema and is passed on as it came: {'; '.join(lines)}"


def add_call_made_note(error: CodeModeError, tool: PreparedTool) -> CodeModeError:
    """Add to the message of an error about an output that the call was made. Returns the error."""
    is_read_only = tool.annotations.get("readOnlyHint") is True
    note = "the call was made" if is_read_only else "the call was made and must not be repeated"
    error.message = f"{error.message.rstrip('.')}; {note}."
    error.args = (error.message,)
    return error


def _get_caught_error_types() -> tuple[type[BaseException], ...]:
    from ..host.cancellation import FAILURES  # late: a tool is created without asyncio

    return FAILURES


def _adapt_to_two_arguments(function: Callable[..., Any]) -> Callable[[Any, ToolCallContext], Any]:
    count = count_positional_parameters_or_two(function)
    if count >= 2:
        return function
    return (lambda value, _context: function(value)) if count else (lambda _value, _context: function())


_log = logging.getLogger("codemode.tools")
_MAX_LOGGED_NAMES = 10_000
_MAX_LISTED_NAMES = 20
_logged_names: set[str] = set()


def compile_tools_and_log_missing_outputs(tools: Iterable[tuple[str, PreparedTool]]) -> None:
    """Compile tools by their names, and log once which of them have no declared output.

    Raises `ValueError` for a schema that cannot be used.
    """
    unknown: list[str] = []
    for name, tool in tools:
        tool.compile_schemas()
        if tool.has_late_schemas:
            continue
        if tool.output_json_schema is None and name not in _logged_names and len(_logged_names) < _MAX_LOGGED_NAMES:
            _logged_names.add(name)
            unknown.append(name)
    if unknown:
        more = f" and {len(unknown) - _MAX_LISTED_NAMES} more" if len(unknown) > _MAX_LISTED_NAMES else ""
        _log.info(
            "these tools declare no output, so programs do not know its shape: %s%s. Add a return annotation,"
            " Tool(output_schema=...), or the outputSchema of an MCP server",
            ", ".join(map(repr, unknown[:_MAX_LISTED_NAMES])),
            more,
        )


# Validators quote values, object keys are data, and errors of serializers may contain anything. Only paths that the
# schema names, and sentences built from the schema alone, are passed on.

_SIZE_DETAILS = frozenset({"bytes", "max_bytes", "max_values"})
_PATH_STEP = re.compile(r"\.?(?P<name>[^\W\d]\w*)|\[(?P<index>[0-9]+)\]|\[(?P<text>\"(?:[^\"\\]|\\.)*\")\]")
# Our messages first, then pydantic's: the part after "a valid ..., " may quote.
_SCHEMA_MESSAGE = re.compile(
    r"expected [a-z]+(?: or [a-z]+)*, got [a-z]+$|missing required |must be one of |must satisfy |is not allowed$"
    r"|nests too deeply|is too large or too intricate|does not fit in [0-9]+ places$"
    r"|Field required$|Extra inputs are not permitted$|(?:String|List|Tuple|Set|Dictionary|Value|Bytes|Data) should "
    r"|Input should be (?:a valid [^,]*|an? (?!valid)[^,]*|greater |less |finite |')",
)


def redact_error_values(error: Exception, tool: PreparedTool, side: Mode) -> CodeModeError:
    """Return an error without values, for programs and the host, for an invalid input or output."""
    if isinstance(error, CodeModeSerializationError) and _SIZE_DETAILS & error.details.keys():
        return error
    redacted = _create_error_without_values(error, tool, side)
    if isinstance(error, CodeModeError):
        redacted.reason = error.reason
    return redacted


def _create_error_without_values(error: Exception, tool: PreparedTool, side: Mode) -> CodeModeError:
    if isinstance(error, CodeModeSerializationError):
        return CodeModeSerializationError(f"the {side} of tool {tool.name!r} is not JSON")
    problems: Any = error.details.get("problems") if isinstance(error, CodeModeToolError) else None
    if not is_array(problems):
        return _create_redacted_failure(tool, error)
    return create_validation_error(tool.name, side, SchemaMismatchError(redact_problems(problems, tool, side)))


def redact_problems(problems: Iterable[SchemaProblem], tool: PreparedTool, side: Mode) -> list[SchemaProblem]:
    """Rephrase problems so that their messages quote no values."""
    names = set(_iterate_property_names(tool.input_json_schema if side == "input" else tool.output_json_schema))
    return deduplicate_problems(_redact_problem(problem, names) for problem in problems)


def _create_redacted_failure(tool: PreparedTool, error: Exception) -> CodeModeError:
    details = {"tool_name": tool.name, "raised": type(error.__cause__ or error).__name__}
    return CodeModeToolError(f"tool {tool.name!r} failed", code=HOST_TOOL_ERROR, details=details)


def _iterate_property_names(schema: Any) -> Iterator[str]:
    for subschema in iterate_subschemas(schema):
        properties = mapping_or_empty(subschema.get("properties"))
        yield from properties


def _redact_problem(problem: SchemaProblem, names: set[str]) -> SchemaProblem:
    sentence = _SCHEMA_MESSAGE.match(problem["message"])
    message = "is not valid"
    if sentence is not None:
        is_prefix_only = sentence[0].startswith("Input should be a")
        message = sentence[0] if is_prefix_only else problem["message"]
    return {"path": _truncate_to_declared_path(problem["path"], names), "message": message}


def _truncate_to_declared_path(path: str, names: set[str]) -> str:
    end = 0
    while (step := _PATH_STEP.match(path, end)) is not None:
        name = step["name"] or (json.loads(step["text"]) if step["text"] else None)
        if name is not None and name not in names:
            break
        end = step.end()
    return path[:end]

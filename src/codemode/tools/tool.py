"""Tools: what they are called, what they take and give, how a set of them is collected. Runs nothing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast, overload

from ..errors import HOST_TOOL_ERROR, CodeModeError, CodeModeToolError
from ..options.checked_fields import WrongTypeError, mapping_or_none, string_or_none
from ..schemas.compiled import CompiledSchema, JsonSchema, SchemaMismatch, ValidatedInput, plain_input, takes_object
from ..schemas.patterns import PatternRefused, are_foreign, foreign_patterns
from .context import ToolCallContext
from .names import check_name
from .parameters import (
    NOTHING,
    ExecuteKind,
    FunctionDescription,
    Parameters,
    count_positional,
    describe_function,
    execute_kind,
)
from .tool_schemas import InferredOutput, Mode, admitted, compiled

if TYPE_CHECKING:
    pass


class _Missing(Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return self.value


MISSING: Final = _Missing.MISSING
"""Stands for the input of a call without an argument."""


@dataclass(frozen=True, eq=False, init=False)
class Tool:
    """A Python function that programs may call.

    ``execute(input, context)`` gives a value, an awaitable or an async iterator whose last item counts; it may also
    take the input alone or nothing; None declares a tool that cannot be executed. Sync functions run in a thread.
    A schema is a JSON Schema dict or any type a pydantic ``TypeAdapter`` takes; ``execute`` then gets an instance.
    ``needs_approval`` is a bool or ``(input, context) -> bool``, sync or async.
    Raises `ValueError` for an impossible name and for values of a wrong type.
    """

    name: str
    execute: Callable[..., Any] | None
    description: str
    input_schema: Any
    output_schema: Any
    needs_approval: bool | Callable[..., Any]
    input_examples: tuple[Any, ...]
    to_model_output: Callable[..., Any] | None
    annotations: Mapping[str, Any]
    is_foreign: ClassVar[bool] = False  # of a framework or server: nobody here can mend its schemas
    _has_foreign_schemas: ClassVar[bool] = False  # each tool has its own

    def __init__(
        self,
        name: str,
        *,
        execute: Callable[..., Any] | None,
        description: str = "",
        input_schema: Any = None,
        output_schema: Any = None,
        needs_approval: bool | Callable[..., Any] = False,
        input_examples: Iterable[Any] = (),
        to_model_output: Callable[..., Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        check_name(name)
        _check_callable(name, "execute", execute)
        _check_callable(name, "to_model_output", to_model_output)
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            raise WrongTypeError(f"needs_approval of tool {name!r} must be a bool or callable, got {needs_approval!r}")
        if string_or_none(description, f"description of tool {name!r}") is None:
            raise WrongTypeError(f"description of tool {name!r} must be a string, got None")
        mapping_or_none(annotations, f"annotations of tool {name!r}")
        if isinstance(input_examples, str | bytes | Mapping) or not isinstance(cast("Any", input_examples), Iterable):
            raise WrongTypeError(f"input_examples of tool {name!r} must be a list, got {input_examples!r}")
        is_foreign = self.is_foreign or are_foreign()
        object.__setattr__(self, "_has_foreign_schemas", is_foreign)
        values = {
            "name": name,
            "execute": execute,
            "description": description,
            "input_schema": admitted(input_schema, "input", name, is_foreign=is_foreign),
            "output_schema": admitted(output_schema, "output", name, is_foreign=is_foreign),
            "needs_approval": needs_approval,
            "input_examples": tuple(input_examples),
            "to_model_output": to_model_output,
            "annotations": dict(annotations or {}),
        }
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)
        if not is_foreign:
            self._refuse_patterns()

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, name: str | None = None, **settings: Any) -> Tool:
        """Make a tool of a plain function: its parameters become the input, its docstring the description.

        A parameter annotated `ToolCallContext` receives the context. The return annotation becomes the output schema
        where pydantic can describe it. Raises `ValueError` for a signature that cannot be given by name.
        """
        if not callable(function):
            raise WrongTypeError(f"a tool needs a function, got {type(function).__name__}")
        said = describe_function(function, ToolCallContext)
        if name is None and not said.name.isidentifier():
            raise ValueError(f"{function!r} has no name; give it one, for example as the key of a mapping")
        settings = {key: value for key, value in settings.items() if value is not None}
        return cls(
            name or said.name,
            execute=function,
            description=settings.pop("description", said.description),
            input_schema=said.parameters,
            output_schema=settings.pop("output_schema", _described_output(said)),
            **settings,
        )

    def renamed(self, name: str) -> Tool:
        """Give the same tool under another name."""
        if name == self.name:
            return self
        with foreign_patterns(are_foreign=self._has_foreign_schemas):
            return replace(self, name=name)

    def prepare(self) -> None:
        """Compile both schemas now. Raises `ValueError` naming the tool when one is broken."""
        _ = self._compiled_input, self._compiled_output

    @property
    def schema_kinds(self) -> set[str]:
        """What its schemas are, "type" or "dict", for `load_schema_kind`."""
        schemas = (self.input_schema, self.output_schema)
        return {"dict" if isinstance(one, Mapping | bool) else "type" for one in schemas if one is not None}

    @property
    def input_json_schema(self) -> JsonSchema | None:
        """What the tool takes, as JSON Schema; None when it takes anything."""
        return None if self._compiled_input is None else self._compiled_input.json_schema

    @property
    def output_json_schema(self) -> JsonSchema | None:
        """What the tool gives, as JSON Schema; None when it does not say."""
        return None if self._compiled_output is None else self._compiled_output.json_schema

    @cached_property
    def execute_kind(self) -> ExecuteKind | None:
        """How `call` is to be called; "sync" ones belong in a thread and may still give an awaitable."""
        return None if self.execute is None else execute_kind(self.execute)

    @cached_property
    def takes_context(self) -> bool:
        """Whether ``execute`` is given the context, which is else not worth making."""
        if isinstance(self.input_schema, Parameters):
            return self.input_schema.context_name is not None
        return self.execute is not None and count_positional(self.execute) >= 2

    def call(self, value: Any, context: ToolCallContext | None) -> Any:
        """Call ``execute`` with a validated value; ``context`` None is for a tool that does not take it.

        Gives what ``execute`` gives: a value, an awaitable or an async iterator.
        """
        if self.execute is None:
            raise CodeModeToolError(f'Tool "{self.name}" cannot be executed.', details={"tool_name": self.name})
        return self._call(value, context)

    def asks_approval(self, value: Any, context: ToolCallContext) -> Any:
        """Evaluate ``needs_approval`` for a validated value: a bool, or what the function gives (maybe awaitable)."""
        return self.needs_approval if isinstance(self.needs_approval, bool) else self._asks(value, context)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check, coerce and complete plain JSON from a guest, or `MISSING`.

        Raises `CodeModeToolError` with ``tool_name`` and ``problems``, each ``{"path", "message"}``.
        """
        schema = self._compiled_input
        if value is MISSING:
            value = {} if schema is not None and takes_object(schema.json_schema) else None
        if schema is None:
            return plain_input(value)
        try:
            return schema.validate_input(value)
        except SchemaMismatch as mismatch:
            raise self._wrong("input", mismatch) from None
        except CodeModeError:
            raise
        except _failures() as error:
            raise self._failed() from error

    @cached_property
    def input_varies(self) -> bool:
        """Whether one input may give two values when it is validated twice."""
        return self._compiled_input is not None and self._compiled_input.varies

    def validate_output(self, value: Any) -> Any:
        """Check what the tool returned, and give what `encode_json` takes.

        Raises `CodeModeToolError` as `validate_input` does, `CodeModeSerializationError` when it cannot be JSON.
        """
        if self._compiled_output is None:
            return value
        try:
            return self._compiled_output.validate_output(value, f'Output of tool "{self.name}"')
        except SchemaMismatch as mismatch:
            raise self._wrong("output", mismatch) from None
        except CodeModeError:
            raise
        except _failures() as error:
            raise self._failed() from error

    @cached_property
    def _compiled_input(self) -> CompiledSchema | None:
        return self._compile(self.input_schema, "input")

    @cached_property
    def _compiled_output(self) -> CompiledSchema | None:
        return self._compile(self.output_schema, "output")

    def _compile(self, schema: Any, mode: Mode) -> CompiledSchema | None:
        return compiled(schema, mode, self.name, is_foreign=self._has_foreign_schemas)

    def _refuse_patterns(self) -> None:
        """Compile what may hold patterns already; of other mistakes `prepare` tells, but for a type by its name."""
        for schema, name in ((self.input_schema, "_compiled_input"), (self.output_schema, "_compiled_output")):
            if schema is None or isinstance(schema, Mapping | bool | InferredOutput):
                continue
            if "pydantic" not in sys.modules and not isinstance(schema, str):  # then nobody has written such a type
                continue
            try:
                getattr(self, name)
            except Exception as error:
                if isinstance(error.__cause__, PatternRefused) or isinstance(schema, str):
                    raise

    @cached_property
    def _call(self) -> Callable[[Any, Any], Any]:
        function = cast("Callable[..., Any]", self.execute)
        if not isinstance(self.input_schema, Parameters):
            return _with_two_arguments(function)
        context_name = self.input_schema.context_name
        if context_name is None:
            return lambda value, _context: function(**value)
        return lambda value, context: function(**value, **{context_name: context})

    @cached_property
    def _asks(self) -> Callable[[Any, ToolCallContext], Any]:
        return _with_two_arguments(cast("Callable[..., Any]", self.needs_approval))

    def _failed(self) -> CodeModeToolError:
        # A validator is the author's code: what it raises by accident is not for the guest.
        return CodeModeToolError(f'Tool "{self.name}" failed.', code=HOST_TOOL_ERROR, details={"tool_name": self.name})

    def _wrong(self, side: Mode, mismatch: SchemaMismatch) -> CodeModeToolError:
        what = "Invalid input for" if side == "input" else "Invalid output of"
        lines = [f"{one['path'] or 'value'}: {one['message']}" for one in mismatch.problems]
        return CodeModeToolError(
            f'{what} tool "{self.name}": {"; ".join(lines)}',
            details={"tool_name": self.name, "schema": side, "problems": mismatch.problems},
        )


def _failures() -> tuple[type[BaseException], ...]:
    """Return what a validator may raise without ending the host, or a task that nobody has cancelled."""
    import asyncio  # late: a tool is made without it

    return Exception, SystemExit, GeneratorExit, asyncio.CancelledError


def _check_callable(tool_name: str, option: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise WrongTypeError(f"{option} of tool {tool_name!r} must be callable or None, got {value!r}")


def _described_output(said: FunctionDescription) -> InferredOutput | None:
    return None if said.returns is NOTHING else InferredOutput(said.returns)


def _with_two_arguments(function: Callable[..., Any]) -> Callable[[Any, ToolCallContext], Any]:
    count = count_positional(function)
    if count >= 2:
        return function
    return (lambda value, _context: function(value)) if count else (lambda _value, _context: function())


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    output_schema: Any = None,
    needs_approval: bool | Callable[..., Any] = False,
    input_examples: Iterable[Any] = (),
    to_model_output: Callable[..., Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a `Tool` of a plain function, bare or with settings; see `Tool.from_function`.

    A ``needs_approval`` function receives the keyword arguments as a dict.
    """
    if function is not None:
        return Tool.from_function(function, **settings)
    return functools.partial(Tool.from_function, **settings)

"""Tools as their authors define them, and valid tool names."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

from ..data.narrowing import is_non_text_iterable
from ..options.checked_fields import WrongTypeError, make_choice_check, require_mapping_or_none, require_string_or_none
from ..schemas.patterns import are_nonlinear_patterns_dropped, drop_nonlinear_patterns
from .context import ToolCallContext
from .parameters import NO_VALUE, FunctionDescription, describe_function
from .tool_schemas import InferredOutput, ToolSchemas, check_or_repair_schema

if TYPE_CHECKING:
    from ..options.parts import OutputValidation


MAX_NAME_CHARACTERS = 128


class ImpossibleNameError(ValueError):
    """A name that no program could call."""


def require_name(name: Any) -> str:
    """Return a name. Raises `ImpossibleNameError` if it is not a non-empty string."""
    plain = str.__str__(name) if isinstance(name, str) else ""  # of a subclass every method may be a stranger's
    if not plain:
        raise ImpossibleNameError(f"a tool's name must be a non-empty string, got {name!r}")
    return plain


def require_callable_name(name: Any) -> str:
    """Return a name. Raises `ImpossibleNameError` if no program could call a tool of that name."""
    name = require_name(name)
    if len(name) > MAX_NAME_CHARACTERS:
        raise ImpossibleNameError(f"tool name {name[:32]!r}... is longer than {MAX_NAME_CHARACTERS} characters")
    if name == "then":
        raise ImpossibleNameError("a tool called 'then' cannot be reached: it would make `tools` awaitable")
    if name.startswith("$"):
        raise ImpossibleNameError(f"tool name {name!r} starts with '$', which is reserved for the catalog")
    if not name.isprintable():
        raise ImpossibleNameError(f"tool name {name!r} contains a control character")
    return name


_FIELD_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NUMBER_FORMAT = re.compile(r",?(\.\d)?f?")


def parse_summary_template(template: str) -> list[tuple[str, str | None, str]]:
    """Split ``"{order.id}: {amount:.2f} EUR"`` into texts, each with the input field that follows it.

    The third part is a number format: ``.2f``, ``,.2f`` or empty. Raises `ValueError` for other templates.
    """
    parts: list[tuple[str, str | None, str]] = []
    for text, path, number_format, conversion in string.Formatter().parse(template):
        if path is not None and not _FIELD_PATH.fullmatch(path):
            raise ValueError(f"{{{path}}} names no field of the input: write {{amount}} or {{order.id}}")
        if conversion or not _NUMBER_FORMAT.fullmatch(number_format or ""):
            raise ValueError(f"{{{path}}} takes a number format such as :.2f, and no other")
        parts.append((text, path, number_format or ""))
    return parts


_check_output_validation = make_choice_check(None, "warn", "strict")

ToolFunction: TypeAlias = Callable[[], Any] | Callable[[Any], Any] | Callable[[Any, ToolCallContext], Any]
"""Takes the validated input and the context, only the input, or nothing. Type checkers infer lambda arguments."""


@dataclass(frozen=True, eq=False, init=False)
class Tool:
    """A Python function that programs may call.

    ``execute(input, context)`` returns a value, an awaitable or an async iterator whose last item counts; it may also
    take only the input or nothing; None declares a tool that cannot be executed. Sync functions run in a thread. A
    schema is a JSON Schema dict or any type that a pydantic ``TypeAdapter`` takes; ``execute`` then gets an instance.
    ``needs_approval`` is a bool or ``(input, context) -> bool``, sync or async. ``metadata`` is for surfaces, each
    under its own key. ``title`` and ``summary`` tell an approver what a call will do: "Refund" and ``"{orderId}:
    {amount:.2f} {currency}"``, with fields of the input. ``output_validation`` says what happens to an output that
    violates its schema, "warn" or "strict"; None uses ``execution_policy.output_validation``. Raises `ValueError` for
    an impossible name and for values of a wrong type.
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
    metadata: Mapping[str, Any]
    output_validation: OutputValidation | None
    title: str
    summary: str
    is_foreign: ClassVar[bool] = False  # of a framework or server: its schemas cannot be fixed here
    is_gated_by_framework: ClassVar[bool] = False  # by a framework, which may ask a person about any call of it
    needs_person: ClassVar[bool] = False  # a framework asks about each call
    schemas: ClassVar[ToolSchemas]  # each tool has its own, and it is no field

    def __init__(
        self,
        name: str,
        *,
        execute: ToolFunction | None,
        description: str = "",
        input_schema: Any = None,
        output_schema: Any = None,
        needs_approval: bool | ToolFunction = False,
        input_examples: Iterable[Any] = (),
        to_model_output: Callable[[Any], Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        output_validation: OutputValidation | None = None,
        title: str = "",
        summary: str = "",
    ) -> None:
        name = require_name(name)
        _check_callable(name, "execute", execute)
        _check_callable(name, "to_model_output", to_model_output)
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            raise WrongTypeError(f"needs_approval of tool {name!r} must be a bool or callable, got {needs_approval!r}")
        for option, text in (("description", description), ("title", title), ("summary", summary)):
            if require_string_or_none(text, f"{option} of tool {name!r}") is None:
                raise WrongTypeError(f"{option} of tool {name!r} must be a string, got None")
        _check_summary(name, summary)
        require_mapping_or_none(annotations, f"annotations of tool {name!r}")
        require_mapping_or_none(metadata, f"metadata of tool {name!r}")
        if isinstance(input_examples, Mapping) or not is_non_text_iterable(input_examples):
            raise WrongTypeError(f"input_examples of tool {name!r} must be a list, got {input_examples!r}")
        is_foreign = self.is_foreign or are_nonlinear_patterns_dropped()
        values = {
            "name": name,
            "execute": execute,
            "description": description,
            "input_schema": check_or_repair_schema(input_schema, "input", name, is_foreign=is_foreign),
            "output_schema": check_or_repair_schema(output_schema, "output", name, is_foreign=is_foreign),
            "needs_approval": needs_approval,
            "input_examples": tuple(input_examples),
            "to_model_output": to_model_output,
            "annotations": dict(annotations or {}),
            "metadata": dict(metadata or {}),
            "output_validation": _check_output_validation(output_validation, f"output_validation of tool {name!r}"),
            "title": title,
            "summary": summary,
        }
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)
        schemas = ToolSchemas(name, self.input_schema, self.output_schema, is_foreign=is_foreign)
        object.__setattr__(self, "schemas", schemas)
        if not is_foreign:
            schemas.compile_schemas_to_check_patterns()

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, name: str | None = None, **settings: Any) -> Tool:
        """Create a tool from a function: its parameters become the input, its docstring the description.

        A parameter annotated `ToolCallContext` receives the context. The return annotation becomes the output schema if
        pydantic can describe it. Raises `ValueError` for a signature that cannot be called by name.
        """
        if not callable(function):
            raise WrongTypeError(f"a tool needs a function, got {type(function).__name__}")
        described = describe_function(function, ToolCallContext)
        if name is None and not described.name.isidentifier():
            raise ValueError(f"{function!r} has no name; give it one, for example as the key of a mapping")
        settings = {key: value for key, value in settings.items() if value is not None}
        return cls(
            name or described.name,
            execute=function,
            description=settings.pop("description", described.description),
            input_schema=described.parameters,
            output_schema=settings.pop("output_schema", _infer_output(described)),
            **settings,
        )

    @staticmethod
    def is_callable_name(name: Any) -> bool:
        """Return whether programs can call a tool of this name."""
        try:
            require_callable_name(name)
        except ImpossibleNameError:
            return False
        return True

    def with_name(self, name: str) -> Tool:
        """Give the same tool under another name."""
        if name == self.name:
            return self
        with drop_nonlinear_patterns(are_foreign=self.schemas.is_foreign):
            return replace(self, name=name)


def _check_callable(tool_name: str, option: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise WrongTypeError(f"{option} of tool {tool_name!r} must be callable or None, got {value!r}")


def _check_summary(tool_name: str, summary: str) -> None:
    try:
        parse_summary_template(summary)
    except ValueError as error:
        raise ValueError(f"summary of tool {tool_name!r}: {error}") from None


def _infer_output(described: FunctionDescription) -> InferredOutput | None:
    return None if described.returns is NO_VALUE else InferredOutput(described.returns)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    output_schema: Any = None,
    needs_approval: bool | ToolFunction = False,
    input_examples: Iterable[Any] = (),
    to_model_output: Callable[[Any], Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    output_validation: OutputValidation | None = None,
    title: str = "",
    summary: str = "",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Create a `Tool` from a function, as a decorator with or without settings; see `Tool.from_function`.

    A ``needs_approval`` function receives the keyword arguments as a dict.
    """
    if function is not None:
        return Tool.from_function(function, **settings)
    return functools.partial(Tool.from_function, **settings)

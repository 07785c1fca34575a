"""What a LangChain tool is called with. Validated once: the rule, the person and the tool get that one value.

LangChain validates what it is given. Where that gave another value than the one that was allowed, nothing runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId
from pydantic import BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo

from codemode import CodeModeToolError
from codemode.plugins import CompiledSchema, SchemaMismatch, ValidatedInput, copy_json

from .content import shown, shown_fields, with_blocks

Parse = Callable[[Any, str | None], Any]
_VARIADIC = ("args", "kwargs")  # fields that LangChain makes of *args and **kwargs


@dataclass(eq=False)
class Arguments:
    """The validated arguments of one call: ``shown`` is plain JSON, ``values`` what the tool gets, once."""

    schema: ArgumentsSchema
    shown: dict[str, Any]
    given: Any
    values: dict[str, Any] | None = None

    def copy(self) -> dict[str, Any]:
        """Return them as the plain arguments of a tool call."""
        return copy_json(self.shown)


def _shown_schema(schema: Any) -> Any:
    """Return a JSON Schema without the name and the text of the whole, which are said of the tool itself."""
    if not isinstance(schema, dict):
        return schema
    said = cast("dict[str, Any]", schema)
    return {key: one for key, one in said.items() if key not in ("title", "description")}


class ArgumentsSchema:
    """The input of one LangChain tool. ``described`` is what the model sees of it, without injected arguments."""

    def __init__(self, tool: BaseTool, described: CompiledSchema, compiled: Callable[[Any], Any]) -> None:
        self._name = tool.name
        self._described = described
        self.json_schema = _shown_schema(described.json_schema) if tool.description else described.json_schema
        self._injected = Injected(tool)
        schema = _model_of(tool)
        # Only the whole schema has its validators and settings. Code of a tool's own that reads arguments goes on
        # reading them, and has to come to the same.
        self._whole: Any = None if schema is None else compiled(self._injected.left_out_of(schema))
        self._defaults = Defaults(tool) if schema is None else None
        self._parses_itself = _parses_itself(tool)
        fields = {} if schema is None else schema.model_fields
        self._names = [name for name, field in fields.items() if name not in self._injected.names and not field.exclude]

    @property
    def varies(self) -> bool:
        """Whether one input may give two values."""
        return self._described.varies if self._whole is None else self._whole.varies

    @property
    def conversion(self) -> str:
        """What becomes of other scalars and names."""
        return getattr(self._whole or self._described, "conversion", "unknown")

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check, coerce, fill defaults. Raises `SchemaMismatch`."""
        given = copy_json(value)
        if isinstance(value, dict):
            value = {key: one for key, one in cast("dict[str, Any]", value).items() if key not in self._injected.names}
        arguments = self._validated(value, given)
        return ValidatedInput(arguments, arguments.copy)

    def validate_output(self, value: Any, what: str) -> Any:
        """Refuse: arguments describe no output."""
        raise NotImplementedError(what)

    def _validated(self, value: Any, given: Any) -> Arguments:
        if self._whole is None:
            validated = self._described.validate_input(value).value
            plain = cast("dict[str, Any]", shown(validated, given)) or {}
            return Arguments(self, plain if self._defaults is None else self._defaults.completed(plain), given)
        model: BaseModel = self._whole.instance_of(value)
        names = [name for name in self._names if name not in _VARIADIC or name in model.model_fields_set]
        plain = shown_fields(model, names, given)
        values = {name: getattr(model, name) for name in names} | (model.model_extra or {})
        return Arguments(self, plain, given, values)

    # --- in the place of LangChain's own validation ---

    def parsed(self, arguments: Arguments, tool_input: Any, tool_call_id: str | None, parse: Parse) -> Any:
        """Return what the tool is called with. ``parse`` is LangChain's own way. Raises `CodeModeToolError`."""
        if not isinstance(tool_input, dict):
            return parse(tool_input, tool_call_id)
        whole = cast("dict[str, Any]", tool_input)
        given = self._injected.taken_out_of(whole)
        if self._whole is None:
            # Before the tool's own code can change it in its place.
            before = shown(given) if self._parses_itself else given
            result = parse(whole, tool_call_id)
            if self._parses_itself or result is not whole:
                self._require_all(before, result)
            return with_blocks(result)
        # Middleware, or a person it asked, may have changed what was allowed.
        is_same = given == arguments.shown
        values = self._once(arguments) if is_same else self._changed(given, whole, tool_call_id, parse)
        return {**with_blocks(values), **self._injected.given_in(whole, tool_call_id)}

    def _once(self, arguments: Arguments) -> dict[str, Any]:
        """Return the validated values. A tool that is called again, after it may have changed them, gets new ones."""
        if (values := arguments.values) is not None:
            arguments.values = None
            return values
        given = arguments.given
        for source in (given, ValidatedInput.fill_defaults(given, arguments.shown), arguments.shown):
            again: Arguments = self.validate_input(copy_json(source)).value
            if again.shown == arguments.shown and again.values is not None:
                return again.values
        raise self._different("its schema makes something new of it each time")

    def _changed(
        self, given: dict[str, Any], tool_input: dict[str, Any], tool_call_id: str | None, parse: Parse
    ) -> dict[str, Any]:
        try:
            validated: Arguments = self.validate_input(copy_json(given)).value
        except SchemaMismatch as mismatch:
            parse(tool_input, tool_call_id)  # LangChain words it for the model
            raise self._different("it does not fit the schema") from mismatch
        self._require_same(given, validated.shown)
        return cast("dict[str, Any]", validated.values)

    def _require_all(self, given: dict[str, Any], result: Any) -> None:
        """Refuse what a tool reads otherwise, or adds, but for defaults."""
        if not isinstance(result, dict):
            raise self._different("it is read as something else than its arguments")
        found = shown(self._injected.taken_out_of(cast("dict[str, Any]", result)))
        self._require_same(given, found)
        self._require_same({key: found[key] for key in given}, given)
        for key in found.keys() - given.keys():
            if self._defaults is None or not self._defaults.is_default(key, found[key]):
                raise self._different(f"{key} is added")

    def _require_same(self, given: Any, found: Any) -> None:
        if (place := difference(given, found)) is not None:
            raise self._different(f"{place} changes")

    def _different(self, why: str) -> CodeModeToolError:
        return CodeModeToolError(
            f"the input of tool {self._name!r} comes out differently when it is validated again: {why}",
            details={"tool_name": self._name},
        )


def difference(given: Any, found: Any, place: str = "value") -> str | None:
    """Return where validation made something else of a plain value than a completed copy; None when it did not."""
    if isinstance(given, dict) and isinstance(found, dict):
        values = cast("dict[str, Any]", found)
        for key, one in cast("dict[str, Any]", given).items():
            inner = f"{place}.{key}" if place != "value" else key
            if key not in values:
                return inner
            if (deeper := difference(one, values[key], inner)) is not None:
                return deeper
        return None
    if isinstance(given, list) and isinstance(found, list):
        pairs = list(zip(cast("list[Any]", given), cast("list[Any]", found), strict=False))
        if len(cast("list[Any]", given)) != len(cast("list[Any]", found)):
            return place
        places = (difference(one, other, f"{place}[{number}]") for number, (one, other) in enumerate(pairs))
        return next((one for one in places if one is not None), None)
    is_same = given == found and isinstance(given, bool) == isinstance(found, bool)
    return None if is_same else place


class Defaults:
    """The defaults of a schema that only LangChain, or the tool itself, validates with."""

    def __init__(self, tool: BaseTool) -> None:
        schema: Any = tool.args_schema
        self._of_v1: dict[str, Any] = getattr(schema, "__fields__", {}) if not hasattr(schema, "model_fields") else {}
        self._fields: dict[str, Any] = self._of_v1 or getattr(schema, "model_fields", {})

    def completed(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the defaults that a factory makes, which no JSON Schema tells."""
        made = {
            name: value
            for name, field in self._of_v1.items()
            if field.default_factory is not None and not {name, field.alias} & plain.keys()
            if shown(value := field.get_default()) == value
        }
        return {**plain, **made}

    def is_default(self, name: str, value: Any) -> bool:
        """Tell whether a value, as it is shown, is that of a field that was not given."""
        field = self._fields.get(name)
        if field is None:
            return False
        settings: dict[str, Any] = {} if name in self._of_v1 else {"call_default_factory": True, "validated_data": {}}
        return bool(shown(field.get_default(**settings)) == value)


class _Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Injected:
    """The arguments of one tool that its graph gives, and no model."""

    def __init__(self, tool: BaseTool) -> None:
        self._keys: frozenset[str] = frozenset(getattr(tool, "_injected_args_keys", ())) | _settings_of(tool)
        schema = tool.args_schema
        fields: Mapping[str, FieldInfo] = getattr(schema, "model_fields", {})
        visible: Any = tool.tool_call_schema
        self._fields = {
            name: field for name, field in fields.items() if name not in getattr(visible, "model_fields", fields)
        }
        self.names = self._keys | self._fields.keys()
        self._call_ids = call_ids(self._fields)
        self._model: Any = None
        if self._fields:
            settings = ConfigDict(arbitrary_types_allowed=True)
            described: Any = {name: (field.annotation, field) for name, field in self._fields.items()}
            self._model = create_model("Injected", __config__=settings, **described)

    def left_out_of(self, schema: type[BaseModel]) -> type[BaseModel]:
        """Return a schema that takes the other arguments alone, by their names or their aliases."""
        has_aliases = any(field.validation_alias is not None for field in schema.model_fields.values())
        if not self._fields and not has_aliases:
            return schema
        missing: Any = dict.fromkeys(self._fields, (Any, None))
        return create_model(schema.__name__, __base__=(schema, _Named), __module__=schema.__module__, **missing)

    def taken_out_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the other arguments."""
        return {name: value for name, value in values.items() if name not in self.names}

    def given_in(self, tool_input: Mapping[str, Any], tool_call_id: str | None) -> dict[str, Any]:
        """Return the injected arguments of a call, validated as LangChain does it."""
        found: dict[str, Any] = {}
        if self._model is not None:
            values = {name: tool_input[name] for name in self._fields if name in tool_input}
            values |= dict.fromkeys(self._call_ids, tool_call_id)
            model = self._model.model_validate(values)
            found = {name: getattr(model, name) for name in self._fields}
        for name in self._keys:
            if name in tool_input:
                found[name] = tool_input[name]
            elif name == "tool_call_id":
                found[name] = tool_call_id
        return found


def without_settings(tool: BaseTool) -> Any:
    """Return what a model is shown of a tool's input, without the settings of a run that LangChain gives it."""
    schema: Any = tool.tool_call_schema
    hidden = _settings_of(tool)
    if not hidden or not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return cast("Any", schema)
    fields: Any = {name: (one.annotation, one) for name, one in schema.model_fields.items() if name not in hidden}
    return create_model(schema.__name__, __config__=ConfigDict(arbitrary_types_allowed=True), **fields)


def _settings_of(tool: BaseTool) -> frozenset[str]:
    """Return the arguments that get the settings of a run, where LangChain reads a schema off the method itself."""
    if tool.args_schema is not None:
        return frozenset()
    hints: dict[str, Any] = {}
    with contextlib.suppress(NameError, TypeError):
        hints = get_type_hints(cast("Any", tool)._run)  # noqa: SLF001 - the method that is read
    return frozenset(name for name, hint in hints.items() if hint is RunnableConfig)


def call_ids(fields: Mapping[str, Any]) -> set[str]:
    """Return the arguments that every call brings along."""
    kinds = (InjectedToolCallId,)
    return {
        name for name, info in fields.items() if any(isinstance(one, kinds) or one in kinds for one in info.metadata)
    }


def _model_of(tool: BaseTool) -> type[BaseModel] | None:
    """Return the model that LangChain validates with, None when it does not or when the tool does it itself."""
    schema: Any = tool.args_schema
    is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
    return cast("type[BaseModel]", schema) if is_model and not _parses_itself(tool) else None


def _parses_itself(tool: BaseTool) -> bool:
    own: Any = type(tool)
    return own._parse_input is not cast("Any", BaseTool)._parse_input  # noqa: SLF001 - the method to stand in for

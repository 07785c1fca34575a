"""Validate a tool's arguments once, for approval rule, approver and tool.

A call does not run if LangChain's own validation would produce other values than the approved ones.
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
from codemode.plugins import CompiledSchema, SchemaMismatchError, ValidatedInput, copy_json

from .content import restore_media, to_displayed_fields, to_displayed_value

ParseInput = Callable[[Any, str | None], Any]
_VARIADIC_FIELDS = ("args", "kwargs")  # LangChain's fields for *args and **kwargs


@dataclass(eq=False)
class ValidatedArguments:
    """The validated arguments of one call: ``displayed`` as plain JSON, ``values`` as the tool gets them, once."""

    schema: ArgumentsSchema
    displayed: dict[str, Any]
    source: Any
    values: dict[str, Any] | None = None

    def copy(self) -> dict[str, Any]:
        """Return a copy as plain arguments of a tool call."""
        return copy_json(self.displayed)


def _without_title_and_description(schema: Any) -> Any:
    """Return a JSON Schema without title and description, which the tool has."""
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    return {key: value for key, value in fields.items() if key not in ("title", "description")}


class ArgumentsSchema:
    """The input of one LangChain tool. ``compiled_schema``: the model's schema, without injected arguments."""

    def __init__(self, tool: BaseTool, compiled_schema: CompiledSchema, compile_schema: Callable[[Any], Any]) -> None:
        self._name = tool.name
        self._compiled_schema = compiled_schema
        self.json_schema = (
            _without_title_and_description(compiled_schema.json_schema)
            if tool.description
            else compiled_schema.json_schema
        )
        self._injected = InjectedArguments(tool)
        schema = _get_validation_model(tool)
        # Only the whole model has validators and settings. A tool's own _parse_input still runs, and must produce the
        # same arguments.
        self._model_schema: Any = (
            None if schema is None else compile_schema(self._injected.make_model_without_injected(schema))
        )
        self._defaults = SchemaDefaults(tool) if schema is None else None
        self._parses_itself = _overrides_parse_input(tool)
        fields = {} if schema is None else schema.model_fields
        self._names = [name for name, field in fields.items() if name not in self._injected.names and not field.exclude]

    @property
    def is_nondeterministic(self) -> bool:
        """Whether validation of an input is nondeterministic."""
        return (
            self._compiled_schema.is_nondeterministic
            if self._model_schema is None
            else self._model_schema.is_nondeterministic
        )

    @property
    def conversion(self) -> str:
        """How other scalars and names are converted."""
        return getattr(self._model_schema or self._compiled_schema, "conversion", "unknown")

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate, convert and fill in defaults. Raises `SchemaMismatchError`."""
        source = copy_json(value)
        if isinstance(value, dict):
            value = {
                key: item for key, item in cast("dict[str, Any]", value).items() if key not in self._injected.names
            }
        arguments = self._validate(value, source)
        return ValidatedInput(arguments, arguments.copy)

    def validate_output(self, value: Any, what: str) -> Any:
        """Raise `NotImplementedError`: this schema is for input only."""
        raise NotImplementedError(what)

    def _validate(self, value: Any, source: Any) -> ValidatedArguments:
        if self._model_schema is None:
            validated = self._compiled_schema.validate_input(value).value
            displayed = cast("dict[str, Any]", to_displayed_value(validated, source)) or {}
            return ValidatedArguments(
                self,
                displayed if self._defaults is None else self._defaults.fill_in_factory_defaults(displayed),
                source,
            )
        model: BaseModel = self._model_schema.create_instance(value)
        names = [name for name in self._names if name not in _VARIADIC_FIELDS or name in model.model_fields_set]
        displayed = to_displayed_fields(model, names, source)
        values = {name: getattr(model, name) for name in names} | (model.model_extra or {})
        return ValidatedArguments(self, displayed, source, values)

    # --- replaces LangChain's validation ---

    def parse_input(
        self, arguments: ValidatedArguments, tool_input: Any, tool_call_id: str | None, parse: ParseInput
    ) -> Any:
        """Return the tool's arguments. ``parse``: LangChain's method. Raises `CodeModeToolError` if they changed."""
        if not isinstance(tool_input, dict):
            return parse(tool_input, tool_call_id)
        all_arguments = cast("dict[str, Any]", tool_input)
        model_arguments = self._injected.exclude_injected(all_arguments)
        if self._model_schema is None:
            # Before the tool's code can change it in place.
            displayed_before = to_displayed_value(model_arguments) if self._parses_itself else model_arguments
            result = parse(all_arguments, tool_call_id)
            if self._parses_itself or result is not all_arguments:
                self._require_unchanged_by_parse(displayed_before, result)
            return restore_media(result)
        # Middleware may have changed the arguments.
        is_unchanged = model_arguments == arguments.displayed
        values = (
            self._take_or_revalidate_values(arguments)
            if is_unchanged
            else self._revalidate_changed_arguments(model_arguments, all_arguments, tool_call_id, parse)
        )
        return {**restore_media(values), **self._injected.collect_from(all_arguments, tool_call_id)}

    def _take_or_revalidate_values(self, arguments: ValidatedArguments) -> dict[str, Any]:
        """Return the validated values; a repeated call gets new ones, because the tool may have changed them."""
        if (values := arguments.values) is not None:
            arguments.values = None
            return values
        original = arguments.source
        for source in (original, ValidatedInput.fill_defaults(original, arguments.displayed), arguments.displayed):
            revalidated: ValidatedArguments = self.validate_input(copy_json(source)).value
            if revalidated.displayed == arguments.displayed and revalidated.values is not None:
                return revalidated.values
        raise self._make_changed_input_error("its schema produces a new value each time")

    def _revalidate_changed_arguments(
        self, changed_arguments: dict[str, Any], tool_input: dict[str, Any], tool_call_id: str | None, parse: ParseInput
    ) -> dict[str, Any]:
        try:
            revalidated: ValidatedArguments = self.validate_input(copy_json(changed_arguments)).value
        except SchemaMismatchError as mismatch:
            parse(tool_input, tool_call_id)  # raises LangChain's error for the model
            raise self._make_changed_input_error("it does not fit the schema") from mismatch
        self._require_same_arguments(changed_arguments, revalidated.displayed)
        return cast("dict[str, Any]", revalidated.values)

    def _require_unchanged_by_parse(self, displayed_before: dict[str, Any], result: Any) -> None:
        """Raise if the tool's parser changes or adds arguments, except defaults."""
        if not isinstance(result, dict):
            raise self._make_changed_input_error("its arguments are parsed to another type")
        displayed_after = to_displayed_value(self._injected.exclude_injected(cast("dict[str, Any]", result)))
        self._require_same_arguments(displayed_before, displayed_after)
        self._require_same_arguments({key: displayed_after[key] for key in displayed_before}, displayed_before)
        for key in displayed_after.keys() - displayed_before.keys():
            if self._defaults is None or not self._defaults.is_default(key, displayed_after[key]):
                raise self._make_changed_input_error(f"{key} is added")

    def _require_same_arguments(self, before: Any, after: Any) -> None:
        if (path := find_changed_path(before, after)) is not None:
            raise self._make_changed_input_error(f"{path} changes")

    def _make_changed_input_error(self, reason: str) -> CodeModeToolError:
        return CodeModeToolError(
            f"the input of tool {self._name!r} differs when it is validated again: {reason}",
            details={"tool_name": self._name},
        )


def find_changed_path(before: Any, after: Any, path: str = "value") -> str | None:
    """Return the path where ``after`` changes ``before``, except added keys; None if nowhere."""
    if isinstance(before, dict) and isinstance(after, dict):
        values = cast("dict[str, Any]", after)
        for key, item in cast("dict[str, Any]", before).items():
            inner_path = f"{path}.{key}" if path != "value" else key
            if key not in values:
                return inner_path
            if (inner_difference := find_changed_path(item, values[key], inner_path)) is not None:
                return inner_difference
        return None
    if isinstance(before, list) and isinstance(after, list):
        pairs = list(zip(cast("list[Any]", before), cast("list[Any]", after), strict=False))
        if len(cast("list[Any]", before)) != len(cast("list[Any]", after)):
            return path
        paths = (
            find_changed_path(item, after_item, f"{path}[{index}]") for index, (item, after_item) in enumerate(pairs)
        )
        return next((item for item in paths if item is not None), None)
    is_equal = before == after and isinstance(before, bool) == isinstance(after, bool)
    return None if is_equal else path


class SchemaDefaults:
    """The defaults of a schema that LangChain or the tool validates with."""

    def __init__(self, tool: BaseTool) -> None:
        schema: Any = tool.args_schema
        self._v1_fields: dict[str, Any] = (
            getattr(schema, "__fields__", {}) if not hasattr(schema, "model_fields") else {}
        )
        self._fields: dict[str, Any] = self._v1_fields or getattr(schema, "model_fields", {})

    def fill_in_factory_defaults(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the defaults of factories, which a JSON Schema cannot express."""
        defaults = {
            name: value
            for name, field in self._v1_fields.items()
            if field.default_factory is not None and not {name, field.alias} & plain.keys()
            if to_displayed_value(value := field.get_default()) == value
        }
        return {**plain, **defaults}

    def is_default(self, name: str, value: Any) -> bool:
        """Return whether a displayed value is a field's default."""
        field = self._fields.get(name)
        if field is None:
            return False
        settings: dict[str, Any] = (
            {} if name in self._v1_fields else {"call_default_factory": True, "validated_data": {}}
        )
        return bool(to_displayed_value(field.get_default(**settings)) == value)


class _PopulateByNameModel(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class InjectedArguments:
    """The arguments of one tool that the graph injects."""

    def __init__(self, tool: BaseTool) -> None:
        self._keys: frozenset[str] = frozenset(getattr(tool, "_injected_args_keys", ())) | _find_config_argument_names(
            tool
        )
        schema = tool.args_schema
        fields: Mapping[str, FieldInfo] = getattr(schema, "model_fields", {})
        visible: Any = tool.tool_call_schema
        self._fields = {
            name: field for name, field in fields.items() if name not in getattr(visible, "model_fields", fields)
        }
        self.names = self._keys | self._fields.keys()
        self._call_ids = find_call_id_field_names(self._fields)
        self._model: Any = None
        if self._fields:
            model_config = ConfigDict(arbitrary_types_allowed=True)
            model_fields: Any = {name: (field.annotation, field) for name, field in self._fields.items()}
            self._model = create_model("Injected", __config__=model_config, **model_fields)

    def make_model_without_injected(self, schema: type[BaseModel]) -> type[BaseModel]:
        """Return a schema without injected arguments that accepts names and aliases."""
        has_aliases = any(field.validation_alias is not None for field in schema.model_fields.values())
        if not self._fields and not has_aliases:
            return schema
        missing: Any = dict.fromkeys(self._fields, (Any, None))
        return create_model(
            schema.__name__, __base__=(schema, _PopulateByNameModel), __module__=schema.__module__, **missing
        )

    def exclude_injected(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that are not injected."""
        return {name: value for name, value in values.items() if name not in self.names}

    def collect_from(self, tool_input: Mapping[str, Any], tool_call_id: str | None) -> dict[str, Any]:
        """Return the injected arguments of a call, validated as LangChain does."""
        injected: dict[str, Any] = {}
        if self._model is not None:
            values = {name: tool_input[name] for name in self._fields if name in tool_input}
            values |= dict.fromkeys(self._call_ids, tool_call_id)
            model = self._model.model_validate(values)
            injected = {name: getattr(model, name) for name in self._fields}
        for name in self._keys:
            if name in tool_input:
                injected[name] = tool_input[name]
            elif name == "tool_call_id":
                injected[name] = tool_call_id
        return injected


def make_input_schema(tool: BaseTool) -> Any:
    """Return a tool's input schema for models, without `RunnableConfig` arguments."""
    schema: Any = tool.tool_call_schema
    run_setting_names = _find_config_argument_names(tool)
    if not run_setting_names or not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return cast("Any", schema)
    fields: Any = {
        name: (field.annotation, field) for name, field in schema.model_fields.items() if name not in run_setting_names
    }
    return create_model(schema.__name__, __config__=ConfigDict(arbitrary_types_allowed=True), **fields)


def _find_config_argument_names(tool: BaseTool) -> frozenset[str]:
    """Return the `RunnableConfig` arguments of a tool whose schema LangChain infers from its method."""
    if tool.args_schema is not None:
        return frozenset()
    hints: dict[str, Any] = {}
    with contextlib.suppress(NameError, TypeError):
        hints = get_type_hints(cast("Any", tool)._run)  # noqa: SLF001 - the method that is read
    return frozenset(name for name, hint in hints.items() if hint is RunnableConfig)


def find_call_id_field_names(fields: Mapping[str, Any]) -> set[str]:
    """Return the fields that get the tool call id."""
    marker_types = (InjectedToolCallId,)
    return {
        name
        for name, field in fields.items()
        if any(isinstance(annotation, marker_types) or annotation in marker_types for annotation in field.metadata)
    }


def _get_validation_model(tool: BaseTool) -> type[BaseModel] | None:
    """Return the model that LangChain validates with; None without a model or if the tool parses its input."""
    schema: Any = tool.args_schema
    is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
    return cast("type[BaseModel]", schema) if is_model and not _overrides_parse_input(tool) else None


def _overrides_parse_input(tool: BaseTool) -> bool:
    tool_class: Any = type(tool)
    return tool_class._parse_input is not cast("Any", BaseTool)._parse_input  # noqa: SLF001 - the method that is replaced

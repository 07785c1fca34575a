"""Parameters of a plain function that need no pydantic, as a validator: all of plain types, with plain defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..schemas.compiled import CompiledSchema, ValidatedInput
from ..schemas.plain_types import NotPlainError, PlainSchema, PlainType, plain_type
from .parameters import NOTHING, Parameter, Parameters


def plain_parameters(parameters: Parameters, whole: Callable[[], CompiledSchema]) -> CompiledSchema | None:
    """Return the validator; None when it is for pydantic to make, as ``whole`` does."""
    if parameters.takes_any_keyword:
        return None
    named: dict[str, PlainType] = {}
    for one in parameters.given:
        plain = plain_type(one.annotation)
        if plain is None or not _has_plain_default(one, plain):
            return None
        named[one.name] = plain
    return _PlainParameters(parameters.given, named, whole)


def _has_plain_default(parameter: Parameter, plain: PlainType) -> bool:
    if parameter.default is NOTHING:
        return True
    if isinstance(parameter.default, list | dict):
        return False  # it would be made anew each time
    try:
        plain.copy(parameter.default)
    except NotPlainError:
        return False
    return True


class _PlainParameters(PlainSchema):
    """The value is the keyword arguments, as those of `ParametersSchema`."""

    def __init__(
        self, given: tuple[Parameter, ...], named: Mapping[str, PlainType], whole: Callable[[], CompiledSchema]
    ) -> None:
        self._named = named
        self._defaults = {one.name: one.default for one in given if one.default is not NOTHING}
        super().__init__(PlainType(_described(given, named), dict), whole)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check; what is not exactly of the types is for pydantic to coerce or refuse."""
        try:
            keywords = self._keywords(value)
        except NotPlainError:
            return self.whole.validate_input(value)
        return ValidatedInput(keywords, lambda: self._shown(keywords, value))

    def validate_output(self, value: Any, what: str) -> Any:
        """Refuse: parameters describe no output."""
        raise NotImplementedError(what)

    def _keywords(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict or not self._named.keys() >= value.keys():
            raise NotPlainError
        keywords: dict[str, Any] = {**self._defaults, **value}
        if len(keywords) < len(self._named):
            raise NotPlainError
        return {name: plain.copy(keywords[name]) for name, plain in self._named.items()}

    def _shown(self, keywords: dict[str, Any], value: Any) -> Any:
        try:
            return self._keywords(keywords)
        except NotPlainError:  # somebody has put something else into it
            return self.whole.validate_input(value).json_value


def _described(given: tuple[Parameter, ...], named: Mapping[str, PlainType]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for one in given:
        said = dict(named[one.name].json_schema)
        if one.description:
            said["description"] = one.description
        if one.default is not NOTHING:
            said["default"] = one.default
        properties[one.name] = dict(sorted(said.items()))
    required = [one.name for one in given if one.default is NOTHING]
    described = {"additionalProperties": False, "properties": properties, "required": required, "type": "object"}
    return described if required else {key: value for key, value in described.items() if key != "required"}

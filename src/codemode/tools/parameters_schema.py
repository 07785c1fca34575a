"""Validate the parameters of a function with pydantic."""

from __future__ import annotations

from typing import Annotated, Any

from ..data.narrowing import mapping_or_empty
from ..schemas.compiled import Conversion, JsonSchema, ValidatedInput
from ..schemas.patterns import to_validator_build_error
from ..schemas.python_types import TypeSchema
from .parameters import NO_VALUE, Parameter, Parameters


class ParametersSchema:
    """The parameters of a function. The value is its keyword arguments; unknown ones are refused."""

    takes_tags = True

    def __init__(self, parameters: Parameters) -> None:
        from pydantic import ConfigDict, Field, create_model
        from pydantic_core import SchemaError

        # Fields are numbered: a parameter may be called `copy` or `_x`, which a model's field may not.
        self._names = {f"p{number}": parameter.name for number, parameter in enumerate(parameters.members)}
        fields: Any = {
            field: _create_model_field(parameter)
            for field, parameter in zip(self._names, parameters.members, strict=True)
        }
        extra = parameters.extra_annotation
        if extra not in (NO_VALUE, Any):
            fields["__pydantic_extra__"] = (dict[str, extra], Field(init=False))
        try:
            config = ConfigDict(extra="forbid" if extra is NO_VALUE else "allow")
            model = create_model("Input", __config__=config, **fields)
        except SchemaError as error:
            raise to_validator_build_error(error) from error
        except (RuntimeError, NameError, TypeError) as error:
            reason = (
                str(error).partition("\n")[0].partition(". Set `")[0]
            )  # the rest describes pydantic models, which the author did not write
            raise ValueError(
                f"a parameter has a type that pydantic cannot describe: {reason}. Annotate it with a type of JSON, a"
                " dataclass or a model; or make a Tool(name, execute=..., input_schema=...) of the function"
            ) from error
        self._type = TypeSchema(model, "input")
        json_schema = mapping_or_empty(self._type.json_schema)
        self.json_schema: JsonSchema = {key: value for key, value in json_schema.items() if key != "title"}

    def validate_input(self, value: Any) -> ValidatedInput:
        """Validate and coerce."""
        model = self._type.create_instance(value)
        keywords = {name: getattr(model, field) for field, name in self._names.items()}
        if model.model_extra:
            keywords.update(model.model_extra)
        return ValidatedInput(keywords, lambda: self._type.to_displayed_json(model, value))

    @property
    def is_nondeterministic(self) -> bool:
        """True if equal inputs may validate to different values."""
        return self._type.is_nondeterministic

    @property
    def conversion(self) -> Conversion:
        """How values of other types and names are converted."""
        return self._type.conversion

    def validate_output(self, value: Any, what: str) -> Any:
        """Refuse: parameters describe no output."""
        raise NotImplementedError(what)


def _create_model_field(parameter: Parameter) -> tuple[Any, Any]:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    annotation = parameter.annotation
    settings: Any = {"alias": parameter.name}
    if parameter.description:
        settings["description"] = parameter.description
    if isinstance(parameter.default, FieldInfo):
        annotation = Annotated[annotation, parameter.default]
    elif parameter.default is not NO_VALUE:
        settings["default"] = parameter.default
    return annotation, Field(**settings)

"""For any model, validator and default: what is shown is what runs, edited or not."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any

from gated import KINDS, Gate, clock, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    create_model,
)
from pydantic_ai import (
    DeferredToolRequests,
    ToolApproved,
)
from suite import rounds

WAIT_SECONDS = 60.0


# --- for any model ---

VALIDATORS: dict[str, tuple[Any, Any]] = {
    "plain": (int, None),
    "scaled": (int, AfterValidator(lambda value: value * 7)),
    "shifted": (int, AfterValidator(lambda value: value + 1)),
    "clamped": (int, AfterValidator(lambda value: min(value, 10))),
    "negated": (int, BeforeValidator(lambda value: -int(value))),
    "text": (str, AfterValidator(lambda value: value + "?")),
    "stripped": (str, BeforeValidator(lambda value: str(value).strip())),
    "secret": (SecretStr, None),
    "day": (date, None),
    "many": (list[int], AfterValidator(lambda value: [*value, len(value)])),
    "float": (float, None),
}
VALUES = {
    int: st.integers(-1000, 1000),
    str: st.text(alphabet="ab é\u2028", max_size=5),
    SecretStr: st.text(alphabet="abc", max_size=5),
    date: st.dates(date(2000, 1, 1), date(2100, 1, 1)).map(date.isoformat),
    list[int]: st.lists(st.integers(-5, 5), max_size=3),
    float: st.floats(-10, 10, width=16),
}


@st.composite
def gated_models(draw: Any) -> tuple[type[BaseModel], dict[str, Any]]:
    """A model and an input for it; some fields have aliases, some defaults that are new each time, some are hidden."""
    fields: dict[str, Any] = {}
    given_values: dict[str, Any] = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from(sorted(VALIDATORS)), min_size=1, max_size=4))):
        annotation, validator = VALIDATORS[kind]
        name = f"f{number}"
        said: dict[str, Any] = {"exclude": draw(st.booleans())}
        if draw(st.booleans()):
            said["alias"] = f"alias{number}"
        if kind == "plain" and draw(st.booleans()):
            said["default_factory"] = lambda: next(clock)
        fields[name] = (Annotated[annotation, validator] if validator else annotation, Field(**said))
        if "default_factory" not in said or draw(st.booleans()):
            given_values[said.get("alias", name)] = draw(VALUES[annotation])
    return create_model("Input", **fields), given_values


def keyed(model: type[BaseModel], ran: dict[str, Any]) -> dict[str, Any]:
    names = {name: field.alias or name for name, field in model.model_fields.items()}
    return {names[name]: value.isoformat() if isinstance(value, date) else value for name, value in ran.items()}


@settings(max_examples=rounds(16, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gated_models(), st.sampled_from(KINDS), st.booleans())
def test_for_any_model_what_is_shown_is_what_runs(
    made: tuple[type[BaseModel], dict[str, Any]], kind: str, repeats_it: bool
) -> None:
    model, given_values = made

    def order(value: Any) -> str:
        gate.ran.append(plain(value))
        return "ran"

    order.__annotations__["value"] = model
    gate = Gate(kind, order, given_values)
    call, history = gate.paused()
    shown = call.args_as_dict()
    decision = ToolApproved(override_args=shown) if repeats_it else True
    assert gate.answered(call, history, decision).output == "done"
    assert json.loads(json.dumps([keyed(model, one) for one in gate.ran])) == [shown]


@settings(max_examples=rounds(10, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gated_models(), st.sampled_from(KINDS), st.data())
def test_for_any_model_an_edit_runs_as_it_was_written_or_not_at_all(
    made: tuple[type[BaseModel], dict[str, Any]], kind: str, data: st.DataObject
) -> None:
    model, given_values = made

    def order(value: Any) -> str:
        gate.ran.append(plain(value))
        return "ran"

    order.__annotations__["value"] = model
    gate = Gate(kind, order, given_values)
    call, history = gate.paused()
    edited = call.args_as_dict()
    name, field = data.draw(st.sampled_from(sorted(model.model_fields.items(), key=lambda one: one[0])))
    key = field.alias or name
    edited[key] = data.draw(VALUES[field.annotation])
    result = gate.answered(call, history, ToolApproved(override_args=edited))
    if isinstance(result.output, DeferredToolRequests):
        assert gate.ran == []
        (call,) = result.output.approvals
        edited = call.args_as_dict()
        result = gate.answered(call, result.all_messages())
    assert result.output == "done"
    assert json.loads(json.dumps([keyed(model, one) for one in gate.ran])) == [edited]

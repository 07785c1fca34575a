"""For any model, what is shown is what runs, or it is refused."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pausing import OK, Spy, go_on, start
from suite import rounds

from codemode import (
    CodeModeProtocolError,
    CodeModeToolError,
    Tool,
)
from codemode.execution.call_values import choose_and_validate_input, validate_answered_call_inputs
from codemode.interrupts.approval import ApprovalDecision
from codemode.interrupts.resolutions import ApprovalAnswer, RunAgainAnswer, ToolInterruptAnswer
from codemode.protocol.ledger import LedgerEntry, Waiting
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools
from codemode.tools.prepared import prepare_tool

counter = itertools.count()


KINDS: dict[str, tuple[Any, Any]] = {
    "plain": (int, ...),
    "default": (int, 7),
    "made anew": (int, pydantic.Field(default_factory=lambda: next(counter))),
    "alias": (int, pydantic.Field(alias="Alias")),
    "either alias": (int, pydantic.Field(validation_alias=pydantic.AliasChoices("one", "other"), default=1)),
    "normalised": (Annotated[str, pydantic.AfterValidator(lambda text: text.strip().lower())], " Default "),
    "changed each time": (Annotated[int, pydantic.AfterValidator(lambda number: number * 100)], ...),
    "one more each time": (Annotated[str, pydantic.BeforeValidator(lambda text: f"{text}!")], "x"),
    "parsed": (Annotated[int, pydantic.BeforeValidator(lambda text: int(str(text).removesuffix(" EUR")))], ...),
    "only text": (Annotated[int, pydantic.BeforeValidator(lambda text: int(text.removesuffix(" EUR")))], "3 EUR"),
    "clamped": (Annotated[int, pydantic.AfterValidator(lambda number: min(number, 10))], ...),
    "numbered": (Annotated[int, pydantic.AfterValidator(lambda number: number + next(counter))], ...),
    "secret": (pydantic.SecretStr, "secret"),
    "hidden": (int, pydantic.Field(default=3, exclude=True)),
    "id": (uuid.UUID, pydantic.Field(default_factory=uuid.uuid4)),
    "optional": (int | None, None),
    "set": (set[int], pydantic.Field(default_factory=set)),
}


fields = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4)


def model_of(kinds):
    return pydantic.create_model(
        "Random", **{f"f{number}": KINDS[kind] for number, kind in enumerate(kinds)}, __base__=Populated
    )


class Populated(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, validate_default=True)


@st.composite
def inputs(draw, kinds):
    given_input = {}
    for number, kind in enumerate(kinds):
        if draw(st.booleans()) or KINDS[kind][1] is ...:
            name = {"alias": "Alias", "either alias": "other"}.get(kind, f"f{number}")
            is_text = kind in ("normalised", "one more each time", "only text", "secret", "id")
            value = draw(st.integers(1, 20))
            text = {"id": str(uuid.UUID(int=value)), "only text": f"{value} EUR"}.get(kind, f" Text {value}")
            given_input[name] = [value] if kind == "set" else text if is_text else value
    return given_input


def dump(value):
    """What a tool was given, as plain JSON without anything hidden."""
    plain = {}
    for name, info in type(value).model_fields.items():
        item = getattr(value, name)
        item = item.get_secret_value() if isinstance(item, pydantic.SecretStr) else item
        item = sorted(item) if isinstance(item, set) else str(item) if isinstance(item, uuid.UUID) else item
        alias = info.serialization_alias or info.alias
        plain[alias if alias is not None else name] = item
    return plain


def as_in_ledger(tool, given_input):
    shown = prepare_tool(tool).validate_input(given_input)
    waiting = Waiting("i", '{"kind":"oauth"}', json.dumps(shown.json_value), 1)
    entry = LedgerEntry(1, "tool", tool.name, json.dumps(given_input), tool_call_id="o:tool-1", outcome=waiting)
    return shown, entry


@settings(max_examples=rounds(40, 400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_for_any_model_what_is_shown_is_what_runs_or_it_is_refused(data):
    kinds = data.draw(fields)
    tool = Tool("pay", execute=lambda value: value, input_schema=model_of(kinds))
    given_input = data.draw(inputs(kinds))
    try:
        shown, entry = as_in_ledger(tool, given_input)
    except CodeModeToolError:
        return
    answer = data.draw(
        st.sampled_from([ApprovalAnswer(ApprovalDecision(True), None), ToolInterruptAnswer(1), RunAgainAnswer()])
    )
    catalog = Catalog(collect_tools([tool]))
    assert validate_answered_call_inputs(catalog, [entry], {1: ApprovalAnswer(ApprovalDecision(False), None)}) == {}
    varies = {"made anew", "id", "numbered"} & set(kinds)
    changing = {"changed each time", "one more each time", "only text", "numbered"} & set(kinds)
    try:
        ran = validate_answered_call_inputs(catalog, [entry], {1: answer})[1].validated
    except CodeModeProtocolError:
        # Only what is new each time and is changed by its own validators cannot be had again.
        assert varies
        assert changing
        return
    assert ran.json_value == shown.json_value
    assert dump(ran.value) == dump(shown.value)
    told = json.loads(json.dumps(dump(ran.value)))
    hidden = {f"f{number}" for number, kind in enumerate(kinds) if kind in ("secret", "hidden")}
    assert {key: value for key, value in told.items() if key in ran.json_value or key not in hidden} == {
        key: told[key] if key in hidden else value for key, value in ran.json_value.items()
    }
    assert all(ran.json_value[key] == value for key, value in given_input.items() if key in hidden)


@settings(max_examples=rounds(30, 300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_for_any_model_an_edit_is_what_runs_or_it_is_refused(data):
    kinds = data.draw(fields)
    tool = Tool("pay", execute=lambda value: value, input_schema=model_of(kinds))
    try:
        _, entry = as_in_ledger(tool, data.draw(inputs(kinds)))
        edited = data.draw(inputs(kinds))
        ran = choose_and_validate_input(prepare_tool(tool), entry, json.dumps(edited))
    except (CodeModeToolError, CodeModeProtocolError):
        return
    changing = {f"f{n}" for n, kind in enumerate(kinds) if kind in ("changed each time", "one more each time")}
    assert not changing & edited.keys()
    given_again = {name: value for name, value in dump(ran.value).items() if name in edited}
    unchanged = {name for name, kind in zip((f"f{n}" for n in range(4)), kinds, strict=False) if kind in PLAIN}
    assert all(value == edited[name] for name, value in given_again.items() if name in unchanged)


PLAIN = ("plain", "default", "made anew", "optional", "hidden", "secret", "id")


@pytest.mark.parametrize("mode", ["callback", "interrupt"])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_for_any_model_in_a_real_run(mode, data):
    kinds = [kind for kind in data.draw(fields) if kind not in ("secret", "hidden")] or ["plain"]
    given_input = data.draw(inputs(kinds))
    ran, shown, spy = [], [], Spy()
    tool = spy.tool("pay", lambda value, _: ran.append(dump(value)), needs_approval=True, input_schema=model_of(kinds))
    callback = {"on_approval_required": lambda request: shown.append(request.input) or "approved"}
    options = {"approval": {"mode": mode, **(callback if mode == "callback" else {})}}
    js = f"const input = JSON.parse({json.dumps(json.dumps(given_input))}); await tools.pay(input); return 1"
    try:
        result = start(js, [tool], options)
        if mode == "interrupt":
            shown.append(result.input)
            result = go_on(result, [tool], OK, options=options)
    except (CodeModeToolError, CodeModeProtocolError):
        assert ran == []
        return
    assert result == 1
    assert shown == json.loads(json.dumps(ran))

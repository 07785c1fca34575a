"""What was allowed or shown is what a call runs with."""

from __future__ import annotations

from typing import Annotated

import pydantic
import pytest
from pausing import waiting_entry

from codemode import CodeModeProtocolError, Tool
from codemode.execution.call_values import choose_and_validate_input, validate_answered_call_inputs
from codemode.interrupts.resolutions import KnownOutcomeAnswer, ToolInterruptAnswer
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Waiting
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools
from codemode.tools.prepared import prepare_tool


class Payment(pydantic.BaseModel):
    amount: float
    currency: str = "EUR"


class Changed(pydantic.BaseModel):
    amount: float
    currency: str = "USD"


class Doubled(Payment):
    amount: Annotated[float, pydantic.AfterValidator(lambda amount: amount * 2)]


class Narrower(pydantic.BaseModel):
    amount: float = pydantic.Field(le=100)


class Fewer(pydantic.BaseModel):
    amount: float


def shown(text, **changes):
    return waiting_entry(1, outcome=Waiting("i", '{"kind":"oauth"}', text, 1), **changes)


def tool_over(schema):
    return Tool("tool1", execute=lambda value: value, input_schema=schema)


SHOWN_JSON = '{"amount":900.0,"currency":"EUR"}'


def test_the_validated_input_runs():
    validated = choose_and_validate_input(prepare_tool(tool_over(Payment)), shown(SHOWN_JSON))
    assert validated.value == Payment(amount=900)


def test_what_was_shown_runs_though_a_default_is_another_now():
    assert choose_and_validate_input(prepare_tool(tool_over(Changed)), shown(SHOWN_JSON)).value == Changed(
        amount=900, currency="EUR"
    )


def test_an_edited_input_is_validated():
    validated = choose_and_validate_input(prepare_tool(tool_over(Payment)), shown(SHOWN_JSON), '{"amount":5}')
    assert validated.json_value == {"amount": 5, "currency": "EUR"}
    with pytest.raises(CodeModeProtocolError, match="edited input"):
        choose_and_validate_input(prepare_tool(tool_over(Payment)), shown(SHOWN_JSON), '{"amount":"much"}')


def test_an_allowed_input_runs_again_as_it_was_allowed():
    entry = shown(SHOWN_JSON, executed_input_json='{"amount":5.0,"currency":"CHF"}')
    assert choose_and_validate_input(prepare_tool(tool_over(Payment)), entry).json_value == {
        "amount": 5,
        "currency": "CHF",
    }


@pytest.mark.parametrize(
    ("schema", "executed_json"), [(Doubled, None), (Narrower, None), (Narrower, SHOWN_JSON), (Fewer, SHOWN_JSON)]
)
def test_a_changed_schema_is_noticed(schema, executed_json):
    catalog = Catalog(collect_tools([tool_over(schema)]))
    with pytest.raises(CodeModeProtocolError):
        validate_answered_call_inputs(
            catalog, [shown(SHOWN_JSON, executed_input_json=executed_json)], {1: ToolInterruptAnswer(None)}
        )
    validate_answered_call_inputs(catalog, [shown(SHOWN_JSON)], {})
    validate_answered_call_inputs(catalog, [shown(SHOWN_JSON)], {1: KnownOutcomeAnswer(Fulfilled("1"), None)})


def test_a_tool_that_is_gone_is_left_to_the_run():
    validate_answered_call_inputs(Catalog({}), [shown(SHOWN_JSON)], {1: ToolInterruptAnswer(None)})


def test_a_signed_input_that_is_no_json_is_refused():
    catalog = Catalog(collect_tools([tool_over(None)]))
    entry = LedgerEntry(1, "tool", "tool1", "{", tool_call_id="t", outcome=Waiting("i", '{"kind":"oauth"}', None, 1))
    with pytest.raises(CodeModeProtocolError, match="cannot be read"):
        validate_answered_call_inputs(catalog, [entry], {1: ToolInterruptAnswer(None)})

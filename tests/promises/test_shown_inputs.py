"""What a person was shown is what runs: defaults made anew, validators that change a value, edits, denials."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from typing import Annotated, Any

import pydantic
import pytest
from pausing import NO, OK, PAUSING, Spy, go_on, start

from codemode import (
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    Tool,
    request_interrupt,
    tool,
)

ticks = itertools.count(1_700_000_000)


class Pay(pydantic.BaseModel):
    order: str
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


def pay_function(order: str, at: int = pydantic.Field(default_factory=lambda: next(ticks))) -> str:
    return f"{order} at {at}"


def dated():
    """The schema as a service makes it for each request, with the time of that request."""
    return {
        "type": "object",
        "properties": {"order": {"type": "string"}, "at": {"type": "integer", "default": next(ticks)}},
        "required": ["order"],
    }


SCHEMAS = {"factory": lambda: Pay, "schema made anew": dated}


@pytest.fixture
def spy():
    return Spy()


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_default_that_is_new_each_time_is_approved_as_it_was_shown(spy, schema):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=schema())])
    assert go_on(interrupt, [spy.guarded("pay", input_schema=schema())], OK) == {"done": "pay"}
    ((_, ran),) = spy.ran
    assert interrupt.input == (ran.model_dump() if isinstance(ran, Pay) else ran)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_default_that_is_new_each_time_can_be_denied(spy, schema):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=schema())])
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, [spy.guarded("pay", input_schema=schema())], NO)
    assert spy.ran == []


def test_a_default_of_a_plain_function_is_approved_as_it_was_shown():
    tool = Tool.from_function(pay_function, name="pay", needs_approval=True)
    interrupt = start("return await tools.pay({order: 'a'})", [tool])
    assert go_on(interrupt, [tool], OK) == f"a at {interrupt.input['at']}"


class Broken(pydantic.BaseModel):
    order: int  # the guest gave a text


@pytest.mark.parametrize("now", ["stricter", "raising", "gone"])
def test_a_denial_needs_no_validation(spy, now):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=Pay)])
    raising = Annotated[Any, pydantic.BeforeValidator(lambda value: 1 / 0)]
    tools = {
        "stricter": [spy.guarded("pay", input_schema=Broken)],
        "raising": [spy.guarded("pay", input_schema=raising)],
        "gone": [],
    }[now]
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, tools, NO)


def test_one_answer_approves_and_another_denies(spy):
    js = "return (await Promise.allSettled([1, 2].map(n => tools.pay({order: `o${n}`})))).map(one => one.status)"
    interrupt = start(js, [spy.guarded("pay", input_schema=Pay)])
    first, second = interrupt.requests
    answers = {first.interrupt_id: OK, second.interrupt_id: NO}
    assert go_on(interrupt, [spy.guarded("pay", input_schema=Pay)], resolutions=answers) == ["fulfilled", "rejected"]
    assert [value.model_dump() for _, value in spy.ran] == [first.input]


def test_an_edit_is_validated_once_and_that_value_runs(spy):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=Pay)])
    before = next(ticks)
    go_on(interrupt, [spy.guarded("pay", input_schema=Pay)], {**OK, "input": {"order": "b"}})
    ((_, ran),) = spy.ran
    # One validation of the edit, one of what came of it: its first default is the one that runs.
    assert (ran.order, ran.at) == ("b", before + 1)


def test_what_a_tool_asks_with_is_what_it_goes_on_with(spy):
    seen = []

    def act(value, context):
        seen.append(value.at)
        if context.interrupt is None:
            value.at = 0
            request_interrupt({"kind": "oauth"})
        return value.at

    tools = [spy.tool("pay", act, input_schema=Pay)]
    interrupt = start("return await tools.pay({order: 'a'})", tools)
    assert go_on(interrupt, tools, "token") == interrupt.input["at"] == seen[0] == seen[1]


@pytest.mark.parametrize("hint", [None, "idempotentHint"])
def test_a_call_of_unknown_outcome_is_shown_and_made_again_with_what_it_ran_with(spy, passing_time, hint):
    async def forever(value, context):
        passing_time.skip(61)
        await asyncio.Event().wait()

    def pay(action=None):
        return [spy.tool("pay", action, input_schema=Pay, annotations={hint: True} if hint else None)]

    with pytest.raises(CodeModeTimeoutError) as caught:
        start(
            "return await tools.pay({order: 'a'})",
            pay(forever),
            {**PAUSING, "execution_policy": {"timeout_ms": 60_000}},
        )
    recovery = caught.value.recovery
    answers = {one.interrupt_id: {"runAgain": True} for one in recovery.requests}
    assert go_on(recovery, pay(), resolutions=answers) == {"done": "pay"}
    (_, first), (_, second) = spy.ran
    assert first == second
    assert [one.input for one in recovery.requests] == ([] if hint else [first.model_dump()])


def test_what_the_callback_does_to_its_copy_changes_nothing(spy):
    def allow(request):
        request.input["order"] = "another"
        return "approved"

    def act(value, context):
        if context.interrupt is None:
            request_interrupt({"kind": "oauth"})
        return value

    options = {"approval": {"on_approval_required": allow}}
    tools = [spy.tool("pay", act, needs_approval=True)]
    waiting = start("return await tools.pay({order: 'a'})", tools, options)
    assert waiting.input == {"order": "a"}
    assert go_on(waiting, tools, "token", options=options) == {"order": "a"}


# --- validators that change what they have made ---


class Cents(pydantic.BaseModel):
    amount: Annotated[int, pydantic.AfterValidator(lambda euros: euros * 100)]
    note: str = ""


@pytest.mark.parametrize("mode", ["callback", "interrupt"])
def test_rule_person_and_tool_get_one_value(spy, mode):
    seen = []

    def rule(value, context):
        seen.append(value.amount)
        return True

    def allow(request):
        seen.append(request.input["amount"])
        return "approved"

    tools = [spy.tool("pay", needs_approval=rule, input_schema=Cents)]
    options = {"approval": {"mode": mode, **({"on_approval_required": allow} if mode == "callback" else {})}}
    result = start("return await tools.pay({amount: 6})", tools, options)
    if mode == "interrupt":
        seen.append(result.input["amount"])
        result = go_on(result, tools, OK, options=options)
    assert result == {"done": "pay"}
    assert [*seen, spy.ran[0][1].amount] == [600, 600, 600]


def test_an_edit_that_the_schema_would_change_is_refused(spy):
    """The person saw 600; nobody can tell whether 300 means the cents that were shown or the euros of the schema."""
    interrupt = start("return await tools.pay({amount: 6})", [spy.guarded("pay", input_schema=Cents)])
    with pytest.raises(CodeModeProtocolError, match="changes a value each time"):
        go_on(interrupt, [spy.guarded("pay", input_schema=Cents)], {**OK, "input": {"amount": 300}})
    assert spy.ran == []
    assert go_on(interrupt, [spy.guarded("pay", input_schema=Cents)], OK) == {"done": "pay"}


class Dated(Cents):
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


class Orders(pydantic.BaseModel):
    first: Dated
    others: list[Dated]
    named: dict[str, Dated]
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (Dated, {"amount": 6}),
        (Orders, {"first": {"amount": 6}, "others": [{"amount": 1}, {"amount": 2}], "named": {"a": {"amount": 3}}}),
    ],
)
def test_a_default_made_anew_beside_a_validator_that_changes_runs_as_shown(spy, schema, given):
    tools = [spy.guarded("pay", input_schema=schema)]
    interrupt = start(f"return await tools.pay({json.dumps(given)})", tools)
    assert go_on(interrupt, tools, OK) == {"done": "pay"}
    ((_, ran),) = spy.ran
    assert ran.model_dump() == interrupt.input
    assert (ran.amount if schema is Dated else ran.others[1].amount) in (600, 200)


class Rated(pydantic.BaseModel):
    """A validator of this changes what a person would be shown; pydantic leaves defaults alone."""

    cents: Annotated[int, pydantic.AfterValidator(lambda euros: euros * 100)] = 1
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


class Rates(pydantic.BaseModel):
    own: Rated = pydantic.Field(default_factory=Rated)
    rows: list[Rated] = []
    token: str = pydantic.Field(default_factory=lambda: str(next(ticks)))


@pytest.mark.parametrize("given", ["", "{}", "{ rows: [{}, { cents: 2 }] }", "{ own: { cents: 3 }, rows: [{}] }"])
@pytest.mark.parametrize("schema", [Rated, Rates])
def test_defaults_that_no_validator_saw_run_as_shown_beside_fresh_ones(spy, schema, given):
    tools = [spy.guarded("pay", input_schema=schema)]
    interrupt = start(f"return await tools.pay({given})", tools)
    assert go_on(interrupt, tools, OK) == {"done": "pay"}
    ((_, ran),) = spy.ran
    assert ran.model_dump() == interrupt.input


def once_more(amount: int) -> int:
    return amount + next(ticks)


class Moody(pydantic.BaseModel):
    amount: Annotated[int, pydantic.AfterValidator(once_more)]


def test_what_cannot_come_out_as_shown_is_refused_and_can_be_denied(spy):
    tools = [spy.guarded("pay", input_schema=Moody)]
    interrupt = start("return await tools.pay({amount: 6})", tools)
    with pytest.raises(CodeModeProtocolError, match="differs from what was displayed"):
        go_on(interrupt, tools, OK)
    assert spy.ran == []
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, tools, NO)


class Tagged(pydantic.BaseModel):
    tags: set[int] = pydantic.Field(alias="allTags")
    rows: dict[str, list[frozenset[int]]]
    mixed: set[int | str]


@pytest.mark.parametrize("values", ["json", "rich"])
def test_a_set_is_shown_in_one_order_and_runs_as_shown_or_edited(spy, values):
    tools = [spy.guarded("tag", input_schema=Tagged)]
    options = {**PAUSING, "execution_policy": {"values": values}}
    code = "return await tools.tag({ allTags: [99, 8, 1, 0], rows: { a: [[16, 8]] }, mixed: ['b', 1, 'a'] })"
    interrupt = start(code, tools, options)
    shown = {"allTags": [0, 1, 8, 99], "rows": {"a": [[8, 16]]}, "mixed": [1, "a", "b"]}
    if values == "rich":
        in_tags = {name: {"$rich": ["Set", shown[name]]} for name in ("allTags", "mixed")}
        shown = {**in_tags, "rows": {"a": [{"$rich": ["Set", [8, 16]]}]}}
    assert interrupt.input == shown
    edited = {"approved": True, "input": {**shown, "rows": {}}}
    assert go_on(interrupt, tools, edited, options=options) == {"done": "tag"}
    assert spy.ran[0][1] == Tagged(allTags={0, 1, 8, 99}, rows={}, mixed={"a", "b", 1})


def buy(query: str, max_price: float = math.inf) -> str:
    return f"{query} below {max_price}"


def test_a_default_that_is_no_json_is_not_shown_and_applies():
    tools = [tool(buy, needs_approval=True)]
    interrupt = start("return await tools.buy({ query: 'x' })", tools)
    assert interrupt.input == {"query": "x"}
    assert go_on(interrupt, tools, {"approved": True, "input": {"query": "y"}}) == "y below inf"


class Login(pydantic.BaseModel):
    secret: pydantic.SecretStr
    hidden: int = pydantic.Field(default=3, exclude=True)
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


def test_what_a_serialiser_would_hide_is_shown_as_the_guest_gave_it(spy):
    tools = [spy.guarded("login", input_schema=Login)]
    interrupt = start("return await tools.login({secret: 's3', hidden: 4})", tools)
    assert go_on(interrupt, tools, OK) == {"done": "login"}
    ((_, ran),) = spy.ran
    assert interrupt.input == {"secret": ran.secret.get_secret_value(), "hidden": ran.hidden, "at": ran.at}


class SecretCents(Cents):
    secret: pydantic.SecretStr


def test_a_secret_does_not_hide_what_the_other_fields_became(spy):
    tools = [spy.guarded("pay", input_schema=SecretCents)]
    interrupt = start("return await tools.pay({amount: 6, secret: 's3'})", tools)
    assert interrupt.input == {"amount": 600, "note": "", "secret": "s3"}
    assert go_on(interrupt, tools, OK) == {"done": "pay"}
    assert spy.ran[0][1].amount == 600


class Inner(pydantic.BaseModel):
    secret: pydantic.SecretStr


class Outer(Cents):
    inner: Inner
    more: list[Inner] = []


def test_a_secret_within_a_field_does_not_hide_the_other_fields(spy):
    tools = [spy.guarded("pay", input_schema=Outer)]
    interrupt = start("return await tools.pay({amount: 6, inner: {secret: 's3'}})", tools)
    assert interrupt.input == {"amount": 600, "note": "", "inner": {"secret": "s3"}}
    assert go_on(interrupt, tools, OK) == {"done": "pay"}


class Whole(pydantic.BaseModel):
    amount: int
    hidden: int

    @pydantic.model_serializer
    def short(self):
        return {"amount": self.amount}


def test_a_serialiser_of_a_whole_model_hides_nothing(spy):
    tools = [spy.guarded("pay", input_schema=Whole)]
    interrupt = start("return await tools.pay({amount: 6, hidden: 7})", tools)
    assert interrupt.input == {"amount": 6, "hidden": 7}
    assert go_on(interrupt, tools, OK) == {"done": "pay"}


class Rounded(pydantic.BaseModel):
    amount: float

    @pydantic.field_serializer("amount")
    def rounded(self, amount: float) -> int:
        return round(amount)


def test_a_serialiser_that_rounds_hides_nothing(spy):
    interrupt = start("return await tools.pay({amount: 6.4})", [spy.guarded("pay", input_schema=Rounded)])
    assert interrupt.input == {"amount": 6.4}

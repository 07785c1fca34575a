"""What a person was shown is what runs: defaults made anew, validators that change a value, edits, denials."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pausing import PAUSING, Spy, go_on, start

from codemode import (
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    Tool,
    request_interrupt,
)
from codemode.interrupts.approval import Decision
from codemode.interrupts.resolutions import Approval, HostAnswer, RunAgain
from codemode.protocol.ledger import LedgerEntry, Waiting
from codemode.run.allowed_input import check_answers, input_to_run
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools
from codemode.tools.prepared import prepared

OK, NO = {"approved": True}, {"approved": False}
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
def test_12_a_default_that_is_new_each_time_is_approved_as_it_was_shown(spy, schema):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=schema())])
    assert go_on(interrupt, [spy.guarded("pay", input_schema=schema())], OK) == {"done": "pay"}
    ((_, ran),) = spy.ran
    assert interrupt.input == (ran.model_dump() if isinstance(ran, Pay) else ran)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_12_and_can_be_denied(spy, schema):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=schema())])
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, [spy.guarded("pay", input_schema=schema())], NO)
    assert spy.ran == []


def test_12_a_plain_function_too():
    tool = Tool.from_function(pay_function, name="pay", needs_approval=True)
    interrupt = start("return await tools.pay({order: 'a'})", [tool])
    assert go_on(interrupt, [tool], OK) == f"a at {interrupt.input['at']}"


class Broken(pydantic.BaseModel):
    order: int  # the guest gave a text


@pytest.mark.parametrize("now", ["stricter", "raising", "gone"])
def test_12_a_denial_needs_no_validation(spy, now):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=Pay)])
    raising = Annotated[Any, pydantic.BeforeValidator(lambda value: 1 / 0)]
    tools = {
        "stricter": [spy.guarded("pay", input_schema=Broken)],
        "raising": [spy.guarded("pay", input_schema=raising)],
        "gone": [],
    }[now]
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, tools, NO)


def test_12_one_answer_approves_and_another_denies(spy):
    js = "return (await Promise.allSettled([1, 2].map(n => tools.pay({order: `o${n}`})))).map(one => one.status)"
    interrupt = start(js, [spy.guarded("pay", input_schema=Pay)])
    first, second = interrupt.requests
    answers = {first.interrupt_id: OK, second.interrupt_id: NO}
    assert go_on(interrupt, [spy.guarded("pay", input_schema=Pay)], resolutions=answers) == ["fulfilled", "rejected"]
    assert [value.model_dump() for _, value in spy.ran] == [first.input]


def test_12_an_edit_is_validated_once_and_that_value_runs(spy):
    interrupt = start("return await tools.pay({order: 'a'})", [spy.guarded("pay", input_schema=Pay)])
    before = next(ticks)
    go_on(interrupt, [spy.guarded("pay", input_schema=Pay)], {**OK, "input": {"order": "b"}})
    ((_, ran),) = spy.ran
    # One validation of the edit, one of what came of it: its first default is the one that runs.
    assert (ran.order, ran.at) == ("b", before + 1)


def test_12_what_a_tool_asks_with_is_what_it_goes_on_with(spy):
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
def test_12_a_call_of_unknown_outcome_is_shown_and_made_again_with_what_it_ran_with(spy, hint):
    async def forever(value, context):
        await asyncio.Event().wait()

    def pay(action=None):
        return [spy.tool("pay", action, input_schema=Pay, annotations={hint: True} if hint else None)]

    with pytest.raises(CodeModeTimeoutError) as caught:
        start(
            "return await tools.pay({order: 'a'})",
            pay(forever),
            {**PAUSING, "execution_policy": {"timeout_ms": 300}},
        )
    recovery = caught.value.recovery
    answers = {one.interrupt_id: {"runAgain": True} for one in recovery.requests}
    assert go_on(recovery, pay(), resolutions=answers) == {"done": "pay"}
    (_, first), (_, second) = spy.ran
    assert first == second
    assert [one.input for one in recovery.requests] == ([] if hint else [first.model_dump()])


def test_12_what_the_callback_does_to_its_copy_changes_nothing(spy):
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
def test_12_rule_person_and_tool_get_one_value(spy, mode):
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


def test_12_an_edit_that_the_schema_would_change_is_refused(spy):
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
def test_12_a_default_made_anew_beside_a_validator_that_changes_runs_as_shown(spy, schema, given):
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
def test_12_defaults_that_no_validator_saw_run_as_shown_beside_fresh_ones(spy, schema, given):
    tools = [spy.guarded("pay", input_schema=schema)]
    interrupt = start(f"return await tools.pay({given})", tools)
    assert go_on(interrupt, tools, OK) == {"done": "pay"}
    ((_, ran),) = spy.ran
    assert ran.model_dump() == interrupt.input


def once_more(amount: int) -> int:
    return amount + next(ticks)


class Moody(pydantic.BaseModel):
    amount: Annotated[int, pydantic.AfterValidator(once_more)]


def test_12_what_cannot_come_out_as_shown_is_refused_and_can_be_denied(spy):
    tools = [spy.guarded("pay", input_schema=Moody)]
    interrupt = start("return await tools.pay({amount: 6})", tools)
    with pytest.raises(CodeModeProtocolError, match="does not come out as it was shown"):
        go_on(interrupt, tools, OK)
    assert spy.ran == []
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, tools, NO)


class Login(pydantic.BaseModel):
    secret: pydantic.SecretStr
    hidden: int = pydantic.Field(default=3, exclude=True)
    at: int = pydantic.Field(default_factory=lambda: next(ticks))


def test_12_what_a_serialiser_would_hide_is_shown_as_the_guest_gave_it(spy):
    tools = [spy.guarded("login", input_schema=Login)]
    interrupt = start("return await tools.login({secret: 's3', hidden: 4})", tools)
    assert go_on(interrupt, tools, OK) == {"done": "login"}
    ((_, ran),) = spy.ran
    assert interrupt.input == {"secret": ran.secret.get_secret_value(), "hidden": ran.hidden, "at": ran.at}


class SecretCents(Cents):
    secret: pydantic.SecretStr


def test_12_a_secret_does_not_hide_what_the_other_fields_became(spy):
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


def test_12_nor_does_one_within_a_field(spy):
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


def test_12_a_serialiser_of_a_whole_model_hides_nothing(spy):
    tools = [spy.guarded("pay", input_schema=Whole)]
    interrupt = start("return await tools.pay({amount: 6, hidden: 7})", tools)
    assert interrupt.input == {"amount": 6, "hidden": 7}
    assert go_on(interrupt, tools, OK) == {"done": "pay"}


class Rounded(pydantic.BaseModel):
    amount: float

    @pydantic.field_serializer("amount")
    def rounded(self, amount: float) -> int:
        return round(amount)


def test_12_a_serialiser_that_rounds_hides_nothing(spy):
    interrupt = start("return await tools.pay({amount: 6.4})", [spy.guarded("pay", input_schema=Rounded)])
    assert interrupt.input == {"amount": 6.4}


# --- any model at all ---

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
    shown = prepared(tool).validate_input(given_input)
    waiting = Waiting("i", '{"kind":"oauth"}', json.dumps(shown.json_value), 1)
    entry = LedgerEntry(1, "tool", tool.name, json.dumps(given_input), tool_call_id="o:tool-1", outcome=waiting)
    return shown, entry


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_12_for_any_model_what_is_shown_is_what_runs_or_it_is_refused(data):
    kinds = data.draw(fields)
    tool = Tool("pay", execute=lambda value: value, input_schema=model_of(kinds))
    given_input = data.draw(inputs(kinds))
    try:
        shown, entry = as_in_ledger(tool, given_input)
    except CodeModeToolError:
        return
    answer = data.draw(st.sampled_from([Approval(Decision(True), None), HostAnswer(1), RunAgain()]))
    catalog = Catalog(collect_tools([tool]))
    assert check_answers(catalog, [entry], {1: Approval(Decision(False), None)}) == {}
    varies = {"made anew", "id", "numbered"} & set(kinds)
    changing = {"changed each time", "one more each time", "only text", "numbered"} & set(kinds)
    try:
        ran = check_answers(catalog, [entry], {1: answer})[1].validated
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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_12_for_any_model_an_edit_is_what_runs_or_it_is_refused(data):
    kinds = data.draw(fields)
    tool = Tool("pay", execute=lambda value: value, input_schema=model_of(kinds))
    try:
        _, entry = as_in_ledger(tool, data.draw(inputs(kinds)))
        edited = data.draw(inputs(kinds))
        ran = input_to_run(prepared(tool), entry, json.dumps(edited))
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
def test_12_for_any_model_in_a_real_run(mode, data):
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

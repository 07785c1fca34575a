"""What a person is shown of a call is what runs, or nothing runs: for any model, validator, default and edit."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, answer
from codemode_pydantic_ai.shown_values import shown_arguments
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    RootModel,
    SecretStr,
    create_model,
    field_serializer,
    field_validator,
)
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program

from codemode import create_code_mode_tool

WAIT_SECONDS = 60.0


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def plain(value: Any) -> Any:
    """What a tool was given, told in another way than the plugin's own."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.get_secret_value() if isinstance(value, SecretStr) else value


class Gate:
    """One gated tool in an agent, in one of the ways in which a tool can be gated; ``ran`` is what it was given."""

    def __init__(self, kind: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
        self.ran: list[dict[str, Any]] = []
        self.ruled: list[dict[str, Any]] = []
        self.script = Script(program(f"return await tools.gated({json.dumps(given)})"), "done")
        self.agent = self._agent(kind, function)

    def _agent(self, kind: str, function: Callable[..., Any]) -> Agent[Any, Any]:
        made: Any
        if kind == "requires_approval":
            made = {"tools": [Tool(function, name="gated", requires_approval=True)]}
        elif kind == "raises":
            made = {"tools": [Tool(asking(function), name="gated")]}
        elif kind == "plain":
            made = {"tools": [Tool(function, name="gated")]}
        elif kind == "validator_raises":
            made = {"tools": [Tool(function, name="gated", args_validator=asks)]}
        else:
            toolset = FunctionToolset([Tool(function, name="gated")]).approval_required(self._rule)
            made = {"toolsets": [toolset]}
        return Agent(self.script.model, output_type=[str, DeferredToolRequests], capabilities=[CodeMode()], **made)

    def _rule(self, ctx: Any, definition: Any, arguments: dict[str, Any]) -> bool:
        self.ruled.append(plain(arguments))
        return True

    def paused(self) -> tuple[ToolCallPart, list[ModelMessage]]:
        result = within(self.agent.run("go"))
        assert isinstance(result.output, DeferredToolRequests), (result.output, self.script.returned())
        (call,) = result.output.approvals
        return call, ModelMessagesTypeAdapter.validate_json(result.all_messages_json())

    def answered(self, call: ToolCallPart, history: list[ModelMessage], decision: Any = True) -> Any:
        results = DeferredToolResults(approvals={call.tool_call_id: decision})
        return within(self.agent.run(message_history=history, deferred_tool_results=results))


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same tool, which itself asks for approval after it has spoilt what it was given."""

    @functools.wraps(function)
    def asks_first(ctx: RunContext[Any], **given: Any) -> Any:
        if ctx.tool_call_approved:
            return function(**given)
        spoil(given)
        raise ApprovalRequired

    wrapped: Any = asks_first
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inspect.signature(function).parameters.values()
    ]
    wrapped.__signature__ = inspect.Signature([context, *parameters])
    wrapped.__annotations__ = {"ctx": RunContext[Any], **function.__annotations__}
    del wrapped.__wrapped__
    return wrapped


def spoil(value: Any) -> None:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            spoil(getattr(value, name))
            value.__dict__[name] = "spoilt"
    elif isinstance(value, dict):
        for one in value.values():
            spoil(one)
        value.clear()
    elif isinstance(value, list):
        value.clear()


def asks(ctx: RunContext[Any], **given: Any) -> None:
    if not ctx.tool_call_approved:
        raise ApprovalRequired


KINDS = ["requires_approval", "toolset", "raises", "validator_raises"]


def euros_to_cents(value: int) -> int:
    return value * 100


Cents = Annotated[int, AfterValidator(euros_to_cents)]
clock = itertools.count(1000)


@pytest.mark.parametrize("kind", KINDS)
def test_02_a_validator_that_changes_its_input_is_shown_and_run_once(kind: str) -> None:
    def pay(cents: Cents, at: Annotated[int, Field(default_factory=lambda: next(clock))]) -> int:
        gate.ran.append({"cents": cents, "at": at})
        return cents

    gate = Gate(kind, pay, {"cents": 6})
    call, history = gate.paused()
    shown = call.args_as_dict()
    assert shown["cents"] == 600
    gate.answered(call, history)
    assert gate.ran == [shown]
    assert gate.script.returned() == 600
    assert gate.ruled in ([], [shown], [shown, shown])


@pytest.mark.parametrize("kind", KINDS)
def test_02_what_an_edit_leaves_as_it_was_shown_runs_as_it_was_shown(kind: str) -> None:
    def pay(cents: Cents, to: str) -> int:
        gate.ran.append({"cents": cents, "to": to})
        return cents

    gate = Gate(kind, pay, {"cents": 6, "to": "ann"})
    call, history = gate.paused()
    edited = {**call.args_as_dict(), "to": "bob"}
    gate.answered(call, history, ToolApproved(override_args=edited))
    assert gate.ran == [{"cents": 600, "to": "bob"}] == [edited]


@pytest.mark.parametrize("kind", KINDS)
def test_02_an_edit_that_would_come_out_otherwise_is_shown_again(kind: str) -> None:
    def pay(cents: Cents) -> int:
        gate.ran.append({"cents": cents})
        return cents

    gate = Gate(kind, pay, {"cents": 6})
    call, history = gate.paused()
    again = gate.answered(call, history, ToolApproved(override_args={"cents": 3}))
    (call,) = again.output.approvals
    assert (call.args, gate.ran) == ({"cents": 300}, [])
    gate.answered(call, again.all_messages())
    assert gate.ran == [{"cents": 300}]


@pytest.mark.parametrize("kind", KINDS)
def test_02_an_edit_may_leave_out_defaults_and_write_numbers_as_text(kind: str) -> None:
    def book(day: date, name: str, seats: int = 1, price: float = 2.5) -> None:
        gate.ran.append({"day": day, "name": name, "seats": seats, "price": price})

    gate = Gate(kind, book, {"day": "2030-01-02", "name": "ann"})
    call, history = gate.paused()
    assert call.args == {"day": "2030-01-02", "name": "ann", "seats": 1, "price": 2.5}
    edited = {"day": "2030-02-03", "name": "bob", "seats": "2"}
    assert gate.answered(call, history, ToolApproved(override_args=edited)).output == "done"
    assert gate.ran == [{"day": date(2030, 2, 3), "name": "bob", "seats": 2, "price": 2.5}]


@pytest.mark.parametrize("kind", KINDS)
def test_02_what_a_tool_does_to_its_input_before_it_asks_is_not_shown(kind: str) -> None:
    def order(lines: list[int], extra: dict[str, Any], note: str = "none") -> None:
        gate.ran.append({"lines": lines, "extra": extra, "note": note})

    given_values = {"lines": [1, 2], "extra": {"deep": [1]}}
    gate = Gate(kind, order, given_values)
    call, history = gate.paused()
    assert call.args == {**given_values, "note": "none"}
    gate.answered(call, history)
    assert gate.ran == [call.args]


def test_02_what_was_said_beside_a_pause_is_said_again() -> None:
    def pay(ctx: RunContext[Any], cents: Cents) -> int:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 1})
        return cents

    gate = Gate("plain", pay, {"cents": 6})
    call, history = gate.paused()
    again = gate.answered(call, history, ToolApproved(override_args={"cents": 3}))
    assert again.output.metadata == {again.output.approvals[0].tool_call_id: {"limit": 1}}


def test_02_an_inline_edit_that_would_come_out_otherwise_waits_for_somebody() -> None:
    ran: list[int] = []

    def pay(cents: Cents) -> int:
        ran.append(cents)
        return cents

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        payments = [one for one in requests.approvals if one.tool_name == "pay"]
        return requests.build_results(
            approvals={one.tool_call_id: ToolApproved(override_args={"cents": 3}) for one in payments}
        )

    agent: Agent[Any, Any] = Agent(
        Script(program("return await tools.pay({ cents: 6 })"), "done").model,
        tools=[Tool(pay, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeMode(), HandleDeferredToolCalls(handle)],
    )
    paused = within(agent.run("go"))
    assert ran == []
    assert [call.args for call in paused.output.approvals] == [{"cents": 300}]


def test_02_a_wrong_edit_is_told_to_the_program() -> None:
    def book(seats: int) -> None:
        gate.ran.append({"seats": seats})

    gate = Gate("requires_approval", book, {"seats": 1})
    call, history = gate.paused()
    gate.answered(call, history, ToolApproved(override_args={"seats": "many"}))
    assert gate.ran == []
    assert "seats" in str(gate.script.returned())


class Order(BaseModel):
    """A model with all that can come between what is shown and what is run."""

    id: Annotated[str, Field(alias="orderId")]
    token: SecretStr
    note: str = Field(default="", exclude=True)
    price: Decimal = Decimal("1.50")

    @field_serializer("price")
    def _hide(self, value: Decimal) -> str:
        return "hidden"

    @field_validator("note")
    @classmethod
    def _shout(cls, note: str) -> str:
        return note + "!"


@pytest.mark.parametrize("kind", KINDS)
def test_02_secrets_hidden_fields_and_one_way_serialisers_are_shown_as_they_run(kind: str) -> None:
    def order(order: Order) -> None:
        gate.ran.append({**plain(order), "price": str(order.price)})

    gate = Gate(kind, order, {"orderId": "a", "token": "t0ken", "note": "hi"})
    call, history = gate.paused()
    assert call.args == {"orderId": "a", "token": "t0ken", "note": "hi!", "price": "1.50"}
    gate.answered(call, history)
    assert gate.ran == [{"id": "a", "token": "t0ken", "note": "hi!", "price": "1.50"}]


def test_02_an_inline_handler_sees_what_runs() -> None:
    seen: list[Any] = []

    def pay(cents: Cents) -> int:
        return cents

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        seen.extend(call.args for call in requests.approvals)
        return requests.build_results(approve_all=True)

    script = Script(program("return await tools.pay({ cents: 6 })"), "done")
    agent = Agent(
        script.model,
        tools=[Tool(pay, requires_approval=True)],
        capabilities=[CodeMode(), HandleDeferredToolCalls(handle)],
    )
    within(agent.run("go"))
    assert (seen, script.returned()) == ([{"cents": 600}], 600)


def test_02_what_a_hook_makes_of_the_input_is_shown() -> None:
    hooks: Hooks[Any] = Hooks()

    @hooks.on.after_tool_validate
    async def after(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return {**args, "by": "the hook"} if call.tool_name == "pay" else args

    def pay(cents: int, by: str = "nobody") -> str:
        return f"{cents} by {by}"

    script = Script(program("return await tools.pay({ cents: 6 })"), "done")
    agent = Agent(
        script.model,
        tools=[Tool(pay, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeMode(), hooks],
    )
    paused = within(agent.run("go"))
    (call,) = paused.output.approvals
    assert call.args == {"cents": 6, "by": "the hook"}
    results = DeferredToolResults(approvals={call.tool_call_id: True})
    within(agent.run(message_history=paused.all_messages(), deferred_tool_results=results))
    assert script.returned() == "6 by the hook"


def test_02_a_tool_that_has_changed_since_does_not_run() -> None:
    factor = 100
    ran: list[int] = []

    def scaled(value: int) -> int:
        return value * factor

    def pay(cents: int) -> int:
        ran.append(cents)
        return cents

    pay.__annotations__["cents"] = Annotated[int, AfterValidator(scaled)]
    gate = Gate("requires_approval", pay, {"cents": 6})
    call, history = gate.paused()
    factor = 1000
    gate.answered(call, history)
    assert ran == []
    assert "differently than it was shown" in str(gate.script.returned())


def test_12_a_denial_needs_no_validation() -> None:
    is_broken = False

    def picky(value: int) -> int:
        if is_broken:
            raise ValueError("no more")
        return value

    def pay(cents: int) -> int:
        raise AssertionError("never runs")

    pay.__annotations__["cents"] = Annotated[int, AfterValidator(picky)]
    gate = Gate("requires_approval", pay, {"cents": 6})
    call, history = gate.paused()
    is_broken = True
    gate.answered(call, history, False)
    assert "denied" in str(gate.script.returned())


def test_02_two_pauses_of_one_call_keep_what_was_edited() -> None:
    ran: list[int] = []

    def pay(ctx: RunContext[Any], cents: Cents) -> int:
        if ctx.tool_call_metadata is None:
            raise ApprovalRequired
        ran.append(cents)
        return cents

    script = Script(program("return await tools.pay({ cents: 6 })"), "done")
    agent: Agent[Any, Any] = Agent(
        script.model,
        tools=[Tool(pay, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeMode()],
    )
    result = within(agent.run("go"))
    for metadata in ({}, {"by": "ann"}):
        (call,) = result.output.approvals
        assert call.args == {"cents": 600}
        results = DeferredToolResults(approvals={call.tool_call_id: True}, metadata={call.tool_call_id: metadata})
        result = within(agent.run(message_history=result.all_messages(), deferred_tool_results=results))
    assert ran == [600]


def test_02_the_cores_own_tool_shows_and_runs_one_value() -> None:
    ran: list[int] = []

    def pay(cents: Cents) -> int:
        ran.append(cents)
        return cents

    async def main() -> Any:
        options = {"approval": {"mode": "interrupt"}}
        code_mode = create_code_mode_tool([Tool(pay, requires_approval=True)], options)
        interrupt = await code_mode.execute({"js": "return await tools.pay({ cents: 6 })"})
        assert interrupt.input == {"cents": 600}
        return await code_mode.resume(interrupt, {"approved": True})

    assert within(main()) == 600
    assert ran == [600]


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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gated_models(), st.sampled_from(KINDS), st.booleans())
def test_02_for_any_model_what_is_shown_is_what_runs(
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


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gated_models(), st.sampled_from(KINDS), st.data())
def test_02_for_any_model_an_edit_runs_as_it_was_written_or_not_at_all(
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


class Colour(Enum):
    RED = "red"


class Rows(RootModel[list[int]]):
    pass


@dataclass
class Point:
    x: int
    when: datetime


class Choices(BaseModel):
    here: int = Field(validation_alias=AliasChoices("there", "anywhere"))


class Unknown:
    pass


def test_02_every_kind_of_value_can_be_shown() -> None:
    values = {
        "colour": Colour.RED,
        "rows": Rows([1, 2]),
        "point": Point(1, datetime(2030, 1, 2)),  # noqa: DTZ001 - a time as a person wrote it
        "choices": Choices(there=1),
        "set": {3, 1, 2},
        "tuple": (1, 2),
        "bytes": b"ab",
        "nan": float("nan"),
        "big": 2**70,
        "unknown": Unknown(),
        "keys": {1: {"deep": [True, None]}},
    }
    schema = {"properties": {key: {} for key in values}}
    assert shown_arguments(values, schema) == {
        "colour": "red",
        "rows": [1, 2],
        "point": {"x": 1, "when": "2030-01-02T00:00:00"},
        "choices": {"there": 1},
        "set": [1, 2, 3],
        "tuple": [1, 2],
        "bytes": "ab",
        "nan": "nan",
        "big": 2**70,
        "unknown": "<Unknown>",
        "keys": {"1": {"deep": [True, None]}},
    }


def test_02_without_the_capability_what_is_shown_runs_too() -> None:
    ran: list[int] = []

    def pay(cents: Cents) -> int:
        ran.append(cents)
        return cents

    script = Script(program("return await tools.pay({ cents: 6 })"), "done")
    toolset = CodeModeToolset(FunctionToolset([Tool(pay, requires_approval=True)]))
    agent: Agent[Any, Any] = Agent(script.model, output_type=[str, DeferredToolRequests], toolsets=[toolset])
    paused = within(agent.run("go"))
    (outer,) = paused.output.approvals
    (one,) = paused.output.metadata[outer.tool_call_id]["codemode"]["requests"]
    assert one["args"] == {"cents": 600}
    results = answer(paused.output, {one["toolCallId"]: True})
    within(agent.run(message_history=paused.all_messages(), deferred_tool_results=results))
    assert ran == [600]


@pytest.mark.parametrize("kind", KINDS)
def test_18_large_integers_are_shown_and_run_as_they_are(kind: str) -> None:
    def refund(order: int, lines: list[int]) -> int:
        gate.ran.append({"order": order, "lines": lines})
        return order + 1

    gate = Gate(kind, refund, {})
    gate.script.steps[0] = program("return await tools.gated({ order: 1180591620717411303n, lines: [2n ** 70n, 1] })")
    call, history = gate.paused()
    assert call.args == {"order": 1180591620717411303, "lines": [2**70, 1]}
    gate.answered(call, history)
    assert gate.ran == [{"order": 1180591620717411303, "lines": [2**70, 1]}]
    assert gate.script.returned() == 1180591620717411304


def test_21_tools_with_names_that_the_language_reads_are_gated_too() -> None:
    ran: list[str] = []

    def act() -> str:
        ran.append("ran")
        return "acted"

    names = ["constructor", "prototype", "toJSON", "toString", "valueOf", "toLocaleString"]
    js = "return await Promise.all([" + ", ".join(f"tools.{name}()" for name in names) + "])"
    script = Script(program(js), "done")
    agent: Agent[Any, Any] = Agent(
        script.model,
        tools=[Tool(act, name=name, requires_approval=True) for name in names],
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeMode()],
    )
    paused = within(agent.run("go"))
    assert sorted(call.tool_name for call in paused.output.approvals) == sorted(names)
    assert ran == []
    results = paused.output.build_results(approve_all=True)
    within(agent.run(message_history=paused.all_messages(), deferred_tool_results=results))
    assert script.returned() == ["acted"] * len(names)

"""What is shown is what runs: arguments are validated once, and rule, person and tool get that one value."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from codemode_langchain import create_code_mode_tool
from langchain.agents.middleware import AgentState
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import interrupt
from paid_tools import ByAnnotation, ByField, ByModel, ByText, Ledger, asked, cents, in_an_agent
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from scripted_agent import APPROVE, START, results
from suite import full_only

from codemode import run_code_mode_sync


@pytest.mark.parametrize(
    ("schema", "given"), [(ByField, 6), (ByModel, 6), (ByAnnotation, 6), (ByText, "6 EUR")], ids=lambda one: str(one)
)
def test_rule_person_and_tool_get_one_value(place: Any, is_async: bool, ledger: Ledger, schema: Any, given: Any):
    rule: list[Any] = []
    js = f"const euros = {given!r}; return await tools.pay({{ euros }})"
    session = place(js, [ledger.tool(schema)], is_async=is_async, approve={"pay": asked(rule)})
    (one,) = session.start()["__interrupt__"]
    assert (rule, one.value["args"], ledger.got) == ([{"euros": 600}], {"euros": 600}, [])
    assert results(session.answer({one.id: APPROVE}))[0].content == "paid"
    assert ledger.got == [{"euros": 600}]


@pytest.mark.parametrize("schema", [ByField, *full_only(ByModel, ByAnnotation)])
@pytest.mark.parametrize("euros", [5, 500, "600"])
def test_an_edit_that_would_come_out_differently_is_refused(
    place: Any, is_async: bool, ledger: Ledger, schema: Any, euros: Any
):
    session = place(
        "return await tools.pay({ euros: 6 })", [ledger.tool(schema)], is_async=is_async, approve={"pay": True}
    )
    (one,) = session.start()["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"euros": euros}}}
    with pytest.raises(ValidationError, match="euros would change: tool 'pay'"):
        session.answer({one.id: edit})
    assert ledger.got == []
    session.answer({one.id: APPROVE})
    assert ledger.got == [{"euros": 600}]


def test_an_edit_may_leave_defaults_out(place: Any, is_async: bool, ledger: Ledger):
    class Order(BaseModel):
        order: Annotated[str, AfterValidator(str.strip)]
        day: dt.date = dt.date(2024, 2, 29)
        parts: list[int] = Field(default_factory=list[int])

    session = place(
        "return await tools.pay({ order: ' a ' })", [ledger.tool(Order)], is_async=is_async, approve={"pay": True}
    )
    (one,) = session.start()["__interrupt__"]
    assert one.value["args"] == {"order": "a", "day": "2024-02-29", "parts": []}
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"order": "b", "parts": [1, 2]}}}
    session.answer({one.id: edit})
    assert ledger.got == [{"order": "b", "day": dt.date(2024, 2, 29), "parts": [1, 2]}]


def test_a_secret_arrives_as_the_secret(place: Any, is_async: bool, ledger: Ledger):
    class Login(BaseModel):
        user: Annotated[str, AfterValidator(str.lower)]
        password: SecretStr
        pepper: SecretStr = SecretStr("of the host")

    class Nested(BaseModel):
        logins: list[Login]
        by_name: dict[str, SecretStr]

    js = """
    return await tools.pay({ logins: [{ user: "ADA", password: "hunter2" }], by_name: { a: "b" } });
    """
    rule: list[Any] = []
    session = place(js, [ledger.tool(Nested)], is_async=is_async, approve={"pay": asked(rule)})
    (one,) = session.start()["__interrupt__"]
    expected = {"logins": [{"user": "ada", "password": "hunter2"}], "by_name": {"a": "b"}}
    assert (rule[0], one.value["args"]) == (expected, expected)
    session.answer({one.id: APPROVE})
    (got,) = ledger.got
    (login,) = got["logins"]
    assert (login.user, login.password.get_secret_value()) == ("ada", "hunter2")
    assert login.pepper.get_secret_value() == "of the host"
    assert got["by_name"]["a"].get_secret_value() == "b"


def test_a_secret_can_be_edited(place: Any, is_async: bool, ledger: Ledger):
    class Login(BaseModel):
        password: SecretStr

    session = place(
        "return await tools.pay({ password: 'a' })", [ledger.tool(Login)], is_async=is_async, approve={"pay": True}
    )
    (one,) = session.start()["__interrupt__"]
    session.answer({one.id: {"type": "edit", "edited_action": {"name": "pay", "args": {"password": "b"}}}})
    assert ledger.got[0]["password"].get_secret_value() == "b"


class Colour(Enum):
    RED = "red"


class Inner(BaseModel):
    model_config = ConfigDict(extra="allow")
    amount: Annotated[Decimal, AfterValidator(lambda amount: amount * 2)] = Field(alias="theAmount")
    hidden: int = Field(default=3, exclude=True)


class Wide(BaseModel):
    """A model with most of what models have."""

    model_config = ConfigDict(extra="forbid")
    from_: str = Field(alias="from")
    to: str = Field(validation_alias=AliasChoices("target", "goal"))
    when: dt.datetime
    on: dt.date
    colour: Colour
    inner: Inner
    inners: list[Inner] = Field(default_factory=list[Inner])
    known: set[int] = Field(default_factory=set[int])
    pair: tuple[int, str] = (1, "a")


def test_aliases_dates_nested_models_and_defaults_run_as_they_were_shown(place: Any, is_async: bool, ledger: Ledger):
    js = """
    const from_ = "a", to = "b";
    return await tools.pay({
      from_, to, when: "2024-02-29T12:00:00+02:00", on: "2024-02-29", colour: "red",
      inner: { theAmount: "1.50", more: [1] }, inners: [{ theAmount: 2 }], known: [3, 1, 3],
    });
    """
    rule: list[Any] = []
    session = place(js, [ledger.tool(Wide)], is_async=is_async, approve={"pay": asked(rule)})
    (one,) = session.start()["__interrupt__"]
    shown = one.value["args"]
    assert shown == rule[0]
    assert shown == {
        "from_": "a",
        "to": "b",
        "when": "2024-02-29T12:00:00+02:00",
        "on": "2024-02-29",
        "colour": "red",
        "inner": {"theAmount": "3.00", "hidden": 3, "more": [1]},
        "inners": [{"theAmount": "4", "hidden": 3}],
        "known": [1, 3],
        "pair": [1, "a"],
    }
    session.answer({one.id: APPROVE})
    (got,) = ledger.got
    assert set(got) == set(Wide.model_fields)
    assert (got["from_"], got["to"], got["on"], got["colour"]) == ("a", "b", dt.date(2024, 2, 29), Colour.RED)
    assert (got["inner"].amount, got["inner"].more, got["known"]) == (Decimal("3.00"), [1], {1, 3})


def test_a_default_that_is_new_each_time_runs_as_it_was_shown(place: Any, is_async: bool, ledger: Ledger):
    class Fresh(BaseModel):
        id: uuid.UUID = Field(default_factory=uuid.uuid4)

    session = place("return await tools.pay({})", [ledger.tool(Fresh)], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    session.answer({one.id: APPROVE})
    assert [str(got["id"]) for got in ledger.got] == [one.value["args"]["id"]]


class Dated(ByField):
    parts: list[ByField] = Field(default_factory=list)
    id: uuid.UUID = Field(default_factory=uuid.uuid4)


@pytest.mark.parametrize("asks_too", [False, True], ids=["once", "paused inside"])
def test_a_new_default_runs_as_shown_beside_a_validator_that_changes(
    place: Any, is_async: bool, ledger: Ledger, asks_too: bool
):
    def take(euros: int, parts: list[ByField], id: uuid.UUID) -> str:  # noqa: A002 - a field of the schema
        ledger.got.append({"euros": euros, "parts": [one.model_dump() for one in parts], "id": str(id)})
        return interrupt("sure?") if asks_too else "paid"

    pay = StructuredTool.from_function(take, name="pay", description="Pay.", args_schema=Dated)
    js = "return await tools.pay({ euros: 6, parts: [{ euros: 1 }] })"
    session = place(js, [pay], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    output = session.answer({one.id: APPROVE})
    if asks_too:
        session.answer({output["__interrupt__"][0].id: "yes"})
    assert one.value["args"]["euros"] == 600
    assert one.value["args"]["parts"] == [{"euros": 100}]
    assert ledger.got == [one.value["args"]] * (2 if asks_too else 1)


def test_what_changes_at_the_resume_does_not_run(place: Any, is_async: bool, ledger: Ledger):
    factor = itertools.count(1)

    def moody(cents: int) -> int:
        return cents * next(factor)

    class Moody(BaseModel):
        cents: Annotated[int, AfterValidator(moody)]

    session = place(
        "return await tools.pay({ cents: 6 })", [ledger.tool(Moody)], is_async=is_async, approve={"pay": True}
    )
    (one,) = session.start()["__interrupt__"]
    try:
        session.answer({one.id: APPROVE})
    except Exception as error:
        assert "pay" in str(error)
    assert ledger.got in ([], [one.value["args"]])


def test_dict_schemas_are_as_they_were(place: Any, is_async: bool, ledger: Ledger):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "kg"}},
        "required": ["n"],
    }
    session = place("return await tools.pay({ n: 2 })", [ledger.tool(schema)], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    assert one.value["args"] == {"n": 2, "unit": "kg"}
    session.answer({one.id: APPROVE})
    assert ledger.got == [{"n": 2, "unit": "kg"}]


def test_wrong_input_does_not_run(place: Any, is_async: bool, ledger: Ledger):
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        n: int

        @field_validator("n")
        @classmethod
        def _positive(cls, n: int) -> int:
            if n < 1:
                raise ValueError("must be positive")
            return n

    js = """
    const out = [];
    for (const given of [{ n: 0 }, { n: 1, m: 2 }, {}]) {
      try { await tools.pay(given) } catch (error) { out.push(error.message) }
    }
    return out;
    """
    said = results(place(js, [ledger.tool(Strict)], is_async=is_async, approve=None).start())[0].content
    assert "must be positive" in said
    assert "m: Extra inputs" in said
    assert ledger.got == []


class Tree(BaseModel):
    """Refers to itself."""

    leaves: list[Annotated[int, AfterValidator(cents)]] = Field(default_factory=list[int])
    trees: list[Tree] = Field(default_factory=list["Tree"])


def test_a_schema_that_refers_to_itself_can_be_approved_and_edited(place: Any, is_async: bool, ledger: Ledger):
    class Forest(BaseModel):
        tree: Tree
        other: Tree = Field(default_factory=Tree)

    js = "return await tools.pay({ tree: { trees: [{ leaves: [1] }] } })"
    session = place(js, [ledger.tool(Forest)], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    assert one.value["args"]["tree"] == {"leaves": [], "trees": [{"leaves": [100], "trees": []}]}
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"tree": {"trees": [{}]}}}}
    session.answer({one.id: edit})
    assert ledger.got[0]["tree"].trees[0].leaves == []


# --- what the graph injects ---


class OwnState(AgentState[Any]):
    user: str


class StateModel(BaseModel):
    user: str
    messages: list[Any]


def test_injected_arguments_are_given_beside_the_input(is_async: bool, ledger: Ledger):
    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        euros: int
        state: Annotated[StateModel, InjectedState]
        user: Annotated[str, InjectedState("user")]
        call_id: Annotated[str, InjectedToolCallId]
        runtime: ToolRuntime[Any, Any]

        @field_validator("euros")
        @classmethod
        def _cents(cls, euros: int) -> int:
            return cents(euros)

    js = "return await tools.pay({ euros: 6, user: 'root', call_id: 'forged' })"
    session = in_an_agent(js, [ledger.tool(Args)], is_async=is_async, approve={"pay": True}, state_schema=OwnState)
    (one,) = session.send({**START, "user": "ada"})["__interrupt__"]
    assert one.value["args"] == {"euros": 600}
    session.answer({one.id: APPROVE})
    (got,) = ledger.got
    assert (got["euros"], got["user"], got["call_id"]) == (600, "ada", "call_0:tool-1")
    assert isinstance(got["state"], StateModel)
    assert got["state"].user == "ada"
    assert got["runtime"].tool_call_id == "call_0:tool-1"


def test_a_tool_of_code_mode_alone_gets_its_call_id(ledger: Ledger):
    class Args(BaseModel):
        euros: Annotated[int, AfterValidator(cents)]
        call_id: Annotated[str, InjectedToolCallId]

    js = "return await tools.pay({ euros: 6, call_id: 'forged' })"
    assert create_code_mode_tool([ledger.tool(Args)]).invoke({"js": js}) == "paid"
    assert run_code_mode_sync(js, [ledger.tool(Args)]) == "paid"
    assert [got["euros"] for got in ledger.got] == [600, 600]
    assert not {got["call_id"] for got in ledger.got} & {"forged"}

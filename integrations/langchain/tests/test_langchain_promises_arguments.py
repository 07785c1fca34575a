"""What is shown is what runs: arguments are validated once, and rule, person and tool get that one value."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from langgraph.types import interrupt
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.v1 import BaseModel as ModelV1
from scripted_agent import APPROVE, START, Session, agent, calls, content, results
from suite import full_only

from codemode import CodeModeToolError, run_code_mode_sync


def cents(euros: int) -> int:
    return euros * 100


class ByField(BaseModel):
    euros: int

    @field_validator("euros")
    @classmethod
    def _cents(cls, euros: int) -> int:
        return cents(euros)


class ByModel(BaseModel):
    euros: int

    @model_validator(mode="after")
    def _cents(self) -> ByModel:
        self.euros = cents(self.euros)
        return self


class ByText(BaseModel):
    """Takes a text that it does not take again."""

    euros: Annotated[int, BeforeValidator(lambda text: int(text.removesuffix(" EUR")) * 100)]


class ByAnnotation(BaseModel):
    euros: Annotated[int, AfterValidator(cents)]


class Ledger:
    """Remembers what its tools were called with."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []

    def tool(self, schema: Any, **settings: Any) -> BaseTool:
        def pay(**arguments: Any) -> str:
            self.got.append(arguments)
            return "paid"

        return StructuredTool.from_function(pay, name="pay", description="Pay.", args_schema=schema, **settings)


Make = Callable[..., Session]


def in_an_agent(js: str, tools: list[BaseTool], *after: Any, is_async: bool, approve: Any, **settings: Any) -> Session:
    return Session(agent([js], tools, CodeModeMiddleware(approve=approve), *after, **settings), is_async)


def in_a_graph(js: str, tools: list[BaseTool], *, is_async: bool, approve: Any) -> Session:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [calls(js)]})
    graph.add_node("tools", ToolNode([create_code_mode_tool(tools, approve=approve)]))
    graph.set_entry_point("ask")
    graph.add_edge("ask", "tools")
    return Session(graph.compile(checkpointer=InMemorySaver()), is_async)


@pytest.fixture(params=[in_an_agent, in_a_graph], ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def asked(rule: list[Any]) -> Callable[[dict[str, Any]], bool]:
    """A rule that notes what it sees, tries to change it, and asks a person."""

    def when(arguments: dict[str, Any]) -> bool:
        rule.append({**arguments})
        arguments.clear()
        return True

    return when


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


@pytest.mark.parametrize("schema", [ByField, ByModel, ByAnnotation])
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
    parts: list[ByField] = []
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


# --- where LangChain validates again ---


class Changing(AgentMiddleware[Any, Any, Any]):
    """Changes the arguments of nested calls, or calls them again."""

    def __init__(self, change: Callable[[dict[str, Any]], Any] | None = None, times: int = 1) -> None:
        super().__init__()
        self._change, self._times = change, times

    def _changed(self, request: Any) -> Any:
        call = request.tool_call
        if call["name"] != "pay" or self._change is None:
            return request
        args = {**call["args"]}
        return request.override(tool_call={**call, "args": self._change(args) or args})

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] != "pay":
            return handler(request)
        return [handler(self._changed(request)) for _ in range(self._times)][-1]

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] != "pay":
            return await handler(request)
        return [await handler(self._changed(request)) for _ in range(self._times)][-1]


@pytest.mark.parametrize("schema", [ByField, ByModel, ByAnnotation])
def test_what_middleware_changes_must_come_out_as_it_wrote_it(is_async: bool, ledger: Ledger, schema: Any):
    js = "try { return await tools.pay({ euros: 6 }) } catch (error) { return error.message }"
    changing = Changing(lambda args: args.update(euros=args["euros"] - 1))
    said = content(in_an_agent(js, [ledger.tool(schema)], changing, is_async=is_async, approve=None).start())
    assert said == "the input of tool 'pay' comes out differently when it is validated again: euros changes"
    assert ledger.got == []


def test_what_middleware_changes_runs_when_no_validator_changes_it_again(is_async: bool, ledger: Ledger):
    class Order(BaseModel):
        order: Annotated[str, AfterValidator(str.strip)]
        day: dt.date = dt.date(2024, 2, 29)

    changing = Changing(lambda args: args.update(order="b"))
    js = "return await tools.pay({ order: ' a ' })"
    assert content(in_an_agent(js, [ledger.tool(Order)], changing, is_async=is_async, approve=None).start()) == "paid"
    assert ledger.got == [{"order": "b", "day": dt.date(2024, 2, 29)}]


def test_a_review_listed_after_sees_and_edits_that_value_too(is_async: bool, ledger: Ledger):
    review = HumanInTheLoopMiddleware(interrupt_on={"pay": True}, interrupt_mode="per_call", edit_notice=None)
    js = "return await Promise.allSettled([6, 7].map((euros) => tools.pay({ euros })))"
    session = in_an_agent(js, [ledger.tool(ByField)], review, is_async=is_async, approve=None)
    first, second = session.start()["__interrupt__"]
    assert (first.value["args"], second.value["args"]) == ({"euros": 600}, {"euros": 700})
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"euros": 5}}}
    output = session.answer({first.id: APPROVE, second.id: edit})
    assert ledger.got == [{"euros": 600}]
    assert "rejected" in content(output)


def test_a_call_made_again_gets_what_was_allowed(is_async: bool, ledger: Ledger):
    class Order(BaseModel):
        parts: Annotated[list[int], AfterValidator(lambda parts: [*parts, 0])]

    def use_up(parts: list[int]) -> str:
        ledger.got.append({"parts": [*parts]})
        parts.clear()
        return "paid"

    pay = StructuredTool.from_function(use_up, name="pay", description="Pay.", args_schema=Order)
    js = "return await tools.pay({ parts: [1] })"
    session = in_an_agent(js, [pay], Changing(times=3), is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    session.answer({one.id: APPROVE})
    assert ledger.got == [one.value["args"]] * 3 == [{"parts": [1, 0]}] * 3


def test_a_pause_inside_the_tool_gets_it_again(place: Any, is_async: bool, ledger: Ledger):
    def ask(euros: int) -> str:
        ledger.got.append({"euros": euros})
        return interrupt("sure?")

    pay = StructuredTool.from_function(ask, name="pay", description="Pay.", args_schema=ByField)
    session = place("return await tools.pay({ euros: 6 })", [pay], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    (sure,) = session.answer({one.id: APPROVE})["__interrupt__"]
    assert results(session.answer({sure.id: "yes"}))[0].content == "yes"
    assert ledger.got == [{"euros": 600}] * 2


def test_a_schema_of_pydantic_1_that_changes_its_input_is_refused(place: Any, is_async: bool, ledger: Ledger):
    class Old(ModelV1):
        euros: int

        @classmethod
        def __get_validators__(cls) -> Any:
            yield cls.validate

    class Changed(ModelV1):
        euros: int

        def __init__(self, **values: Any) -> None:
            super().__init__(**{**values, "euros": values["euros"] * 100})

    js = "try { return await tools.pay({ euros: 6 }) } catch (error) { return error.message }"
    said = results(place(js, [ledger.tool(Old)], is_async=is_async, approve=None).start())[0].content
    assert (said, ledger.got) == ("paid", [{"euros": 6}])
    said = results(place(js, [ledger.tool(Changed)], is_async=is_async, approve=None).start())[0].content
    assert said == "the input of tool 'pay' comes out differently when it is validated again: euros changes"
    assert len(ledger.got) == 1


def test_a_tool_that_reads_its_arguments_itself_must_come_to_the_same(place: Any, is_async: bool, ledger: Ledger):
    class Own(BaseTool):
        name: str = "pay"
        description: str = "Pay."
        args_schema: Any = ByAnnotation
        doubles: bool = False

        def _parse_input(self, tool_input: Any, tool_call_id: Any) -> Any:
            return {"euros": tool_input["euros"] * (2 if self.doubles else 1)}

        def _run(self, **arguments: Any) -> str:
            ledger.got.append(arguments)
            return "paid"

    js = "try { return await tools.pay({ euros: 6 }) } catch (error) { return error.message }"
    assert results(place(js, [Own()], is_async=is_async, approve=None).start())[0].content == "paid"
    assert ledger.got == [{"euros": 600}]
    said = results(place(js, [Own(doubles=True)], is_async=is_async, approve=None).start())[0].content
    assert "comes out differently" in said
    assert len(ledger.got) == 1


def test_functions_with_any_arguments_run_with_what_was_shown(place: Any, is_async: bool, ledger: Ledger):
    @tool
    def pay(euros: Annotated[int, AfterValidator(cents)], *args: int, note: str = "", **kwargs: str) -> str:
        """Pay."""
        ledger.got.append({"euros": euros, "args": args, "note": note, "kwargs": kwargs})
        return "paid"

    session = place("return await tools.pay({ euros: 6 })", [pay], is_async=is_async, approve={"pay": True})
    (one,) = session.start()["__interrupt__"]
    assert one.value["args"] == {"euros": 600, "note": ""}
    session.answer({one.id: APPROVE})
    assert ledger.got == [{"euros": 600, "args": (), "note": "", "kwargs": {}}]


def test_objects_of_the_authors_own_are_shown_as_they_were_given(place: Any, is_async: bool, ledger: Ledger):
    class Handle:
        def __init__(self, name: str) -> None:
            self.name = name

    class Args(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        handle: Annotated[Any, AfterValidator(Handle)]
        default: Any = Handle("default")

    session = place(
        "return await tools.pay({ handle: 'h' })", [ledger.tool(Args)], is_async=is_async, approve={"pay": True}
    )
    (one,) = session.start()["__interrupt__"]
    assert one.value["args"]["handle"] == "h"
    session.answer({one.id: APPROVE})
    (got,) = ledger.got
    assert (got["handle"].name, got["default"].name) == ("h", "default")


def test_the_core_takes_such_tools_as_they_are(ledger: Ledger):
    assert run_code_mode_sync("return await tools.pay({ euros: 6 })", [ledger.tool(ByField)]) == "paid"
    assert ledger.got == [{"euros": 600}]
    with pytest.raises(CodeModeToolError, match="euros"):
        run_code_mode_sync("const euros = 'x'; return await tools.pay({ euros })", [ledger.tool(ByField)])


def test_the_call_that_others_see_has_that_value(is_async: bool, ledger: Ledger):
    seen: list[Any] = []
    session = in_an_agent(
        "return await tools.pay({ euros: 6 })",
        [ledger.tool(ByField)],
        Changing(lambda args: seen.append(args)),
        is_async=is_async,
        approve=None,
    )
    assert content(session.start()) == "paid"
    assert seen == [{"euros": 600}]

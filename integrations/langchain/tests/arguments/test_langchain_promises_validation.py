"""What was shown is what runs where LangChain, middleware or a tool validates its arguments once more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import interrupt
from paid_tools import ByAnnotation, ByField, ByModel, Ledger, cents, in_an_agent
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
)
from pydantic.v1 import BaseModel as ModelV1
from scripted_agent import APPROVE, content, results

from codemode import CodeModeToolError, run_code_mode_sync


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
    assert said == "the input of tool 'pay' differs when it is validated again: euros changes"
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
    assert said == "the input of tool 'pay' differs when it is validated again: euros changes"
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
    assert "differs when it is validated again" in said
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

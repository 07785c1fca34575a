"""What a person is shown of a call is what runs, or nothing runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, answer
from gated import KINDS, Cents, Gate, clock, plain, within
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SecretStr,
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
)
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program

from codemode import create_code_mode_tool

WAIT_SECONDS = 60.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_validator_that_changes_its_input_is_shown_and_run_once(kind: str) -> None:
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
def test_secrets_hidden_fields_and_one_way_serialisers_are_shown_as_they_run(kind: str) -> None:
    def order(order: Order) -> None:
        gate.ran.append({**plain(order), "price": str(order.price)})

    gate = Gate(kind, order, {"orderId": "a", "token": "t0ken", "note": "hi"})
    call, history = gate.paused()
    assert call.args == {"orderId": "a", "token": "t0ken", "note": "hi!", "price": "1.50"}
    gate.answered(call, history)
    assert gate.ran == [{"id": "a", "token": "t0ken", "note": "hi!", "price": "1.50"}]


def test_an_inline_handler_sees_what_runs() -> None:
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


def test_what_a_hook_makes_of_the_input_is_shown() -> None:
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


def test_a_tool_that_has_changed_since_does_not_run() -> None:
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
    assert "its input differs from the displayed one" in str(gate.script.returned())


def test_a_denial_needs_no_validation() -> None:
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


def test_two_pauses_of_one_call_keep_what_was_edited() -> None:
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


def test_the_cores_own_tool_shows_and_runs_one_value() -> None:
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


def test_without_the_capability_what_is_shown_runs() -> None:
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
def test_large_integers_are_shown_and_run_as_they_are(kind: str) -> None:
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


def test_tools_with_names_that_the_language_reads_are_gated_too() -> None:
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


def test_loop_a_large_input_is_shown_and_run_whole() -> None:
    def book(rows: list[dict[str, int]]) -> int:
        gate.ran.append({"rows": len(rows)})
        return len(rows)

    gate = Gate("requires_approval", book, {})
    js = "return await tools.gated({ rows: [...Array(5000).keys()].map((a) => ({ a, b: -a })) })"
    gate.script.steps[0] = program(js)
    call, history = gate.paused()
    assert len(call.args_as_dict()["rows"]) == 5000
    gate.answered(call, history)
    assert gate.ran == [{"rows": 5000}]


def test_loop_an_output_of_too_many_values_is_refused_before_it_is_written() -> None:
    def rows() -> list[Any]:
        return [{} for _ in range(350_000)]

    script = Script(program("return await tools.rows().catch((error) => error.message)"), "done")
    within(Agent(script.model, tools=[rows], capabilities=[CodeMode()]).run("go"))
    assert "max_values" in script.returned()

"""An edit of what was shown runs as it was written, or is shown again."""

from __future__ import annotations

from datetime import date
from typing import Any, cast

import pytest
from codemode_pydantic_ai import CodeMode
from gated import KINDS, Cents, Gate, within
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from scripted import Script, program

WAIT_SECONDS = 60.0


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_edit_leaves_as_it_was_shown_runs_as_it_was_shown(kind: str) -> None:
    def pay(cents: Cents, to: str) -> int:
        gate.ran.append({"cents": cents, "to": to})
        return cents

    gate = Gate(kind, pay, {"cents": 6, "to": "ann"})
    call, history = gate.paused()
    edited = {**call.args_as_dict(), "to": "bob"}
    gate.answered(call, history, ToolApproved(override_args=edited))
    assert gate.ran == [{"cents": 600, "to": "bob"}] == [edited]


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_that_would_come_out_otherwise_is_shown_again(kind: str) -> None:
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
def test_an_edit_may_leave_out_defaults_and_write_numbers_as_text(kind: str) -> None:
    def book(day: date, name: str, seats: int = 1, price: float = 2.5) -> None:
        gate.ran.append({"day": day, "name": name, "seats": seats, "price": price})

    gate = Gate(kind, book, {"day": "2030-01-02", "name": "ann"})
    call, history = gate.paused()
    assert call.args == {"day": "2030-01-02", "name": "ann", "seats": 1, "price": 2.5}
    edited = {"day": "2030-02-03", "name": "bob", "seats": "2"}
    assert gate.answered(call, history, ToolApproved(override_args=edited)).output == "done"
    assert gate.ran == [{"day": date(2030, 2, 3), "name": "bob", "seats": 2, "price": 2.5}]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tool_does_to_its_input_before_it_asks_is_not_shown(kind: str) -> None:
    def order(lines: list[int], extra: dict[str, Any], note: str = "none") -> None:
        gate.ran.append({"lines": lines, "extra": extra, "note": note})

    given_values = {"lines": [1, 2], "extra": {"deep": [1]}}
    gate = Gate(kind, order, given_values)
    call, history = gate.paused()
    assert call.args == {**given_values, "note": "none"}
    gate.answered(call, history)
    assert gate.ran == [call.args]


def test_what_was_said_beside_a_pause_is_said_again() -> None:
    def pay(ctx: RunContext[Any], cents: Cents) -> int:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 1})
        return cents

    gate = Gate("plain", pay, {"cents": 6})
    call, history = gate.paused()
    again = gate.answered(call, history, ToolApproved(override_args={"cents": 3}))
    assert again.output.metadata == {again.output.approvals[0].tool_call_id: {"limit": 1}}


def test_an_inline_edit_that_would_come_out_otherwise_waits_for_somebody() -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_edit_is_asked_about_again_with_the_reason(kind: str) -> None:
    def book(seats: int) -> None:
        gate.ran.append({"seats": seats})

    gate = Gate(kind, book, {"seats": 1})
    call, history = gate.paused()
    for wrong in ({"seats": "many"}, {}, [1], {"seats": None}):
        again = gate.answered(call, history, ToolApproved(override_args=cast("Any", wrong)))
        (call,), history = again.output.approvals, again.all_messages()
        assert "seats" in again.output.metadata[call.tool_call_id]["editRefused"] or wrong == [1], wrong
        assert (call.args, gate.ran) == ({"seats": 1}, []), wrong
    gate.answered(call, history, ToolApproved(override_args={"seats": 2}))
    assert gate.ran == [{"seats": 2}]


class InlineDesk:
    """A handler in the run that answers payments with one edit after the other, and notes why it is asked again."""

    def __init__(self, *edits: dict[str, Any]) -> None:
        self.edits = list(edits)
        self.asked: list[Any] = []
        self.ran: list[int] = []

    def pay(self, ctx: RunContext[Any], cents: int) -> int:
        """Pay."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 1})
        self.ran.append(cents)
        return cents

    def decide(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        payments = [one.tool_call_id for one in requests.approvals if one.tool_name == "pay" and self.edits]
        self.asked += [requests.metadata[one] for one in payments]
        return requests.build_results(
            approvals={one: ToolApproved(override_args=self.edits.pop(0)) for one in payments}
        )

    def run(self) -> Any:
        agent: Agent[Any, Any] = Agent(
            Script(program("return await tools.pay({ cents: 6 })"), "done").model,
            tools=[self.pay],
            output_type=[str, DeferredToolRequests],
            capabilities=[CodeMode(), HandleDeferredToolCalls(self.decide)],
        )
        return within(agent.run("go")).output


def test_an_inline_handler_is_asked_again_with_the_reason_for_a_wrong_edit() -> None:
    desk = InlineDesk({"cents": "many"}, {"cents": 3})
    assert (desk.run(), desk.ran) == ("done", [3])
    assert desk.asked[0] == {"limit": 1}
    assert desk.asked[1].keys() == {"limit", "editRefused"}
    assert "cents" in desk.asked[1]["editRefused"]


def test_an_inline_handler_whose_edits_are_all_wrong_leaves_the_call_waiting() -> None:
    for wrong in ([{"cents": "many"}], [{}] * 9):
        desk = InlineDesk(*wrong)
        paused = desk.run()
        assert [call.args for call in paused.approvals] == [{"cents": 6}], wrong
        assert "cents" in paused.metadata[paused.approvals[0].tool_call_id]["editRefused"], wrong
        assert (len(desk.asked), desk.ran) == (min(len(wrong), 3), []), wrong


LONG = 1180591620717411303


@pytest.mark.parametrize("sent", [LONG, str(LONG)])
def test_an_edit_keeps_a_long_integer_that_it_leaves_alone(sent: Any) -> None:
    def refund(order: int, cents: int) -> None:
        gate.ran.append({"order": order, "cents": cents})

    gate = Gate("requires_approval", refund, {})
    gate.script.steps[0] = program(f"return await tools.gated({{ order: {LONG}n, cents: 500 }})")
    call, history = gate.paused()
    gate.answered(call, history, ToolApproved(override_args={"order": sent, "cents": 300}))
    assert gate.ran == [{"order": LONG, "cents": 300}]


@pytest.mark.parametrize("rounded", [1180591620717411300, float(LONG)])
def test_an_edit_in_which_a_browser_has_rounded_an_integer_does_not_run(rounded: Any) -> None:
    def refund(order: int, cents: int) -> None:
        gate.ran.append({"order": order, "cents": cents})

    gate = Gate("requires_approval", refund, {})
    gate.script.steps[0] = program(f"return await tools.gated({{ order: {LONG}n, cents: 500 }})")
    call, history = gate.paused()
    again = gate.answered(call, history, ToolApproved(override_args={"order": rounded, "cents": 300})).output
    assert gate.ran == []
    assert "as in a browser" in str(again.metadata)

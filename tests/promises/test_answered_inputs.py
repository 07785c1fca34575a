"""The input of an answered call is validated before its continuation is claimed, and never again: that value runs."""

from __future__ import annotations

from typing import Any

import pytest
from pausing import PAUSING, go_on, start
from pydantic import BaseModel, field_validator

from codemode import CodeModeProtocolError, CodeModeToolApprovalDeniedError, Tool, request_interrupt
from codemode.stores import MemoryResumeGuard

JS = "const got = await tools.refund({ amount: 5, note: 'a' }); return got"
happened: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_has_happened():
    happened.clear()


class Refund(BaseModel):
    amount: int
    note: str = ""

    @field_validator("note")
    @classmethod
    def noted(cls, note: str) -> str:
        happened.append("validated")
        return note


class Guard(MemoryResumeGuard):
    async def claim(self, claim: Any) -> Any:
        happened.append("claimed")
        return await super().claim(claim)


def paused(tool: Tool) -> Any:
    options = {**PAUSING, "continuation": {"guard": Guard()}}
    interrupt = start(JS, [tool], options)
    happened.clear()
    return interrupt, options


def assert_validated_before_the_claim_alone() -> None:
    claimed = happened.index("claimed")
    assert set(happened[:claimed]) == {"validated"}
    assert happened[claimed + 1 :] == ["ran"]


def refunding(**settings: Any) -> Tool:
    def refund(given: Refund, _context: Any) -> list[Any]:
        happened.append("ran")
        return [given.amount, given.note]

    return Tool("refund", execute=refund, input_schema=Refund, **{"needs_approval": True, **settings})


def test_an_approved_input_is_validated_before_the_claim():
    interrupt, options = paused(refunding())
    assert go_on(interrupt, [refunding()], {"approved": True}, options=options) == [5, "a"]
    assert_validated_before_the_claim_alone()


@pytest.mark.parametrize("changed", ["b", "a", ""])
def test_an_edited_input_is_validated_before_the_claim(changed):
    interrupt, options = paused(refunding())
    edit = {"approved": True, "input": {"amount": 7, "note": changed}}
    assert go_on(interrupt, [refunding()], edit, options=options) == [7, changed]
    assert_validated_before_the_claim_alone()


def test_the_input_of_a_tool_that_asked_itself_is_validated_before_the_claim():
    def ask(given: Refund, context: Any) -> Any:
        happened.append("ran")
        if context.interrupt is None:
            request_interrupt({"kind": "sign-in"})
        return [given.amount, context.interrupt.resolution]

    tool = Tool("refund", execute=ask, input_schema=Refund)
    interrupt, options = paused(tool)
    assert go_on(interrupt, [tool], "in", options=options) == [5, "in"]
    assert_validated_before_the_claim_alone()


@pytest.mark.parametrize("edit", [{"amount": "many"}, {"note": "b"}, 5, None, [], {"amount": 2**70, "note": 1}])
def test_an_edit_that_is_wrong_claims_nothing_and_runs_nothing(edit):
    interrupt, options = paused(refunding())
    with pytest.raises(CodeModeProtocolError) as caught:
        go_on(interrupt, [refunding()], {"approved": True, "input": edit}, options=options)
    assert caught.value.details["origin"] == "continuation"
    assert set(happened) <= {"validated"}
    assert go_on(interrupt, [refunding()], {"approved": True}, options=options) == [5, "a"]


def test_an_edit_that_the_schema_no_longer_takes_claims_nothing():
    class Narrow(BaseModel):
        amount: int
        reason: str

    interrupt, options = paused(refunding())
    narrow = Tool("refund", execute=lambda given: happened.append("ran"), input_schema=Narrow, needs_approval=True)
    with pytest.raises(CodeModeProtocolError, match="refund"):
        go_on(interrupt, [narrow], {"approved": True}, options=options)
    assert happened == []


def test_a_denial_validates_nothing():
    interrupt, options = paused(refunding())
    with pytest.raises(CodeModeToolApprovalDeniedError):
        go_on(interrupt, [refunding()], {"approved": False}, options=options)
    assert happened == ["claimed"]

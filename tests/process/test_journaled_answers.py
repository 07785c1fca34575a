"""Answers to a program with a journal: none is lost with its host, and none is told what others have come to."""

from __future__ import annotations

from typing import Any

import pytest
from fast_clock import Fast
from pausing import NO, OK, PAUSING, through_json
from suite import each_row
from waiting import within

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeProtocolError,
    Interrupt,
    Tool,
    continue_interrupt,
    run_code_mode,
)
from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryResumeGuard

JS = "return [await tools.pay({amount: 1}), await tools.pay({amount: 2})]"


class Died(Exception):
    """The host is dead: what its process would have done does not happen."""


class Mortal:
    """A journal or a guard as a host sees it that dies after so many operations on either: ``left`` is of both."""

    is_shared_between_processes = True
    lease_ms = 30_000

    def __init__(self, what: Any, left: list[int]) -> None:
        self._what = what
        self._left = left

    def __getattr__(self, name: str) -> Any:
        if name not in ("open", "write", "renew", "end", "release", "claim", "record"):
            raise AttributeError(name)

        async def done(*given: Any, **named: Any) -> Any:
            if not self._left[0]:
                raise Died
            self._left[0] -= 1
            return await getattr(self._what, name)(*given, **named)

        return done


class Shop:
    """A tool that pays once somebody has agreed, the payments that were made, and hosts that share what is kept."""

    def __init__(self) -> None:
        clock = Fast()
        self.paid: list[int] = []
        self.journal, self.guard = MemoryJournal(clock=clock), MemoryResumeGuard(clock=clock)
        self._tools = [Tool("pay", execute=self._pay, needs_approval=True)]

    def _pay(self, value: Any) -> int:
        self.paid.append(value["amount"])
        return value["amount"]

    def _options(self, dies_after: int | None) -> dict[str, Any]:
        kept: dict[str, Any] = {"journal": self.journal, "guard": self.guard}
        if dies_after is not None:
            left = [dies_after]
            kept = {name: Mortal(one, left) for name, one in kept.items()}
        return {**PAUSING, "continuation": {"keys": "k", "conversation_id": "thread", **kept}}

    async def call(self, *, dies_after: int | None = None) -> Any:
        return await run_code_mode(
            JS, self._tools, options=self._options(dies_after), call=CallContext(tool_call_id="call_1")
        )

    async def answer(self, pause: Interrupt, answer: Any, *, dies_after: int | None = None) -> Any:
        options = self._options(dies_after)
        return await continue_interrupt(through_json(pause), answer, tools=self._tools, options=options)


async def dies(work: Any) -> bool:
    """Return True when the host died over it."""
    try:
        await work
    except (Died, CodeModeAbortedError):
        return True
    except Exception as error:
        assert "guard did not take its outcome" in str(error)
        return True
    return False


@each_row("operations", range(1, 9))
def test_an_answer_whose_host_dies_is_taken_later_though_the_call_was_made_again_between(operations: int):
    async def scenario() -> None:
        shop = Shop()
        pause = await shop.call()
        has_died = await dies(shop.answer(pause, OK, dies_after=operations))
        again = await shop.call()
        assert isinstance(again, Interrupt)
        second = await shop.answer(pause, OK)
        assert isinstance(second, Interrupt)
        if second.payload["kind"] == "code-mode/unknown-outcome":
            assert has_died
            assert second.input == {"amount": 1}
            second = await shop.answer(second, {"value": 1} if shop.paid else {"runAgain": True})
        assert (second.input, shop.paid) == ({"amount": 2}, [1])
        assert await shop.answer(second, OK) == [1, 2]
        assert shop.paid == [1, 2]

    within(scenario())


@pytest.mark.parametrize("operations", range(3, 9))
def test_answers_that_were_refused_are_refused_whatever_the_program_comes_to_with_others(operations: int):
    async def scenario() -> None:
        shop = Shop()
        pause = await shop.call()
        await dies(shop.answer(pause, OK, dies_after=4))  # it has claimed the pause, and done nothing
        for dying in (operations, None, None):
            with pytest.raises((CodeModeProtocolError, CodeModeAbortedError, Died)) as caught:
                await shop.answer(pause, NO, dies_after=dying)
            assert dying is not None or caught.value.details["superseded"] is True
        second = await shop.answer(pause, OK)
        assert (second.input, shop.paid) == ({"amount": 2}, [1])
        for _ in range(2):
            with pytest.raises(CodeModeProtocolError) as caught:
                await shop.answer(pause, NO)
            assert caught.value.details["superseded"] is True
        assert (await shop.answer(pause, OK)).to_dict() == second.to_dict()
        assert shop.paid == [1]

    within(scenario())

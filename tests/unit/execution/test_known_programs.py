"""A program that was found to fit is not compared with the same tools again, and only with these."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

import pytest
from invocation_settings import SETTINGS

from codemode.data.json_values import CachedJsonObject
from codemode.execution.programs import ProgramChecker
from codemode.protocol.events import ProgramAccepted
from codemode.tools.catalog import Catalog

FACTS: Any = {"calls": []}


class Tools(Catalog[Any]):
    """Tools that count how often a program is compared with them, and may have something to do before."""

    shared_tools: Any = None

    def __init__(self) -> None:
        super().__init__({})
        self.compared = 0
        self.asked = 0
        self.doing: Awaitable[None] | None = None

    def find_program_error(self, facts: Any) -> None:
        self.compared += 1

    def prepare_for_program(self, facts: Any, given: Any) -> Any:
        self.asked += 1
        return self.doing


@pytest.fixture
def source() -> str:
    """A text that no other test has: what is known of programs is known to the whole process."""
    return f"return {uuid4().int}"


def checker(source: str, tools: Tools, given: Any = None, **how: Any) -> ProgramChecker:
    return ProgramChecker(source, SETTINGS.profile, tools, given, **{"checks_tools": True, **how})


def known(source: str, tools: Tools, given: Any = None) -> ProgramAccepted:
    """Let a text be analysed by one run and compared by the next, and return what that came to."""
    assert checker(source, tools, given).prepare_and_find_earlier_acceptance() is None
    checker(source, tools, given).check(source, FACTS)
    again = checker(source, tools, given)
    assert again.prepare_and_find_earlier_acceptance() is None  # it is known, and was not compared since
    assert again.prepare_tools(FACTS) is None
    accepted = again.check(source, FACTS)
    assert isinstance(accepted, ProgramAccepted)
    return accepted


@pytest.mark.parametrize(("size", "is_kept"), [(64 << 10, True), ((64 << 10) + 1, False)])
def test_what_a_worker_says_at_length_of_a_program_is_not_kept(source: str, size: int, is_kept: bool):
    checker(source, Tools()).check(source, FACTS, size)
    assert (checker(source, Tools()).known is not None) is is_kept


@pytest.mark.parametrize("given", [None, CachedJsonObject({"a": 1})])
def test_a_program_that_fits_is_accepted_as_it_was(source: str, given: Any):
    tools = Tools()
    accepted, compared = known(source, tools, given), tools.compared
    assert checker(source, tools, given).prepare_and_find_earlier_acceptance() is accepted
    assert tools.compared == compared


def test_it_is_compared_with_other_tools_under_other_rules_and_with_something_else_given(source: str):
    tools = Tools()
    known(source, tools)
    assert checker(source, Tools()).prepare_and_find_earlier_acceptance() is None
    assert checker(source, tools, checks_tools=False).prepare_and_find_earlier_acceptance() is None
    assert checker(source, tools, replaces_outputs=True).prepare_and_find_earlier_acceptance() is None
    assert checker(source, tools, {"a": 1}).prepare_and_find_earlier_acceptance() is None


def test_a_check_holds_for_the_tools_that_catalogs_of_several_runs_share(source: str):
    shared, first, second = Tools(), Tools(), Tools()
    first.shared_tools = second.shared_tools = shared
    accepted = known(source, first)
    assert checker(source, second).prepare_and_find_earlier_acceptance() is accepted
    assert second.compared == 0
    second.shared_tools = Tools()
    assert checker(source, second).prepare_and_find_earlier_acceptance() is None
    second.shared_tools = None
    assert checker(source, second).prepare_and_find_earlier_acceptance() is None


def test_a_check_does_not_hold_if_the_preparation_exchanges_the_shared_tools(source: str):
    class ExchangedTools(Tools):
        def prepare_for_program(self, facts: Any, given: Any) -> Any:
            self.shared_tools = Tools()
            return super().prepare_for_program(facts, given)

    shared, first, second = Tools(), Tools(), ExchangedTools()
    first.shared_tools = second.shared_tools = shared
    known(source, first)
    program = checker(source, second)
    assert program.prepare_and_find_earlier_acceptance() is None
    assert program.prepare_tools(FACTS) is None
    program.check(source, FACTS)
    assert (second.asked, second.compared) == (1, 1)


def test_tools_that_have_something_to_do_are_asked_once_and_compared_afterwards(source: str):
    tools = Tools()
    known(source, tools)
    compared, asked = tools.compared, tools.asked
    loop = asyncio.new_event_loop()
    try:
        tools.doing = doing = loop.create_future()
        program = checker(source, tools)
        assert program.prepare_and_find_earlier_acceptance() is None
        assert program.prepare_tools(FACTS) is doing
        assert tools.asked == asked + 1
        program.check(source, FACTS)
        assert tools.compared == compared + 1
    finally:
        loop.close()

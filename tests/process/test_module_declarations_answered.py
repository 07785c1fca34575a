"""Declarations in the answer to a run that names servers: of those that the model has not read of, and of no others."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import within

from codemode import ModuleServer, Tool, create_modules_tool

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}


class Live:
    """A server whose tools change."""

    def __init__(self, server_id: str, *names: str) -> None:
        self.server_id = server_id
        self.change(*names)

    async def tools(self) -> list[Tool]:
        return [Tool(name, execute=lambda value: value, input_schema=QUERY) for name in self.names]

    def change(self, *names: str) -> None:
        self.names, self.revision = names, object()


def declared(run: Any, *servers: str) -> str | None:
    return within(run.execute({"code": "", "requestedCapabilities": servers})).get("declarations")


def test_what_was_in_the_description_is_not_answered_again():
    run = create_modules_tool([ModuleServer("a", [Tool("t", execute=lambda value: value)])])
    assert "declare module" in run.description
    assert declared(run, "a") is None


@pytest.mark.parametrize("is_read", [True, False])
def test_a_server_that_nobody_had_listed_is_declared_when_it_is_named(is_read: bool):
    run = create_modules_tool([Live("Live One", "t"), Live("other", "u")])
    if is_read:
        assert "declare module" not in run.description
    told = declared(run, "Live One")
    assert told == run.declarations("Live One")
    assert declared(run, "live-one") == told
    # Who reads the description again reads it there.
    assert told in run.description
    assert declared(run, "Live One", "live-one") is None


def test_tools_that_have_changed_since_they_were_read_are_declared_again():
    live = Live("a", "t")
    run = create_modules_tool([live])
    within(run.refresh())
    assert "export function t(" in run.description
    assert declared(run, "a") is None
    live.change("t", "u")
    told = declared(run, "a")
    assert told is not None
    assert "export function u(" in told
    live.change(*(f"t{at}" for at in range(400)))
    told = declared(run, "a")
    assert told is not None
    assert len(told) <= 20_000


def test_what_is_too_long_for_the_description_is_answered_within_its_bound():
    tools = [Tool(f"t{at}", execute=lambda value: value, description="Words. " * 50) for at in range(60)]
    run = create_modules_tool([ModuleServer("large", tools)], {"max_declarations_characters": 9_000})
    told = declared(run, "large")
    assert told is not None
    assert len(told) <= 9_000
    assert told.count("export function ") == 60
    assert declared(run) is None
    assert declared(run, "nope") is None

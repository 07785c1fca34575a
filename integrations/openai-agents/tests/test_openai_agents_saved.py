"""Saved programs in an agent: called, asked about, and saved once a person has approved it."""

from __future__ import annotations

import json
from typing import Any

from codemode_openai_agents import code_mode, with_code_mode
from scripted_model import QUIET, Script, agent, outputs, program
from test_openai_agents_approvals import Desk, run, value

from codemode import ProgramLibrary
from codemode.stores import MemoryInterruptStore

SAVE = (
    'return await saved.$save({ name: "all", description: "All.",'
    ' program: "return tools.stock({ product: input.p })" })'
)


def library_with(run_coroutine: Any, **programs: str) -> ProgramLibrary:
    library = ProgramLibrary(MemoryInterruptStore(), model_saves=True)
    for name, text in programs.items():
        run_coroutine(library.save(name, text))
    return library


def within(work: Any) -> Any:
    import asyncio

    return asyncio.run(work)


def test_a_saved_program_asks_for_its_calls():
    desk = Desk()
    library = library_with(
        within, back="return [await tools.stock({ product: 'nut' }), await tools.refund({ order: 'a' })]"
    )
    made = agent(Script(program("return await saved.back()"), "done"), code_mode(desk.tools, library=library))
    result = run(made, "go")
    assert [one.name for one in result.interruptions] == ["refund"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    assert value(run(made, state)) == [7, "refunded a"]


def test_a_program_is_saved_when_a_person_approves_it():
    library = library_with(within)
    script = Script(program(SAVE), program("return await saved.all({ p: 'nut' })"), "done")
    made = with_code_mode(agent(script, *Desk().tools), library=library)
    result = run(made, "go")
    (asked,) = result.interruptions
    assert asked.name == "saved.$save"
    assert json.loads(asked.arguments)["tools"] == ["stock"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    ended = run(made, state, run_config=QUIET)
    assert [json.loads(one.output) for one in outputs(ended)] == [{"name": "all", "version": 1}, 7]
    assert "all(input?: unknown)" in script.shown[-1]["codeMode"]

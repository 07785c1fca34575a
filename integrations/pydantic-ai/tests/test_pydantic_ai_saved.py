"""Saved programs in an agent: called, asked about, and saved once a person has approved it."""

from __future__ import annotations

from typing import Any

from codemode_pydantic_ai import CodeCall, CodeMode, ExecWait
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from scripted import Script, execute, program, script
from test_pydantic_ai_approvals import Desk, within

from codemode import ProgramLibrary
from codemode.stores import MemoryInterruptStore

SAVE = (
    'return await saved.$save({ name: "all", description: "All.",'
    ' program: "return tools.stock({ product: input.p })" })'
)


def library_with(**programs: str) -> ProgramLibrary:
    library = ProgramLibrary(MemoryInterruptStore(), model_saves=True)
    for name, text in programs.items():
        within(library.save(name, text))
    return library


def agent_with(steps: Script, capability: Any) -> Agent[Any, Any]:
    return Agent(steps.model, output_type=[str, DeferredToolRequests], capabilities=[capability], tools=Desk().tools())


def returned(result: Any) -> list[Any]:
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part.content for part in parts if part.part_kind == "tool-return"]


def approve_all(made: Agent[Any, Any], result: Any) -> Any:
    decisions = DeferredToolResults(approvals={one.tool_call_id: True for one in result.output.approvals})
    return within(made.run(message_history=result.all_messages(), deferred_tool_results=decisions))


def test_a_saved_program_asks_for_its_calls():
    text = "return [await tools.stock({ product: 'nut' }), await tools.refund({ order: 'a' })]"
    made = agent_with(Script(program("return await saved.back()"), "done"), CodeMode(library=library_with(back=text)))
    result = within(made.run("go"))
    assert [one.tool_name for one in result.output.approvals] == ["refund"]
    assert returned(approve_all(made, result)) == [[7, "refunded a: 500"]]


def test_a_program_is_saved_when_a_person_approves_it():
    steps = Script(program(SAVE), program("return await saved.all({ p: 'nut' })", "second"), "done")
    made = agent_with(steps, CodeMode(library=library_with()))
    result = within(made.run("go"))
    (asked,) = result.output.approvals
    assert (asked.tool_name, asked.args["tools"]) == ("saved.$save", ["stock"])
    assert returned(approve_all(made, result)) == [{"name": "all", "version": 1}, 7]
    (shown,) = steps.seen[-1][1].function_tools
    assert "all(input?: unknown)" in (shown.description or "")


def test_scripts_and_pairs_call_saved_programs():
    library = library_with(stock="return callTool('stock', { product: 'nut' })")
    made = agent_with(Script(script("return await saved.stock()"), "done"), CodeCall(library=library))
    assert returned(within(made.run("go")))[0]["result"] == 7
    library = library_with(stock="return tools.stock({ product: 'nut' })")
    made = agent_with(Script(execute("return await saved.stock()"), "done"), ExecWait(library=library))
    assert returned(within(made.run("go")))[0]["value"] == 7


def test_the_owner_may_be_found_in_the_dependencies_of_the_run():
    store = MemoryInterruptStore()
    library = ProgramLibrary(store, owner=lambda call: call.context.run_context.deps)
    within(library.for_owner("ann").save("who", "return 'of ann'"))
    for user, text in (("ann", "of ann"), ("bob", "there is no saved program 'who'")):
        steps = Script(program("return await saved.who().catch((error) => error.message)"), "done")
        made = agent_with(steps, CodeMode(library=library))
        assert text in returned(within(made.run("go", deps=user)))[0], user

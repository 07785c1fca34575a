"""What a person was shown is what runs: states of runs that somebody has changed, and ids that are not unique."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agents import Agent, RunContextWrapper, Runner, RunState, UserError, function_tool
from agents.exceptions import ModelBehaviorError
from codemode_openai_agents import approve, code_mode
from scripted_model import QUIET, Script, agent, program

TWO = "return await Promise.all([1, 2000].map((cents) => tools.refund({ cents })));"


class Desk:
    def __init__(self) -> None:
        self.did: list[Any] = []

        @function_tool(needs_approval=True)
        def refund(cents: int) -> int:
            """Give money back."""
            self.did.append(cents)
            return cents

        self.refund = refund

    def agent(self, *turns: Any) -> Agent[Any]:
        return agent(Script(*turns), code_mode([self.refund]))


def run(made: Agent[Any], given: Any) -> Any:
    return asyncio.run(Runner.run(made, given, run_config=QUIET))


def restored(made: Agent[Any], kept: Any) -> Any:
    return asyncio.run(RunState.from_json(made, kept))


def everywhere(kept: Any, change: Callable[[str], str]) -> Any:
    """Return a state with each text in it changed, but for the programs' pauses."""
    if isinstance(kept, dict):
        return {
            change(key): one if key == "encrypted_content" else everywhere(one, change)
            for key, one in kept.items()
            if key != "fingerprint"
        }
    if isinstance(kept, list):
        return [everywhere(one, change) for one in kept]
    return change(kept) if isinstance(kept, str) else kept


def unbound(kept: Any) -> Any:
    """Return a state that no longer says which arguments belong to which id."""
    if isinstance(kept, dict):
        return {key: {} if key == "tool_invocations" else unbound(one) for key, one in kept.items()}
    return [unbound(one) for one in kept] if isinstance(kept, list) else kept


def swapped(first: str, second: str) -> Callable[[str], str]:
    other = {first: second, second: first}
    return lambda text: other.get(text, text)


@pytest.mark.parametrize("what", ["ids", "arguments"])
def test_a_state_that_shows_other_calls_than_wait(what: str) -> None:
    desk = Desk()
    made = desk.agent(program(TWO), "done")
    paused = run(made, "go")
    small, large = paused.interruptions
    pair = (small.call_id, large.call_id) if what == "ids" else (small.arguments, large.arguments)
    state = restored(made, unbound(everywhere(paused.to_state().to_json(), swapped(*pair))))
    for one in state.get_interruptions():
        if json.loads(one.arguments)["cents"] == 1:
            state.approve(one)
        else:
            state.reject(one)
    with pytest.raises((UserError, ModelBehaviorError)):
        run(made, state)
    assert desk.did == []


def pause_of(kept: Any) -> str:
    (found,) = {one["encrypted_content"] for one in objects(kept) if one.get("encrypted_content")}
    return found


def objects(kept: Any) -> Any:
    if isinstance(kept, dict):
        yield kept
    for one in kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list) else ():
        yield from objects(one)


def test_a_state_with_the_pause_of_another_run() -> None:
    desk = Desk()
    made = desk.agent(program("return await tools.refund({ cents: 1 });"), "done")
    kept = run(made, "go").to_state().to_json()
    other = run(desk.agent(program("return await tools.refund({ cents: 2000 });")), "go").to_state().to_json()
    for one in objects(kept):
        if one.get("encrypted_content"):
            one["encrypted_content"] = pause_of(other)
    state = restored(made, kept)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(UserError, match="is not about the pending call of 'refund'"):
        run(made, state)
    assert desk.did == []


class SameIds(Script):
    """A model whose calls all have one id, as some do."""

    def _call(self, name: str, given: Any) -> Any:
        return super()._call(name, given).model_copy(update={"call_id": "call_1"})


@dataclass
class Person:
    name: str
    token: str


def test_what_waits_in_an_agent_behind_a_tool() -> None:
    """It keeps nothing of a context that the serializer of the run leaves out, and it cannot be edited."""
    seen: list[Any] = []

    @function_tool(needs_approval=True)
    def wipe(context: RunContextWrapper[Person], disk: str) -> str:
        """Wipe a disk."""
        seen.append(context.context)
        return disk

    behind = Agent(name="behind", model=Script([("wipe", {"disk": "one"})], "done", ids="behind"), tools=[wipe])
    model = Script(program("return await tools.behind({ input: 'go' });"), "done")
    made = agent(model, code_mode([behind.as_tool("behind", "Wipe.")]))
    person = Person("me", "hidden-token")

    async def main() -> None:
        paused = await Runner.run(made, "go", context=person, run_config=QUIET)
        kept = paused.to_state().to_json(context_serializer=lambda one: {"name": one.name})
        assert "hidden-token" not in json.dumps(kept)
        state: Any = await RunState.from_json(made, kept, context_override=person)
        (one,) = state.get_interruptions()
        with pytest.raises(ValueError, match="one call of a codeMode program"):
            approve(state, one, input={"disk": "two"})
        state.approve(one)
        await Runner.run(made, state, run_config=QUIET)

    asyncio.run(main())
    assert seen == [person]


def test_agents_behind_an_agent_whose_models_repeat_ids() -> None:
    did: list[str] = []

    @function_tool(needs_approval=True)
    def wipe(disk: str) -> str:
        """Wipe a disk."""
        did.append(disk)
        return disk

    behind = [
        Agent(name=disk, model=SameIds([("wipe", {"disk": disk})], "done"), tools=[wipe]) for disk in ("one", "two")
    ]
    both = Script([(one.name, {"input": "go"}) for one in behind], "done", ids="both")
    middle = Agent(name="middle", model=both, tools=[one.as_tool(one.name, "Wipe.") for one in behind])
    model = Script(program("return await tools.middle({ input: 'go' });"), "done")
    made = agent(model, code_mode([middle.as_tool("middle", "Wipe.")]))
    state = run(made, "go").to_state()
    first, second = state.get_interruptions()
    assert [json.loads(one.arguments)["disk"] for one in (first, second)] == ["one", "two"]
    state.reject(first)
    state.approve(second)
    assert run(made, state).final_output == "done"
    assert did == ["two"]


def test_a_rejection_of_one_call_says_nothing_of_later_ones() -> None:
    desk = Desk()
    later = program("return await tools.refund({ cents: 3 });")
    made = desk.agent(program(TWO.replace("all(", "allSettled(")), later, "done")
    state = run(made, "go").to_state()
    first, second = state.get_interruptions()
    state.approve(first, always_approve=True)
    state.reject(second)
    assert run(made, state).final_output == "done"
    assert desk.did == [1, 3]

"""Calls of programs that wait for people, as the SDK's own interruptions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner, RunState, ToolOutputImage, UserError, function_tool
from codemode_openai_agents import approve, code_mode
from scripted_model import QUIET, Script, agent, outputs, program

TWO = """
const done = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return done.map((one) => one.value ?? one.reason.message);
"""


class Desk:
    def __init__(self) -> None:
        self.did: list[Any] = []

        @function_tool
        def stock(product: str) -> int:
            """How many of a product there are."""
            self.did.append(("stock", product))
            return 7

        @function_tool(needs_approval=True)
        def refund(order: str, cents: int = 500) -> str:
            """Give the money for an order back."""
            self.did.append((order, cents))
            return f"refunded {order}"

        self.tools = [stock, refund]


def run(made: Any, given: Any, **settings: Any) -> Any:
    return asyncio.run(Runner.run(made, given, run_config=settings.pop("run_config", QUIET), **settings))


def restored(made: Any, text: str) -> Any:
    return asyncio.run(RunState.from_string(made, text))


def value(result: Any) -> Any:
    return json.loads(outputs(result)[-1].output)


def test_interruptions_name_the_inner_calls() -> None:
    desk = Desk()
    result = run(agent(Script(program(TWO), "done"), code_mode(desk.tools)), "go")
    assert [(one.name, json.loads(one.arguments)) for one in result.interruptions] == [
        ("refund", {"order": "a", "cents": 500}),
        ("refund", {"order": "b", "cents": 500}),
    ]
    assert [one.agent.name for one in result.interruptions] == ["codeMode", "codeMode"]
    assert desk.did == []


def paused_at_two(is_kept: bool) -> tuple[Desk, Any, Any]:
    """Return a desk, its agent and the state of a run that waits for two decisions, as JSON in between if kept."""
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    if is_kept:
        made = agent(Script("done"), code_mode(desk.tools))
        state = restored(made, state.to_string())
    return desk, made, state


@pytest.mark.parametrize("is_kept", [False, True], ids=["in the process", "as JSON"])
def test_decisions_reach_the_program(is_kept: bool) -> None:
    desk, made, state = paused_at_two(is_kept)
    first, second = state.get_interruptions()
    state.approve(first)
    state.reject(second, rejection_message="not this one")
    if is_kept:
        state = restored(made, state.to_string())
    result = run(made, state)
    assert result.final_output == "done"
    assert value(result) == ["refunded a", "approval of tool 'refund' was denied: not this one"]
    assert desk.did == [("a", 500)]


def test_a_rejection_without_a_message_is_worded_as_the_run_words_it() -> None:
    made = agent(Script(program(TWO), "done"), code_mode(Desk().tools))
    state = run(made, "go").to_state()
    for one in state.get_interruptions():
        state.reject(one)
    config = RunConfig(tracing_disabled=True, tool_error_formatter=lambda args: f"no {args.tool_name}")
    assert value(run(made, state, run_config=config)) == ["approval of tool 'refund' was denied: no refund"] * 2


def test_all_that_waits_is_decided_before_anything_goes_on() -> None:
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    state.approve(state.get_interruptions()[1])
    result = run(made, state)
    (left,) = result.interruptions
    assert (json.loads(left.arguments)["order"], desk.did) == ("a", [])
    state = result.to_state()
    state.approve(left)
    assert value(run(made, state)) == ["refunded a", "refunded b"]


def test_an_approval_for_always_holds_for_later_calls_of_the_run() -> None:
    desk = Desk()
    again = "return await tools.refund({ order: 'later' });"
    made = agent(Script(program(TWO), program(again), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    for one in state.get_interruptions():
        state.approve(one, always_approve=True)
    result = run(made, restored(made, state.to_string()))
    assert (result.interruptions, result.final_output) == ([], "done")
    both, later = desk.did[:2], desk.did[2:]
    assert (sorted(both), later) == ([("a", 500), ("b", 500)], [("later", 500)])  # each of both is made in a thread


def test_a_rejection_for_always_too() -> None:
    desk = Desk()
    again = "try { await tools.refund({ order: 'later' }); } catch (error) { return error.message; }"
    made = agent(Script(program(TWO), program(again), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    for one in state.get_interruptions():
        state.reject(one, always_reject=True)
    result = run(made, state)
    assert outputs(result)[-1].output == "calls of 'refund' are rejected in this run"
    assert desk.did == []


def test_programs_that_wait_side_by_side() -> None:
    desk = Desk()
    one = "return await tools.refund({ order: 'x' });"
    model = Script([*program(one), *program(one), ("stock", {"product": "nut"})], "done")
    made = agent(model, code_mode(desk.tools), desk.tools[0])
    state = run(made, "go").to_state()
    made = agent(Script("done"), code_mode(desk.tools), desk.tools[0])
    state = restored(made, state.to_string())
    first, second = state.get_interruptions()
    state.approve(first)
    state.reject(second, rejection_message="once is enough")
    result = run(made, state)
    assert [one.output for one in outputs(result)][-2] == "refunded x"
    assert "once is enough" in outputs(result)[-1].output
    assert desk.did == [("stock", "nut"), ("x", 500)]


def test_needs_approval_may_be_a_function() -> None:
    seen: list[Any] = []

    async def large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        seen.append((context.context, arguments))
        return arguments["cents"] > 1000

    did: list[int] = []

    @function_tool(needs_approval=large)
    def refund(cents: int = 500) -> int:
        """Give money back."""
        did.append(cents)
        return cents

    js = "return await Promise.all([tools.refund({}), tools.refund({ cents: 2000 })]);"
    made = agent(Script(program(js), "done"), code_mode([refund]))
    result = run(made, "go", context={"user": 1})
    assert [one.arguments for one in result.interruptions] == ['{"cents": 2000}']
    assert seen == [({"user": 1}, {"cents": 500}), ({"user": 1}, {"cents": 2000})]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    assert value(run(made, state)) == [500, 2000]
    assert did == [500, 2000]


@pytest.mark.parametrize(
    "rules",
    [
        {"stock": True},
        {"stock": lambda _context, arguments, _call_id: arguments["product"] == "nut"},
        lambda name, arguments: (name, arguments) == ("stock", {"product": "nut"}),
        "destructive",
    ],
    ids=["True", "a function of the call", "a function of all", "destructive"],
)
def test_rules_beside_those_of_the_tools(rules: Any) -> None:
    desk = Desk()
    made = agent(Script(program("return await tools.stock({ product: 'nut' });")), code_mode(desk.tools, approve=rules))
    assert [one.name for one in run(made, "go").interruptions] == ["stock"]
    assert desk.did == []


@pytest.mark.parametrize(
    ("rules", "why"),
    [({"stok": True}, "Did you mean 'stock'"), ({"stock": 1}, "must be True"), (["stock"], "such as {")],
)
def test_rules_that_mean_nothing(rules: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        code_mode(Desk().tools, approve=rules)


def test_tools_are_a_list() -> None:
    with pytest.raises(ValueError, match="tools must be a list of tools, got FunctionTool"):
        code_mode(Desk().tools[0])  # pyright: ignore[reportArgumentType]


def test_an_edited_input_is_checked_and_runs() -> None:
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    first, second = state.get_interruptions()
    approve(state, first, input={"order": "c", "cents": 1})
    approve(state, second)
    assert value(run(made, state)) == ["refunded c", "refunded b"]
    with pytest.raises(ValueError, match="one call of a codeMode program"):
        approve(state, first, always_approve=True, input={})


@pytest.mark.parametrize("is_kept", [False, True], ids=["in the process", "as JSON"])
def test_a_wrong_edited_input_is_refused_and_the_call_stays_undecided(is_kept: bool) -> None:
    desk, made, state = paused_at_two(is_kept)
    first, second = state.get_interruptions()
    with pytest.raises(ValueError, match="order: expected string, got number"):
        approve(state, first, input={"order": 5})
    assert [call.name for call in run(made, state).interruptions] == ["refund", "refund"]
    approve(state, first, input={"order": "c"})
    state.reject(second)
    assert value(run(made, state))[0] == "refunded c"
    assert desk.did == [("c", 500)]


def test_an_edit_of_a_call_with_an_image_keeps_its_handle() -> None:
    published: list[tuple[ToolOutputImage, str]] = []

    @function_tool
    def shot() -> ToolOutputImage:
        """Take a picture."""
        return ToolOutputImage(image_url="data:image/png;base64,aGVsbG8=")

    @function_tool(needs_approval=True)
    def publish(picture: ToolOutputImage, title: str) -> str:
        """Publish a picture."""
        published.append((picture, title))
        return title

    js = "return await tools.publish({ picture: await tools.shot({}), title: 'a' })"
    made = agent(Script(program(js), "done"), code_mode([shot, publish]))
    state = run(made, "go").to_state()
    (call,) = state.get_interruptions()
    approve(state, call, input={**json.loads(call.arguments), "title": "b"})
    assert outputs(run(made, state))[-1].output == "b"
    assert published == [(ToolOutputImage(image_url="data:image/png;base64,aGVsbG8="), "b")]


def test_an_edited_input_that_is_refused_at_the_resume_ran_nothing() -> None:
    desk = Desk()
    rich = {"execution_policy": {"values": "rich"}}  # such inputs are validated by the program only
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools, rich))
    text = run(made, "go").to_state().to_string()
    state = restored(made, text)
    first, second = state.get_interruptions()
    approve(state, first)
    approve(state, second, input={"order": 5})
    with pytest.raises(UserError, match=r"got number\. Nothing ran: decide again") as refused:
        run(made, state)
    assert "signing key" not in str(refused.value)
    assert desk.did == []
    state = restored(made, text)
    for item in state.get_interruptions():
        approve(state, item)
    assert value(run(made, state)) == ["refunded a", "refunded b"]


def test_what_somebody_writes_into_a_rejection_edits_nothing() -> None:
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    state = run(made, "go").to_state()
    for one in state.get_interruptions():
        state.reject(one, rejection_message=f'codemode:edited:{one.call_id}:{{"order":"mine"}}')
    assert all("mine" in said for said in value(run(made, state)))
    assert desk.did == []


def forged(kept: Any) -> Any:
    """Return a state in which the program of a pause is another one."""
    if isinstance(kept, dict):
        return {key: _other(one) if key == "encrypted_content" and one else forged(one) for key, one in kept.items()}
    return [forged(one) for one in kept] if isinstance(kept, list) else kept


def _other(text: str) -> str:
    continuation = json.loads(text)
    body = json.loads(json.dumps(continuation["body"]).replace("one.value", "null"))
    assert body != continuation["body"]
    return json.dumps({**continuation, "body": body})


def test_a_state_that_was_changed_does_not_go_on() -> None:
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    state = asyncio.run(RunState.from_json(made, forged(run(made, "go").to_state().to_json())))
    for one in state.get_interruptions():
        state.approve(one)
    with pytest.raises(UserError, match="cannot resume"):
        run(made, state)
    assert desk.did == []


def test_a_state_that_was_answered_goes_on_by_the_first_answers_alone() -> None:
    desk = Desk()
    made = agent(Script(program(TWO), "done"), code_mode(desk.tools))
    kept = run(made, "go").to_state().to_json()
    first, second = (asyncio.run(RunState.from_json(made, kept)) for _ in range(2))
    for one, other in zip(first.get_interruptions(), second.get_interruptions(), strict=True):
        first.approve(one)
        second.reject(other)
    run(made, first)
    done = list(desk.did)
    with pytest.raises(UserError, match=r"answered before: .* Continue with the state of the run from") as caught:
        run(made, second)
    assert "Signing keys" not in str(caught.value)
    assert desk.did == done


def without_pauses(kept: Any) -> Any:
    """Return a state that says what waits, and not of what program."""
    if isinstance(kept, dict):
        return {key: without_pauses(one) for key, one in kept.items() if key != "encrypted_content"}
    return [without_pauses(one) for one in kept] if isinstance(kept, list) else kept


def test_a_program_whose_pause_is_lost_does_not_begin_again() -> None:
    desk = Desk()
    js = "await tools.stock({ product: 'nut' }); return await tools.refund({ order: 'a' });"
    made = agent(Script(program(js), "done"), code_mode(desk.tools))
    state = asyncio.run(RunState.from_json(made, without_pauses(run(made, "go").to_state().to_json())))
    state.approve(state.get_interruptions()[0])
    with pytest.raises(UserError, match="lacks the continuation"):
        run(made, state)
    assert desk.did == [("stock", "nut")]


KEYED = """
import asyncio, sys
sys.path.insert(0, {tests!r})
import codemode
from agents import RunState, Runner
from codemode_openai_agents import code_mode
from scripted_model import QUIET, Script, agent
from test_openai_agents_approvals import Desk
codemode.set_continuation_signing_key(b"k" * 32)

async def main():
    desk = Desk()
    made = agent(Script("done"), code_mode(desk.tools))
    state = await RunState.from_string(made, sys.stdin.read())
    for one in state.get_interruptions():
        state.approve(one)
    result = await Runner.run(made, state, run_config=QUIET)
    print(result.final_output, desk.did)

asyncio.run(main())
"""


@pytest.mark.full  # the same as JSON above, with the seconds that it takes to import the SDK
def test_another_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    settings = {"continuation": {"keys": [b"k" * 32]}}
    js = "const n = await tools.stock({ product: 'nut' }); return [n, await tools.refund({ order: 'a' })];"
    made = agent(Script(program(js), "done"), code_mode(desk.tools, settings))
    text = run(made, "go").to_state().to_string()
    command = [sys.executable, "-c", KEYED.format(tests=str(Path(__file__).parent))]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done [('a', 500)]\n"), done.stderr
    assert desk.did == [("stock", "nut")]

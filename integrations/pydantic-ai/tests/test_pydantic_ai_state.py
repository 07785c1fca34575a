"""State between programs: one conversation's own, known by its history, and never another's."""

from __future__ import annotations

import asyncio
import json

from codemode_pydantic_ai import CodeMode, ExecWait, conversation_state
from codemode_pydantic_ai.conversation_state import ConversationStates
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, ToolCallPart
from scripted import Script, execute
from suite import each_row

WRITE = "await state.set('n', (await state.get('n') ?? 0) + 1); return await state.get('n')"


class Context:
    """What a call knows of its conversation."""

    run_id = None

    def __init__(self, conversation_id, *calls):
        self.conversation_id = conversation_id
        self.messages = [ModelResponse([ToolCallPart("codeMode", {"js": js}, tool_call_id=one)]) for one, js in calls]


def kept(states, context):
    return states.get_or_create_backend(context, {})


def test_a_conversation_is_known_by_a_call_of_its_history():
    states = ConversationStates("codeMode", "js")
    first = kept(states, Context("c", ("1", "a")))
    assert kept(states, Context("c", ("1", "a"), ("2", "b"))) is first
    later = Context("c", ("1", "a"), ("2", "b"), ("3", "c"))
    later.messages.insert(1, ModelRequest([]))
    assert kept(states, later) is first
    assert kept(states, Context("c", ("3", "c"), ("4", "d"))) is first  # the beginning was left out


@each_row(
    "forged",
    [
        Context("c", ("9", "x")),
        Context("c", ("1", "other"), ("9", "x")),
        Context("c", ("other", "a"), ("9", "x")),
        Context("d", ("1", "a"), ("9", "x")),
        Context(None, ("1", "a"), ("9", "x")),
        Context("c1", ("", "a"), ("9", "x")),
    ],
)
def test_an_id_alone_opens_nothing(forged):
    states = ConversationStates("codeMode", "js")
    assert kept(states, Context("c", ("1", "a"))) is not kept(states, forged)


def test_a_call_that_two_conversations_of_one_id_have_made_opens_neither():
    states, contexts = ConversationStates("codeMode", "js"), []
    for run_id in ("a", "b"):  # models repeat ids as programs
        contexts.append(Context("c", ("1", "a")))
        contexts[-1].run_id = contexts[-1].messages[-1].run_id = run_id
    first, second = (kept(states, one) for one in contexts)
    later = kept(states, Context("c", ("1", "a"), ("2", "b")))
    assert len({id(one) for one in (first, second, later)}) == 3
    assert kept(states, Context("c", ("1", "a"), ("2", "b"), ("3", "c"))) is later


def test_such_a_call_opens_neither_when_one_of_them_is_forgotten(monkeypatch):
    monkeypatch.setattr(conversation_state, "MAX_CONVERSATIONS", 3)
    states = ConversationStates("codeMode", "js")

    def called(conversation_id, run_id, *calls):
        context = Context(conversation_id, *calls)
        context.run_id = run_id
        for message in context.messages[-1:]:
            message.run_id = run_id
        return kept(states, context)

    called("c", "a", ("1", "x"))
    called("other", "b", ("1", "x"))
    second = called("c", "c", ("1", "x"))
    called("more", "d", ("1", "x"))  # the first is forgotten
    third = called("c", "e", ("1", "x"))
    assert called("c", "f", ("1", "x"), ("2", "y")) not in (second, third)


def test_calls_of_one_response_share_and_arguments_that_are_no_json_harm_nobody():
    states, known = ConversationStates("codeMode", "js"), {}
    context = Context("c", ("1", "a"))
    context.messages[-1].parts.append(ToolCallPart("codeMode", "{broken", tool_call_id="2"))
    assert states.get_or_create_backend(context, known) is states.get_or_create_backend(context, known)


def test_the_conversations_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(conversation_state, "MAX_CONVERSATIONS", 2)
    states = ConversationStates("codeMode", "js")
    contexts = [Context(str(n), ("1", "a")) for n in range(3)]
    places = [kept(states, context) for context in contexts]
    assert kept(states, contexts[2]) is places[2]
    assert kept(states, contexts[0]) is not places[0]


def test_what_is_kept_is_bounded_in_all(monkeypatch):
    monkeypatch.setattr(conversation_state, "MAX_TOTAL_BYTES", 1000)
    states = ConversationStates("codeMode", "js")
    first, second = Context("1", ("1", "a")), Context("2", ("1", "a"))
    place = kept(states, first)
    asyncio.run(place.set("k", "x" * 900))
    asyncio.run(kept(states, second).set("k", "x" * 900))
    kept(states, second)
    assert kept(states, first) is not place


def agent(script, **options):
    return Agent(script.model, capabilities=[CodeMode(**options)], tools=[dice])


def dice() -> int:
    """Throw."""
    return 4


def program(js, call_id):
    return [ToolCallPart("codeMode", {"js": js}, tool_call_id=call_id)]


def runs(made, *prompt, **more):
    return asyncio.run(made.run(*prompt, **more))


def answers(result):
    return [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if part.part_kind == "tool-return" and part.tool_name == "codeMode"
    ]


def test_programs_of_a_conversation_find_what_was_left_across_runs():
    script = Script(
        program(WRITE, "a"), program(WRITE, "b"), "done", program(WRITE, "c"), "done", program(WRITE, "d"), "done"
    )
    made = agent(script)
    first = runs(made, "go")
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    assert answers(runs(made, "again", message_history=history)) == [1, 2, 3]
    assert answers(runs(made, "somebody else")) == [1]


def test_a_result_that_is_too_large_is_whole_for_the_next_program():
    large = program("return Array.from({ length: 9000 }, (_, n) => n)", "a")
    script = Script(large, program("return (await state.get('result:1')).length", "b"), "done")
    told, length = answers(runs(agent(script), "go"))
    assert 'await state.get("result:1")' in told
    assert len(told) < 20_000
    assert length == 9000


def test_a_place_of_the_hosts_own_stands_in_for_it_and_false_turns_it_off():
    mapping = {}
    script = Script(program(WRITE, "a"), "done")
    runs(agent(script, options={"state": mapping}), "go")
    assert mapping == {"n": 1}
    script = Script(program("return typeof state", "a"), "done")
    assert answers(runs(agent(script, options={"state": False}), "go")) == ["undefined"]
    assert "state.get" not in json.dumps(script.seen[0][1].function_tools[0].description)


def returns(script):
    return [part for message in script.seen[-1][0] for part in message.parts if part.part_kind == "tool-return"]


def test_programs_of_exec_have_the_state_of_their_conversation_too():
    waits = "await yield_control(); await state.set('w', await state.get('n')); return await state.get('w')"
    script = Script(execute(WRITE, "a"), execute(WRITE, "b"), "done", execute(waits, "c"))
    script.steps += [script.waits_to_the_end, "done", execute(WRITE, "d"), "done"]
    made = Agent(script.model, capabilities=[ExecWait()], tools=[dice])

    def values(result):
        parts = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
        return [part.content["value"] for part in parts if part.content["status"] == "completed"]

    first = runs(made, "go")
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    assert values(runs(made, "again", message_history=history)) == [1, 2, 2]
    assert "waiting" in [part.content["status"] for part in returns(script)]
    assert values(runs(made, "somebody else")) == [1]


def test_a_large_result_of_exec_is_whole_for_the_next_program():
    large = execute("await yield_control(); return Array.from({ length: 9000 }, (_, n) => n)", "a")
    script = Script(large)
    script.steps += [script.waits_to_the_end, execute("return (await state.get('result:1')).length", "b"), "done"]
    runs(Agent(script.model, capabilities=[ExecWait()], tools=[dice]), "go")
    *_, told, length = [part.content["value"] for part in returns(script) if part.content["status"] == "completed"]
    assert 'await state.get("result:1")' in told
    assert length == 9000


def test_exec_takes_a_place_of_the_hosts_own_or_none():
    mapping = {}
    script = Script(execute(WRITE, "a"), "done")
    runs(Agent(script.model, capabilities=[ExecWait(settings={"state": mapping})], tools=[dice]), "go")
    assert mapping == {"n": 1}
    script = Script(execute("return typeof state", "a"), "done")
    runs(Agent(script.model, capabilities=[ExecWait(settings={"state": False})], tools=[dice]), "go")
    assert script.returned("a")["value"] == "undefined"

"""What programs leave for each other: which requests are answered, how much is kept, and what is only read."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeError, CodeModeOptions, CodeModeProtocolError, MediaContent
from codemode import CodeModeToolError as ToolError
from codemode.data.content import current_registry
from codemode.errors import CodeModeSerializationError
from codemode.execution import program_state
from codemode.execution.call_context import (
    BufferedStateBackend,
    InMemoryStateBackend,
    MappingStateBackend,
    resolve_state_option,
)
from codemode.execution.outcome import RunOutcome
from codemode.execution.program_state import (
    MAX_KEY_CHARACTERS,
    ProgramState,
    perform_state_request,
    save_and_describe_large_result,
    save_large_result_and_delete_old,
)
from codemode.options.parts import ExecutionPolicy
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected
from codemode.protocol.references import ContentRegistry

POLICY = ExecutionPolicy()


def entry(name, *arguments, text=None, outcome=None):
    text = json.dumps([*arguments], separators=(",", ":")) if text is None else text
    return LedgerEntry(1, "state", f"state.{name}", text, outcome=outcome)


def perform(state, name, *arguments, **more):
    answer = asyncio.run(perform_state_request(state, entry(name, *arguments, **more), POLICY))
    return None if answer is None else json.loads(answer)


@pytest.mark.parametrize("make", [dict, InMemoryStateBackend, BufferedStateBackend], ids=["mapping", "texts", "late"])
def test_what_one_writes_the_next_reads(make):
    made = make()
    place = resolve_state_option(made, None)
    first, second = ProgramState(place), ProgramState(place)
    assert perform(first, "get", "a") is None
    for key in ("a", "__proto__", "constructor", "ü/\U0001f600"):
        assert perform(first, "set", key, {"__proto__": [1, 2**70, None]}) is None
        assert perform(second, "get", key) == {"__proto__": [1, 2**70, None]}
    assert perform(second, "keys") == sorted(["a", "__proto__", "constructor", "ü/\U0001f600"])
    perform(second, "delete", "a")
    perform(second, "delete", "a")
    assert perform(first, "get", "a") is None


def test_null_is_a_value_and_nothing_is_none():
    state = ProgramState(InMemoryStateBackend())
    perform(state, "set", "k", None)
    assert asyncio.run(perform_state_request(state, entry("get", "k"), POLICY)) == "null"
    assert asyncio.run(perform_state_request(state, entry("get", "other"), POLICY)) is None


def test_a_mapping_has_plain_json_that_no_program_shares():
    mapping = {"given": {"list": [1]}}
    state = ProgramState(resolve_state_option(mapping, None))
    perform(state, "set", "made", {"deep": [1]})
    assert mapping["made"] == {"deep": [1]}
    assert perform(state, "get", "given") == {"list": [1]}


@each_row("key", ["", "x" * (MAX_KEY_CHARACTERS + 1), "a\x00b", "a\nb", "\x7f"])
@each_row("name", ["get", "set", "delete"])
def test_keys_that_a_store_may_not_take_are_refused(key, name):
    with pytest.raises(ToolError, match="a key has"):
        perform(ProgramState(InMemoryStateBackend()), name, key, *([1] if name == "set" else []))


@pytest.mark.parametrize("name", ["set", "delete"])
def test_results_are_read_and_never_written(name):
    place = InMemoryStateBackend({"result:1": "[1]"})
    with pytest.raises(ToolError, match="which programs only read"):
        perform(ProgramState(place), name, "result:1", *([2] if name == "set" else []))
    assert perform(ProgramState(place), "get", "result:1") == [1]


def test_all_values_together_are_bounded_before_one_is_kept():
    place = InMemoryStateBackend({"before": json.dumps("x" * 400_000), "result:1": json.dumps("x" * 5_000_000)})
    state = ProgramState(place)
    perform(state, "set", "a", "y" * 500_000)
    with pytest.raises(ToolError, match="of at most 1048576; delete some keys"):
        perform(state, "set", "b", "y" * 200_000)
    assert asyncio.run(place.get("b")) is None
    perform(state, "set", "a", "y" * 300_000)  # in the place of more
    perform(state, "set", "b", "y" * 200_000)
    perform(state, "delete", "before")
    perform(state, "set", "c", "y" * 400_000)


class SlowPlace(InMemoryStateBackend):
    """Keeps what it is given once it is let, which others see only then."""

    def __init__(self, texts=None):
        super().__init__(texts)
        self.asked, self.came, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def set(self, key, value):
        self.asked += 1
        if self.asked == 2:
            self.came.set()
        await self.go_on.wait()
        if value == '"fails"':
            raise OSError
        await super().set(key, value)


def both(place, *values, key=str):
    """Write these at once, each by a program of its own; return which were taken."""

    async def run():
        states = [ProgramState(place) for _ in values]
        writes = [
            asyncio.ensure_future(perform_state_request(state, entry("set", key(at), value), POLICY))
            for at, (state, value) in enumerate(zip(states, values, strict=True))
        ]
        await asyncio.wait_for(place.came.wait(), 60)
        place.go_on.set()
        ended = await asyncio.gather(*writes, return_exceptions=True)
        return [one is None for one in ended], states[0]

    return asyncio.run(run())


def test_programs_at_once_share_the_room_of_a_place():
    place = SlowPlace()
    taken, state = both(place, *["x" * 400_000] * 4)
    assert taken == [True, True, False, False]
    assert place.size < 1 << 20
    perform(state, "set", "more", "x" * 200_000)
    with pytest.raises(ToolError, match="of at most"):
        perform(ProgramState(place), "set", "still", "x" * 200_000)


def test_so_do_those_of_one_mapping_and_each_other_one_has_its_own():
    mapping = {}
    first, second = ProgramState(resolve_state_option(mapping, None)), ProgramState(resolve_state_option(mapping, None))
    for state in (first, second):
        perform(state, "get", "a")
    perform(first, "set", "a", "x" * 600_000)
    with pytest.raises(ToolError, match="of at most"):
        perform(second, "set", "b", "x" * 600_000)
    perform(ProgramState(resolve_state_option({}, None)), "set", "b", "x" * 600_000)
    perform(second, "delete", "a")
    perform(first, "set", "b", "x" * 600_000)


def test_of_one_key_that_is_written_at_once_the_largest_counts_until_it_is_looked_at_again():
    place = SlowPlace()
    taken, state = both(place, "x" * 900_000, "y", key=lambda _: "same")
    assert taken == [True, True]
    left = (1 << 20) - place.size - len('other""')
    with pytest.raises(ToolError, match="of at most"):
        perform(state, "set", "other", "x" * (left + 1))
    perform(state, "set", "other", "x" * left)


def test_what_could_not_be_written_takes_no_room():
    place = SlowPlace()
    taken, state = both(place, "fails", "x" * 500_000)
    assert taken == [False, True]
    perform(state, "set", "other", "x" * 500_000)


def test_content_is_refused_with_what_to_do():
    contents = ContentRegistry().assign_to_invocation(POLICY, "salt")
    place = contents.register(MediaContent(b"x", "image/png"))
    quoted = {"note": json.dumps(place), "$content:" + "0" * 24: "another run's"}

    async def run():
        current_registry.set(contents)
        state = ProgramState(InMemoryStateBackend())
        await perform_state_request(state, entry("set", "a", quoted), POLICY)
        for value in (place, {"deep": [place]}, {"a": 1} | place):
            with pytest.raises(ToolError, match="cannot be kept in state"):
                await perform_state_request(state, entry("set", "b", value), POLICY)

    asyncio.run(run())


def test_keys_are_bounded(monkeypatch):
    monkeypatch.setattr(program_state, "MAX_STATE_KEYS", 2)
    state = ProgramState(InMemoryStateBackend({"result:7": "1"}))
    perform(state, "set", "a", 1)
    perform(state, "set", "b", 1)
    with pytest.raises(ToolError, match="2 keys already"):
        perform(state, "set", "c", 1)
    perform(state, "set", "a", 2)


@each_row("text", ["[]", "{}", "null", '["a",1,2]', "[1,2]", "[null,1]"])
def test_what_no_kernel_sends_ends_the_run(text):
    with pytest.raises(CodeModeProtocolError):
        perform(ProgramState(InMemoryStateBackend()), "set", text=text)


@pytest.mark.parametrize("name", ["clear", "__class__", ""])
def test_requests_of_other_names_end_the_run(name):
    with pytest.raises(CodeModeProtocolError):
        perform(ProgramState(InMemoryStateBackend()), name, "a")


@given(st.text())
def test_no_text_breaks_the_reader(text):
    with contextlib.suppress(CodeModeError):
        perform(ProgramState(InMemoryStateBackend()), "set", text=text)


def test_a_value_that_was_too_large_to_be_sent_is_refused():
    large = LedgerEntry(1, "state", "state.set", None, input_bytes=2_000_000)
    with pytest.raises(CodeModeSerializationError, match="2000000 bytes"):
        asyncio.run(perform_state_request(ProgramState(InMemoryStateBackend()), large, POLICY))


def test_without_a_place_a_program_is_told_so():
    with pytest.raises(ToolError, match="there is no state"):
        perform(None, "get", "a")


def test_requests_are_performed_in_the_order_in_which_they_were_made():
    state = ProgramState(InMemoryStateBackend())

    async def both():
        asked = [entry("set", "a", "x" * 100_000), entry("set", "a", 2), entry("get", "a"), entry("keys")]
        return await asyncio.gather(*(perform_state_request(state, one, POLICY) for one in asked))

    assert asyncio.run(both())[2:] == ["2", '["a"]']


def test_what_is_kept_late_is_read_at_once_and_told_of_in_the_end():
    place = BufferedStateBackend({"old": "1", "gone": "2"})
    state = ProgramState(place)
    perform(state, "set", "new", {"a": 1})
    perform(state, "delete", "gone")
    assert perform(state, "keys") == ["new", "old"]
    assert {key: value and json.loads(value) for key, value in place.updates.items()} == {"new": {"a": 1}, "gone": None}


def test_a_replay_writes_again_only_where_nothing_was_kept():
    written = [
        entry("set", 'k"\\', {"v": ["]", '"']}, outcome=Fulfilled(None)),
        entry("set", "x", 1, outcome=Fulfilled(None)),
        entry("delete", "x", outcome=Fulfilled(None)),
        entry("get", "old", outcome=Fulfilled("1")),
        entry("set", "refused", 1, outcome=Rejected("Error", "no", "CODE")),
        entry("set", text='["\\ud800",1]', outcome=Fulfilled(None)),
    ]
    late, kept = BufferedStateBackend({"old": "1"}), InMemoryStateBackend()
    for place in (late, kept):
        state = ProgramState(place)
        for one in written:
            state.apply_replayed_request(one)
    assert asyncio.run(kept.keys()) == []
    assert late.updates == {'k"\\': '{"v":["]","\\""]}', "x": None, "\ufffd": "1"}


def test_the_newest_results_are_kept(monkeypatch):
    monkeypatch.setattr(program_state, "MAX_RESULTS", 3)
    place = InMemoryStateBackend({"result:x": "1", "resulted": "2", "result:": "3"})

    async def keep():
        return [await save_large_result_and_delete_old(place, [n]) for n in range(5)]

    assert asyncio.run(keep()) == [f"result:{n}" for n in range(1, 6)]
    assert sorted(asyncio.run(place.keys())) == ["result:", "result:3", "result:4", "result:5", "result:x", "resulted"]


def test_results_are_bounded_together_and_alone(monkeypatch):
    monkeypatch.setattr(program_state, "MAX_RESULT_BYTES", 1000)
    place = InMemoryStateBackend()

    async def keep(*sizes):
        return [await save_large_result_and_delete_old(place, "x" * size) for size in sizes]

    assert asyncio.run(keep(400, 500, 300, 2000)) == ["result:1", "result:2", "result:3", None]
    assert asyncio.run(place.keys()) == ["result:2", "result:3"]
    assert (
        asyncio.run(save_large_result_and_delete_old(place, "\u20ac" * 300)) is None
    )  # which takes six times as much as it is kept


def test_a_result_that_comes_again_keeps_its_key():
    place = InMemoryStateBackend()
    assert [asyncio.run(save_large_result_and_delete_old(place, [1])) for _ in range(2)] == ["result:1", "result:1"]


def test_a_place_that_fails_costs_the_key_alone(caplog):
    class Broken(InMemoryStateBackend):
        async def set(self, key, value):
            raise OSError("the disk is gone")

    text = asyncio.run(
        save_and_describe_large_result(RunOutcome("completed", "c", [], value="x" * 5000), 1000, Broken())
    )
    assert "The rest was dropped" in text
    assert "the disk is gone" in caplog.text


def test_what_stands_for_a_place():
    assert isinstance(resolve_state_option({}, None), MappingStateBackend)
    assert resolve_state_option(place := InMemoryStateBackend(), None) is place
    by_conversation = {"a": {}, "b": {}}
    made = resolve_state_option(by_conversation.get, "a")
    asyncio.run(made.set("k", "1"))
    assert by_conversation == {"a": {"k": 1}, "b": {}}
    assert resolve_state_option(by_conversation.get, "c") is None
    with pytest.raises(TypeError, match="state must give"):
        resolve_state_option(lambda _binding: 5, None)


@pytest.mark.parametrize("state", [5, "place", [1], object()])
def test_options_take_no_other_place(state):
    with pytest.raises(ValueError, match="state must be"):
        CodeModeOptions(state=state)


@each_row("text", ['["k",[1,"]"]]', '[ "k",[1,"]"]]', '["k" ,[1,"]"]]', '["k",\t[1,"]"]\n]', '["\\u006b", [1, "]"] ]'])
def test_a_replay_takes_what_was_written_however_a_worker_spelled_it(text):
    live, late = BufferedStateBackend(), BufferedStateBackend()
    asyncio.run(perform_state_request(ProgramState(live), entry("set", text=text), POLICY))
    ProgramState(late).apply_replayed_request(entry("set", text=text, outcome=Fulfilled(None)))
    assert {key: json.loads(value) for key, value in late.updates.items()} == {"k": [1, "]"]}
    assert late.updates.keys() == live.updates.keys()
    assert not any(value[:1].isspace() or value[-1:].isspace() for value in late.updates.values())

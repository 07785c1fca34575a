"""Looking among thousands of tools, and in schemas of any shape, leaves the loop, is bounded and can be stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from waiting import within

from codemode import CodeModeTimeoutError, Tool, create_code_mode_tool
from codemode.data import similar_names
from codemode.errors import CodeModeSyntaxError
from codemode.execution import programs
from codemode.host import steps
from codemode.host.threads import LARGE_CHARACTERS, HostThreads, InvocationThreads
from codemode.source import checks
from codemode.source.checks import find_program_problems, find_result_field_problems
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools
from codemode.tools.search import index as tool_index
from codemode.tools.search import tokenizer

COUNT = 1500


async def _one(_value: Any) -> int:
    return 1


def many(count: int = COUNT, **settings: Any) -> list[Tool]:
    return [Tool(f"readOrder{n}", execute=_one, description=f"Read orders {n}.", **settings) for n in range(count)]


def threads_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> set[bool]:
    """Where something runs to its end: True for the thread of the loop."""
    seen: set[bool] = set()
    real = getattr(owner, name)

    def watched(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        seen.add(threading.current_thread() is threading.main_thread())
        return result

    monkeypatch.setattr(owner, name, watched)
    return seen


def test_loop_the_first_search_makes_the_index_elsewhere_and_once(monkeypatch):
    seen = threads_of(monkeypatch, tool_index, "_create_text_index")
    made: list[int] = []
    real = tool_index._create_text_index
    monkeypatch.setattr(tool_index, "_create_text_index", lambda tools: made.append(len(tools)) or real(tools))
    code_mode = create_code_mode_tool(many())
    js = "return (await Promise.all(['orders', 'order', 'read'].map(tools.$search))).map((found) => found.length)"

    async def several() -> list[Any]:
        return await asyncio.gather(*(code_mode.execute({"js": js}) for _ in range(4)))

    assert within(several()) == [[10, 10, 10]] * 4
    assert (seen, made) == ({False}, [COUNT])


def test_loop_whoever_makes_the_index_may_give_its_turn_to_another_search():
    """Both in one share and in two: nobody waits for the lock with the turn that its owner needs."""
    catalog = Catalog(collect_tools(many(3000)))
    shares = [HostThreads(), HostThreads()]

    async def search(number: int) -> int:
        invocation = InvocationThreads(shares[number % 2])
        return len(await invocation.run_cpu_bound(lambda: catalog.search("orders", 7)))

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*map(search, range(6)))

    assert within(all_of_them()) == [7] * 6


def test_loop_a_query_that_would_find_everything_by_every_word_is_cut():
    asked = tokenizer.split_query_and_drop_stopwords(" ".join(f"w{number} a{number:03}" for number in range(100)))
    assert len(asked) == tokenizer.MAX_QUERY_WORDS
    assert tokenizer.split_query_and_drop_stopwords("a order of order") == ["order"]


def test_loop_a_large_declaration_is_written_elsewhere(monkeypatch):
    from codemode.signatures import declarations as prompt

    seen = threads_of(monkeypatch, prompt, "format_tool_declarations")
    properties = {f"p{number}": {"type": "object", "properties": {"q": {"type": "string"}}} for number in range(300)}
    tool = Tool("big", execute=_one, input_schema={"type": "object", "properties": properties})
    code_mode = create_code_mode_tool([tool])
    assert within(code_mode.execute({"js": "return (await tools.$describe('big')).includes('p299')"})) is True
    assert seen == {False}


def test_loop_the_nearest_of_many_names_is_looked_for_elsewhere(monkeypatch):
    seen = threads_of(monkeypatch, Catalog, "tool_not_found_error")
    code_mode = create_code_mode_tool(many(), {"execution_policy": {"check_program": False}})
    js = "try { await tools.readOrdr7() } catch (error) { return error.message }"
    assert "Did you mean" in within(code_mode.execute({"js": js}))
    assert seen == {False}


def test_loop_errors_for_unknown_tools_share_the_list_of_names():
    catalog = Catalog(collect_tools(many(100)))
    first, second = catalog.tool_not_found_error("a"), catalog.tool_not_found_error("b")
    assert first.details["available_tools"] is second.details["available_tools"]


# --- the check of a program ---

LONG = "x" * LARGE_CHARACTERS  # a program of so many characters is checked in a thread


def test_loop_a_program_with_many_unknown_names_is_checked_elsewhere(monkeypatch):
    seen = threads_of(monkeypatch, programs, "find_program_problems")
    code_mode = create_code_mode_tool(many())
    js = "".join(f"await tools.readOrdr{number}x({{}});" for number in range(100))
    for _ in range(2):
        with pytest.raises(CodeModeSyntaxError, match="does not exist; did you mean"):
            within(code_mode.execute({"js": js}))
    assert seen == {False}


def test_loop_a_small_program_is_checked_at_once(monkeypatch):
    seen = threads_of(monkeypatch, programs, "find_program_problems")
    with pytest.raises(CodeModeSyntaxError):
        within(create_code_mode_tool(many(5)).execute({"js": "return await tools.nothing()"}))
    assert seen == {True}


def test_loop_a_deadline_ends_a_check_elsewhere(monkeypatch, passing_time):
    """A check that takes for ever does not outlive its invocation."""
    ended = threading.Event()

    def endless(*_given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            passing_time.skip(61)
        try:
            while True:
                time.sleep(0)
                steps.count_steps(steps.TURN_STEPS)
        except steps.WorkStopped:
            ended.set()
            raise

    monkeypatch.setattr(programs, "find_program_problems", endless)
    code_mode = create_code_mode_tool(many(5), {"execution_policy": {"timeout_ms": 60_000}})
    with pytest.raises(CodeModeTimeoutError):
        within(code_mode.execute({"js": f"return await tools.readOrder1({{ a: 1 }}) // {LONG}"}))
    assert ended.wait(60)


def test_loop_what_a_check_raises_ends_the_run(monkeypatch):
    def failing(*_given: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(programs, "find_program_problems", failing)
    for comment in ("", LONG):
        with pytest.raises(RuntimeError, match="broken"):
            within(
                create_code_mode_tool(many(5)).execute(
                    {"js": f"return await tools.readOrder1({{ a: 1 }}) // {comment}"}
                )
            )


def literal(depth: int) -> dict[str, Any]:
    return {"type": "array"} if not depth else {"type": "object", "open": False, "keys": {"a": literal(depth - 1)}}


def visits_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    taken: list[int] = []
    real = checks.SchemaVisitBudget.consume
    monkeypatch.setattr(
        checks.SchemaVisitBudget, "consume", lambda self, count=1: taken.append(count) or real(self, count)
    )
    return taken


def test_loop_a_schema_that_refers_to_itself_everywhere_is_looked_at_a_bounded_number_of_times(monkeypatch):
    schema = {"anyOf": [{"$ref": "#"}] * 12, "properties": {"a": {"$ref": "#"}}, "type": "object"}
    facts = {"calls": [{"name": "t", "line": 1, "column": 1, "input": literal(6)}] * 500}
    taken = visits_taken(monkeypatch)
    find_program_problems(facts, {"t"}, lambda _name: schema)
    assert sum(taken) <= checks.MAX_VISITS + 2000


WIDE = 8000
NAMES = {f"property{number}": {} for number in range(WIDE)}
LAST = {f"lastOne{number}": {} for number in range(8)}
CLOSED = {"type": "object", "properties": {**NAMES, **LAST}, "additionalProperties": False}
# A schema, and keys that are aliases in it at best: nothing is certainly wrong, and each look goes through all of it.
WIDE_SCHEMAS = {
    "properties": (CLOSED, [f"last_one_{number}" for number in range(8)]),
    "required": ({"type": "object", "properties": {"a": {}}, "required": ["a"] * WIDE}, ["a"]),
    "aliases": ({"required": [f"a{'_' * number}b" for number in range(1, 200)] * (WIDE // 200)}, ["ab"]),
    "types": ({"type": [*["string"] * WIDE, "object"], "properties": {}}, ["a"]),
}


def call_facts(keys: list[str], count: int, *, is_open: bool) -> dict[str, Any]:
    known = {"type": "object", "open": is_open, "keys": {key: {"type": "unknown"} for key in keys}}
    return {"calls": [{"name": "t", "line": 1, "column": 1, "input": known}] * count}


@pytest.mark.parametrize(("schema", "keys"), WIDE_SCHEMAS.values(), ids=WIDE_SCHEMAS)
def test_loop_a_look_at_a_wide_schema_counts_for_as_much_as_it_is(schema, keys, monkeypatch):
    monkeypatch.setattr(checks, "MAX_VISITS", 5 * WIDE)
    taken = visits_taken(monkeypatch)
    facts = call_facts(keys, 20, is_open="required" not in schema)
    find_program_problems(facts, {"t"}, lambda _name: schema)
    assert sum(taken) >= WIDE
    assert find_program_problems(facts, {"t"}, lambda _name: schema) == []


def test_loop_a_name_as_long_as_a_schema_is_read_once(monkeypatch):
    folded: list[str] = []
    real = checks.fold_name
    monkeypatch.setattr(checks, "fold_name", lambda name: folded.append(name) or real(name))
    name = f"a{'_' * 10_000}b"
    schema = {"properties": {name: {}}, "required": [name], "additionalProperties": False}
    assert find_program_problems(call_facts(["ab"], 20, is_open=False), {"t"}, lambda _name: schema) == []
    assert folded.count(name) == 1


WIDE_OUTPUTS = {
    "properties": {"type": "object", "properties": NAMES, "additionalProperties": False},
    "types": {"type": ["null"] * WIDE + ["object"], "properties": {}, "additionalProperties": False},
}


@pytest.mark.parametrize("output", WIDE_OUTPUTS.values(), ids=WIDE_OUTPUTS)
def test_loop_a_look_at_a_wide_output_counts_for_as_much_as_it_is(output):
    schema = {"anyOf": [*[{"$ref": "#/$defs/wide"}] * 9, {}], "$defs": {"wide": output}}
    facts = {"reads": [{"tool": "t", "name": "zzz", "line": 1, "column": 1}] * 10}
    assert find_result_field_problems(facts, {"t"}, lambda _name: schema) == []


def test_loop_a_name_that_is_far_too_long_is_not_compared(monkeypatch):
    read: list[str] = []
    real = similar_names._get_cached_character_pairs
    monkeypatch.setattr(similar_names, "_get_cached_character_pairs", lambda name: read.append(name) or real(name))
    assert similar_names.find_nearest_names("ab", ["ab" * 100_000, "abc"]) == ["abc"]
    assert read == ["abc"]


BRANCHES = (("anyOf", "oneOf"), ("oneOf", "anyOf"))


@pytest.mark.parametrize(("first", "second"), BRANCHES)
def test_loop_what_a_schema_expects_that_is_a_branch_of_itself_is_said_all_the_same(first: str, second: str):
    schema: dict[str, Any] = {"properties": {"a": {first: [{"type": "string"}], second: [{"$ref": "#/properties/a"}]}}}
    code_mode = create_code_mode_tool([Tool("t", execute=_one, input_schema=schema)])
    with pytest.raises(CodeModeSyntaxError, match=r"input\.a is an object, expected"):
        within(code_mode.execute({"js": "return await tools.t({ a: {} })"}))

"""What tools return in unusual shapes, and what a forged pause holds, is weighed before any of it is worked on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from suite import each_row

from codemode import CodeModeProtocolError, Tool, run_code_mode, run_code_mode_sync
from codemode.continuations.sealing import verify_and_decode_continuation
from codemode.data.json_shape import estimate_json_length, has_more_values_than
from codemode.errors import CodeModeSerializationError
from codemode.options.parts import ContinuationOptions

MANY = list(range(5000))


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


@dataclass(slots=True)
class Slotted:
    items: list[int]


def counting():
    return (number for number in itertools.count())


@pytest.mark.parametrize(
    "value",
    [Open(rows=MANY), Slotted(MANY), deque(MANY), {"a": deque(MANY)}],
    ids=["extra", "slots", "deque", "nested"],
)
def test_loop_what_unusual_containers_hold_is_counted(value):
    assert estimate_json_length(value, 2000) >= 2000
    assert has_more_values_than(value, 4000)


@pytest.mark.parametrize("value", [iter(MANY), {"a": (one for one in MANY)}], ids=["iterator", "generator"])
def test_loop_what_nobody_can_count_is_not_written_on_the_loop(value):
    assert estimate_json_length(value, 2000) >= 2000


def test_loop_many_keys_are_not_added_up():
    class Key(str):
        def __len__(self):
            raise AssertionError("looked at")

    assert estimate_json_length({Key(number): number for number in range(5000)}, 2000) >= 2000


@pytest.mark.parametrize("is_async", [True, False])
def test_loop_a_generator_runs_in_a_thread_and_gives_all_it_has_once(is_async):
    seen = set[int]()

    def numbers():
        for number in MANY:
            seen.add(threading.get_ident())
            yield number

    async def later(_: Any) -> Any:
        return numbers()

    execute = later if is_async else lambda _: numbers()

    async def given():
        result = await run_code_mode("return (await tools.give({})).length", [Tool("give", execute=execute)])
        return result, threading.get_ident()

    length, loop_thread = asyncio.run(given())
    assert length == len(MANY)
    assert seen
    assert loop_thread not in seen


def test_loop_a_generator_without_an_end_is_one_value_too_many():
    tool = Tool("give", execute=lambda _: counting())
    with pytest.raises(CodeModeSerializationError, match="max_values"):
        run_code_mode_sync("return await tools.give({})", [tool], options={"execution_policy": {"max_values": 1000}})


@dataclass
class Held:
    rows: Any


class Rows(BaseModel):
    rows: list[int]


class Own:
    """An iterator of the author's own that never ends."""

    def __iter__(self):
        return self

    def __next__(self):
        return 1


def long_texts():
    while True:
        yield "x" * 1_000_000


NESTED = {
    "itself": lambda one: one,
    "member": lambda one: {"a": {"rows": one}},
    "item": lambda one: [1, (2, [one])],
    "data class": lambda one: [Held(one)],
    "extra field": lambda one: Open(rows=one),
    "generator": lambda one: (inside for inside in [1, one]),
    "set": lambda one: {1, one},
    "queue": lambda one: deque([one]),
    "mapping": lambda one: MappingProxyType({"rows": one}),
}


@each_row("nest", NESTED.values(), ids=NESTED)
@each_row("schema", [None, {}, Any])
@each_row("endless, limit", [(counting, "max_values"), (long_texts, "bytes of JSON")])
def test_loop_an_iterator_without_an_end_is_bounded_wherever_it_stands(nest, schema, endless, limit):
    tool = Tool("give", execute=lambda _: nest(endless()), output_schema=schema)
    with pytest.raises(CodeModeSerializationError, match=limit):
        run_code_mode_sync("return await tools.give({})", [tool], options={"execution_policy": {"max_values": 1000}})


@each_row("endless", [counting, itertools.count, Own, lambda: map(str, itertools.count())])
@each_row("schema", [Rows, Held, dict[str, list[int]], {"type": "object"}])
def test_loop_a_validator_is_given_no_iterator_without_an_end(endless, schema):
    execute = (lambda _: Held(endless())) if schema is Held else (lambda _: {"rows": endless()})
    tool = Tool("give", execute=execute, output_schema=schema)
    with pytest.raises(CodeModeSerializationError, match="max_values"):
        run_code_mode_sync("return await tools.give({})", [tool], options={"execution_policy": {"max_values": 1000}})


@pytest.mark.parametrize("nest", list(NESTED.values())[:5], ids=list(NESTED)[:5])
def test_loop_what_an_iterator_gives_arrives_where_it_stood(nest):
    def give(_: Any) -> Any:
        return nest(number for number in range(300))

    def same(_: Any) -> Any:
        return nest(list(range(300)))

    js = "return await tools.give({})"
    result = run_code_mode_sync(js, [Tool("give", execute=give)])
    assert result == run_code_mode_sync(js, [Tool("give", execute=same)])
    assert "299" in str(result)


def test_loop_a_nested_iterator_is_read_where_its_tool_runs():
    names = set[str]()

    def numbers():
        for number in range(10):
            names.add(threading.current_thread().name)
            yield number

    tool = Tool("give", execute=lambda _: {"rows": numbers()}, output_schema=Rows)
    assert run_code_mode_sync("return (await tools.give({})).rows.length", [tool]) == 10
    assert names == {"codemode-tool"}


def test_loop_what_a_nested_iterator_raises_is_the_tools_failure():
    def broken():
        yield 1
        raise KeyError("host text")

    js = "try { await tools.give({}) } catch (error) { return error.message }"
    assert run_code_mode_sync(js, [Tool("give", execute=lambda _: {"a": broken()})]) == "the tool failed"


@pytest.mark.parametrize("part", ["encoding", "keyId", "nonce", "signature"])
def test_loop_a_forged_continuation_is_refused_before_long_parts_are_hashed(part, monkeypatch):
    signing = "codemode.continuations.signing.encode_canonical_json"
    monkeypatch.setattr(signing, lambda _: pytest.fail("written for its signature"))
    auth = {"alg": "HMAC-SHA256", "keyId": "a", "nonce": "b", "issuedAtMs": 0, "expiresAtMs": 1, "signature": "c"}
    forged: dict[str, Any] = {"version": 2, "encoding": "json", "body": ["x"], "auth": auth}
    (forged if part in forged else auth)[part] = "x" * 100_000
    with pytest.raises(CodeModeProtocolError, match="malformed"):
        verify_and_decode_continuation(forged, ContinuationOptions(), None)

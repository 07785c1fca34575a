"""What tools return in unusual shapes, and what a forged pause holds, is weighed before any of it is worked on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from codemode import CodeModeProtocolError, CodeModeSerializationError, Tool, run_code_mode, run_code_mode_sync
from codemode.json_shape import holds_more_values_than, weigh
from codemode.options import ContinuationOptions
from codemode.sealing import unpack

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
    assert weigh(value, 2000) >= 2000
    assert holds_more_values_than(value, 4000)


@pytest.mark.parametrize("value", [iter(MANY), {"a": (one for one in MANY)}], ids=["iterator", "generator"])
def test_loop_what_nobody_can_count_is_not_written_on_the_loop(value):
    assert weigh(value, 2000) >= 2000


def test_loop_many_keys_are_not_added_up():
    class Key(str):
        def __len__(self):
            raise AssertionError("looked at")

    assert weigh({Key(number): number for number in range(5000)}, 2000) >= 2000


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


@pytest.mark.parametrize("part", ["encoding", "keyId", "nonce", "signature"])
def test_loop_a_forged_continuation_is_refused_before_long_parts_are_hashed(part, monkeypatch):
    monkeypatch.setattr("codemode.protocol.signing.canonical_json", lambda _: pytest.fail("written for its signature"))
    auth = {"alg": "HMAC-SHA256", "keyId": "a", "nonce": "b", "issuedAtMs": 0, "expiresAtMs": 1, "signature": "c"}
    forged: dict[str, Any] = {"version": 2, "encoding": "json", "body": ["x"], "auth": auth}
    (forged if part in forged else auth)[part] = "x" * 100_000
    with pytest.raises(CodeModeProtocolError, match="malformed"):
        unpack(forged, ContinuationOptions(), None)

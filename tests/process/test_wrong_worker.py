"""Workers that break the rules: a protocol error, and nothing that they say harms the host."""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from wrong_worker_host import (
    MAX_CONSOLE_BYTES,
    PROGRAM,
    RESULT,
    THROWN,
    WAIT_SECONDS,
    Host,
    call,
    encoded,
    says,
    says_bytes,
    start,
    then,
)

from codemode import CodeModeError, CodeModeProtocolError, CodeModeToolError, run_code_mode
from codemode.errors import CodeModeDetachedBridgeRequestError, CodeModeSerializationError
from codemode.testing.fake_worker import FakeWorker, Script

IDLE = {"in_flight": 0}


VIOLATIONS: dict[str, Script] = {
    "a frame of no bytes": says_bytes(struct.pack(">I", 0)),
    "a frame of 4 GiB": says_bytes(b"\xff\xff\xff\xff"),
    "a frame of 2 GiB": says_bytes(struct.pack(">I", 2**31) + b"V{"),
    "no frame at all": says_bytes(b"Segmentation fault\n"),
    "an unknown kind": says((b"Z", {})),
    "a frame of the host's": says((b"D", {"id": 1, "now": 1})),
    "no JSON": says((b"V", b"value")),
    "no object": says((b"V", [])),
    "no text": says((b"V", b'{"value":"\xff"}')),
    "an encoded surrogate": says((b"V", b'{"value":"\xed\xa0\x80","unobserved":[]}')),
    "a raw control character": says((b"V", b'{"value":"\x00","unobserved":[]}')),
    "deep JSON": says((b"V", b'{"value":' + b"[" * 100_000)),
    "JSON just too deep": says((b"T", b'{"in_flight":0,"x":' + b"[" * 64 + b"]" * 64 + b"}")),
    "1e999": says((b"T", b'{"in_flight":1e999}')),
    "NaN": says((b"T", b'{"in_flight":NaN}')),
    "a number of a million digits": says((b"T", b'{"in_flight":' + b"9" * 1_000_000 + b"}")),
    "a negative count": says((b"T", b'{"in_flight":-1}')),
    "a result that is 1e999": says((b"V", {**RESULT, "value": "1e999"})),
    "a result that is NaN": says((b"V", {**RESULT, "value": "NaN"})),
    "a result that is no JSON": says((b"V", {**RESULT, "value": "{"})),
    "a result and its size": says((b"V", {**RESULT, "bytes": 1})),
    "no result": says((b"V", {"unobserved": []})),
    "a small result withheld": says((b"V", {"bytes": 1, "unobserved": []})),
    "unobserved calls that were not made": says((b"V", {**RESULT, "unobserved": [1]})),
    "a second hello": says((b"H", {"engine": "", "kernel": "", "isolation": {}})),
    "a second analysis": says((b"a", {"js": "other", "facts": None})),
    "the first id is 0": says((b"C", call(0))),
    "the first id is 2": says((b"C", call(2))),
    "an id twice": says((b"C", call(1)), (b"C", call(1))),
    "an id left out": says((b"C", call(1)), (b"C", call(3))),
    "an unknown kind of request": says((b"C", call(1, kind="exec"))),
    "an input and its size": says((b"C", call(1, bytes=5))),
    "a small input withheld": says(
        (b"C", {"id": 1, "kind": "tool", "name": "echo", "bytes": 5}), (b"T", {"in_flight": 1})
    ),
    "an endless tool name": says((b"C", call(1, name="x" * 100_000))),
    "a wrong count in flight": says((b"C", call(1)), (b"T", {"in_flight": 2})),
    "a wrong count when idle": says((b"T", {"in_flight": 1})),
    "two turns for one": then([(b"C", call(1)), (b"T", {"in_flight": 1}), (b"T", {"in_flight": 1})]),
    "two turns for one delivery": then(
        [(b"C", call(1)), (b"C", call(2, "hold")), (b"T", {"in_flight": 2})],
        [(b"T", {"in_flight": 1}), (b"T", {"in_flight": 1})],
    ),
    "a call out of turn": then([(b"C", call(1)), (b"T", {"in_flight": 1}), (b"C", call(2))]),
    "a result out of turn": then([(b"C", call(1)), (b"T", {"in_flight": 1}), (b"V", RESULT)]),
    "an error that answered nothing": says((b"X", {**THROWN, "request": 1})),
    "an error that answered another call": then(
        [(b"C", call(1)), (b"T", {"in_flight": 1})], [(b"X", {**THROWN, "request": 1})]
    ),
    "a limit that does not exist": says((b"X", {**THROWN, "limit": "__init__"})),
    "a limit of another kind": says((b"X", {**THROWN, "limit": "timeout_ms"})),
    "an error of a million characters": says((b"X", {**THROWN, "message": "x" * 1_000_000})),
    "more calls than allowed": says(*[(b"C", call(number)) for number in range(1, 40)]),
    "a flood of calls": says(*[(b"C", call(number)) for number in range(1, 5_000)]),
    "a flood of catalog requests": says(*[(b"C", call(n, "$search", kind="catalog")) for n in range(1, 70)]),
    "a flood of console lines": says(*[(b"L", {"level": "log", "text": "x" * 8_000})] * 200),
    "a flood of empty console lines": says(*[(b"L", {"level": "log", "text": ""})] * 2_500),
    "an endless console line": says((b"L", {"level": "log", "text": "x" * 30_000})),
    "an unknown console level": says((b"L", {"level": "shout", "text": ""})),
}


@pytest.mark.parametrize("script", VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_broken_rule_is_a_protocol_error(host: Host, script: Script):
    error = host.error(script, max_console_bytes=MAX_CONSOLE_BYTES)
    assert type(error) is CodeModeProtocolError, repr(error)


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        ({"js": 1}, CodeModeProtocolError),
        ({"js": None, "problems": []}, CodeModeProtocolError),
        ({"js": None, "problems": [{"message": "x"}]}, CodeModeProtocolError),
        ({"js": "x", "facts": "y"}, CodeModeProtocolError),
    ],
)
def test_a_wrong_analysis_is_a_protocol_error(host: Host, answer: Any, error_class: type, monkeypatch: Any):
    def script(worker: FakeWorker) -> None:
        worker.send_hello()
        assert worker.receive_message()[0] == b"A"
        worker.send_frame(b"a", answer)
        worker.wait_silently()

    forget_programs(monkeypatch)
    assert type(host.error(script)) is error_class


FACTS: list[Any] = [
    {},
    {"calls": 1},
    {"calls": [1]},
    {"calls": [{}]},
    {"calls": [{"name": 1, "line": "x", "column": None, "input": [[]]}]},
    {"imports": [None], "tool_calls": {"a": 1}, "tools": "x"},
]


@pytest.mark.parametrize("facts", FACTS, ids=json.dumps)
def test_facts_of_any_shape_harm_nobody(host: Host, facts: Any, monkeypatch: Any):
    def script(worker: FakeWorker) -> None:
        worker.send_hello()
        _, body = worker.receive_message()
        worker.send_frame(b"a", {"js": body["source"], "facts": facts})
        worker.receive_message()
        worker.send_frame(b"V", RESULT)

    forget_programs(monkeypatch)
    with suppress(CodeModeProtocolError):
        assert host.run(script) == 1
    forget_programs(monkeypatch)


def test_a_flood_of_analyses_is_checked_no_more_than_once(host: Host, monkeypatch: Any):
    checked: list[bool] = []

    def check(*_given: Any) -> list[Any]:
        checked.append(True)
        return []

    def script(worker: FakeWorker) -> None:
        worker.send_hello()
        worker.receive_message()
        worker.send_bytes(encoded([(b"a", {"js": "1", "facts": {"calls": []}})] * 50))
        worker.wait_silently()

    forget_programs(monkeypatch)
    monkeypatch.setattr("codemode.execution.programs.find_program_problems", check)
    assert type(host.error(script)) is CodeModeProtocolError
    assert len(checked) <= 1


def forget_programs(monkeypatch: Any) -> None:
    """Make the host analyse every program anew."""
    from codemode.execution import programs
    from codemode.execution.programs import make_program_cache

    monkeypatch.setattr(programs, "_programs", make_program_cache())


# --- what is no violation, or another error ---


def test_only_calls_before_the_violation_were_made(host: Host):
    host.error(then([(b"C", call(1)), (b"T", {"in_flight": 1})], [(b"C", call(2)), (b"C", call(2))]))
    assert host.calls == 1


def test_a_call_in_the_last_turn_is_not_made(host: Host):
    error = host.error(says((b"C", call(1)), (b"V", {**RESULT, "unobserved": [1]})))
    assert type(error) is CodeModeDetachedBridgeRequestError
    assert host.calls == 0


def test_what_comes_after_the_result_is_not_read(host: Host):
    two = says((b"V", RESULT), (b"V", {**RESULT, "value": "2"}), (b"C", call(1)), (b"T", {"in_flight": 1}))
    assert host.run(two) == 1
    assert host.run(says((b"V", RESULT), (b"Z", b"\xff"))) == 1
    assert host.calls == 0


def test_a_result_is_measured_by_the_host(host: Host):
    error = host.error(says((b"V", {**RESULT, "value": '"' + "x" * 200 + '"'})), max_result_bytes=100)
    assert type(error) is CodeModeSerializationError
    assert error.details == {"bytes": 202, "max_bytes": 100}


def test_a_deep_result_is_refused(host: Host):
    error = host.error(says((b"V", {**RESULT, "value": "[" * 100_000 + "]" * 100_000})))
    assert type(error) in (CodeModeSerializationError, CodeModeProtocolError)


def test_lone_surrogates_in_a_result_are_replaced(host: Host):
    assert host.run(says((b"V", {**RESULT, "value": '"a\\ud800"'}))) == "a\ufffd"


@pytest.mark.parametrize("text", ["1e999", "{", "[" * 100_000, "NaN"])
def test_an_input_that_is_no_json_reaches_no_tool(host: Host, text: str):
    def script(worker: FakeWorker) -> None:
        start(worker)
        worker.send_frame(b"C", call(1, input=text))
        worker.send_frame(b"T", {"in_flight": 1})
        _, body = worker.receive_message()
        worker.send_frame(b"X", {**THROWN, "request": body["id"]})
        worker.wait_silently()

    error = host.error(script)
    assert type(error) in (CodeModeSerializationError, CodeModeProtocolError)
    assert host.calls == 0


@pytest.mark.parametrize("name", ["missing", "__class__", "echo\x00", ""])
def test_an_unknown_tool_is_an_error_of_the_call(host: Host, name: str):
    script = then([(b"C", call(1, name)), (b"T", {"in_flight": 1})], [(b"X", {**THROWN, "request": 1})])
    assert type(host.error(script)) is CodeModeToolError
    assert host.calls == 0


@pytest.mark.parametrize("kind", ["fetch", "catalog"])
def test_a_tool_is_called_by_tool_requests_alone(host: Host, kind: str):
    def script(worker: FakeWorker) -> None:
        start(worker)
        worker.send_frame(b"C", call(1, kind=kind))
        worker.send_frame(b"T", {"in_flight": 0 if kind == "catalog" else 1})
        worker.receive_message()
        worker.send_frame(b"V", RESULT)

    with suppress(CodeModeError):
        host.run(script)
    assert host.calls == 0


@pytest.mark.full
def test_a_real_worker_beside_wrong_ones_runs_as_ever(host: Host):
    async def main() -> list[Any]:
        options = {"execution_policy": {"max_console_bytes": MAX_CONSOLE_BYTES}}
        wrong = [
            run_code_mode(PROGRAM, {"echo": host.echo}, options=options, pool=host.pool(script))
            for script in VIOLATIONS.values()
        ]
        right = [run_code_mode(PROGRAM, {"echo": host.echo}) for _ in range(2)]
        work = asyncio.gather(*right, *wrong, return_exceptions=True)
        return await asyncio.wait_for(work, WAIT_SECONDS)

    first, second, *errors = asyncio.run(main())
    assert (first, second) == ("echo", "echo")
    assert {type(error) for error in errors} == {CodeModeProtocolError}

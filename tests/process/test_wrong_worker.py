"""Workers that speak the protocol wrongly: the invocation ends in time with the right error, the host is unharmed."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from codemode import (
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
    WorkerPool,
    run_code_mode,
)
from codemode.protocol.framing import encode_frame
from codemode.testing.fake_worker import FakeSource, FakeWorker, Script

_WAIT_SECONDS = 15.0
_TIMEOUT_MS = 300
_MAX_CONSOLE_BYTES = 2_000
PROGRAM = "return await tools.echo({})"

IDLE = {"in_flight": 0}
RESULT = {"value": "1", "unobserved": []}
THROWN = {"name": "Error", "message": "m", "code": "", "stack": ""}


def call(number: int, name: str = "echo", **changes: Any) -> dict[str, Any]:
    return {"id": number, "kind": "tool", "name": name, "input": "{}", **changes}


class Host:
    """One host: pools that are closed in the end, and a tool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._pools: list[WorkerPool] = []
        self.sources: list[FakeSource] = []

    def echo(self) -> str:
        self.calls += 1
        return "echo"

    def pool(self, script: Script) -> WorkerPool:
        def make() -> FakeSource:
            self.sources.append(FakeSource(script))
            return self.sources[-1]

        pool = WorkerPool({"spare_workers": 0}, source=make)
        self._pools.append(pool)
        return pool

    def run(self, script: Script, **options: Any) -> Any:
        """Run a program on a worker with this script; afterwards neither worker nor slot may be left."""
        pool = self.pool(script)
        policy = {"timeout_ms": 5_000, **options}
        work = run_code_mode(PROGRAM, {"echo": self.echo}, options={"execution_policy": policy}, pool=pool)
        try:
            return asyncio.run(asyncio.wait_for(work, _WAIT_SECONDS))
        finally:
            assert pool.active == 0
            assert [source.living for source in self.sources] == [0] * len(self.sources)

    def error(self, script: Script, **options: Any) -> CodeModeError:
        with pytest.raises(CodeModeError) as caught:
            self.run(script, **options)
        return caught.value

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


@pytest.fixture
def host() -> Iterator[Host]:
    """A host whose next program, on a worker that behaves, must run as ever."""
    one = Host()
    yield one
    one.calls = 0
    assert one.run(well_behaved) == "echo"
    assert one.calls == 1
    one.close()


def start(worker: FakeWorker) -> None:
    """Say hello and take the program, as far as its start."""
    worker.say_hello()
    kind, body = worker.receive()
    if kind == b"A":
        worker.send(b"a", {"js": body["source"], "facts": None})
        kind, body = worker.receive()
    assert kind == b"R"


def well_behaved(worker: FakeWorker) -> None:
    start(worker)
    worker.send(b"C", call(1))
    worker.send(b"T", {"in_flight": 1})
    kind, body = worker.receive()
    assert kind == b"D"
    worker.send(b"V", {"value": json.dumps(body["value"]), "unobserved": []})


def encoded(frames: Iterable[tuple[bytes, Any]]) -> bytes:
    """One text for many frames, so that the host reads them at once; bytes stand for a payload as it is."""
    return b"".join(
        encode_frame(kind, body if isinstance(body, bytes) else json.dumps(body).encode()) for kind, body in frames
    )


def says(*frames: tuple[bytes, Any]) -> Script:
    """Send these frames where the program's first turn belongs."""
    return then(frames)


def says_bytes(data: bytes) -> Script:
    def script(worker: FakeWorker) -> None:
        start(worker)
        worker.send_bytes(data)
        worker.pause()

    return script


def then(*rounds: Iterable[tuple[bytes, Any]]) -> Script:
    """Send the frames of each round, waiting for a delivery between two."""

    def script(worker: FakeWorker) -> None:
        start(worker)
        for number, frames in enumerate(rounds):
            if number:
                assert worker.receive()[0] == b"D"
            worker.send_bytes(encoded(frames))
        worker.pause()

    return script


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
    error = host.error(script, max_console_bytes=_MAX_CONSOLE_BYTES)
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
        worker.say_hello()
        assert worker.receive()[0] == b"A"
        worker.send(b"a", answer)
        worker.pause()

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
        worker.say_hello()
        _, body = worker.receive()
        worker.send(b"a", {"js": body["source"], "facts": facts})
        worker.receive()
        worker.send(b"V", RESULT)

    forget_programs(monkeypatch)
    with suppress(CodeModeProtocolError):
        assert host.run(script) == 1
    forget_programs(monkeypatch)


def forget_programs(monkeypatch: Any) -> None:
    """Make the host analyse every program anew."""
    from codemode.run import programs
    from codemode.source.cache import ProgramCache

    monkeypatch.setattr(programs, "_programs", ProgramCache())


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
        worker.send(b"C", call(1, input=text))
        worker.send(b"T", {"in_flight": 1})
        _, body = worker.receive()
        worker.send(b"X", {**THROWN, "request": body["id"]})
        worker.pause()

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
        worker.send(b"C", call(1, kind=kind))
        worker.send(b"T", {"in_flight": 0 if kind == "catalog" else 1})
        worker.receive()
        worker.send(b"V", RESULT)

    with suppress(CodeModeError):
        host.run(script)
    assert host.calls == 0


def test_a_real_worker_beside_wrong_ones_runs_as_ever(host: Host):
    async def main() -> list[Any]:
        options = {"execution_policy": {"max_console_bytes": _MAX_CONSOLE_BYTES}}
        wrong = [
            run_code_mode(PROGRAM, {"echo": host.echo}, options=options, pool=host.pool(script))
            for script in VIOLATIONS.values()
        ]
        right = [run_code_mode(PROGRAM, {"echo": host.echo}) for _ in range(2)]
        work = asyncio.gather(*right, *wrong, return_exceptions=True)
        return await asyncio.wait_for(work, _WAIT_SECONDS)

    first, second, *errors = asyncio.run(main())
    assert (first, second) == ("echo", "echo")
    assert {type(error) for error in errors} == {CodeModeProtocolError}


# --- silence, slowness, endings ---


def silent(worker: FakeWorker) -> None:
    start(worker)
    worker.pause()


def stops_inside_a_frame(worker: FakeWorker) -> None:
    start(worker)
    worker.send_bytes(struct.pack(">I", 100) + b'V{"value"')
    worker.pause()


def one_byte_at_a_time(worker: FakeWorker) -> None:
    start(worker)
    frame = encode_frame(b"V", json.dumps({**RESULT, "value": json.dumps("x" * 1000)}).encode())
    for byte in frame:
        worker.send_bytes(bytes([byte]))
        worker.pause(0.1)


def never_reads(worker: FakeWorker) -> None:
    worker.say_hello()
    worker.pause()


@pytest.mark.parametrize("script", [silent, stops_inside_a_frame, one_byte_at_a_time, never_reads])
def test_a_slow_worker_gets_no_more_than_the_timeout(host: Host, script: Script):
    assert type(host.error(script, timeout_ms=_TIMEOUT_MS)) is CodeModeTimeoutError


def ends_at_once(worker: FakeWorker) -> None:
    start(worker)


def ends_inside_a_frame(worker: FakeWorker) -> None:
    start(worker)
    worker.send_bytes(struct.pack(">I", 100) + b"V")


def ends_while_a_call_runs(worker: FakeWorker) -> None:
    start(worker)
    worker.send(b"C", call(1))
    worker.send(b"T", {"in_flight": 1})


def ends_before_the_program(worker: FakeWorker) -> None:
    worker.say_hello()


@pytest.mark.parametrize("script", [ends_at_once, ends_inside_a_frame, ends_while_a_call_runs, ends_before_the_program])
def test_a_worker_that_goes_away_is_a_worker_error(host: Host, script: Script):
    assert type(host.error(script)) is CodeModeWorkerError


def test_an_engine_that_failed_says_so(host: Host):
    error = host.error(says((b"F", {"message": "MemoryError"})))
    assert type(error) is CodeModeError
    assert error.message == "MemoryError"


# --- hellos ---


def hello(say: Callable[[FakeWorker], None]) -> Script:
    def script(worker: FakeWorker) -> None:
        say(worker)
        worker.pause()

    return script


HELLOS: dict[str, tuple[Script, type[CodeModeError]]] = {
    "garbage": (hello(lambda w: w.send_bytes(b"Traceback (most recent call last)\n")), CodeModeProtocolError),
    "a huge frame": (hello(lambda w: w.send_bytes(b"\x00\x02\x00\x00H")), CodeModeProtocolError),
    "no JSON": (hello(lambda w: w.send_bytes(encode_frame(b"H", b"hi"))), CodeModeProtocolError),
    "deep JSON": (hello(lambda w: w.send_bytes(encode_frame(b"H", b"[" * 60_000))), CodeModeProtocolError),
    "no object": (hello(lambda w: w.send(b"H", [])), CodeModeProtocolError),
    "another message": (hello(lambda w: w.send(b"V", RESULT)), CodeModeProtocolError),
    "another engine": (hello(lambda w: w.say_hello(engine="0.0.1")), CodeModeWorkerError),
    "another kernel": (hello(lambda w: w.say_hello(kernel="0" * 64)), CodeModeWorkerError),
    "an engine that is no text": (hello(lambda w: w.say_hello(engine=["x"])), CodeModeWorkerError),
    "no isolation report": (hello(lambda w: w.say_hello(isolation=None)), CodeModeProtocolError),
    "an unknown layer": (hello(lambda w: w.say_hello(isolation={"wall": "in force"})), CodeModeProtocolError),
    "an unknown state": (hello(lambda w: w.say_hello(isolation={"seccomp": "maybe"})), CodeModeProtocolError),
    "a refusal": (hello(lambda w: w.send(b"F", {"message": "no seccomp"})), CodeModeWorkerError),
    "an end instead": (lambda _: None, CodeModeWorkerError),
    "an end inside": (lambda w: w.send_bytes(b"\x00\x00\x00\x09H"), CodeModeWorkerError),
}


@pytest.mark.parametrize("name", HELLOS)
def test_a_wrong_hello_starts_nothing(host: Host, name: str):
    script, error_class = HELLOS[name]
    error = host.error(script)
    assert type(error) is error_class, repr(error)
    assert host.calls == 0


def test_two_hellos_are_one_too_many(host: Host):
    def script(worker: FakeWorker) -> None:
        worker.say_hello()
        worker.say_hello()
        worker.pause()

    assert type(host.error(script)) in (CodeModeWorkerError, CodeModeProtocolError)


def trickles(worker: FakeWorker) -> None:
    for byte in encode_frame(b"H", b"x" * 20):
        worker.send_bytes(bytes([byte]))
        worker.pause(0.1)
    worker.pause()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda worker: worker.pause(), id="none"),
        pytest.param(trickles, id="one byte at a time"),
    ],
)
def test_a_hello_that_does_not_come_in_time_is_a_worker_error(host: Host, script: Script, monkeypatch: Any):
    monkeypatch.setattr("codemode.workers.generations._HELLO_SECONDS", 0.2)
    started = time.monotonic()
    error = host.error(script)
    elapsed = time.monotonic() - started
    monkeypatch.undo()
    assert type(error) is CodeModeWorkerError
    assert elapsed < 2.5  # two attempts

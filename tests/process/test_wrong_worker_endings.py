"""Workers that are silent, slow or gone, or that begin with a wrong hello."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from suite import full_only
from wrong_worker_host import (
    RESULT,
    Host,
    call,
    hello,
    says,
    start,
)

from codemode import CodeModeError, CodeModeProtocolError, CodeModeTimeoutError
from codemode.errors import CodeModeWorkerError
from codemode.protocol.framing import encode_frame
from codemode.testing.fake_worker import FakeWorker, Script

_TIMEOUT_MS = 300


# --- silence, slowness, endings ---


def silent(worker: FakeWorker) -> None:
    start(worker)
    worker.wait_silently()


def stops_inside_a_frame(worker: FakeWorker) -> None:
    start(worker)
    worker.send_bytes(struct.pack(">I", 100) + b'V{"value"')
    worker.wait_silently()


def one_byte_at_a_time(worker: FakeWorker) -> None:
    start(worker)
    frame = encode_frame(b"V", json.dumps({**RESULT, "value": json.dumps("x" * 1000)}).encode())
    for byte in frame:
        worker.send_bytes(bytes([byte]))
        worker.wait_silently(0.1)


def never_reads(worker: FakeWorker) -> None:
    worker.send_hello()
    worker.wait_silently()


@pytest.mark.parametrize("script", [one_byte_at_a_time, never_reads, *full_only(silent, stops_inside_a_frame)])
def test_a_slow_worker_gets_no_more_than_the_timeout(host: Host, script: Script):
    assert type(host.error(script, timeout_ms=_TIMEOUT_MS)) is CodeModeTimeoutError


def ends_at_once(worker: FakeWorker) -> None:
    start(worker)


def ends_inside_a_frame(worker: FakeWorker) -> None:
    start(worker)
    worker.send_bytes(struct.pack(">I", 100) + b"V")


def ends_while_a_call_runs(worker: FakeWorker) -> None:
    start(worker)
    worker.send_frame(b"C", call(1))
    worker.send_frame(b"T", {"in_flight": 1})


def ends_before_the_program(worker: FakeWorker) -> None:
    worker.send_hello()


@pytest.mark.parametrize("script", [ends_at_once, ends_inside_a_frame, ends_while_a_call_runs, ends_before_the_program])
def test_a_worker_that_goes_away_is_a_worker_error(host: Host, script: Script):
    assert type(host.error(script)) is CodeModeWorkerError


def test_an_engine_that_failed_says_so(host: Host):
    error = host.error(says((b"F", {"message": "MemoryError"})))
    assert type(error) is CodeModeError
    assert error.message == "MemoryError"


HELLOS: dict[str, tuple[Script, type[CodeModeError]]] = {
    "garbage": (hello(lambda w: w.send_bytes(b"Traceback (most recent call last)\n")), CodeModeProtocolError),
    "a huge frame": (hello(lambda w: w.send_bytes(b"\x00\x02\x00\x00H")), CodeModeProtocolError),
    "no JSON": (hello(lambda w: w.send_bytes(encode_frame(b"H", b"hi"))), CodeModeProtocolError),
    "deep JSON": (hello(lambda w: w.send_bytes(encode_frame(b"H", b"[" * 60_000))), CodeModeProtocolError),
    "no object": (hello(lambda w: w.send_frame(b"H", [])), CodeModeProtocolError),
    "another message": (hello(lambda w: w.send_frame(b"V", RESULT)), CodeModeProtocolError),
    "another engine": (hello(lambda w: w.send_hello(engine="0.0.1")), CodeModeWorkerError),
    "another kernel": (hello(lambda w: w.send_hello(kernel="0" * 64)), CodeModeWorkerError),
    "an engine that is no text": (hello(lambda w: w.send_hello(engine=["x"])), CodeModeWorkerError),
    "no isolation report": (hello(lambda w: w.send_hello(isolation=None)), CodeModeProtocolError),
    "an unknown layer": (hello(lambda w: w.send_hello(isolation={"wall": "in force"})), CodeModeProtocolError),
    "an unknown state": (hello(lambda w: w.send_hello(isolation={"seccomp": "maybe"})), CodeModeProtocolError),
    "a refusal": (hello(lambda w: w.send_frame(b"F", {"message": "no seccomp"})), CodeModeWorkerError),
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
        worker.send_hello()
        worker.send_hello()
        worker.wait_silently()

    assert type(host.error(script)) in (CodeModeWorkerError, CodeModeProtocolError)


def trickles(worker: FakeWorker) -> None:
    for byte in encode_frame(b"H", b"x" * 2000):  # which takes longer than anybody waits for the host
        worker.send_bytes(bytes([byte]))
        worker.wait_silently(0.1)
    worker.wait_silently()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda worker: worker.wait_silently(), id="none"),
        pytest.param(trickles, id="one byte at a time"),
    ],
)
def test_a_hello_that_does_not_come_in_time_is_a_worker_error(host: Host, script: Script, monkeypatch: Any):
    monkeypatch.setattr("codemode.workers.worker_generations._HELLO_SECONDS", 0.2)
    error = host.error(script)
    monkeypatch.undo()
    assert type(error) is CodeModeWorkerError

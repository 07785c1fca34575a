"""What is fuzzed: everything that reads what a worker, a client or a key thief may have written.

A target takes bytes. It may only end as documented; anything else that it raises is a finding. Knows no fuzzer.
"""

from __future__ import annotations

import contextlib
import json
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import module_engine
from module_engine import checked
from tests.fuzz import seeds

from codemode.data.json_values import decode_json
from codemode.errors import CodeModeError, CodeModeProtocolError, CodeModeWorkerError
from codemode.execution.resume import open_unexpired_interrupt
from codemode.guest import syntax_check
from codemode.guest.analysis import analyse
from codemode.interrupts.interrupt import convert_to_pending_requests
from codemode.interrupts.resolutions import read_answers
from codemode.protocol import events
from codemode.protocol.continuation import Continuation
from codemode.protocol.framing import FrameDecoder, encode_frame, split_messages
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting, build_recovery_ledger
from codemode.protocol.message_decoder import decode_message
from codemode.source.checks import MAX_PROBLEMS, find_program_problems
from codemode.surfaces.code_mode.outcome import CODE_MODE
from codemode.workers.supply import HelloValidator

MAX_FRAME_BYTES = 1 << 16
TOOLS: dict[str, Any] = {
    "search": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
               "required": ["query"], "additionalProperties": False},
    "pick": {"anyOf": [{"enum": [1, "two", None]}, {"$ref": "#/$defs/list"}],
             "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}},
    "free": True,
    "kebab-name": None,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """``seeds``: inputs that get far. ``words``: what a mutation may put in."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        """As the command line names it."""
        return self.run.__name__


def frames(data: bytes) -> None:
    """Frames come out as they went in, however they are cut, and so do their messages."""
    step, stream = (data[0] % 16 + 1, data[1:]) if data else (1, b"")
    decoder, found = FrameDecoder(64), list[bytes]()
    try:
        for start in range(0, len(stream), step):
            found += decoder.feed(stream[start : start + step])
    except CodeModeProtocolError:
        assert stream.startswith(_encoded(found))
        return
    assert stream.startswith(_encoded(found))
    assert bool(decoder.buffer) == (len(stream) > len(_encoded(found)))
    for frame in found:
        assert 1 <= len(frame) <= 64
        assert b"\n".join(split_messages(frame)) == frame


def _encoded(found: list[bytes]) -> bytes:
    return b"".join(encode_frame(frame[:1], frame[1:]) for frame in found)


def worker(data: bytes) -> None:
    """Whatever a worker says, the invocation ends, and its ledger can be kept, read and gone on with."""
    machine = Invocation(seeds.SETTINGS)
    effects = machine.start("return 1", analysis_ms=None if data[:1] == b"r" else 50)
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    _perform(machine, effects)
    try:
        for frame in decoder.feed(data[1:]):
            for message in split_messages(frame):
                _perform(machine, machine.receive(decode_message(message)))
    except CodeModeProtocolError as error:
        machine.receive(events.HostFailed(error))
    machine.receive(events.WorkerEnded("end of input"))
    assert machine.ending is not None
    if isinstance(machine.ending, events.Failed):
        assert isinstance(machine.ending.error, CodeModeError)
    if machine.js is not None:
        _keep(machine)


def _perform(machine: Invocation, effects: list[events.Effect]) -> None:
    pending = list(effects)
    while pending:
        effect = pending.pop(0)
        if isinstance(effect, events.CheckProgram):
            problems = _checked(effect.facts)
            accepted = events.ProgramRefused(tuple(problems)) if problems else events.ProgramAccepted(effect.js)
            pending += machine.receive(accepted)
        elif isinstance(effect, events.PerformRequest):
            pending += machine.receive(events.ToolStarted(effect.entry.id, None, is_approved=False))
            pending += machine.receive(_settled(effect.entry))


def _settled(entry: LedgerEntry) -> events.CallSettled:
    outcomes = (
        Fulfilled('{"ok":true}'),
        Rejected("CodeModeToolError", "refused", "CODE_MODE_TOOL_ERROR"),
        Waiting(f"request-{entry.id}", '{"kind":"oauth"}', entry.input_json, 1),
    )
    number = 0 if entry.kind == "catalog" else len(entry.name) % len(outcomes)
    return events.CallSettled(entry.id, outcomes[number], seeds.NOW_MS + entry.id)


def _keep(machine: Invocation) -> None:
    ledger = build_recovery_ledger(
        machine.ledger,
        "5a17",
        lambda entry: entry.kind == "catalog",
        lambda entry: entry.input_json,
        lambda entry: entry.executed_input_json,
    )
    kept = Continuation.from_ledger(machine.js or "", "engine", seeds.SETTINGS, ledger)
    if any(entry.input_bytes == 0 for entry in ledger.entries):
        return  # only a lying worker withholds an input of no bytes; what it leaves is refused when it is resumed
    read = Continuation.from_dict(decode_json(json.dumps(kept.to_dict())))
    assert read.to_dict() == kept.to_dict()
    # An input that is no JSON is refused before a call is made of it, and so before it waits.
    with contextlib.suppress(CodeModeProtocolError):
        convert_to_pending_requests(read.ledger.waiting_entries)


def continuation(data: bytes) -> None:
    """A continuation is refused, or is exactly what it says, and can be answered."""
    body = _json(data)
    answers = body.pop("answers", {}) if isinstance(body, dict) else {}
    try:
        read = Continuation.from_dict(body)
    except CodeModeProtocolError:
        return
    assert Continuation.from_dict(read.to_dict()) == read
    Invocation(read.restore_settings(seeds.SETTINGS), recorded=read.ledger)
    try:
        convert_to_pending_requests(read.ledger.waiting_entries)
        read_answers(read.ledger.entries, answers if isinstance(answers, dict) else {})
    except CodeModeProtocolError:
        return


def interrupt(data: bytes) -> None:
    """What comes back from a client is refused, or is what this host has signed."""
    value = _json(data)
    try:
        read, _auth = open_unexpired_interrupt(value, CODE_MODE, seeds.OPTIONS)
    except CodeModeProtocolError:
        return
    assert read.to_dict() == seeds.continuation_body()


def facts(data: bytes) -> None:
    """Facts never raise, and give few and well-formed problems."""
    _checked(_json(data))


def _checked(reported: Any) -> list[dict[str, Any]]:
    problems = find_program_problems(reported, TOOLS.keys(), TOOLS.get)
    assert len(problems) <= MAX_PROBLEMS
    for problem in problems:
        assert set(problem) == {"message", "line", "column"}
        assert isinstance(problem["message"], str)
        assert all(type(problem[key]) is int for key in ("line", "column"))
    json.dumps(problems).encode("ascii")
    return problems


def hello(data: bytes) -> None:
    """A first frame is accepted, or refused by one of two errors."""
    check = HelloValidator(seeds.IMAGE, isolation_required=data[:1] == b"!")
    try:
        check.check_and_record_hello(data[1:2], data[2:])
    except (CodeModeProtocolError, CodeModeWorkerError):
        return
    assert check.report is not None
    str(check.report)


def analysis(data: bytes) -> None:
    """No program text makes the analysis raise, and it keeps every line where it was."""
    text = data.decode("utf-8", "replace")
    result = _analyser()(text, 50)
    if "problems" in result:
        assert all(problem["line"] >= 1 and problem["column"] >= 1 for problem in result["problems"])
        return
    assert result["js"].count("\n") == text.count("\n")
    _checked(result["facts"])
    json.dumps(result["facts"])


def modules(data: bytes) -> None:
    """What takes the place of a module is a module, with every character that is no blank where it was."""
    text = data.decode("utf-8", "replace")
    result = checked(_analyser()(text, 50, analyse.MODULE))
    json.dumps(result)
    if "problems" in result:
        assert all(problem["line"] >= 1 and problem["column"] >= 1 for problem in result["problems"])
    elif result["facts"] is not None:
        assert len(module_engine.authors_text(result).encode("utf-16-le")) == len(text.encode("utf-16-le"))
        problem = syntax_check.find_syntax_problem(module_engine.engine().Context().module, result["js"])
        assert problem is None, (problem, result["js"])
        _checked(result["facts"])


@cache
def _analyser() -> Any:
    return analyse.load_analyser(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))


def _json(data: bytes) -> Any:
    try:
        return decode_json(data.decode("utf-8"))
    except ValueError:
        return None


TARGETS = {
    target.name: target
    for target in (
        Target(frames, seeds.FRAME_SEEDS, (b"\0\0\0\1", b"\xff\xff\xff\xff")),
        Target(worker, seeds.WORKER_SEEDS, seeds.WORDS),
        Target(continuation, seeds.CONTINUATION_SEEDS, seeds.WORDS),
        Target(interrupt, seeds.INTERRUPT_SEEDS, seeds.WORDS),
        Target(facts, seeds.FACTS_SEEDS, seeds.WORDS),
        Target(hello, seeds.HELLO_SEEDS, seeds.WORDS),
        Target(analysis, seeds.PROGRAM_SEEDS, seeds.SYNTAX),
        Target(modules, seeds.MODULE_SEEDS, (*seeds.SYNTAX, *seeds.MODULE_SYNTAX)),
    )
}

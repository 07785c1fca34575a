"""Keys and forks: what nobody set is a process's own, what was set wants a guard that all of them see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from invocation_settings import NOW_MS
from pausing import Spy, go_on, start

from codemode import CodeModeError, ContinuationOptions, set_continuation_signing_key
from codemode.continuations import sealing

OK = {"approved": True}


@pytest.fixture
def spy():
    return Spy()


def in_child(work):
    """Return what ``work`` gives in a forked child, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = json.dumps(work())
        except BaseException as error:
            text = json.dumps(f"{type(error).__name__}: {error}")
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def signature(key=None):
    options = ContinuationOptions(keys=key)
    return sealing.encode_and_sign_continuation(["text"], options, NOW_MS)["auth"]["keyId"]


def test_a_key_that_nobody_set_is_another_one_in_a_forked_child():
    set_continuation_signing_key()
    mine, children = signature(), [in_child(signature) for _ in range(2)]
    assert len({mine, *children}) == 3
    assert signature() == mine
    assert in_child(lambda: [in_child(signature), signature()])[0] != mine


def test_a_key_that_was_set_stays_in_a_forked_child():
    set_continuation_signing_key("set")
    try:
        assert in_child(signature) == signature()
    finally:
        set_continuation_signing_key()


def test_one_approval_is_one_run_in_all_the_children_of_a_server(spy):
    interrupt = start("return await tools.refund(1)", [spy.guarded()])

    def resumed():
        try:
            return go_on(interrupt, [spy.guarded()], OK)
        except CodeModeError as error:
            return error.message

    assert all("not known here" in in_child(resumed) for _ in range(2))
    assert go_on(interrupt, [spy.guarded()], OK) == {"done": "refund"}


def test_a_set_key_without_a_shared_guard_is_warned_of_once(tmp_path):
    script = """
import asyncio, logging, sys
import codemode
from codemode import tool, create_code_mode_tool
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore

@tool(needs_approval=True)
def refund() -> str:
    return "done"

def paused(**continuation):
    options = {"approval": {"mode": "interrupt"}, "continuation": continuation}
    code_mode = create_code_mode_tool([refund], options)
    code_mode.resume_sync(code_mode.execute_sync({"js": "return await tools.refund()"}), {"approved": True})

path = sys.argv[1]
paused()
paused(keys="one key of this test, 32 bytes", guard=SqliteInterruptStore(path).guard)
codemode.set_continuation_signing_key("two keys of this test, 32 bytes")
paused(guard=SqliteInterruptStore(path).guard)
print("quiet", file=sys.stderr, flush=True)
paused()
paused(keys="a third key of it, 32 bytes or so", guard=MemoryResumeGuard())
"""
    command = [sys.executable, "-W", "error", "-c", script, str(tmp_path / "claims")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    before, after = done.stderr.split("quiet\n")
    assert before == ""
    assert after.count("a signing key is set") == 1
    assert "store=" in after

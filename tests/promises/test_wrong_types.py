"""Wrong types are refused by the call that was given them, as `ValueError`, before anything runs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from types import MappingProxyType
from typing import Annotated, Any, ForwardRef, Literal, NewType, TypeVar

import pytest
from fetching import run_with
from pydantic import BaseModel, TypeAdapter
from suite import each_row

from codemode import (
    CallContext,
    ContinuationOptions,
    ExecutionPolicy,
    Interrupt,
    PoolOptions,
    Telemetry,
    Tool,
    WorkerPool,
    continue_approval_sync,
    continue_interrupt_sync,
    create_code_mode_tool,
    get_approval_response,
    get_interrupt,
    is_approval_interrupt,
    is_interrupt,
    replace_interrupt_result,
    run_code_mode_sync,
    set_continuation_signing_key,
    set_max_workers,
    to_approval_messages,
    unwrap_result,
)
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore

OTHER = [5, 1.5, True, "text", b"bytes", [1], object(), PoolOptions(), PoolOptions]
IDS = [f"{type(one).__name__}-{one!r:.9}" for one in OTHER]
PAUSED = {"js": "return await tools.t()"}
others = pytest.mark.parametrize("other", OTHER, ids=IDS)


def one():
    return 1


def paused():
    guarded = Tool("t", execute=one, needs_approval=True)
    return run_code_mode_sync(PAUSED["js"], [guarded], options={"approval": {"mode": "interrupt"}}), [guarded]


def refused(names, function, *given, **keywords):
    with pytest.raises(ValueError, match=names):
        function(*given, **keywords)


@others
def test_what_is_no_pool_is_refused_as_a_pool(other):
    interrupt, tools = paused()
    refused("pool", create_code_mode_tool, [], pool=other)
    refused("pool", run_code_mode_sync, "return 1", [], pool=other)
    refused("pool", continue_interrupt_sync, interrupt, {"approved": True}, tools=tools, pool=other)
    answer = {"approvalId": interrupt.interrupt_id, "approved": True}
    refused("pool", continue_approval_sync, interrupt, answer, tools=tools, pool=other)
    assert continue_interrupt_sync(interrupt, {"approved": True}, tools=tools) == 1  # none of it used the pause up


def test_options_of_a_pool_are_told_to_be_made_one():
    refused(r"WorkerPool\(options\)", create_code_mode_tool, [], pool=PoolOptions(max_workers=1))
    refused(r"WorkerPool\(options\)", create_code_mode_tool, [], pool={"max_workers": 1})


def test_a_pool_and_its_share_are_taken():
    with WorkerPool(PoolOptions(max_workers=1, spare_workers=0)) as pool:
        share = pool.share("a", max_workers=1)
        assert create_code_mode_tool([], pool=share).execute_sync({"js": "return 1"}) == 1
        refused("name", pool.share, 5, max_workers=1)
        refused("max_workers", pool.share, "b", max_workers="1")


@others
def test_what_is_no_options_is_refused_as_options(other):
    interrupt, tools = paused()
    refused("options", create_code_mode_tool, [], other)
    refused("options", run_code_mode_sync, "return 1", [], options=other)
    refused("options", continue_interrupt_sync, interrupt, {"approved": True}, tools=tools, options=other)
    refused("options", is_interrupt, interrupt, options=other)
    if not isinstance(other, PoolOptions):
        refused("pool", WorkerPool, other)
    for part in (
        "execution_policy",
        "fetch_policy",
        "approval",
        "lifecycle",
        "telemetry",
        "model_output",
        "continuation",
    ):
        refused(part, create_code_mode_tool, [], {part: other})


@others
def test_what_describes_a_call_is_of_its_kind(other):
    code_mode, (interrupt, tools) = create_code_mode_tool([]), paused()
    if not isinstance(other, str):
        refused("tool_call_id", CallContext, tool_call_id=other)
        refused("program", run_code_mode_sync, other, [])
    if not isinstance(other, list):
        refused("messages", CallContext, messages=other)
    refused("call must be a CallContext", code_mode.execute_sync, "return 1", other)
    refused("call must be a CallContext", run_code_mode_sync, "return 1", [], call=other)
    refused(
        "call must be a CallContext", continue_interrupt_sync, interrupt, {"approved": True}, tools=tools, call=other
    )


@others
def test_what_is_no_tool_is_refused_as_a_tool(other):
    refused("tool", create_code_mode_tool, other)
    refused("tool", create_code_mode_tool, [other])
    refused("tool", create_code_mode_tool, {"a": other})
    refused("tool", run_code_mode_sync, "return 1", other)


@others
def test_what_a_tool_cannot_be_made_of_is_refused(other):
    if not isinstance(other, str):
        refused("name", Tool, other, execute=one)
        refused("description", Tool, "t", execute=one, description=other)
    if not callable(other):
        refused("execute", Tool, "t", execute=other)
        refused("to_model_output", Tool, "t", execute=one, to_model_output=other)
        if other is not True:
            refused("needs_approval", Tool, "t", execute=one, needs_approval=other)
    if not isinstance(other, list):
        refused("input_examples", Tool, "t", execute=one, input_examples=other)
    refused("annotations", Tool, "t", execute=one, annotations=other)


@others
def test_wrong_guards_tracers_and_keys_are_refused(other):
    refused("continuation.guard", ContinuationOptions, guard=other)
    refused("continuation.guard", create_code_mode_tool, [], {"continuation": {"guard": other}})
    refused("telemetry.tracer", Telemetry, tracer=other)
    refused("telemetry.meter", Telemetry, meter=other)
    if not isinstance(other, str):
        refused("path", SqliteInterruptStore, other)
    if not isinstance(other, str | bytes):
        refused("continuation.keys", set_continuation_signing_key, other)
    if type(other) is not int:
        refused("max_workers", set_max_workers, other)
        refused("execution_policy.timeout_ms", ExecutionPolicy, timeout_ms=other)
    assert ContinuationOptions(guard=MemoryResumeGuard()).guard is not None


@each_row(
    "schema",
    [5, "no such type", "Missing", [1], b"x", 1.5, {1}, (int,), ..., object(), PoolOptions()],
    ids=lambda one: type(one).__name__,
)
def test_what_is_no_schema_is_refused_as_a_schema(schema):
    for side in ("input_schema", "output_schema"):
        refused(f"{side} of tool 't'", Tool, "t", execute=one, **{side: schema})


def test_what_is_no_schema_is_refused_without_pydantic():
    script = """
import sys
from codemode import Tool
for schema in (5, [1], b"x", object(), {1}):
    try:
        Tool("t", execute=len, output_schema=schema)
    except ValueError as error:
        assert "output_schema of tool 't'" in str(error), error
    else:
        raise SystemExit(f"{schema!r} was taken")
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


class Order(BaseModel):
    id: int


TYPES = [
    *(int, int | None, list[int], Annotated[int, 1], Literal["a"], Any, TypeVar("T"), NewType("N", int), "int"),
    *(ForwardRef("int"), TypeAdapter(int), Order, len, True, None, {"type": "string"}, MappingProxyType({})),
]


@each_row("schema", TYPES, ids=str)
def test_whatever_names_a_type_is_taken(schema):
    for side in ("input_schema", "output_schema"):
        Tool("t", execute=one, **{side: schema})


# --- a fetch of the host's own, behind a proxy ---


class Answer:
    status_code, headers, reason_phrase = 200, (), "OK"

    def __init__(self, url):
        self.url = url

    async def aiter_bytes(self):
        yield b"through the proxy"


class Stopping(list[str]):
    """What is seen; the third time ends the wait of whoever waits."""

    def __init__(self, go_on):
        super().__init__()
        self.go_on = go_on

    def append(self, url):
        super().append(url)
        if len(self) == 3:
            self.go_on.set()


def through_proxy(seen, **policy):
    async def fetch(url, **_how):
        seen.append(url)
        return Answer(url)

    return {"fetch_policy": {"fetch": fetch, "allowed_origins": ["https://api.example.com"], **policy}}


@pytest.mark.parametrize(
    "failure", [socket.gaierror("no name server"), OSError(), UnicodeError("name"), RuntimeError()]
)
def test_a_fetch_of_the_hosts_own_needs_no_name_resolution(monkeypatch, failure):
    def unreachable(*_, **__):
        raise failure

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    seen = []
    js = """
    const get = async (path) => (await fetch("https://api.example.com" + path)).text();
    return [await get("/1"), await get("/2")];
    """
    assert run_with(js, through_proxy(seen)) == ["through the proxy"] * 2
    assert seen == ["https://api.example.com/1", "https://api.example.com/2"]


def test_a_name_server_that_never_answers_is_asked_once(monkeypatch):
    asked, go_on = [], threading.Event()

    def hangs(host, *_, **__):
        asked.append(host)
        assert go_on.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    monkeypatch.setattr("codemode.fetch.fetcher._CUSTOM_FETCH_RESOLVE_SECONDS", 0.05)
    seen = Stopping(go_on)
    js = "for (let i = 0; i < 3; i++) await fetch('https://api.example.com/' + i); return 'done'"
    try:
        assert run_with(js, {**through_proxy(seen), "execution_policy": {"timeout_ms": 60_000}}) == "done"
    finally:
        go_on.set()
    assert (len(seen), len(asked)) == (3, 1)


def test_a_name_that_is_known_here_is_still_checked(monkeypatch):
    private = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: private)
    seen = []
    js = "try { await fetch('https://api.example.com/'); return 'fetched' } catch (error) { return error.name }"
    assert run_with(js, through_proxy(seen)) == "CodeModeFetchError"
    assert run_with(js, through_proxy(seen, refuse_private_addresses=False)) == "fetched"
    assert len(seen) == 1


@each_row("result", ["text", {"a": 1}, [], None, "pause", "its JSON"])
@each_row("other", [5, True, "text", [1], object(), PoolOptions()])
def test_whoever_reads_pauses_takes_no_other_options(result, other):
    if result in ("pause", "its JSON"):
        interrupt, _ = paused()
        result = interrupt if result == "pause" else interrupt.to_dict()
    for call in (get_interrupt, unwrap_result, is_interrupt, is_approval_interrupt):
        refused("options", call, result, options=other)
        if not isinstance(other, str):
            refused("conversation_id", call, result, conversation_id=other)
    if isinstance(result, Interrupt):
        refused("options", to_approval_messages, result, options=other)


@each_row("other", [5, True, None, "text", {"a": 1}, object()])
def test_messages_are_a_list_wherever_they_are_read(other):
    interrupt, _ = paused()
    refused("messages", get_approval_response, other, interrupt)
    refused("messages", replace_interrupt_result, other, interrupt, 1)

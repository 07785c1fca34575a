"""Hosts that lack the tool of an allowed call, as in a rolling deployment: they leave the answer to one that has it."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from disk_gateway import WIPE, approve_all, gateway_at, wiped
from disk_gateway import run as called
from disk_gateway import until as until_record
from exec_wait_world import KEYED, run
from gateway_clients import client_of
from pausing import NO, OK
from postgres_cluster import cluster, new_database
from recovering import UNKNOWN
from stored_pauses import Clock
from suite import full_only
from test_journaled_resumes import DeadGuard
from test_journaled_runs import Host
from test_resumers import over, seen
from waiting import until, within

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolError,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, PostgresInterruptStore, Resumer, SqliteInterruptStore

ALL = ALL_TENANTS
SUPPORT = Path(__file__).parents[1] / "support"
EDITED = {"approved": True, "input": {"n": 2}}
JS = "return await tools.refund({n: 1})"
SCRIPT = "return await callTool('refund', {n: 1})"
MODULE = 'import { refund } from "@codemode/servers/shop"; globalThis.__codemode_result__ = await refund({n: 1});'
BOTH = "return await Promise.all([tools.pay({n: 1}), tools.refund({n: 2})])"


def code_mode(tools, settings):
    made = create_code_mode_tool(tools, settings)
    return made, lambda: made.execute({"js": JS}, call=CallContext(tool_call_id="call_1"))


def code_call(tools, settings):
    made = create_code_call_tools(tools, {"settings": settings})
    return made, lambda: made.execute({"script": SCRIPT}, call=CallContext(tool_call_id="call_1"))


def modules(tools, settings):
    made = create_modules_tool([ModuleServer("shop", tools)], settings=settings)
    return made, lambda: made.execute({"code": MODULE}, call=CallContext(tool_call_id="call_1"))


@pytest.fixture(scope="module")
def postgres_folder():
    with cluster() as folder:
        yield folder


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", *full_only("postgres")])
def make(request, tmp_path, clock):
    """Makes stores on one database, one for each host."""
    if request.param == "sqlite":
        return lambda: SqliteInterruptStore(tmp_path / "pauses.sqlite", clock=clock)
    dsn = new_database(request.getfixturevalue("postgres_folder"), f"t{secrets.token_hex(6)}")
    return lambda: PostgresInterruptStore(dsn, max_connections=3, clock=clock)


def settings_over(store, *, guard=None, journal=None):
    keeping = {"guard": guard or store.guard, "keys": "k", "conversation_id": "thread", "journal": journal}
    return {"approval": {"mode": "interrupt"}, "continuation": keeping}


def journal_of(store):
    return store.journal(tenant="", app="", lease_ms=20_000)


async def kinds_of(store):
    return [one.kind async for one in store.changes(tenant=ALL, follow=False)]


@pytest.mark.parametrize("journaled", [False, True], ids=["no journal", "journal"])
@pytest.mark.parametrize("face", [code_mode, *full_only(code_call, modules)])
def test_an_answer_is_left_to_the_host_that_has_the_tool(make, clock, spy, caplog, face, journaled):
    async def scenario():
        old, new = make(), make()
        journals = [journal_of(one) if journaled else None for one in (old, new)]
        lacking, _ = face([spy.tool("other")], settings_over(old, journal=journals[0]))
        having, start = face([spy.tool("other"), spy.guarded()], settings_over(new, journal=journals[1]))
        paused = await start()
        record_id = await new.put(paused, tool=having)
        await new.decide({paused.interrupt_id: EDITED}, actor="ana", tenant=ALL)
        looks = []
        claim = old.claim

        async def counted(**how):
            looks.append(how)
            return await claim(**how)

        old.claim = counted
        async with Resumer(old, tenant=ALL, resume=lacking.resume):
            await seen(new, "released")
            before = len(looks)
            await until(lambda: len(looks) > before + 2)
        assert (await kinds_of(new)).count("claimed") == 1  # and is not tried again and again
        record = await new.record(record_id, tenant=ALL)
        assert "refund" in record.not_resumable
        assert (record.state, record.requests[0].state) == ("pending", "decided")
        assert spy.ran == []
        clock.moved_ms += 5_000
        async with Resumer(new, tenant=ALL, resume=having.resume):
            await new.outcome(record_id, tenant=ALL, timeout_ms=60_000)
        record = await new.record(record_id, tenant=ALL)
        assert (record.state, record.not_resumable) == ("completed", None)
        # By now there is an outcome, which needs no tool.
        again = await lacking.resume(paused, resolutions={paused.interrupt_id: EDITED})
        assert not isinstance(again, CodeModeError)
        for store in (old, new):
            await store.aclose()

    within(scenario())
    assert spy.ran == [("refund", {"n": 2})]
    assert len([one for one in caplog.records if "cannot be resumed here" in one.getMessage()]) == 1


@contextmanager
def host(*arguments):
    process = subprocess.Popen([sys.executable, str(SUPPORT / "rolling_host.py"), *map(str, arguments)])
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def test_of_two_processes_the_one_with_the_tool_makes_the_call(tmp_path, spy):
    path, effects = tmp_path / "pauses.sqlite", tmp_path / "effects"

    async def scenario():
        store = SqliteInterruptStore(path)
        asking = over(store, spy.guarded())
        paused = await asking.execute({"js": JS})
        record_id = await store.put(paused, tool=asking)
        await store.decide({paused.interrupt_id: OK}, actor="ana", tenant=ALL)
        with host(path, effects, 0, "other"):
            await seen(store, "released")
            assert "refund" in (await store.record(record_id, tenant=ALL)).not_resumable
            assert not effects.exists()
            with host(path, effects, 10_000, "other", "refund"):
                value = await store.outcome(record_id, tenant=ALL, timeout_ms=60_000)
        await store.aclose()
        return value

    assert within(scenario()) == {"n": 1}
    assert effects.read_text() == "refund 1\n"


async def resumed_by(store, code_mode, record_id, is_enough):
    """Let one host resume until its record is as it is to be, and return that."""
    with store.watch() as watch:
        async with Resumer(store, tenant=ALL, resume=code_mode.resume):
            while not is_enough(record := await store.record(record_id, tenant=ALL)):
                await watch.wait(0.2)
    return record


def has_ended(record):
    return record.state not in ("pending", "resuming")


def is_refused(record):
    return record.not_resumable is not None


@pytest.mark.parametrize("is_journaled", [False, True], ids=["no journal", "journal"])
@pytest.mark.parametrize("what", ["only declared", "asks for something", "runs again"])
def test_a_tool_is_needed_by_every_answer_that_lets_it_run(clock, spy, what, is_journaled):
    async def scenario():
        store = MemoryInterruptStore(clock=clock)
        settings = settings_over(store, journal=journal_of(store) if is_journaled else None)
        lacks = [Tool("refund", execute=None, needs_approval=True)] if what == "only declared" else [spy.tool("other")]
        has = {
            "only declared": spy.guarded,
            "asks for something": lambda: spy.asking("refund"),
            "runs again": lambda: spy.tool("refund"),
        }[what]()
        lacking, having = (create_code_mode_tool(tools, settings) for tools in (lacks, [has]))
        paused = await (
            cut_off(settings)
            if what == "runs again"
            else having.execute({"js": JS}, call=CallContext(tool_call_id="call"))
        )
        record_id = await store.put(paused)
        ran = len(spy.ran)
        answer = {"only declared": OK, "asks for something": "token", "runs again": {"runAgain": True}}[what]
        await store.decide({paused.interrupt_id: answer}, actor="ana", tenant=ALL)
        assert (await resumed_by(store, lacking, record_id, is_refused)).requests[0].state == "decided"
        assert len(spy.ran) == ran
        clock.moved_ms += 5_000
        assert (await resumed_by(store, having, record_id, has_ended)).state == "completed"
        assert len(spy.ran) == ran + 1

    within(scenario())


async def cut_off(settings):
    """The way on from a program that was cut off in its call."""
    began = asyncio.Event()

    async def hang(value, context):
        began.set()
        await asyncio.Event().wait()

    code_mode = create_code_mode_tool([Tool("refund", execute=hang)], settings)
    running = asyncio.ensure_future(code_mode.execute({"js": JS}, call=CallContext(tool_call_id="call")))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await running
    return cancelled.value.__cause__.recovery


@pytest.mark.parametrize("what", ["denied", "known"])
def test_an_answer_that_lets_nothing_run_needs_no_tool(spy, what):
    async def scenario():
        store = MemoryInterruptStore()
        settings = settings_over(store)
        guarded = create_code_mode_tool([spy.guarded()], settings)
        js = "return (await Promise.allSettled([tools.refund({n: 1})]))[0].status"
        paused = await (guarded.execute({"js": js}) if what == "denied" else cut_off(settings))
        record_id = await store.put(paused)
        answer = NO if what == "denied" else {"value": "fulfilled"}
        await store.decide({paused.interrupt_id: answer}, actor="ana", tenant=ALL)
        lacking = create_code_mode_tool([spy.tool("other")], settings)
        return (await resumed_by(store, lacking, record_id, has_ended)).outcome.value

    assert within(scenario()) == {"denied": "rejected", "known": "fulfilled"}[what]
    assert spy.ran == []


def test_a_pause_in_hand_goes_on_and_its_program_is_told(spy):
    async def scenario():
        store = MemoryInterruptStore()
        paused = await over(store, spy.guarded()).execute({"js": JS})
        with pytest.raises(CodeModeToolError, match="refund"):
            await over(store, spy.tool("other")).resume(paused, OK)

    within(scenario())


def test_whoever_answers_where_the_tool_is_not_is_told_and_may_answer_elsewhere(clock, spy):
    async def scenario():
        store = MemoryInterruptStore(clock=clock)
        lacking, having = over(store, spy.tool("other")), over(store, spy.guarded())
        paused = await having.execute({"js": JS})
        record_id = await store.put(paused)
        with pytest.raises(CodeModeProtocolError, match="refund") as refused:
            await store.answer(paused.interrupt_id, OK, lacking.resume, actor="ana")
        assert refused.value.details["not_resumable"] is True
        assert refused.value.details["tool_name"] == "refund"
        (request,) = (await store.record(record_id, tenant=ALL)).requests
        assert (request.state, "refund" in request.refusal) == ("waiting", True)
        return await store.answer(paused.interrupt_id, OK, having.resume, actor="ana")

    assert within(scenario()) == {"done": "refund"}
    assert spy.ran == [("refund", {"n": 1})]


@pytest.mark.parametrize("is_done", [True, False])
def test_what_a_dead_host_leaves_is_finished_by_one_that_has_all_tools(monkeypatch, is_done):
    monkeypatch.setattr("codemode.execution.resume_claims._MAX_REPEAT_WAIT_SECONDS", 0.01)
    left = []

    async def scenario(dies_after):
        clock, ran = Clock(), []
        store = MemoryInterruptStore(clock=clock)
        journal = journal_of(store)

        def tool_of(name):
            async def execute(value, context):
                ran.append((name, value["n"]))
                return value["n"]

            return Tool(name, execute=execute, needs_approval=True)

        def made(*names, **dying):
            return create_code_mode_tool(map(tool_of, names), settings_over(store, **{"journal": journal, **dying}))

        having, lacking = made("pay", "refund"), made("pay")
        paused = await having.execute({"js": BOTH}, call=CallContext(tool_call_id="call_1"))
        record_id = await store.put(paused)
        await store.decide({one.interrupt_id: OK for one in paused.requests}, actor="ana", tenant=ALL)
        lease = await store.claim(owner="dying", tenant=ALL, lease_ms=20_000)
        breaking = Host(journal, dies_after=dies_after, is_done=is_done)
        dying = made("pay", "refund", guard=DeadGuard(store.guard), journal=breaking)
        try:
            await dying.resume(lease.interrupt, resolutions=lease.resolutions)
        except CodeModeAbortedError:
            pass
        else:
            return False
        clock.moved_ms += 61_000
        record = await resumed_by(store, lacking, record_id, lambda one: is_refused(one) or waits_no_more(one))
        left.append("refused" if is_refused(record) else record.state)
        while not has_ended(record):
            for one in asked_of(record):
                told = {"value": one.input["n"]} if (one.tool_name, one.input["n"]) in ran else {"runAgain": True}
                await store.decide({one.interrupt_id: told}, actor="ana", tenant=ALL)
            clock.moved_ms += 61_000
            record = await resumed_by(store, having, record_id, waits_no_more)
        assert (record.state, record.outcome.value) == ("completed", [1, 2])
        assert sorted(ran) == [("pay", 1), ("refund", 2)]
        return True

    dies_after = 1
    while within(scenario(dies_after)):
        dies_after += 1
    assert dies_after > 5
    assert "refused" in left


def asked_of(record):
    return [one for one in record.requests if one.state == "waiting" and one.kind == UNKNOWN]


def waits_no_more(record):
    return has_ended(record) or asked_of(record)


def test_a_pair_of_exec_and_wait_does_alike(tmp_path, clock, spy):
    async def scenario():
        store = SqliteInterruptStore(tmp_path / "runs.sqlite", clock=clock)
        lacking, having = (
            create_exec_wait_tools(tools, {"approvals": "park"}, settings=KEYED, store=store)
            for tools in ([spy.tool("other")], [spy.tool("other"), spy.guarded()])
        )
        parked = await run(having, "return await tools.refund({n: 1})")
        record_id = parked["runId"].removeprefix("run_")
        (request,) = (await store.record(record_id, tenant=ALL)).requests
        await store.decide({request.interrupt_id: OK}, actor="ana", tenant=ALL)
        assert (await resumed_by(store, lacking, record_id, is_refused)).requests[0].state == "decided"
        clock.moved_ms += 5_000
        assert (await resumed_by(store, having, record_id, has_ended)).state == "completed"
        for pair in (lacking, having):
            await pair.aclose()
        await store.aclose()

    within(scenario())
    assert spy.ran == [("refund", {"n": 1})]


@pytest.mark.full
def test_a_gateway_whose_server_lacks_the_tool_leaves_the_answer_to_another(tmp_path):
    folder = tmp_path / "mine"

    async def scenario():
        async with gateway_at(folder) as having, client_of(having) as client:
            waiting = (await called(client, code=WIPE))["waiting"]["id"]
        shutil.rmtree(tmp_path / "state" / "lists")  # another host has read none yet
        async with gateway_at(folder) as gateway, client_of(gateway) as client:
            (folder / "tools.json").write_text('[{"name": "look", "inputSchema": {"type": "object"}}]')
            await approve_all(gateway.store)
            await called(client, code="globalThis.__codemode_result__ = 1;")  # with which it begins to resume
            record = await until_record(gateway.store, waiting, is_refused)
            assert "wipe" in record.not_resumable
            assert record.requests[0].state == "decided"
        shutil.rmtree(tmp_path / "state" / "lists")
        async with gateway_at(folder) as having, client_of(having) as client:
            await called(client, resume=waiting)
            await until_record(having.store, waiting, lambda one: one.state == "completed")

    within(scenario())
    assert wiped(folder) == 1

"""A run that pauses at every call, or whose worker is killed, equals the run that is left alone."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from leftovers import kill_workers
from pausing import PAUSING, through_json
from programs import TOOLS, answer_of, nodes, program_of
from suite import full_only, rounds
from waiting import within

from codemode import (
    CallContext,
    Interrupt,
    Tool,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    request_interrupt,
)
from codemode.errors import CodeModeWorkerError
from codemode.execution import execution, recovery
from codemode.execution import resume as continuations
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND

_EPOCH_MS = 1_700_000_000_000
_SOME = settings(
    max_examples=rounds(5, 30),
    phases=[Phase.generate],  # shrinking a run that hangs would take minutes
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_FEW = settings(_SOME, max_examples=rounds(6, 15))


class CodeMode:
    """A program as the input of codeMode."""

    def __init__(self, tools, scene, pool):
        self._tool = create_code_mode_tool(tools, scene.options, pool=pool)

    async def start(self, js):
        return await self._tool.execute({"js": js}, call=CallContext(tool_call_id="o"))

    async def go_on(self, interrupt, answers):
        return await self._tool.resume(interrupt, resolutions=answers)


class CodeCall:
    """The same program as a script of CodeCall."""

    def __init__(self, tools, scene, pool):
        options = {"settings": scene.options, "vm": {"preset": "experimental"}}
        self._tools = create_code_call_tools(tools, options, pool=pool)

    async def start(self, js):
        made = "".join(f"{name}: (value) => callTool({name!r}, value)," for name in TOOLS)
        return self._told(
            await self._tools.execute({"script": f"const tools = {{{made}}}; {js}"}, call=CallContext(tool_call_id="o"))
        )

    async def go_on(self, interrupt, answers):
        return self._told(await self._tools.resume(interrupt, resolutions=answers))

    def _told(self, answer):
        if isinstance(answer, Interrupt):
            return answer
        if answer["status"] != "ok":
            raise answer.exception
        return answer["result"]


@pytest.fixture(scope="module")
def pool():
    made = WorkerPool({"max_workers": 2, "spare_workers": 0})
    yield made
    made.close()


class Scene:
    """Tools that end in a fixed order, on a clock that only their ends move."""

    def __init__(self, order=None):
        self.order = [] if order is None else order
        self.is_recording = order is None
        self.ended = []
        self.traces = []
        self.kill_at = {}
        self._turn = asyncio.Condition()
        self.options = {**PAUSING, "lifecycle": {"on_trace": self.traces.append}}

    def now_ms(self):
        return _EPOCH_MS + 1000 * len(self.ended)

    async def call(self, value, context, *, may_die_after=True):
        call_id = context.tool_call_id
        if call_id not in self.order:
            assert self.is_recording
            self.order.append(call_id)
        async with self._turn:
            await self._turn.wait_for(lambda: self.order[len(self.ended)] == call_id)
            kill = self.kill_at.pop(len(self.ended), None)
            dies_after = kill == "after" and may_die_after and not value["fails"]
            if kill and not dies_after:
                await self._kill_worker()
            self.ended.append((call_id, value))
            if dies_after:
                await self._kill_worker()
            self._turn.notify_all()
        return answer_of(value)

    async def _kill_worker(self):
        # Without spares every child of the zygote is the worker of this run.
        kill_workers()
        await asyncio.Event().wait()

    def tools(self, *, pauses, read_only=(), free=True):
        calls = {name: partial(self.call, may_die_after=name not in read_only) for name in TOOLS}

        async def pause(value, context):
            if pauses and context.interrupt is None:
                request_interrupt({"kind": "wait"})
            return await calls["pause"](value, context)

        annotations = {name: {"readOnlyHint": name in read_only} for name in TOOLS}
        return [
            Tool("ask", execute=calls["ask"], needs_approval=pauses, annotations=annotations["ask"]),
            Tool("pause", execute=pause, annotations=annotations["pause"]),
            Tool("free", execute=calls["free"], needs_approval=not free, annotations=annotations["free"]),
        ]

    def answers(self, interrupt, read_only):
        """Say what became of the calls of unknown outcome, or allow the one call whose turn it is."""
        unknown = [one for one in interrupt.requests if one.payload["kind"] == UNKNOWN_OUTCOME_KIND]
        assert not {one.tool_name for one in unknown} & set(read_only)
        if unknown:
            return {one.interrupt_id: known_outcome(one, dict(self.ended)) for one in unknown}
        due = self.order[len(self.ended) :][:1]
        chosen = [one for one in interrupt.requests if one.tool_call_id in due]
        return {one.interrupt_id: {"approved": True} if one.is_approval else "go" for one in chosen}

    def rows(self):
        """The last trace, without what tells times and runs apart."""
        return [
            (row.bridge_index, row.tool_name, row.tool_call_id, row.input, row.status, row.output)
            for row in self.traces[-1].bridge_requests
        ]


@pytest.fixture
def one_world(monkeypatch):
    """Return a function that puts all runs under one seed and the clock of a scene."""
    monkeypatch.setattr(execution, "secrets", SimpleNamespace(token_hex=lambda size: "5a" * size))

    def under(scene):
        for module in (execution, continuations, recovery):
            monkeypatch.setattr(module, "now_ms", scene.now_ms)
        return scene

    return under


async def paused_run(face, scene, js, pool, draw):
    """Run to the end, answering some of what waits at each pause, in some order."""
    program, pauses = face(scene.tools(pauses=True), scene, pool), 0
    result = await program.start(js)
    while isinstance(result, Interrupt):
        pauses += 1
        interrupt = through_json(result)
        shuffled = draw(st.permutations(interrupt.requests))
        chosen = shuffled[: draw(st.integers(1, len(shuffled)))]
        scene.order += [request.tool_call_id for request in chosen]
        answers = {one.interrupt_id: {"approved": True} if one.is_approval else "go" for one in chosen}
        result = await program.go_on(interrupt, answers)
    return result, pauses


async def plain_run(face, scene, js, pool):
    return await face(scene.tools(pauses=False), scene, pool).start(js)


async def killed_run(face, scene, js, pool, *, pauses, read_only):
    """Run to the end: go on from the recovery whenever the worker was killed, answer one request at each pause."""
    # With a fixed order nothing may run ahead of the call that a person is still to allow.
    tools, deaths = scene.tools(pauses=pauses, read_only=read_only, free=not pauses), 0
    program = face(tools, scene, pool)
    work = program.start(js)
    while True:
        try:
            result = await work
        except CodeModeWorkerError as error:
            deaths += 1
            result = error.recovery
        if not isinstance(result, Interrupt):
            return result, deaths
        interrupt = through_json(result)
        work = program.go_on(interrupt, scene.answers(interrupt, read_only))


def known_outcome(request, ended):
    """Say of a call what really became of it."""
    if request.tool_call_id not in ended:
        return {"runAgain": True}
    return {"value": answer_of(request.input)}


def pausing_changes_nothing(face, one_world, pool, node, data):
    js = program_of(node)

    async def both():
        paused = one_world(Scene())
        value, _ = await paused_run(face, paused, js, pool, data.draw)
        plain = one_world(Scene(paused.order))
        assert await plain_run(face, plain, js, pool) == value
        assert plain.ended == paused.ended
        assert len(dict(paused.ended)) == len(paused.ended)
        assert plain.rows() == paused.rows()

    within(both())


def killing_changes_nothing(face, one_world, pool, pauses, node, data):
    js = program_of(node)

    async def both():
        first = one_world(Scene())
        value = await plain_run(face, first, js, pool)
        killed = one_world(Scene(first.order))
        times = st.integers(0, len(first.ended) - 1)
        killed.kill_at = data.draw(st.dictionaries(times, st.sampled_from(["before", "after"]), min_size=1, max_size=3))
        read_only = data.draw(st.sets(st.sampled_from(TOOLS)))
        planned = len(killed.kill_at)
        result, deaths = await killed_run(face, killed, js, pool, pauses=pauses, read_only=read_only)
        assert deaths == planned
        assert result == value
        assert killed.ended == first.ended
        assert killed.rows() == first.rows()

    within(both())


@_SOME
@given(node=nodes, data=st.data())
def test_pausing_at_every_call_changes_nothing(one_world, pool, node, data):
    pausing_changes_nothing(CodeMode, one_world, pool, node, data)


@_FEW
@given(node=nodes, data=st.data())
def test_pausing_at_every_call_of_a_script_changes_nothing(one_world, pool, node, data):
    pausing_changes_nothing(CodeCall, one_world, pool, node, data)


@pytest.mark.parametrize("pauses", [True, *full_only(False)])
@_SOME
@given(node=nodes, data=st.data())
def test_killing_the_worker_changes_nothing(one_world, pool, pauses, node, data):
    killing_changes_nothing(CodeMode, one_world, pool, pauses, node, data)


@pytest.mark.parametrize("pauses", [True, *full_only(False)])
@_FEW
@given(node=nodes, data=st.data())
def test_killing_the_worker_of_a_script_changes_nothing(one_world, pool, pauses, node, data):
    killing_changes_nothing(CodeCall, one_world, pool, pauses, node, data)

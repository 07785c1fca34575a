"""Stored runs that fail or are given up by their hosts, and parked programs beside them."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import ExecWait
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart
from scripted import Script, execute, program, wait
from test_pydantic_ai_stored_pauses import KEYS, NO, OK, REFUND, TWO, WAIT_SECONDS, Desk, on, until

from codemode import CodeModeError
from codemode.continuations import guard
from codemode.continuations.guard import Claim, GuardClock
from codemode.data.json_values import encode_canonical_json
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import AnswerRefusedError, MemoryInterruptStore, Resumer


class _Failing:
    """A model step that fails so often, and then says what it is told to."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.asked = error, times, 0

    def __call__(self, _messages: Any, _info: Any) -> ModelResponse:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return ModelResponse([TextPart("done")])


def test_a_model_that_is_away_is_asked_again_and_nothing_runs_twice(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(TWO)).run("go")
        await desk.decide(run, OK, OK)
        failing = _Failing(ModelHTTPError(503, "away"), 2)
        record = await desk.store.record(run.record_id or "", tenant="acme")
        answers = {one.interrupt_id: OK for one in record.requests}
        pauses = desk.pauses(failing, failing, failing)
        for _ in range(2):
            with pytest.raises(ModelHTTPError):
                await pauses.resume(record, answers)
        assert await pauses.resume(record, answers) == "done"
        assert sorted(desk.did) == [("refund", "a", 500), ("refund", "b", 500)]

    on(tmp_path, scenario)


@pytest.mark.parametrize("is_beyond", [False, True])
def test_a_run_that_can_go_on_no_more_is_the_end_of_its_record(tmp_path: Path, is_beyond: bool) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        await desk.decide(run, OK)
        error = RuntimeError("secret of the host") if is_beyond else None
        more: list[Any] = [program("return await tools.stock({ product: 'x' });", "more")] if is_beyond else []
        failing: Any = _Failing(error, 9) if error else (lambda _messages, _info: ModelResponse([]))
        steps = [*more, failing, failing, failing]
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(*steps).resume):
            with pytest.raises(CodeModeError, match="has failed with") as failed:
                await desk.outcome(run)
        assert failed.value.code == "CODE_MODE_AGENT_RUN"
        assert "secret" not in failed.value.message
        assert (await desk.store.record(run.record_id or "", tenant="acme")).state == "failed"
        assert ("refund", "a", 500) in desk.did

    on(tmp_path, scenario)


@pytest.mark.parametrize("app", ["programs", "pydantic-ai"])
def test_a_parked_program_waits_beside_the_records_of_agents_and_goes_on_by_wait(tmp_path: Path, app: str) -> None:
    async def scenario(desk: Desk) -> None:
        settings: dict[str, Any] = {"continuation": {"keys": KEYS}}
        parked: dict[str, Any] = {"store": desk.store, "tenant": "acme", "app": app, "settings": settings}
        face = ExecWait(options={"approvals": "park"}, **parked)  # exec that ends sooner asks nobody before a wait
        code = "return await tools.refund({ order: 'p' });"
        first = await desk.agent(Script(execute(code), "later"), capability=face).run("go")
        run = await desk.pauses(program(REFUND)).run("go")
        page = await desk.store.list(tenant="acme", state="pending")
        (kept,) = [one for one in page.records if one.id != run.record_id]
        (asked,) = kept.requests
        assert (asked.kind, asked.input) == (APPROVAL_KIND, {"order": "p", "cents": 500})
        assert set(asked.input_schema["properties"]) == {"order", "cents"}
        wrong = {asked.interrupt_id: {"approved": True, "input": {"order": "p", "cents": "x"}}}
        with pytest.raises(AnswerRefusedError, match="cents"):
            await desk.store.decide(wrong, actor="ana", tenant="acme")
        edited = {"approved": True, "input": {"order": "p", "cents": 7}}
        seen = {asked.interrupt_id: desk.store.compute_display_digest(asked)}
        if app == "programs":  # a resumer of the agent's records finds it too, and leaves it
            await desk.store.decide({asked.interrupt_id: edited}, actor="ana", tenant="acme", seen=seen)
        await desk.decide(run, OK)
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses("done").resume):
            assert await desk.outcome(run) == "done"
        if app != "programs":
            await desk.store.decide({asked.interrupt_id: edited}, actor="ana", tenant="acme", seen=seen)
        again = Script()
        again.steps = [again.waits_to_the_end, "done"]
        messages = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        await desk.agent(again, capability=face).run("on", message_history=messages)
        assert again.results[-1]["value"] == "refunded p: 7"
        assert desk.did == [("stock", "nut"), ("refund", "a", 500), ("refund", "p", 7)]
        await face.aclose()

    on(tmp_path, scenario)


def test_a_decision_about_a_parked_program_has_the_shape_of_one_and_a_denial_is_told() -> None:
    async def scenario(desk: Desk) -> None:
        settings: dict[str, Any] = {"continuation": {"keys": KEYS}}
        face = ExecWait(options={"approvals": "park"}, store=desk.store, tenant="acme", app="p", settings=settings)
        code = "return await tools.refund({ order: 'p' }).catch((error) => error.message);"
        first = await desk.agent(Script(execute(code), "later"), capability=face).run("go")
        (record,) = (await desk.store.list(tenant="acme")).records
        (asked,) = record.requests
        for wrong in ({"yes": True}, "approved", {"approved": False, "input": {}}):
            with pytest.raises(AnswerRefusedError):
                await desk.store.decide({asked.interrupt_id: wrong}, actor="ana", tenant="acme")
        await desk.store.decide({asked.interrupt_id: NO}, actor="ana", tenant="acme")
        again = Script(wait("last"), "done")
        messages = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        await desk.agent(again, capability=face).run("on", message_history=messages)
        assert again.returned("last")["value"] == "not this one"
        assert desk.did == []
        await face.aclose()

    async def main() -> None:
        await scenario(Desk(MemoryInterruptStore()))

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


class Moved(GuardClock):
    """The time of a store, which a test moves."""

    moved_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.moved_ms

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.moved_ms / 1000


@pytest.mark.parametrize("has_gone_beyond", [False, True])
def test_a_host_that_dies_over_a_run_is_followed_unless_nobody_can_say_how_far_it_came(
    has_gone_beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_MIN_WATCH_SECONDS", 0.1)  # to see that whoever has claimed it does not go on

    async def main() -> None:
        clock = Moved()
        desk = Desk(MemoryInterruptStore(clock=clock))
        guard = desk.store.guard
        run = await desk.pauses(program(REFUND)).run("go")
        await desk.decide(run, OK)
        lease = await desk.store.claim(owner="dead", tenant="acme")
        assert lease is not None
        # What the dead one has left in the guard.
        key, expires_at_ms = (lease.record.payload[name] for name in ("key", "expiresAtMs"))
        answers = hashlib.sha256(encode_canonical_json(dict(lease.resolutions)).encode()).hexdigest()
        assert await guard.claim(Claim(key, answers, expires_at_ms)) is None
        if has_gone_beyond:
            assert await guard.claim(Claim(f"{key}:beyond", "beyond", expires_at_ms)) is None
        clock.moved_ms += 120_000

        async def is_lost() -> bool:
            return (await desk.store.record(run.record_id or "", tenant="acme")).state == "lost"

        async with Resumer(desk.store, tenant="acme", resume=desk.pauses("done").resume):
            if has_gone_beyond:
                await until(is_lost)
                assert desk.did == [("stock", "nut")]
                await desk.store.run_again(run.record_id or "", actor="ana", tenant="acme")
            assert await desk.outcome(run) == "done"
        assert desk.did == [("stock", "nut"), ("refund", "a", 500)]

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))

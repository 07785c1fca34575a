"""What a console remembers of sessions that have ended, beside what its store has."""

from __future__ import annotations

import pytest
from codemode_console import sessions as module
from codemode_console.sessions import FormTokens, Sessions
from console_visitors import run
from suite import each_row

from codemode.stores import ALL_TENANTS, MemoryInterruptStore


def test_whoever_signs_out_for_ever_fills_nothing_and_no_session_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_REMEMBERED_SIGN_OUTS", 3)

    async def work() -> None:
        sessions = Sessions([b"x" * 32], lambda: 1_000.0, MemoryInterruptStore())
        cookies: list[str] = []
        for _ in range(8):
            session, cookie = sessions.start("ana")
            assert await sessions.load(cookie) == session
            await sessions.end(session, actor="ana", tenant=ALL_TENANTS, address=None)
            cookies.append(cookie)
        assert [await sessions.load(cookie) for cookie in cookies] == [None] * 8
        assert len(sessions._ended_until) == 3

    run(work)


def test_what_is_over_by_itself_is_not_remembered() -> None:
    now = [1_000.0]

    async def work() -> None:
        sessions = Sessions([b"x" * 32], lambda: now[0], MemoryInterruptStore())
        for _ in range(4):
            session, _ = sessions.start("ana")
            await sessions.end(session, actor="ana", tenant=ALL_TENANTS, address=None)
            now[0] += module.SESSION_SECONDS * 0.6
        assert len(sessions._ended_until) == 2

    run(work)


@each_row("behind_seconds, is_known", [(-3600, True), (0, True), (1, True), (60, True), (61, False)])
def test_what_one_console_has_signed_is_known_to_one_whose_clock_is_not_more_than_a_minute_behind(
    behind_seconds: int, *, is_known: bool
) -> None:
    now, keys = 1_000_000.0, [b"x" * 32]

    async def work() -> None:
        session, cookie = Sessions(keys, lambda: now).start("ana")
        token = FormTokens(keys, lambda: now).create(session, "it")
        behind = Sessions(keys, lambda: now - behind_seconds), FormTokens(keys, lambda: now - behind_seconds)
        assert (await behind[0].load(cookie) == session) is is_known
        assert behind[1].is_valid(token, session, "it") is is_known

    run(work)

"""A body that never comes to its end holds no connection of the console."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_console import access_middleware
from console_houses import House
from console_visitors import run

BOUND_SECONDS = 60


def scope_of(path: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return what a server says of a POST."""
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "", "scheme": "https",
        "query_string": b"", "server": ("desk.test", 443), "client": ("192.0.2.1", 5), "http_version": "1.1",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }  # fmt: skip


async def half_posted(app: Any, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Send one byte of a hundred, and return status and headers of the answer."""
    parts = iter([{"type": "http.request", "body": b"t", "more_body": True}])
    sent: list[Any] = []

    async def receive() -> Any:
        for part in parts:
            return part
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(BOUND_SECONDS):
        await app(scope_of(path, headers), receive, send)
    return sent[0]["status"], {name.decode(): text.decode() for name, text in sent[0]["headers"]}


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_half_a_sign_in_form_is_answered_and_its_connection_closed(
    content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_middleware, "BODY_TIMEOUT_SECONDS", 0.01)

    async def work() -> None:
        headers = {"host": "desk.test", "content-type": content_type, "content-length": "100"}
        status, answered = await half_posted(House().app, "/sign-in", headers | {"sec-fetch-site": "same-origin"})
        assert status == 408
        assert answered["connection"] == "close"

    run(work)


def test_half_a_decision_of_a_user_is_answered_and_its_connection_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as browser:
            cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        monkeypatch.setattr(access_middleware, "BODY_TIMEOUT_SECONDS", 0.01)
        headers = {"host": "desk.test", "cookie": cookie, "sec-fetch-site": "same-origin", "content-length": "100"}
        form = {"content-type": "application/x-www-form-urlencoded"}
        status, answered = await half_posted(house.app, "/many/decide", headers | form)
        assert status == 408
        assert answered["connection"] == "close"

    run(work)


def test_hanging_up_in_the_middle_of_a_form_leaves_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError(f"nobody is there to hear {message}")

        headers = {"host": "desk.test", "content-type": "application/x-www-form-urlencoded", "content-length": "100"}
        scope = scope_of("/sign-in", headers | {"sec-fetch-site": "same-origin"})
        async with asyncio.timeout(BOUND_SECONDS):
            await House().app(scope, receive, send)

    run(work)
    assert [record.message for record in caplog.records] == []

"""Whoever asks the agent servers of `tests.soak.replicas` for runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
from tests.soak.replica_proxy import AWAY

from codemode.stores import ALL_TENANTS, Change


class Asker:
    """A client of agent servers, which asks until somebody answers."""

    def __init__(self, client: httpx.AsyncClient, url: str, answers: Counter[str]) -> None:
        self._client, self._url, self._answers = client, url, answers

    async def ask(self, run: int, js: str) -> Any:
        """Return what a run comes to."""
        answer = await self._answer("POST", "ask", {"run": run, "js": js})
        if answer.status_code == 200:
            return answer.json()["value"]
        assert answer.status_code == 202, answer.text
        while True:
            told = (await self._answer("GET", f"runs/{run}")).json()
            if told["state"] == "completed":
                return told["value"]
            await asyncio.sleep(0.1)

    async def _answer(self, method: str, path: str, content: Any = None) -> httpx.Response:
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await self._client.request(method, f"{self._url}/{path}", json=content)
                if answer.status_code not in AWAY:
                    return answer
            self._answers[f"asked again: {method}"] += 1
            await asyncio.sleep(0.05)


async def past(store: Any) -> AsyncIterator[Change]:
    """Yield all that has happened so far."""
    changes = store.changes(tenant=ALL_TENANTS)
    with contextlib.suppress(TimeoutError):
        while True:
            yield await asyncio.wait_for(anext(changes), 2)
    await changes.aclose()

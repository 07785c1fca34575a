"""The processes of `tests.soak.consoles`: consoles, and people who click in them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import httpx
from codemode_console import TokenAuth, User, token_hash
from codemode_console.application import serve
from tests.soak.pause_hosts import Lines, Person, hurry, store_of

from codemode.stores import ALL_TENANTS, StoredRequest

SECRET = "the same for all consoles before one database"
AWAY = (502, 503, 504)
"""What is answered where a console or its database is away, by itself or by a proxy."""
_CLICKS, _LONGEST_SECONDS = 2, 60.0
_HEADERS = {"accept": "application/json", "sec-fetch-site": "same-origin"}


def serve_for_ever(kind: str, where: str, port: int, people: list[str]) -> None:
    """Serve a console until killed. A person's token is their name."""
    hurry()
    auth = TokenAuth({token_hash(name): User(name, ALL_TENANTS) for name in people})
    serve(store_of(kind, where), auth=auth, options={"secret": SECRET}, port=port, echo=lambda _: None)


def click_for_ever(*arguments: Any) -> None:
    """Decide about everything that comes up behind a sequence, each twice, until killed: see `click`."""
    asyncio.run(click(Clicker, *arguments))


async def click(
    of: type[Clicker], kind: str, where: str, world: str, decided: str, actor: str, after: int, ports: list[int]
) -> None:
    """Be a person before the consoles at these ports."""
    async with httpx.AsyncClient(headers=_HEADERS, timeout=10) as browser:
        desk = Desk(browser, ports, actor)
        await of(store_of(kind, where), Lines(world), Lines(decided), actor, desk).work(after)


class Desk:
    """A browser before several consoles: each request goes to the next of them that answers."""

    def __init__(self, browser: httpx.AsyncClient, ports: list[int], actor: str) -> None:
        self._browser, self._actor = browser, actor
        self._ports = itertools.cycle(ports)

    async def cards(self, record_id: str) -> dict[str, Any]:
        """Return the cards of a record's page by their ids."""
        answer = await self.send("GET", f"records/{record_id}")
        assert answer.status_code == 200, answer.text
        return {card["id"]: card for card in answer.json()["requests"]}

    async def send(self, method: str, path: str, form: dict[str, str] | None = None) -> httpx.Response:
        """Send a request until somebody answers, who may have been killed at it before. Raises TimeoutError."""
        async with asyncio.timeout(_LONGEST_SECONDS):
            while True:
                answer = await self._answer(method, path, form)
                if answer is None or answer.status_code in AWAY:
                    await asyncio.sleep(0.05)
                elif answer.status_code == 401:
                    signed_in = await self._answer("POST", "sign-in", {"token": self._actor})
                    assert signed_in is None or signed_in.status_code in (200, *AWAY), signed_in.text
                else:
                    return answer

    async def _answer(self, method: str, path: str, form: dict[str, str] | None) -> httpx.Response | None:
        try:
            return await self._browser.request(method, f"http://127.0.0.1:{next(self._ports)}/{path}", data=form)
        except httpx.TransportError:
            return None


class Clicker(Person):
    """Clicks in consoles: the form of one page is sent twice."""

    def __init__(self, store: Any, world: Lines, decided: Lines, actor: str, desk: Desk) -> None:
        super().__init__(store, world, decided, actor)
        self._desk = desk

    async def _click(self, record_id: str, request: StoredRequest, decision: dict[str, Any]) -> None:
        name = request.interrupt_id
        card = (await self._desk.cards(record_id))[name]
        form = {**_form(decision), "shown": card["shown"], "version": card["version"], "form_token": card["formToken"]}
        for _ in range(_CLICKS):
            answer = await self._desk.send("POST", f"records/{record_id}/requests/{name}", form)
            if answer.status_code == 200:
                made = (await self._desk.cards(record_id))[name]
                self._decided.write("decided", self._actor, name, made["actor"], request.input, decision)
            else:
                assert answer.status_code == 409, (answer.status_code, answer.text)
                error = answer.json()["error"]
                self._decided.write("refused", self._actor, name, error["code"], error.get("actor"))


def _form(decision: dict[str, Any]) -> dict[str, str]:
    """Return what a card's form sends for a decision."""
    if "value" in decision:
        return {"decision": "value", "mode": "json", "json": json.dumps(decision["value"])}
    if "runAgain" in decision:
        return {"decision": "run-again"}
    if "error" in decision:
        return {"decision": "error", "reason": decision["error"]["message"]}
    reason = {"reason": decision["reason"]} if "reason" in decision else {}
    if "input" in decision:
        return {"decision": "edit", "mode": "json", "json": json.dumps(decision["input"]), **reason}
    return {"decision": "approve" if decision["approved"] else "deny", **reason}

"""A store and a console over it, with users of several tenants, for the tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from codemode_console import TokenAuth, User, approval_console, token_hash
from console_visitors import ANA, EVE, OWN, Clock
from stored_pauses import paused, request

from codemode.stores import ALL_TENANTS, MemoryInterruptStore

BOB = "bob's own 256 random bits"
SECRET = "the same for all consoles"
USERS = {
    token_hash(ANA): User("ana", ["acme", "globex"]),
    token_hash(BOB): User("bob", ["initech"]),
    token_hash(EVE): User("eve", ALL_TENANTS),
}
AS_JSON = {"accept": "application/json"}


class House:
    """A console on a store of its own, or on one that is given."""

    def __init__(self, store: Any = None, auth: Any = None, **settings: Any) -> None:
        self.store: Any = MemoryInterruptStore() if store is None else store
        self.clock = Clock()
        chosen = TokenAuth(USERS) if auth is None else auth
        options: Any = {"clock": self.clock, "secret": SECRET, **settings.pop("options", {})}
        self.app: Any = approval_console(self.store, auth=chosen, options=options, **settings)

    async def put(self, name: str, tenant: str = "acme", **said: Any) -> str:
        return await self.store.put(paused(request(name, **said)), tenant=tenant)

    async def decide(self, name: str, answer: Any, actor: str = "ana") -> None:
        await self.store.decide({name: answer}, actor=actor, tenant=ALL_TENANTS, address="192.0.2.9")

    def client(self, **settings: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=("192.0.2.1", 5))
        return httpx.AsyncClient(transport=transport, base_url="https://desk.test", headers=OWN, **settings)

    @asynccontextmanager
    async def browser(self, token: str = ANA) -> AsyncGenerator[httpx.AsyncClient]:
        async with self.client() as made:
            assert (await made.post("/sign-in", data={"token": token})).status_code == 303
            yield made

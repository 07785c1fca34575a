"""Cards as a browser without JavaScript has them, and a console whose programs go on, for the tests."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from codemode_console import TokenAuth, User, approval_console, token_hash
from console_visitors import ANA, EVE, OWN
from page_forms import Page

from codemode import CodeModeTool, Tool, create_code_mode_tool
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer

BOB = "bob's own 256 random bits"
AUTH = TokenAuth(
    {
        token_hash(ANA): User("ana", ALL_TENANTS),
        token_hash(BOB): User("bob", ["acme"]),
        token_hash(EVE): User("eve", ALL_TENANTS, may_decide=False),
    }
)
DAY_MS = 86_400_000
JSON = {"accept": "application/json"}


class CardForm(Page):
    """The form of one card: its controls, and its buttons in their order."""

    def __init__(self, page: str, number: int = 0) -> None:
        found = re.findall(r'<form method="post" action="([^"]+/requests/[^"]+)">(.*?)</form>', page, re.DOTALL)
        assert len(found) > number, page
        self.html, (self.action, inside) = page, found[number]
        self.buttons: list[tuple[str, tuple[str, str]]] = []
        self._label: list[str] | None = None
        self._button = ("", "")
        super().__init__(inside)

    def as_shown(self) -> CardForm:
        """Return it as it was before anything was typed."""
        return CardForm(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag == "button":
            known = dict(attrs)
            assert known["type"] == "submit"
            self._label, self._button = [], (known["name"] or "", known["value"] or "")

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if self._label is not None:
            self._label.append(data)

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if tag == "button" and self._label is not None:
            self.buttons.append(("".join(self._label).strip(), self._button))
            self._label = None

    async def press(self, browser: httpx.AsyncClient, label: str, **settings: Any) -> httpx.Response:
        """Press a button as a browser does."""
        (button,) = [button for text, button in self.buttons if text == label]
        return await self.send(browser, *button, **settings)

    async def enter(self, browser: httpx.AsyncClient) -> httpx.Response:
        """Press Enter in a field: the first button is meant."""
        return await self.send(browser, *self.buttons[0][1])

    async def send(self, browser: httpx.AsyncClient, *button: str, **settings: Any) -> httpx.Response:
        body = httpx.QueryParams(self.items(*button))
        kind = {"content-type": "application/x-www-form-urlencoded", **settings.pop("headers", {})}
        path = httpx.URL(self.action).raw_path.decode().removeprefix("/approvals")
        return await browser.post(path, content=str(body), headers=kind, **settings)


class CardDesk:
    """A store, tools that wait, and a console over it."""

    def __init__(self, tools: Sequence[Tool], **settings: Any) -> None:
        self.store = MemoryInterruptStore(**({"clock": settings.pop("clock")} if "clock" in settings else {}))
        self.code_mode = self.over(tools)
        self.app = approval_console(self.store, auth=AUTH, **settings)

    def over(self, tools: Sequence[Tool]) -> CodeModeTool:
        """Return what runs programs on these tools, with this store."""
        approval = {"mode": "interrupt", "show_denial_reason": True}
        continuation = {"guard": self.store.guard, "max_age_ms": 7 * DAY_MS}
        return create_code_mode_tool(tools, {"approval": approval, "continuation": continuation})

    async def pause(self, js: str, **settings: Any) -> str:
        """Run a program until it asks somebody, and return the id of its record."""
        interrupt = await self.code_mode.execute({"js": js})
        return await self.store.put(interrupt, tool=self.code_mode, **{"tenant": "acme", "app": "shop", **settings})

    async def outcome(self, record_id: str) -> Any:
        """Let it go on, and return what it comes to."""
        async with Resumer(self.store, tenant=ALL_TENANTS, resume=self.code_mode.resume):
            return await self.store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)

    async def go_on(self, record_id: str) -> None:
        """Let it go on to its next pause."""
        lease = await self.store.claim(owner="test", tenant=ALL_TENANTS, record_id=record_id)
        assert lease is not None
        result = await self.code_mode.resume(lease.interrupt, resolutions=lease.resolutions)
        assert await self.store.settle(lease, result, tool=self.code_mode)

    async def requests(self, record_id: str) -> Any:
        return (await self.store.record(record_id, tenant=ALL_TENANTS)).requests

    async def states(self, record_id: str) -> list[str]:
        return [one.state for one in await self.requests(record_id)]

    @asynccontextmanager
    async def browser(self, token: str = ANA) -> AsyncGenerator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=("192.0.2.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url="https://desk.test", headers=OWN) as made:
            assert (await made.post("/sign-in", data={"token": token})).status_code == 303
            yield made

    async def form(self, browser: httpx.AsyncClient, record_id: str, number: int = 0) -> CardForm:
        answer = await browser.get(f"/records/{record_id}")
        assert answer.status_code == 200
        return CardForm(answer.text, number)


def keeping(schema: Any, taken: list[Any], **settings: Any) -> Tool:
    """Return a tool that keeps what it is given once somebody has approved it."""

    async def execute(input: Any, _context: Any) -> str:  # noqa: A002 - the name of a tool's parameter
        taken.append(input)
        return "taken"

    settings = {"needs_approval": True, **settings}
    return Tool("take", execute=execute, input_schema=schema, description="Takes it.", **settings)


def call(value: Any, name: str = "take") -> str:
    """Return the program that calls once."""
    return f"return await tools.{name}({json.dumps(value)})"

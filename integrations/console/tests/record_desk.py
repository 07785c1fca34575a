"""A console over paused programs, and its pages as a parser of HTML reads them, for the tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import httpx
from codemode_console import TokenAuth, User, approval_console, token_hash
from console_visitors import ANA, EVE, OWN
from starlette.applications import Starlette
from starlette.routing import Mount

from codemode import Interrupt, create_code_mode_tool, tool
from codemode.continuations.guard import GuardClock
from codemode.stores import ALL_TENANTS, MemoryInterruptStore

BOB = "bob's own 256 random bits"
AUTH = TokenAuth(
    {
        token_hash(ANA): User("ana", ["acme"]),
        token_hash(BOB): User("bob", ["initech"]),
        token_hash(EVE): User("eve", ALL_TENANTS, may_decide=False),
    }
)
DAY_MS = 86_400_000
KEY = "a key of the tests, of 32 bytes."
VOID = frozenset({"meta", "link", "input", "br", "hr"})


class Later(GuardClock):
    """A clock that a test puts forward."""

    days = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


def refund(order: str, cents: int = 1) -> str:
    return "done"


def find(order: str) -> Any:
    return {"order": order, "found": True}


class RecordDesk:
    """A store, a tool whose programs pause, and a console over the store."""

    def __init__(
        self, *, gated: Iterable[Any] = (refund,), free: Iterable[Any] = (find,), store: Any = None, **settings: Any
    ) -> None:
        self.clock = Later()
        self.store = MemoryInterruptStore(clock=self.clock) if store is None else store
        options: Any = {
            "approval": {"mode": "interrupt"},
            "continuation": {"guard": self.store.guard, "max_age_ms": 7 * DAY_MS, "keys": KEY},
        }
        tools = [*(tool(needs_approval=True)(one) for one in gated), *(tool(one) for one in free)]
        self.code_mode = create_code_mode_tool(tools, options)
        settings.setdefault("resume", {"shop": self.code_mode.resume})
        self.console = approval_console(self.store, auth=AUTH, **settings)
        self.app = Starlette(routes=[Mount("/approvals", self.console)])

    async def pause(self, js: str, **kept: Any) -> str:
        paused = await self.code_mode.execute({"js": js})
        assert isinstance(paused, Interrupt), paused
        return await self.store.put(paused, **{"tool": self.code_mode, "tenant": "acme", "app": "shop", **kept})

    async def answer(self, record_id: str, *decisions: Any, actor: str = "bea") -> Any:
        """Decide the requests that wait, in their order, and let the program go on."""
        record = await self.store.record(record_id, tenant=ALL_TENANTS)
        waiting = [one.interrupt_id for one in record.requests if one.state == "waiting"]
        decided = dict(zip(waiting, decisions, strict=False))
        await self.store.decide(decided, actor=actor, tenant=ALL_TENANTS)
        lease = await self.store.claim(owner="host-7 of the tests", tenant=ALL_TENANTS, record_id=record_id)
        assert lease is not None
        result = await self.code_mode.resume(lease.interrupt, resolutions=lease.resolutions)
        assert await self.store.settle(lease, result, tool=self.code_mode)
        return result

    @asynccontextmanager
    async def browser(self, token: str = ANA) -> AsyncGenerator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=("192.0.2.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url="https://desk.test/approvals", headers=OWN) as made:
            assert (await made.post("/sign-in", data={"token": token})).status_code == 303
            yield made

    async def page(self, record_id: str, query: str = "", token: str = ANA) -> Page:
        async with self.browser(token) as browser:
            answer = await browser.get(f"/records/{record_id}{query}")
        assert answer.status_code == 200, answer.text
        return Page(answer.text)


class Element:
    """An element of a page, with all text that is in it."""

    def __init__(self, name: str, attributes: dict[str, str | None], parent: Element | None) -> None:
        self.name, self.attributes, self.parent = name, attributes, parent
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def within(self, name: str) -> Element | None:
        one = self.parent
        while one is not None and one.name != name:
            one = one.parent
        return one


class Page(HTMLParser):
    """A page as a parser reads it, which must be told to end each element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), attrs
        one = Element(tag, dict(attrs), self._open[-1] if self._open else None)
        self.elements.append(one)
        if tag not in VOID:
            self._open.append(one)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag, tag

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def all(self, name: str, where: Callable[[Element], bool] = lambda _: True) -> list[Element]:
        return [one for one in self.elements if one.name == name and where(one)]

    def by_id(self, name: str) -> Element:
        (found,) = [one for one in self.elements if one.attributes.get("id") == name]
        return found

    def section(self, heading: str) -> Element:
        (found,) = [one for one in self.all("h2") if one.text == heading]
        section = found.within("section")
        assert section is not None
        return section

    @property
    def text(self) -> str:
        return self.elements[0].text

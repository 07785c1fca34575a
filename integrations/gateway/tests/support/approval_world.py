"""A gateway in small: one server whose tools ask, behind `Asking` and the SDK's own server, for real clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
from codemode_gateway.approvals.approval_flow import ApprovalFlow
from codemode_gateway.approvals.pending_store import PrincipalRunResumer, StoredRunResumer
from codemode_gateway.approvals.remembered_answers import RememberedAnswers, create_approval_hook
from codemode_gateway.config.model import GatewaySettings, ServerConfig
from codemode_gateway.gateway.principals import LOCAL, Principal
from mcp import Client
from mcp.server.lowlevel import Server

from codemode import ModuleServer, Tool, create_modules_tool
from codemode.stores import ALL_TENANTS, MemoryInterruptStore
from codemode.types import RunResponse

KEY = "a key of 32 bytes or more, for tests"
REFUND = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer", "default": 500}},
    "required": ["order"],
}
DESTROYS = types.ToolAnnotations(destructive_hint=True)
READS = types.ToolAnnotations(read_only_hint=True)
IMPORT = 'import { refund, stock, lose } from "@codemode/servers/shop";\n'
RESULT = "globalThis.__codemode_result__ = "
TWO = (
    f'{IMPORT}await stock({{ product: "nut" }});\n'
    'const told = await Promise.allSettled(["a", "b"].map((order) => refund({ order })));\n'
    f"{RESULT}told.map((one) => one.value ?? [one.reason.code, one.reason.hint]);"
)
ONE = f'{IMPORT}{RESULT}await refund({{ order: "a" }}).catch((error) => error.code);'


def accept(decision: str = "once", **content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": decision, **content})


def asked_input(params: Any) -> Any:
    return json.loads(params.requested_schema["properties"]["input"]["default"])


class Shop:
    """What was done, on whichever host. ``lose`` does not answer the first ``losses`` times: ``on_lose`` is called."""

    def __init__(self, *, losses: int = 1, on_lose: Callable[[], None] = lambda: None) -> None:
        self.losses, self.on_lose = losses, on_lose
        self.done: list[Any] = []
        self.tools = {
            "refund": types.Tool(name="refund", input_schema=REFUND, annotations=DESTROYS),
            "stock": types.Tool(name="stock", input_schema={"type": "object"}, annotations=READS),
            "lose": types.Tool(
                name="lose", input_schema={"type": "object"}, annotations=types.ToolAnnotations(destructive_hint=False)
            ),
        }

    def _refund(self, given: Any) -> str:
        self.done.append((given["order"], given["cents"]))
        return f"refunded {given['cents']} for {given['order']}"

    def stock(self, _given: Any) -> Any:
        self.done.append("stock")
        return 7

    async def _lose(self, _given: Any) -> str:
        self.done.append("lose")
        if self.done.count("lose") > self.losses:
            return "late"
        self.on_lose()
        await asyncio.Event().wait()
        raise AssertionError

    def server(self, config: ServerConfig, remembered: RememberedAnswers) -> ModuleServer:
        hook = create_approval_hook(remembered)
        does: Mapping[str, Callable[..., Any]] = {"refund": self._refund, "stock": self.stock, "lose": self._lose}
        made = [
            Tool(
                name,
                execute=does[name],
                input_schema=one.input_schema,
                needs_approval=hook(config, one),
                annotations=None if one.annotations is None else one.annotations.model_dump(by_alias=True),
            )
            for name, one in self.tools.items()
        ]
        return ModuleServer("shop", made)


class Host:
    """One gateway host: `Asking` behind a server of the SDK."""

    def __init__(
        self,
        shop: Shop,
        store: Any,
        *,
        principal: Principal = LOCAL,
        remembered: RememberedAnswers | None = None,
        wait_ms: int = 60_000,
        keys: str = KEY,
        limits: Mapping[str, Any] | None = None,
        by_console: bool = False,
        over_http: bool = False,
        journal: bool = False,
        pool: Any = None,
        max_waiting: int = 200,
        **options: Any,
    ) -> None:
        self.remembered = remembered or RememberedAnswers()
        config = ServerConfig("shop", "stdio", approval_wait_ms=wait_ms)
        continuation: dict[str, Any] = {"keys": keys, "guard": store.guard, "max_age_ms": 86_400_000}
        if journal:
            continuation["journal"] = store.journal(tenant=principal.id, app="codemode-mcp")
        self.run_tool = create_modules_tool(
            [shop.server(config, self.remembered)],
            limits and {"limits": limits},
            settings={"approval": {"mode": "interrupt"}, "continuation": continuation},
            pool=pool,
        )
        self.resuming = StoredRunResumer(lambda: store, self._runs_of)
        self.asking = ApprovalFlow(
            self.run_tool,
            GatewaySettings(max_waiting=max_waiting),
            lambda: store,
            principal,
            self.remembered,
            start_resuming=self.resuming.start,
            servers=[config],
            **options,
        )
        self._by_console, self._over_http = by_console, over_http
        self.server: Server[Any] = Server("gateway", on_list_tools=self._list, on_call_tool=self._call)

    @asynccontextmanager
    async def _runs_of(self, principal: Principal) -> AsyncGenerator[PrincipalRunResumer]:
        assert principal == Principal(self.asking.principal.id)
        yield self.asking.runs

    async def _list(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="codemode_run", input_schema={"type": "object"})])

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        if self._over_http:  # as far as a request tells it
            ctx = replace(ctx, request=SimpleNamespace(scope={}))
        answer = await self.asking.handle_call(
            ctx, params, params.arguments or {}, is_asked_in_console=self._by_console
        )
        if isinstance(answer, RunResponse):
            return types.CallToolResult(content=[], structured_content=dict(answer))
        return answer


@asynccontextmanager
async def hosts(count: int = 1, *, path: Path | None = None, shop: Shop | None = None, **options: Any) -> Any:
    """Give a shop, its store, and hosts before them; each has a store of its own on ``path``, where one is given."""
    from codemode.stores import SqliteInterruptStore

    shop = shop or Shop()
    stores = [MemoryInterruptStore()] if path is None else [SqliteInterruptStore(path) for _ in range(count)]
    made = [Host(shop, stores[number % len(stores)], **options) for number in range(count)]
    try:
        yield (shop, stores[0], *made)
    finally:
        for one in made:
            await one.resuming.aclose()
        for store in stores:
            await store.aclose()


def answer_of(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content
    return result.structured_content


async def kept(store: Any) -> Any:
    """Wait for the run in the store about which people may decide."""
    with store.watch() as watch:
        while not (found := (await store.list(tenant=ALL_TENANTS, state="waiting")).records):
            await watch.wait(0.5)
    return found[0]


def codes(answer: Mapping[str, Any]) -> list[str]:
    return [one["code"] for one in answer["diagnostics"]]


async def begun(client: Any, code: str) -> Any:
    return await client.session.call_tool("codemode_run", {"code": code}, allow_input_required=True)


async def gone_on(client: Any, code: str, before: Any, replies: Mapping[str, Any]) -> Any:
    return await client.session.call_tool(
        "codemode_run",
        {"code": code},
        input_responses=replies,
        request_state=before.request_state,
        allow_input_required=True,
    )


def client_of(host: Host) -> Client:
    """Return a client of the later era whose person is asked by hand."""

    async def nobody(_ctx: Any, _params: Any) -> Any:
        raise AssertionError("asked within the session")

    return Client(host.server, elicitation_callback=nobody)


def mute(host: Host, mode: str = "auto") -> Client:
    """Return a client that cannot ask anybody anything."""
    return Client(host.server, mode=mode)

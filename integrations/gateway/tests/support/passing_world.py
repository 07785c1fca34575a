"""A gateway that passes through, in process: stand-ins for connected servers, and a client in front of them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

import mcp_types as types
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.gateway.principals import CallOrigin
from codemode_gateway.passthrough.handlers import (
    add_log_level_handler,
    create_capability_and_log_middleware,
    create_handlers,
)
from codemode_gateway.passthrough.logs import Hide, hide_nothing
from codemode_gateway.passthrough.proxy import PassthroughProxy
from codemode_gateway.upstreams.connection import UpstreamLogLevel
from mcp import Client
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.shared.exceptions import MCPError

LEGACY, MODERN = "legacy", "auto"


class FakeUpstream:
    """A connected server as the gateway knows it, over a server in this process."""

    def __init__(self, name: str, server: Server[Any], mode: str = LEGACY, **settings: Any) -> None:
        self.config = ServerConfig(name, "stdio", **settings)
        self.server = server
        self.mode = mode
        self.state = "stopped"
        self.capabilities: Any = None
        self.failure: Exception | None = None
        self.starts = 0
        self.passed: PassthroughProxy | None = None
        self.client: Client | None = None
        self.context: Any = None
        self._log_level = UpstreamLogLevel(lambda: None if self.passed is None else self.passed.logs.subscribed_level)
        self._serving: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    async def session(self) -> Any:
        if self.failure is not None:
            self.state = "failed"
            raise self.failure
        if self.client is None:
            self.starts += 1
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(ready))
            await asyncio.wait([ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
            self.client = ready.result() if ready.done() else await self._serving  # type: ignore[func-returns-value]
            assert self.client is not None
            await self.send_log_level_if_running()
            self.capabilities, self.state = self.client.server_capabilities, "ready"
        return self.client.session

    async def ask(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        return await request(await self.session())

    async def send_log_level_if_running(self) -> None:
        if self.client is not None:
            await self._log_level.send_if_changed(self.client.session)

    def keep_running(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def aclose(self) -> None:
        self.client, self.state = None, "stopped"
        if self._serving is not None:
            self._is_over.set()
            await self._serving
            self._is_over, self._serving = asyncio.Event(), None

    async def _serve(self, ready: asyncio.Future[Client]) -> None:
        async with Client(
            self.server,
            mode=self.mode,
            elicitation_callback=lambda _, params: self._asked("elicitation/create", params),
            sampling_callback=lambda _, params: self._asked("sampling/createMessage", params),
            list_roots_callback=lambda _: self._asked("roots/list", None),
            message_handler=self._heard,
        ) as client:
            ready.set_result(client)
            await self._is_over.wait()

    async def _asked(self, method: str, params: Any) -> Any:
        assert self.passed is not None
        plain = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
        return await self.passed.on_request(self.config, method, plain, self.context)

    async def _heard(self, message: Any) -> None:
        if self.passed is not None and not isinstance(message, Exception):
            await self.passed.on_notification(self.config, message)


class Listener:
    """A client's connection, as far as it is told something."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.exit_stack = AsyncExitStack()
        self.reads = asyncio.Event()
        self.reads.set()
        self.news = asyncio.Event()

    async def notify(self, _method: str, params: dict[str, Any]) -> None:
        await self.reads.wait()
        self.told.append(params)
        self.news.set()


@asynccontextmanager
async def gateway(
    *upstreams: FakeUpstream,
    call: Callable[[PassthroughProxy, Any, Any], Awaitable[Any]] | None = None,
    hide: Callable[[str], str] = str,
    hide_in: Hide = hide_nothing,
) -> AsyncGenerator[tuple[Server[Any], PassthroughProxy]]:
    """A server that passes these through; ``call`` serves the calls of its one tool."""
    passed = PassthroughProxy(lambda: upstreams, hide=hide, hide_in=hide_in)
    for one in upstreams:
        one.passed = passed

    async def passed_of(_ctx: Any) -> PassthroughProxy:
        return passed

    async def called(ctx: Any, params: Any) -> Any:
        assert call is not None
        return await call(passed, ctx, params)

    async def listed(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="codemode_run", input_schema={"type": "object"})])

    tools = {"on_list_tools": listed, "on_call_tool": called} if call else {}
    server = Server("gateway", **tools, **create_handlers(passed_of))
    add_log_level_handler(server, passed_of)
    server.middleware.append(create_capability_and_log_middleware(passed_of))
    own = server.create_initialization_options
    server.create_initialization_options = lambda *_: own(NotificationOptions(True, True))  # type: ignore[method-assign]
    try:
        yield server, passed
    finally:
        await passed.aclose()
        for one in reversed(upstreams):
            await one.aclose()


def prompts(*names: str, **more: Any) -> Server[Any]:
    """A server with prompts of these names, each of which says its server's and its own name."""

    async def listed(_ctx: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in names])

    async def given(_ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in names:
            raise MCPError(types.INVALID_PARAMS, f"no prompt {params.name}")
        text = types.TextContent(text=f"{params.name} {params.arguments or ''}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    return Server("prompts", **{"on_list_prompts": listed, "on_get_prompt": given, **more})


def resources(told: str, *uris: str, templates: Sequence[str] = (), **more: Any) -> Server[Any]:
    """A server with these resources, each of which says ``told`` and its URI."""

    async def listed(_ctx: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name=uri, uri=uri) for uri in uris])

    async def of_templates(_ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        found = [types.ResourceTemplate(name=one, uri_template=one) for one in templates]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def read(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text=f"{told} {params.uri}")]
        )

    ways = {"on_list_resources": listed, "on_list_resource_templates": of_templates, "on_read_resource": read}
    return Server("resources", **{**ways, **more})


async def text_of(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.uri == uri
    return content.text


def context_of(origin: CallOrigin) -> Any:
    """Return what stands for the context of a call that serves this request."""

    class Context:
        context = origin

    return Context()

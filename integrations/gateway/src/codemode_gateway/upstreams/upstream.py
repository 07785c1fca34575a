"""List and call the tools of one upstream server."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, ClassVar, cast

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from codemode.errors import CodeModeToolError
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.tools.server_lists import log_omitted_entries
from codemode.tools.tool import Tool
from codemode.tools.tool_result import ToolResult
from codemode.trace.visible_text import clip_text

from ..config.model import ServerConfig
from ..config.patterns import describe_unmatched_patterns, get_tool_patterns, matches
from ..config.redaction import SecretRedactor
from .call_retries import CallSender, ClientRequestCallbacks, add_metadata_and_create_options, supports_argument_headers
from .connection import Connection, ToolChangeListener, UnansweredRequestMCPError, UpstreamLogLevel
from .connection_errors import UnansweredRequestError, UpstreamUnavailableError
from .hooks import UpstreamHooks
from .reconnecting import ReconnectingConnection, ResultT, State
from .tool_listing import ListCache, Listing, PageRefusedError, fetch_listing

CallTool = Callable[[str, Any, Any], Awaitable[Any]]
GetCurrentTool = Callable[[str], Awaitable[types.Tool | None]]
"""Returns a tool's current definition on the connection of a call, or None if the server no longer has the tool."""

TOOLS_CHANGED = "TOOLS_CHANGED"
_TOOLS_PER_TURN = 200
_MAX_INLINE_TOOLS = 20


class UpstreamTool(Tool):
    """A tool of a server."""

    is_foreign: ClassVar[bool] = True


def filter_allowed_tools(config: ServerConfig, tools: Iterable[types.Tool]) -> list[types.Tool]:
    """Return the tools that the configuration lets programs see."""
    return [tool for tool in tools if is_tool_allowed(config, tool.name)]


def is_tool_allowed(config: ServerConfig, name: str) -> bool:
    """Return whether programs may see a tool of this name."""
    if config.allow and not any(matches(pattern, name) for pattern in config.allow):
        return False
    return not any(matches(pattern, name) for pattern in config.deny)


def is_safe_to_repeat(tool: types.Tool | None) -> bool:
    """Return whether a tool is declared read-only or idempotent."""
    annotations = tool.annotations if tool is not None else None
    return annotations is not None and (annotations.read_only_hint is True or annotations.idempotent_hint is True)


async def create_program_tools(
    config: ServerConfig, tools: Sequence[types.Tool], hooks: UpstreamHooks, call: CallTool, get_current: GetCurrentTool
) -> list[Tool]:
    """Return tools that programs call through ``call(name, arguments, context)``.

    A cached list may be outdated: a call skips approval only if the server's current definition, ``get_current``,
    agrees.
    """
    factories: list[Callable[[], Tool]] = []
    for count, tool in enumerate(tools, 1):
        factories.append(_create_tool_factory(config, tool, hooks, call, get_current))
        if count % _TOOLS_PER_TURN == 0:
            await asyncio.sleep(0)
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS if len(tools) > _MAX_INLINE_TOOLS else 0, lambda: [make() for make in factories]
    )


def _create_tool_factory(
    config: ServerConfig, tool: types.Tool, hooks: UpstreamHooks, call: CallTool, get_current: GetCurrentTool
) -> Callable[[], Tool]:
    """Return a factory of a tool, with the answers of the hooks."""
    name = tool.name
    rule, observed = (
        hooks.get_approval_rule(config, tool),
        None if tool.output_schema else hooks.get_observed_output(config, tool),
    )
    never_needs_approval: bool | None = None

    async def execute(input: Any, context: Any) -> Any:  # noqa: A002 - what tools call it
        nonlocal never_needs_approval
        if rule is False:
            if never_needs_approval is None:  # computed on first use: few of many tools are called
                never_needs_approval = hooks.get_approval_rule(config, types.Tool(name=name, input_schema={})) is False
            if not never_needs_approval:  # otherwise no definition needs approval
                await _require_approval_still_unneeded(config, tool, hooks, get_current)
        return await call(name, input, context)

    async def needs_approval(input: Any, context: Any) -> bool:  # noqa: A002 - likewise
        if await _evaluate_approval_rule(rule, input, context):
            return True
        current = await get_current(name)
        return (
            current is not None
            and current is not tool
            and await _evaluate_approval_rule(hooks.get_approval_rule(config, current), input, context)
        )

    def create_tool() -> Tool:
        annotations = tool.annotations
        return UpstreamTool(
            name,
            execute=execute,
            description=tool.description or tool.title or "",
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            needs_approval=rule if isinstance(rule, bool) else needs_approval,
            annotations={}
            if annotations is None
            else annotations.model_dump(mode="json", by_alias=True, exclude_none=True),
            metadata={"mcp": tool, "observed": observed},
            output_validation=config.output_validation,
        )

    return create_tool


async def _evaluate_approval_rule(rule: Any, arguments: Any, context: Any) -> bool:
    answer = rule(arguments, context) if callable(rule) else rule
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def _require_approval_still_unneeded(
    config: ServerConfig, tool: types.Tool, hooks: UpstreamHooks, get_current: GetCurrentTool
) -> None:
    """Raise if approval was skipped for a tool whose current definition requires it."""
    current = await get_current(tool.name)
    if current is not None and current is not tool and hooks.get_approval_rule(config, current) is not False:
        raise CodeModeToolError(
            f"{tool.name!r} of server {config.name!r} has changed and now needs approval: this call did not run;"
            " call it in a new program",
            code=TOOLS_CHANGED,
            details={"tool_name": tool.name},
        )


def tool_changed_error(config: ServerConfig, name: str, *, is_listed: bool) -> CodeModeToolError:
    """Return the error for a call that ``pin: "block"`` prevents."""
    reason = "has changed since it was first used" if is_listed else "is no longer listed by its server"
    advice = "; the user must review the change first (`codemode mcp pins`)" if is_listed else ""
    return CodeModeToolError(
        f"{name!r} of server {config.name!r} {reason}: this call did not run{advice}",
        code=TOOLS_CHANGED,
        details={"tool_name": name},
    )


POLL_SECONDS = 60.0
_MIN_POLL_SECONDS = 5.0
_SETTLE_SECONDS = 0.05
_CLOSE_SECONDS = 20.0
_MAX_REASON_CHARACTERS = 1_000
_log = logging.getLogger("codemode.mcp")


class Upstream:
    """A server of a configuration, started on first use.

    Use it on the event loop that connected it; calls on another loop raise `RuntimeError`. ``revision`` changes when
    its tools may have changed.
    """

    def __init__(self, config: ServerConfig, hooks: UpstreamHooks, secrets: SecretRedactor, cache: ListCache) -> None:
        self.config = config
        self._revision = 0
        self._hooks = hooks
        self._secrets = secrets
        self._cache = cache
        self._client_requests = ClientRequestCallbacks(config, hooks, secrets)
        self._link = ReconnectingConnection(
            config, secrets, hooks.create_auth, self._create_session, self._on_connection_ready
        )
        self._listing: Listing | None = None
        self._by_name: dict[str, types.Tool] = {}
        self._is_stale = True
        self._listed_on: Connection | None = None
        self._list_lock = asyncio.Lock()
        self._started_lists = 0
        self._permitted: tuple[Any, frozenset[str]] = (None, frozenset())
        self._listing_failure: str | None = None
        self._terminal_error: Exception | None = None
        self.pattern_notes: tuple[str, ...] = ()
        """Notes on configured patterns that match none of its listed tools."""
        self._change_listener = ToolChangeListener()
        self._log_level = UpstreamLogLevel(lambda: hooks.get_log_level(config))
        self._background: set[asyncio.Task[None]] = set()
        confirm = self._list_and_require_pinned_definition if config.pin == "block" else None
        self._calls = CallSender(config, hooks, secrets, self._link, self._client_requests, confirm=confirm)

    def __repr__(self) -> str:
        return f"<Upstream {self.config.name!r}: {self.state}>"

    @property
    def server_id(self) -> str:
        """The name in the configuration."""
        return self.config.name

    @property
    def home(self) -> str:
        """The identity of the server across configurations. Holds secrets."""
        return self.config.identity

    @property
    def state(self) -> State:
        """The state: "stopped", "starting", "ready" or "failed"."""
        return self._link.state

    @property
    def failure(self) -> str | None:
        """Why the server cannot be used, for programs (no secrets, no paths), or None."""
        return self._link.failure or self._listing_failure

    @property
    def problem(self) -> str | None:
        """The failure for the operator, with the command or folder, without secrets."""
        return self._link.problem or self._listing_failure

    @property
    def listing_seconds(self) -> float:
        """How long `tools` may take to start and list the server, with one retry."""
        return 2 * (self.config.connect_timeout_ms / 1000 + self._get_listing_timeout()) + _CLOSE_SECONDS

    @property
    def needs_sign_in(self) -> bool:
        """True if the user must sign in before the server can be used."""
        return self._link.needs_sign_in

    @property
    def revision(self) -> int:
        """A number that changes when its tools for programs may have changed."""
        return self._revision + self._hooks.get_filter_revision(self.config)

    @property
    def learned(self) -> int:
        """A number that changes when more is known about the outputs of its tools."""
        return self._hooks.get_learned_revision(self.config)

    @property
    def notes(self) -> Sequence[str]:
        """Notes on its tools for programs that import it."""
        return self._hooks.get_notes(self.config)

    @property
    def listed_tools(self) -> tuple[types.Tool, ...]:
        """All its tools as last listed by any gateway, without secrets."""
        return () if self._listing is None else self._listing.tools

    @property
    def left_out(self) -> tuple[str, ...]:
        """The omitted entries of its tool list, one line for each reason."""
        return () if self._listing is None else self._listing.left_out

    @property
    def capabilities(self) -> types.ServerCapabilities | None:
        """Its capabilities as last listed, or None if it was never asked."""
        return None if self._listing is None else self._listing.capabilities

    @property
    def version(self) -> str | None:
        """The version in its server info."""
        info = None if self._listing is None else self._listing.server_info
        return None if info is None else info.version or None

    @property
    def description(self) -> str | None:
        """Its instructions."""
        return None if self._listing is None else self._listing.instructions

    async def load(self) -> None:
        """Load its cached tool list without starting it."""
        cached = await self._cache.read(self.config)
        if cached is not None and self._listing is None:
            self._set_listing(cached)
            self._is_stale = False
            self._link.era = cached.era
            await self._update_pattern_notes()

    async def session(self) -> ClientSession:
        """Return an open session, connecting if needed. Raises `CodeModeToolError`."""
        return (await self._link.get_or_open_connection()).session

    async def ask(self, request: Callable[[ClientSession], Awaitable[ResultT]]) -> ResultT:
        """Send a repeatable request, again if the session was lost. Raises `CodeModeToolError` and `MCPError`."""
        return await self._link.run_with_one_reconnect(lambda connection: request(connection.session))

    async def send_log_level_if_running(self) -> None:
        """Request the subscribed log level from a running server."""
        connection = self._link.connection_if_open
        if connection is not None:
            await self._log_level.send_if_changed(connection.session)

    def keep_running(self) -> AbstractContextManager[None]:
        """Keep it running while the block runs, even if idle."""
        return self._link.keep_open()

    async def tools(self) -> Sequence[Tool]:
        """Return its tools for programs, listed again if they may have changed.

        Raises `CodeModeToolError` if it is unavailable, `CodeModeAuthenticationError` if the user must sign in.
        """
        self._link.require_same_loop()
        if self._terminal_error is not None:
            raise self._terminal_error
        if self._listing is None or self._is_stale:
            await self.refresh()
        visible = await self._hooks.filter_tools(
            self.config, allowed_tools := filter_allowed_tools(self.config, self.listed_tools)
        )
        if self.config.pin == "block" and self._listed_on is None and len(visible) < len(allowed_tools):
            await self.refresh()  # pins block tools of the cached list: the server may have changed back
            visible = await self._hooks.filter_tools(self.config, filter_allowed_tools(self.config, self.listed_tools))
        return await create_program_tools(
            self.config, visible, self._hooks, self._call_for_program, self._get_or_fetch_current_tool
        )

    def fail_permanently(self, error: Exception) -> None:
        """Make `tools` raise this error from now on, without starting the server."""
        self._terminal_error = error

    async def refresh(self) -> None:
        """Update its tool list."""
        async with self._list_lock:
            await self._list_tools_or_raise()

    async def call(self, name: str, arguments: Any, context: Any = None) -> ToolResult:
        """Call a tool and return its result without secrets; a result may report a failure of the tool.

        Raises `CodeModeToolError`, with the code ``OUTCOME_UNKNOWN`` if the call may have run.
        """
        tool = self._by_name.get(name)
        return await self._calls.call_tool(name, tool, arguments, context, may_repeat=is_safe_to_repeat(tool))

    async def _get_or_fetch_current_tool(self, name: str) -> types.Tool | None:
        """Return a tool's definition on the connection of the next call, listing the tools if needed.

        Raises `CodeModeToolError` if the server is unavailable or cannot list its tools.
        """
        connection = await self._link.get_or_open_connection()
        if self._is_stale or self._listed_on is not connection:
            async with self._list_lock:
                if self._is_stale or self._listed_on is not connection:
                    await self._list_tools_or_raise()
        return self._by_name.get(name)

    async def _list_and_require_pinned_definition(self, connection: Connection, name: str) -> None:
        """Raise if a tool's definition on the connection of its call differs from the approved one.

        A list is valid until the server announces a change; servers without announcements are listed before each call.
        """
        started_lists = self._started_lists
        async with self._list_lock:  # a list in progress may follow a change
            if self._needs_new_listing(connection, started_lists):  # calls that wait together share one list
                await self._list_for_call(connection)
        version = (self._listing and self._listing.digest, self._hooks.get_filter_revision(self.config))
        if self._permitted[0] != version:
            try:
                visible = await self._hooks.filter_tools(
                    self.config, filter_allowed_tools(self.config, self.listed_tools)
                )
            except OSError as error:
                _log.warning("tools of server %r cannot be called without their pins: %s", self.config.name, error)
                raise self._link.record_and_create_unavailable_error("the pins of its tools cannot be read") from None
            self._permitted = (version, frozenset(tool.name for tool in visible))
        if name not in self._permitted[1]:
            raise tool_changed_error(self.config, name, is_listed=name in self._by_name)

    def _needs_new_listing(self, connection: Connection, started_lists: int) -> bool:
        if self._is_stale or self._listed_on is not connection:
            return True
        return self._needs_polling(connection) and self._started_lists == started_lists

    async def _list_for_call(self, connection: Connection) -> None:
        """List the tools before a call on the same connection. Raises `UnansweredRequestError` for the unsent call."""
        try:
            await self._update_listing(connection)
        except UnansweredRequestMCPError as error:
            error.lost.never_arrived = True
            raise error.lost from None
        except MCPError as error:
            raise self._record_and_create_listing_error(error.error.message) from None

    async def stop(self) -> None:
        """End it until its next use."""
        await self._link.stop()

    async def aclose(self) -> None:
        """End it for good."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self._link.aclose()

    async def _call_for_program(self, name: str, arguments: Any, context: Any) -> Any:
        tool = self._by_name.get(name)
        result = await self._calls.call_tool(name, tool, arguments, context, may_repeat=is_safe_to_repeat(tool))
        return await self._calls.report_and_unwrap_if_observed(name, result)

    def _create_session(self, requests: Any) -> ClientSession:
        requests.hide, requests.log_level = self._secrets.redact_off_loop, self._log_level.get_level
        return self._client_requests.create_session(requests, self._on_message)

    def _on_connection_ready(self, connection: Connection) -> None:
        self._start_task(self._log_level.send_if_changed(connection.session))
        self._start_task(self._keep_listing_updated(connection))
        if connection.era == "modern" and _announces_changes(connection):
            self._change_listener = ToolChangeListener()
            self._start_task(self._change_listener.keep_listening(connection, lambda: self._on_listening(connection)))

    async def _on_listening(self, connection: Connection) -> None:
        """Update a list that was fetched before the server announced changes."""
        if self._listed_on is connection:
            await self._refresh_quietly(connection)

    async def _keep_listing_updated(self, connection: Connection) -> None:
        """Update the tool list after a start, then as often as the server requests."""
        listing = self._listing
        if listing is not None and not self._is_stale:
            await asyncio.sleep(_SETTLE_SECONDS)  # the request that started it goes first
            if self._is_stale or self._listed_on is not connection:
                await self._refresh_quietly(connection)
        while connection.is_open:
            with suppress(TimeoutError):  # unlike sleep, this ends with the connection
                async with asyncio.timeout(self._get_poll_seconds()):
                    await connection.requests.ended.wait()
            if connection.is_open and self._needs_polling(connection):
                await self._refresh_quietly(connection)

    def _get_poll_seconds(self) -> float:
        ttl = None if self._listing is None else self._listing.ttl_ms
        return POLL_SECONDS if ttl is None else max(ttl / 1000, _MIN_POLL_SECONDS)

    def _needs_polling(self, connection: Connection) -> bool:
        return not (self._change_listener.is_open if connection.era == "modern" else _announces_changes(connection))

    async def _refresh_quietly(self, connection: Connection) -> None:
        last_used = connection.requests.last_used
        try:
            async with self._list_lock:
                await self._update_listing(connection)
        except (MCPError, CodeModeToolError, OSError, RuntimeError) as error:
            _log.info("the tools of server %r cannot be listed now: %s", self.config.name, type(error).__name__)
        finally:
            connection.requests.last_used = last_used  # polling does not count as use

    async def _list_tools_or_raise(self) -> None:
        try:
            await self._link.run_with_one_reconnect(self._update_listing)
        except UnansweredRequestMCPError as error:
            raise self._record_and_create_listing_error(
                error.lost.reason, UpstreamUnavailableError.from_unanswered_request(error.lost)
            ) from None
        except MCPError as error:
            raise self._record_and_create_listing_error(error.error.message) from None

    def _record_and_create_listing_error(
        self, cause: str, failure: UpstreamUnavailableError | None = None
    ) -> CodeModeToolError:
        reason = clip_text(self._link.sanitize_text(f"its tools cannot be listed: {cause}"), _MAX_REASON_CHARACTERS)
        self._listing_failure = reason
        _log.warning("server %r cannot be used: %s", self.config.name, reason)
        return self._link.record_and_create_unavailable_error(reason, failure)

    async def _update_listing(self, connection: Connection) -> None:
        was_stale, self._is_stale = self._is_stale, False
        self._started_lists += 1
        try:
            listing = await self._fetch_listing(connection)
        except BaseException:
            self._is_stale = True
            raise
        self._listed_on, self._listing_failure = connection, None
        previous = self._listing
        is_new = previous is None or (listing.digest, listing.to_dict_without_tools()) != (
            previous.digest,
            previous.to_dict_without_tools(),
        )
        if previous is not None and listing.digest != previous.digest and not was_stale:
            self._revision += 1
        self._set_listing(listing)
        await self._update_pattern_notes()
        if is_new:
            await self._cache.write(self.config, listing)

    async def _fetch_listing(self, connection: Connection) -> Listing:
        session = connection.session
        capabilities = session.server_capabilities
        seconds = self._get_listing_timeout()

        async def request_page(params: dict[str, Any]) -> dict[str, Any]:
            is_first = "cursor" not in params
            opts = add_metadata_and_create_options(connection, "tools/list", params, self._client_requests.capabilities)
            try:
                return await connection.requests.send_raw_request("tools/list", params, opts)
            except UnansweredRequestMCPError:
                raise
            except MCPError as error:
                if is_first:
                    raise
                raise PageRefusedError(error.error.message) from None

        supports_headers = supports_argument_headers(connection)
        try:
            async with asyncio.timeout(seconds):
                listing = await fetch_listing(request_page, self._secrets, supports_argument_headers=supports_headers)
        except TimeoutError:
            message = f"it took more than {seconds:g} seconds (the larger of timeoutMs and connectTimeoutMs)"
            raise UnansweredRequestMCPError(UnansweredRequestError(message, is_late=True)) from None
        except MCPError as error:
            # Some servers without the tools capability still have tools; others refuse to list them.
            if isinstance(error, UnansweredRequestMCPError) or capabilities is None or capabilities.tools is not None:
                raise
            listing = Listing()
        instructions = session.instructions
        return replace(
            listing,
            era=connection.era,
            capabilities=capabilities,
            server_info=session.server_info,
            instructions=None if instructions is None else self._secrets.redact_text(instructions[:16_000]),
        )

    async def _update_pattern_notes(self) -> None:
        """Update `pattern_notes` with the server's patterns that match no tool; log new ones."""
        common_patterns, names = self.config.common_patterns, {*self._by_name}
        server_patterns = {
            key: tuple(pattern for pattern in patterns if pattern not in common_patterns)
            for key, patterns in get_tool_patterns(self.config).items()
        }
        notes = await run_in_thread_if_large_or_slow(
            LARGE_CHARACTERS, lambda: tuple(describe_unmatched_patterns(server_patterns, names) if names else ())
        )
        if notes and notes != self.pattern_notes:
            _log.warning("in the configuration of server %r, %s", self.config.name, "; ".join(notes))
        self.pattern_notes = notes

    def _get_listing_timeout(self) -> float:
        return max(self.config.timeout_ms, self.config.connect_timeout_ms) / 1000

    def _set_listing(self, listing: Listing) -> None:
        if listing.left_out != self.left_out:
            log_omitted_entries(_log, self.config.name, listing.left_out)
        self._listing = listing
        self._by_name = {tool.name: tool for tool in listing.tools}

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            return
        if isinstance(message, types.ToolListChangedNotification) and not self._is_stale:
            self._is_stale = True
            self._revision += 1
        await self._hooks.on_notification(self.config, cast("types.ServerNotification", message))

    def _start_task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _announces_changes(connection: Connection) -> bool:
    capabilities = connection.session.server_capabilities
    return capabilities is not None and capabilities.tools is not None and capabilities.tools.list_changed is True

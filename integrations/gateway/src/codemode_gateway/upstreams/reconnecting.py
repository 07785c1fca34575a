"""Connect to a server on demand, with backoff, idle timeout and sign-in state."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from mcp.client.session import ClientSession

from codemode.errors import CodeModeAuthenticationError, CodeModeToolError
from codemode.observe.request_telemetry import record_server_start
from codemode.trace.visible_text import escape_invisible

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from .connection import Connection, Era, RequestDispatcher, Transport, UnansweredRequestMCPError
from .connection_errors import UnansweredRequestError, UpstreamUnavailableError
from .stdio import StdioServer


def create_transport(config: ServerConfig, secrets: SecretRedactor, auth: Any) -> Transport:
    """Return the transport of a server; ``auth`` is the ``httpx2.Auth`` for HTTP."""
    if config.transport == "stdio":
        server = StdioServer(config, secrets)

        def get_failure() -> UpstreamUnavailableError | None:
            reason = server.get_exit_reason()
            return None if reason is None else UpstreamUnavailableError(reason)

        return Transport(
            server.run_process(), get_failure, True, server.get_last_output, server.ended_without_reading_past
        )
    if config.transport == "openapi":
        from .openapi import create_openapi_transport

        return create_openapi_transport(config)
    from .http import create_http_transport

    return create_http_transport(config, secrets, auth)


ResultT = TypeVar("ResultT")
State = Literal["stopped", "starting", "ready", "failed"]
# By the number of failures since the last answer; a single failure causes no delay.
_BACKOFF_SECONDS = (0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
_MAX_BACKOFF_WAIT_SECONDS = 2.0
_MIN_IDLE_CHECK_SECONDS = 0.02
_LOST_MESSAGE = "its connection was lost"
_log = logging.getLogger("codemode.mcp")


class ReconnectingConnection:
    """The successive connections of one server. ``on_ready`` is called with each new one.

    ``failure`` is the reason for programs; ``problem`` is the same for the operator, with paths.
    """

    def __init__(
        self,
        config: ServerConfig,
        secrets: SecretRedactor,
        sign_in: Callable[[ServerConfig], Any],
        make_session: Callable[[RequestDispatcher], ClientSession],
        on_ready: Callable[[Connection], None],
    ) -> None:
        self.state: State = "stopped"
        self.failure: str | None = None
        self.problem: str | None = None
        self.era: Era | None = None
        self._sign_in_failure: UpstreamUnavailableError | None = None
        self._config = config
        self._secrets = secrets
        self._sign_in = sign_in
        self._make_session = make_session
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._discarded: set[Connection] = set()
        self._starting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._failures = 0
        self._has_started = False
        self._not_before = 0.0
        self._holds = 0
        self._is_closed = False

    @property
    def needs_sign_in(self) -> bool:
        """True if the user must sign in before the server can be used."""
        return self._sign_in_failure is not None

    def allow_immediate_retry(self) -> None:
        """Allow an immediate new attempt."""
        self._sign_in_failure, self._not_before, self._failures = None, 0.0, 0

    @property
    def connection_if_open(self) -> Connection | None:
        """The connection that can be used now."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def get_or_open_connection(self) -> Connection:
        """Return an open connection, connecting if needed. Raises the error for the caller."""
        self.require_same_loop()
        while (connection := self.connection_if_open) is None:
            if self._is_closed:
                raise self.record_and_create_unavailable_error("the gateway is stopping")
            if self._starting is None:
                self._starting = self._start_task(self._try_open_connection())
            await asyncio.wait([self._starting])  # shared with other callers, so it outlives this one
            if self.connection_if_open is None and self.state == "failed":
                raise self.record_and_create_unavailable_error(
                    self.failure or "it was lost right after its start; try again later"
                )
        return connection

    def require_same_loop(self) -> None:
        """Raise `RuntimeError` on another event loop than that of `connect`."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                f"server {self._config.name!r} was connected on another event loop; run programs on the loop that"
                " entered connect(), or connect on this loop"
            )

    def record_and_create_unavailable_error(
        self, reason: str, failure: UpstreamUnavailableError | None = None
    ) -> CodeModeToolError:
        """Return the error for a call of an unavailable server."""
        text = self.sanitize_text(f"server {self._config.name!r} cannot be used now: {reason}")
        if failure is not None and failure.needs_sign_in:
            self._sign_in_failure = failure
        if self._sign_in_failure is not None:
            return CodeModeAuthenticationError(text, details=self._sign_in_failure.details)
        return CodeModeToolError(text, code="SERVER_UNAVAILABLE")

    def sanitize_text(self, text: str) -> str:
        """Return a text for programs and terminals, without secrets and invisible characters."""
        return escape_invisible(self._secrets.redact_text(text))

    def reset_failures(self) -> None:
        """Record that the server works: reset its failures."""
        self._failures, self._sign_in_failure = 0, None

    @contextmanager
    def keep_open(self) -> Generator[None]:
        """Keep the connection open while the block runs, even if idle."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    async def discard_and_update_loss(self, connection: Connection, lost: UnansweredRequestError) -> None:
        """Discard an unusable connection; the next use opens another.

        After a lost process, ``lost`` gets the reason and whether the request was read. Other requests on a lost
        session still receive their errors.
        """
        if lost.sent_bytes is not None:
            await connection.wait_closed()
            self._record_connection_end(connection)
            lost.reason = connection.get_failure_error(lost.reason).program_message
            lost.never_arrived = lost.never_arrived or connection.ended_without_reading_past(lost.sent_bytes)
        elif self._connection is connection:
            self._connection = None
            self.state = "stopped"
            self._discarded.add(connection)
            self._start_task(self._close_discarded(connection, 0 if lost.is_late else self._config.timeout_ms / 1000))

    async def run_with_one_reconnect(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Run repeatable work on a connection, and once more on another if the first was lost."""
        for is_last in (False, True):
            connection = await self.get_or_open_connection()
            try:
                return await work(connection)
            except UnansweredRequestMCPError as error:
                lost = error.lost
                if lost.is_over:
                    await self.discard_and_update_loss(connection, lost)
                if is_last or not lost.is_over:
                    raise UnansweredRequestMCPError(lost) from None  # the connection may know a better reason by now
        raise AssertionError

    async def _close_discarded(self, connection: Connection, seconds: float) -> None:
        """Close a connection after all its requests are answered, or after a timeout."""
        await connection.requests.wait_until_idle(seconds)
        await connection.aclose()
        self._discarded.discard(connection)

    async def aclose(self) -> None:
        """End the server for good."""
        self._is_closed = True
        await self.stop()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """End the server until its next use."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        connection, self._connection = self._connection, None
        for open_connection in [*self._discarded, *([] if connection is None else [connection])]:
            await open_connection.aclose()
        if self.state != "failed":
            self.state = "stopped"

    async def _try_open_connection(self) -> None:
        try:
            wait = self._not_before - self._loop.time()
            if wait > _MAX_BACKOFF_WAIT_SECONDS:
                self.state = "failed"  # keep the last failure, also for a connection that was lost after its start
                return
            self.state = "starting"
            await asyncio.sleep(max(wait, 0))
            transport = create_transport(self._config, self._secrets, self._sign_in(self._config))
            connection = Connection(transport, self._make_session, self._config.name)
            await connection.open(self.era, self._config.connect_timeout_ms / 1000)
        except asyncio.CancelledError:
            self.state = "stopped"
            raise
        except Exception as error:  # noqa: BLE001 - hooks are host code; callers get the failure
            self._record_start_failure(error)
        else:
            self._connection, self.era = connection, connection.era
            self.state, self.failure, self.problem, self._sign_in_failure = "ready", None, None, None
            self._report_server_start(is_ready=True)
            self._start_task(self._wait_and_record_end(connection))
            self._close_if_idle_or_check_later()
            self._on_ready(connection)
        finally:
            if self.state == "starting":
                self.state = "failed"
            self._starting = None

    def _record_start_failure(self, error: Exception) -> None:
        self._sign_in_failure = None
        if isinstance(error, UpstreamUnavailableError) and error.needs_sign_in:
            self._sign_in_failure = error
        elif isinstance(error, CodeModeAuthenticationError):
            self._sign_in_failure = UpstreamUnavailableError(error.message, needs_sign_in=True, details=error.details)
        if isinstance(error, CodeModeToolError):
            error = UpstreamUnavailableError(str(error))
        elif not isinstance(error, UpstreamUnavailableError):
            kind = type(error).__name__
            error = UpstreamUnavailableError(
                f"{kind}: {str(error)[:300]}", program_message=f"it cannot be started ({kind})"
            )
        self._record_failure_and_set_backoff(error)
        self.state = "failed"
        self._report_server_start(is_ready=False)
        _log.warning("server %r cannot be used: %s", self._config.name, self.problem)

    def _report_server_start(self, *, is_ready: bool) -> None:
        record_server_start(self._config.name, is_ready=is_ready, is_restart=self._has_started)
        self._has_started = True

    def _record_failure_and_set_backoff(self, failure: UpstreamUnavailableError) -> None:
        # Both texts are printed on terminals.
        self.failure = self.sanitize_text(failure.program_message)
        self.problem = self.sanitize_text(str(failure))
        self._failures += 1
        if self._sign_in_failure is None:
            delay = _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS) - 1)]
            self._not_before = self._loop.time() + delay

    async def _wait_and_record_end(self, connection: Connection) -> None:
        """Wait for the end of a connection and record its reason."""
        await connection.wait_closed()
        self._record_connection_end(connection)

    def _record_connection_end(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self.state = "stopped"
            self._record_failure_and_set_backoff(connection.get_failure_error(_LOST_MESSAGE))
            _log.warning("server %r was lost: %s", self._config.name, self.problem)

    def _close_if_idle_or_check_later(self) -> None:
        connection = self.connection_if_open
        if connection is None:
            return
        seconds = self._config.idle_ms / 1000
        busy = connection.requests.in_flight or self._holds
        remaining = seconds if busy else connection.requests.last_used + seconds - self._loop.time()
        if remaining <= 0:
            self._connection = None
            self.state = "stopped"
            self._start_task(connection.aclose())
            return
        self._idle = self._loop.call_later(max(remaining, _MIN_IDLE_CHECK_SECONDS), self._close_if_idle_or_check_later)

    def _start_task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

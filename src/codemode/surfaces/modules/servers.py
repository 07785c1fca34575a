"""Servers of a run tool: named sets of tools that are listed on demand."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, cast

from ...data.narrowing import is_mapping, is_non_text_iterable, is_sequence
from ...errors import CodeModeAuthenticationError, CodeModeError, CodeModeToolError
from ...host.cancellation import is_cancelled_from_outside
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ...host.threads import run_cpu_bound_in_dedicated_thread
from ...options.checked_fields import WrongTypeError, require_string_or_none, require_strings
from ...schemas.patterns import drop_nonlinear_patterns
from ...tools.server_lists import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_NAME_CHARACTERS,
    OmittedEntries,
    log_omitted_entries,
    to_bounded_text,
    to_bounded_texts,
)
from ...tools.tool import Tool
from ...trace.failures import log_failure
from ...trace.visible_text import clip_to_visible_line
from .module_tools import ListedServer, assign_module_paths, collect_server_tools, create_module_tools

MAX_ID_CHARACTERS = 256
MAX_TOOLS = 50_000
LISTING_SECONDS = 30.0
HUNG_SECONDS = 120.0
MAX_NOTES = 8
MAX_NOTE_CHARACTERS = 1_000
MAX_LEFT_OUT = 16
_log = logging.getLogger("codemode.tools")
_MAX_FAILURE_CHARACTERS = 1_000
_MAX_LINE = 500
_UNREACHABLE = "it cannot be reached now"
_SIGN_IN = "the user must sign in first"


class ModuleServer:
    """A named set of tools, imported as one module.

    ``server_id``: the host's name for it, any text. ``tools``: what `create_code_mode_tool` takes, under any names, or
    an object with changeable tools. Such an object has an async method ``tools()`` and a ``revision`` that changes with
    the tools; with the attributes above it is itself a server. Its optional attributes are: ``notes``, texts for
    programs that import it, reported as ``TOOLS_CHANGED``; ``learned``, a value that changes when more is known about
    the same tools, which are then listed again before the next run; ``home``, a text that identifies the server, so
    that a program resumes only with the same one; ``listing_seconds``, the timeout of ``tools()``, 30 by default;
    ``left_out``, texts about tools that it left out. Raises `ValueError` for a wrong type or an invalid tool; invalid
    entries of a changeable list are left out with a warning.
    """

    def __init__(
        self,
        server_id: str,
        tools: Mapping[str, Any] | Iterable[Any] | Any,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        capabilities: Iterable[str] = (),
    ) -> None:
        self.server_id = _require_valid_server_id(server_id)
        self.name = require_string_or_none(name, "name") or self.server_id
        self.version = require_string_or_none(version, "version")
        self.description = require_string_or_none(description, "description")
        self.capabilities = require_strings(
            list(capabilities) if is_non_text_iterable(capabilities) else capabilities, "capabilities"
        )
        self.live: Any = tools if _has_live_tools(tools) else None
        self.tools: Mapping[str, Tool] = {} if self.live is not None else collect_server_tools(cast("Any", tools))

    def __repr__(self) -> str:
        return f"<ModuleServer {self.server_id!r}: {len(self.tools) if self.live is None else 'changing'} tools>"


class ServerWithListing:
    """One server with its path, its last listing ``listed``, and ``failure`` if the last attempt failed.

    Thread-safe; concurrent callers share one listing.
    """

    def __init__(self, server: Any, server_id: str, path: str) -> None:
        self.server_id = server_id
        self.path = path
        self._server = server
        self._live: Any = server.live if isinstance(server, ModuleServer) else server
        self._lock = create_fork_safe_lock()
        self._revision: Any = None
        self._learned: Any = None
        self._current_listing: Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._hung_until = 0.0
        self.listed: ListedServer | None = None
        self.failure: str | None = None
        self.is_static = self._live is None
        if self.is_static:
            self.listed = self._build_listing(server.tools)
        else:
            register_fork_reset(self)

    def after_fork(self) -> None:
        """Reset in a forked child, which does not have the loop of the listing."""
        never_finalize_in_child(self._current_listing, self._tasks)
        self._current_listing, self._tasks = None, set()

    @property
    def are_tools_unchanged(self) -> bool:
        """True if its tools are known and have not changed."""
        if self.is_static:
            return True
        try:
            return self.listed is not None and self.failure is None and bool(self._live.revision == self._revision)
        except Exception:  # noqa: BLE001 - host code
            return False

    @property
    def is_listing_current(self) -> bool:
        """True if neither its tools nor what is known about them has changed since the last listing."""
        if self.is_static:
            return True
        try:
            return self.are_tools_unchanged and bool(getattr(self._live, "learned", None) == self._learned)
        except Exception:  # noqa: BLE001 - host code
            return False

    @property
    def notes(self) -> tuple[str, ...]:
        """Texts about its tools for programs that import it."""
        return self._read_text_list_attribute("notes", MAX_NOTES)

    @property
    def home(self) -> str | None:
        """A text that distinguishes it from other servers of the same name, or None. Can contain secrets."""
        value = getattr(self._live, "home", None)
        return value if isinstance(value, str) else None

    @property
    def is_backing_off(self) -> bool:
        """True for a while after a slow failure: only programs that name the server wait for it again."""
        return self.failure is not None and time.monotonic() < self._hung_until

    async def load_listing(self, *, force: bool = False) -> None:
        """List the tools unless they are known or ``force``, or wait for a listing in progress. Failures are stored."""
        while force or not self.is_listing_current:
            with self._lock:
                listing, new_listing = self._current_listing, None
                if listing is None:
                    listing = new_listing = self._current_listing = Future()
            if new_listing is not None:
                task = asyncio.get_running_loop().create_task(self._run_listing(new_listing))
                self._tasks.add(task)  # the event loop keeps no reference
                task.add_done_callback(self._tasks.discard)
            try:
                # Others share it: it continues if this caller is cancelled.
                await asyncio.shield(asyncio.wrap_future(listing))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not listing.cancelled() or (task is not None and task.cancelling()):
                    raise
                # The loop of the listing has ended: list here.
            else:
                return

    async def _run_listing(self, done: Future[None]) -> None:
        started_at = time.monotonic()
        try:
            revision, learned, listed = await asyncio.wait_for(
                self._request_and_build_listing(), self._get_timeout_seconds()
            )
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or is_cancelled_from_outside(asyncio.current_task()):
                self._clear_listing_in_progress()
                done.cancel()
                raise
            # A server's client can raise a cancellation of its own, also inside an exception group.
            reported_failure = self._read_reported_failure()
            # A server that reports its failure has logged it.
            if reported_failure is None or not isinstance(error, CodeModeError):
                self._log_failure(error)
            if time.monotonic() - started_at > LISTING_SECONDS / 2:
                self._hung_until = time.monotonic() + HUNG_SECONDS
            self.failure = reported_failure or self._explain_failure(error)
        else:
            self._revision, self._learned, self.listed, self.failure = revision, learned, listed, None
        self._clear_listing_in_progress()
        with suppress(InvalidStateError):  # cancelled by its waiters
            done.set_result(None)

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, CodeModeError):  # its message is complete
            _log.error(
                "the tools of server %r cannot be listed: %s",
                self.server_id,
                clip_to_visible_line(error.message, _MAX_LINE),
            )
        else:
            log_failure(_log, "the tools of server %r cannot be listed", (self.server_id,), error)

    def _clear_listing_in_progress(self) -> None:
        with self._lock:
            self._current_listing = None

    def _get_timeout_seconds(self) -> float:
        """Return the maximum time for listing the server."""
        try:
            value = getattr(self._live, "listing_seconds", None)
        except Exception:  # noqa: BLE001 - host code
            value = None
        return value if isinstance(value, int | float) and value > 0 else LISTING_SECONDS

    def _explain_failure(self, error: BaseException) -> str:
        """Return the failure text for programs, without texts that were not meant for them."""
        if isinstance(error, CodeModeAuthenticationError):
            return _SIGN_IN
        if isinstance(error, CodeModeToolError):
            return to_bounded_text(error.message, _MAX_FAILURE_CHARACTERS) or _UNREACHABLE
        if isinstance(error, TimeoutError):
            return f"it did not list its tools within {self._get_timeout_seconds():g} seconds"
        return _UNREACHABLE

    def _read_reported_failure(self) -> str | None:
        """Return the server's own reason for a failure, or None."""
        try:
            return to_bounded_text(getattr(self._live, "failure", None), _MAX_FAILURE_CHARACTERS)
        except Exception:  # noqa: BLE001 - host code
            return None

    async def _request_and_build_listing(self) -> tuple[Any, Any, ListedServer]:
        # Read before the tools, so that later changes cause another listing.
        revision, learned = self._live.revision, getattr(self._live, "learned", None)
        try:
            with drop_nonlinear_patterns():  # schemas created here are untrusted
                tools = self._live.tools()
                listed_tools = await tools if inspect.isawaitable(tools) else tools
        except SystemExit as error:  # would end the event loop
            raise RuntimeError("the server raised SystemExit") from error
        return revision, learned, await run_cpu_bound_in_dedicated_thread(partial(self._build_listing, listed_tools))

    def _build_listing(self, tools: Any) -> ListedServer:
        server, left_out = self._server, OmittedEntries()
        capabilities = getattr(server, "capabilities", None) or getattr(self._live, "capabilities", None)
        module_tools_of_server = create_module_tools(
            self.path, tools if self.is_static else self._collect_tools(tools, left_out), left_out
        )
        log_omitted_entries(_log, self.server_id, left_out.notes)
        return ListedServer(
            path=self.path,
            server_id=self.server_id,
            name=self._read_text_attribute("name") or self.server_id,
            version=self._read_text_attribute("version"),
            description=self._read_text_attribute("description", MAX_DESCRIPTION_CHARACTERS),
            capabilities=to_bounded_texts(capabilities) if is_sequence(capabilities) else (),
            tools=module_tools_of_server,
            left_out=(*self._read_text_list_attribute("left_out", MAX_LEFT_OUT), *left_out.notes)[:MAX_LEFT_OUT],
        )

    def _collect_tools(self, tools: Any, left_out: OmittedEntries) -> Mapping[str, Tool]:
        with drop_nonlinear_patterns():
            return collect_server_tools(_require_bounded_tools(tools), left_out)

    def _read_text_list_attribute(self, attribute: str, max_texts: int) -> tuple[str, ...]:
        """Return the texts in a list attribute, at most ``max_texts``."""
        try:
            value = getattr(self._live, attribute, None)
        except Exception:  # noqa: BLE001 - host code
            return ()
        if not value or not is_sequence(value):
            return ()
        texts = (to_bounded_text(text, MAX_NOTE_CHARACTERS) for text in value[:max_texts])
        return tuple(text for text in texts if text)

    def _read_text_attribute(self, name: str, max_characters: int = MAX_NAME_CHARACTERS) -> str | None:
        """Return a text attribute, which a server may know only once it is connected."""
        server_text = to_bounded_text(getattr(self._server, name, None), max_characters)
        return to_bounded_text(getattr(self._live, name, None), max_characters) if server_text is None else server_text


def _require_bounded_tools(tools: Any) -> Any:
    """Return tools up to the maximum number; reject endless lists."""
    if is_mapping(tools) or not is_non_text_iterable(tools):
        if is_mapping(tools) and len(tools) > MAX_TOOLS:
            raise ValueError(f"the server has {len(tools)} tools; at most {MAX_TOOLS} are allowed")
        return tools
    limited: list[Any] = []
    for tool in tools:
        if len(limited) == MAX_TOOLS:
            raise ValueError(f"the server has more than {MAX_TOOLS} tools")
        limited.append(tool)
    return limited


def create_servers_with_listings(servers: Iterable[Any]) -> tuple[ServerWithListing, ...]:
    """Return the servers with their paths, in order. Raises `ValueError` for an invalid server."""
    if not is_non_text_iterable(servers) or is_mapping(servers):
        raise WrongTypeError("servers must be a list of ModuleServers")
    server_list: list[Any] = list(servers)
    ids = [_require_server_and_get_id(server) for server in server_list]
    return tuple(ServerWithListing(*server) for server in zip(server_list, ids, assign_module_paths(ids), strict=True))


def _require_server_and_get_id(server: Any) -> str:
    if isinstance(server, ModuleServer):
        return server.server_id
    if not _has_live_tools(server):
        raise WrongTypeError(
            "expected a ModuleServer, or an object with server_id, an async method tools() and revision; got"
            f" {type(server).__module__}.{type(server).__qualname__}"
        )
    return _require_valid_server_id(getattr(server, "server_id", None))


def _has_live_tools(value: Any) -> bool:
    try:
        return callable(getattr(value, "tools", None)) and hasattr(value, "revision")
    except Exception:  # noqa: BLE001 - a revision may not be available yet
        return True


def _require_valid_server_id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS:
        raise WrongTypeError(
            f"server_id must be a string of 1 to {MAX_ID_CHARACTERS} characters, got {repr(value)[:80]}"
        )
    return str.__str__(value)

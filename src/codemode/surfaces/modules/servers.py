"""Servers of a run tool: sets of tools with a name, listed when somebody needs them. Runs no tool and no program."""

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

from ...data.narrowing import is_listing, is_mapping, is_sequence
from ...errors import CodeModeAuthenticationError, CodeModeError, CodeModeToolError
from ...host.cancellation import is_ended_from_outside
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...host.threads import check_alone
from ...options.checked_fields import WrongTypeError, string_or_none, strings
from ...schemas.patterns import foreign_patterns
from ...tools.server_lists import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_NAME_CHARACTERS,
    LeftOut,
    log_left_out,
    plain_text,
    plain_texts,
)
from ...tools.tool import Tool
from ...trace.failures import log_failure
from ...trace.visible_text import one_line
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
    """A set of tools with a name, imported as one module.

    ``server_id`` is the host's own name for it, any text. ``tools``: what `create_code_mode_tool` takes, under any
    names; or an object whose tools change: with an async method ``tools()`` that gives them, and a ``revision`` that is
    another one whenever they have changed. With the attributes above such an object is a server itself. It may have
    ``notes``, texts that programs which import it are told of its tools, as ``TOOLS_CHANGED``; and ``learned``, another
    value whenever more is known of the same tools, which are then listed anew before the next run; ``home``, a text
    that is another one for another server, wherever it has the same name: a program goes on only where it is the same;
    and ``listing_seconds``, how long ``tools()`` may take, else 30.
    Raises `ValueError` for what is of a wrong type, and for what is no tool. Entries of a list that changes are left
    out where they are no tools, with a warning; ``left_out`` of such an object are texts about others that it left out.
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
        self.server_id = _check_server_id(server_id)
        self.name = string_or_none(name, "name") or self.server_id
        self.version = string_or_none(version, "version")
        self.description = string_or_none(description, "description")
        self.capabilities = strings(list(capabilities) if is_listing(capabilities) else capabilities, "capabilities")
        self.live: Any = tools if _has_live_tools(tools) else None
        self.tools: Mapping[str, Tool] = {} if self.live is not None else collect_server_tools(cast("Any", tools))

    def __repr__(self) -> str:
        return f"<ModuleServer {self.server_id!r}: {len(self.tools) if self.live is None else 'changing'} tools>"


class ServerSource:
    """One server behind its path. ``listed`` is what it was last listed as, ``failure`` why it is not now.

    Used from several threads and event loops. Whoever needs a listing that is under way waits for that one.
    """

    def __init__(self, server: Any, server_id: str, path: str) -> None:
        self.server_id = server_id
        self.path = path
        self._server = server
        self._live: Any = server.live if isinstance(server, ModuleServer) else server
        self._lock = forkable_lock()
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
            begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: the loop that lists is not in it, and nobody is to wait for it."""
        leave_to_the_parent(self._current_listing, self._tasks)
        self._current_listing, self._tasks = None, set()

    @property
    def is_unchanged(self) -> bool:
        """True when its tools are known and have not changed since."""
        if self.is_static:
            return True
        try:
            return self.listed is not None and self.failure is None and bool(self._live.revision == self._revision)
        except Exception:  # noqa: BLE001 - it is host code
            return False

    @property
    def is_current(self) -> bool:
        """True when its tools have not changed, nor more is known of them."""
        if self.is_static:
            return True
        try:
            return self.is_unchanged and bool(getattr(self._live, "learned", None) == self._learned)
        except Exception:  # noqa: BLE001 - it is host code
            return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What programs that import it are told of its tools."""
        return self._read_notes("notes", MAX_NOTES)

    @property
    def home(self) -> str | None:
        """What tells it from a server of the same name elsewhere, if it says so. May hold secrets."""
        value = getattr(self._live, "home", None)
        return value if isinstance(value, str) else None

    @property
    def is_hung(self) -> bool:
        """True for a while after it took long to fail: only who names it waits for it again."""
        return self.failure is not None and time.monotonic() < self._hung_until

    async def list(self, *, force: bool = False) -> None:
        """List the tools, or wait for whoever does, unless they are known; ``force`` even then. A failure is kept."""
        while force or not self.is_current:
            with self._lock:
                listing, new_listing = self._current_listing, None
                if listing is None:
                    listing = new_listing = self._current_listing = Future()
            if new_listing is not None:
                task = asyncio.get_running_loop().create_task(self._perform(new_listing))
                self._tasks.add(task)  # which the loop itself would forget
                task.add_done_callback(self._tasks.discard)
            try:
                # It serves others too: it goes on when this caller is cancelled.
                await asyncio.shield(asyncio.wrap_future(listing))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not listing.cancelled() or (task is not None and task.cancelling()):
                    raise
                # The loop that listed has ended: list here.
            else:
                return

    async def _perform(self, done: Future[None]) -> None:
        started_at = time.monotonic()
        try:
            revision, learned, listed = await asyncio.wait_for(self._request_tools(), self._timeout_seconds())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or is_ended_from_outside(asyncio.current_task()):
                self._clear_current_listing()
                done.cancel()
                raise
            # A client of a server may well raise a cancellation of its own, or a group with one in it.
            self._log_failure(error)
            if time.monotonic() - started_at > LISTING_SECONDS / 2:
                self._hung_until = time.monotonic() + HUNG_SECONDS
            self.failure = self._read_reported_failure() or self._explain_failure(error)
        else:
            self._revision, self._learned, self.listed, self.failure = revision, learned, listed, None
        self._clear_current_listing()
        with suppress(InvalidStateError):  # nobody waits any more
            done.set_result(None)

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, CodeModeError):  # which was raised to say it, and says it all
            _log.error(
                "the tools of server %r cannot be listed: %s", self.server_id, one_line(error.message, _MAX_LINE)
            )
        else:
            log_failure(_log, "the tools of server %r cannot be listed", (self.server_id,), error)

    def _clear_current_listing(self) -> None:
        with self._lock:
            self._current_listing = None

    def _timeout_seconds(self) -> float:
        """Return how long a server may take to be listed."""
        try:
            value = getattr(self._live, "listing_seconds", None)
        except Exception:  # noqa: BLE001 - it is host code
            value = None
        return value if isinstance(value, int | float) and value > 0 else LISTING_SECONDS

    def _explain_failure(self, error: BaseException) -> str:
        """Return what programs are told of a server that has raised this: no text that was not meant for them."""
        if isinstance(error, CodeModeAuthenticationError):
            return _SIGN_IN
        if isinstance(error, CodeModeToolError):
            return plain_text(error.message, _MAX_FAILURE_CHARACTERS) or _UNREACHABLE
        if isinstance(error, TimeoutError):
            return f"it did not list its tools within {self._timeout_seconds():g} seconds"
        return _UNREACHABLE

    def _read_reported_failure(self) -> str | None:
        """Return why a server says that it cannot be used, if it says so."""
        try:
            return plain_text(getattr(self._live, "failure", None), _MAX_FAILURE_CHARACTERS)
        except Exception:  # noqa: BLE001 - it is host code
            return None

    async def _request_tools(self) -> tuple[Any, Any, ListedServer]:
        # Before the tools: what changes meanwhile is listed again.
        revision, learned = self._live.revision, getattr(self._live, "learned", None)
        try:
            with foreign_patterns():  # what is made in there says of its schemas what somebody else has written
                tools = self._live.tools()
                listed_tools = await tools if inspect.isawaitable(tools) else tools
        except SystemExit as error:  # which would end the loop
            raise RuntimeError("the server raised SystemExit") from error
        return revision, learned, await check_alone(partial(self._build_listing, listed_tools))

    def _build_listing(self, tools: Any) -> ListedServer:
        server, left_out = self._server, LeftOut()
        capabilities = getattr(server, "capabilities", None) or getattr(self._live, "capabilities", None)
        module_tools_of_server = create_module_tools(
            self.path, tools if self.is_static else self._collect_tools(tools, left_out), left_out
        )
        log_left_out(_log, self.server_id, left_out.notes)
        return ListedServer(
            path=self.path,
            server_id=self.server_id,
            name=self._read_text("name") or self.server_id,
            version=self._read_text("version"),
            description=self._read_text("description", MAX_DESCRIPTION_CHARACTERS),
            capabilities=plain_texts(capabilities) if is_sequence(capabilities) else (),
            tools=module_tools_of_server,
            left_out=(*self._read_notes("left_out", MAX_LEFT_OUT), *left_out.notes)[:MAX_LEFT_OUT],
        )

    def _collect_tools(self, tools: Any, left_out: LeftOut) -> Mapping[str, Tool]:
        with foreign_patterns():
            return collect_server_tools(_limit_tools(tools), left_out)

    def _read_notes(self, attribute: str, max_texts: int) -> tuple[str, ...]:
        """Return the texts that a server says in a list, at most so many."""
        try:
            value = getattr(self._live, attribute, None)
        except Exception:  # noqa: BLE001 - it is host code
            return ()
        if not value or not is_sequence(value):
            return ()
        texts = (plain_text(text, MAX_NOTE_CHARACTERS) for text in value[:max_texts])
        return tuple(text for text in texts if text)

    def _read_text(self, name: str, max_characters: int = MAX_NAME_CHARACTERS) -> str | None:
        """Return what a server says of itself, which it may know only once it is connected."""
        server_text = plain_text(getattr(self._server, name, None), max_characters)
        return plain_text(getattr(self._live, name, None), max_characters) if server_text is None else server_text


def _limit_tools(tools: Any) -> Any:
    """Return tools of which there are no more than anybody reads; what never ends is no listing."""
    if is_mapping(tools) or not is_listing(tools):
        if is_mapping(tools) and len(tools) > MAX_TOOLS:
            raise ValueError(f"the server has {len(tools)} tools; at most {MAX_TOOLS} are allowed")
        return tools
    limited: list[Any] = []
    for tool in tools:
        if len(limited) == MAX_TOOLS:
            raise ValueError(f"the server has more than {MAX_TOOLS} tools")
        limited.append(tool)
    return limited


def create_sources(servers: Iterable[Any]) -> tuple[ServerSource, ...]:
    """Return the servers behind their paths, in their order. Raises `ValueError` for what is no server."""
    if not is_listing(servers) or is_mapping(servers):
        raise WrongTypeError("servers must be a list of ModuleServers")
    server_list: list[Any] = list(servers)
    ids = [_check_server(server) for server in server_list]
    return tuple(ServerSource(*server) for server in zip(server_list, ids, assign_module_paths(ids), strict=True))


def _check_server(server: Any) -> str:
    if isinstance(server, ModuleServer):
        return server.server_id
    if not _has_live_tools(server):
        raise WrongTypeError(
            f"{type(server).__module__}.{type(server).__qualname__} is no server: a ModuleServer is, or an object with"
            " server_id, an async method tools() and revision"
        )
    return _check_server_id(getattr(server, "server_id", None))


def _has_live_tools(value: Any) -> bool:
    try:
        return callable(getattr(value, "tools", None)) and hasattr(value, "revision")
    except Exception:  # noqa: BLE001 - a revision that cannot be told yet
        return True


def _check_server_id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS:
        raise WrongTypeError(
            f"server_id must be a string of 1 to {MAX_ID_CHARACTERS} characters, got {repr(value)[:80]}"
        )
    return str.__str__(value)

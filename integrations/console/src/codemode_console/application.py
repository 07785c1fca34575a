"""The console as one ASGI application on a store: its routes, and serving it by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from codemode import CodeModeError
from codemode.options.checked_fields import WrongTypeError
from codemode.stores import ALL_TENANTS, InterruptStore, Resumer
from codemode.stores.resumer import continuation_of

from .auth import TokenAuth, User, new_private_path, new_token, token_hash
from .errors import Problem, problem_of
from .guarded import Guarded
from .notices import Sender, SlackWebhook, Webhook, require_targets
from .pages import audit, bulk, deciding, listing, live, record, saved
from .pages.desk import Desk, Inspect, health_routes
from .rendering import problem_page
from .sessions import Clock, Secret
from .visits import LaterAnswers, Policy
from .web import Server, listen, read_address, url_of

_log = logging.getLogger("codemode.console")
_PAGES = (
    listing.routes,
    bulk.routes,
    record.routes,
    deciding.routes,
    deciding.ending_routes,
    audit.history_routes,
    audit.routes,
    live.routes,
    saved.routes,
    health_routes,
)


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the routes of a console."""
    static = Mount("/static", StaticFiles(packages=[("codemode_console", "static")]))
    return [*(route for routes_of in _PAGES for route in routes_of(desk)), static]


def told() -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    """Return what is answered when something cannot be done, by the class of the error."""
    return {Problem: _problem, CodeModeError: _store_error, HTTPException: _http_error}


async def _problem(request: Request, problem: Problem) -> Response:
    return problem_page(request, problem)


async def _store_error(request: Request, error: CodeModeError) -> Response:
    problem = problem_of(error)
    if problem is None:
        _log.error("a request failed", exc_info=error)
        problem = Problem(500, "Something went wrong", "It is in the log of the console.")
    return problem_page(request, problem)


async def _http_error(request: Request, error: HTTPException) -> Response:
    return problem_page(request, Problem(error.status_code, error.detail, headers=error.headers))


_SWEEP_SECONDS = 10.0
_ASKED_OF_STORES = ("list", "counts", "record", "records", "decide", "audit", "note", "sweep", "changes_head")
_NOT_RUNNING = (
    "the console is asked, and does not run: no decided program goes on here and no notice is sent until it does. Enter"
    " `async with console.running():` in the lifespan of the application that it is mounted in"
)
Resume: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleOptions:
    """What else a console may be told.

    ``secret``, at least 16 bytes or several of them, signs cookies and forms: the same for all consoles before one
    database; else one of this process. ``policy`` may refuse a decision. ``embed_in`` are origins of the same site
    whose pages may frame it. ``trusted_proxies`` may tell for whom they speak. ``hosts`` are names by which it is
    called beside that of ``base_url``: it answers then to no other, only to addresses. ``inspect`` reads what a
    record waits in, as `inspect_interrupt` does, where its keys are not those of ``resume``. ``later`` keeps approvals
    that hold for later calls too, `LaterAnswers`: without it each is for its call. ``private_path``, a "~" and random
    letters and digits, is where browsers use it: their cookie is for the pages below that path alone, and not for other
    ports of the host. ``clock`` is Unix time.
    """

    secret: Secret | None = None
    policy: Policy | None = None
    embed_in: Sequence[str] = ()
    trusted_proxies: Sequence[str] = ()
    hosts: Sequence[str] = ()
    inspect: Inspect | None = None
    later: LaterAnswers | None = None
    private_path: str | None = None
    clock: Clock = time.time


class Console:
    """An ASGI application, to be run by itself or mounted under any prefix. See `approval_console`."""

    def __init__(
        self, app: Guarded, store: InterruptStore, resumers: Sequence[tuple[str | None, Resume]], sender: Sender
    ) -> None:
        self._app, self._store, self._resumers, self._sender = app, store, resumers, sender
        self._needs_running = bool(resumers) or sender.has_targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._needs_running and scope["type"] == "http":
            self._needs_running = False
            _log.warning(_NOT_RUNNING)
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While the block runs: mark what expires, send notices, let decided programs go on if `resume` was given."""
        self._needs_running = False
        async with AsyncExitStack() as stack:
            for app, resume in self._resumers:
                await stack.enter_async_context(Resumer(self._store, tenant=ALL_TENANTS, app=app, resume=resume))
            for work in (self._sweep(), self._sender.run()):
                stack.push_async_callback(_ended, asyncio.get_running_loop().create_task(work))
            yield

    async def _sweep(self) -> None:
        is_away = False
        while True:
            try:
                await self._store.sweep()
            except CodeModeError as error:
                if not is_away:
                    _log.warning("what has expired is not marked until the store can be used: %s", error)
                is_away = True
            else:
                is_away = False
            await asyncio.sleep(_SWEEP_SECONDS)


def approval_console(
    store: InterruptStore,
    *,
    auth: Any,
    resume: Mapping[str, Resume] | Resume | None = None,
    notify: Iterable[Webhook | SlackWebhook] = (),
    options: ConsoleOptions | Mapping[str, Any] | None = None,
    base_url: str | None = None,
) -> Console:
    """Return a console over a store.

    ``auth`` is `TokenAuth`, `ProxyHeaderAuth` or an async function of the request that returns a `User` or None.
    ``resume`` are functions as `CodeModeTool.resume` by the names of apps, or one for all apps; without it the console
    only records decisions. ``notify`` are told of each pause that waits, while `Console.running` does. ``base_url`` is
    where the console is for browsers, with its prefix; links of notices need it. Raises `ValueError`.
    """
    _require_store(store)
    chosen = read_options(options)
    resumers = _resumers(store, resume)
    targets = require_targets(notify, base_url)
    options_of = {app: {"continuation": one} for app, one in map(_continuation, resumers) if one is not None}
    apps = frozenset(app for app, _ in resumers)
    desk = Desk(store, chosen.policy, apps, options_of, chosen.inspect, chosen.later)
    inner = Starlette(routes=routes(desk), exception_handlers=cast("Any", told()))
    inner.router.redirect_slashes = (
        False  # what it would redirect to names scheme and host as a proxy's neighbour sees them
    )
    guarded = Guarded(
        inner,
        auth=auth,
        store=store,
        secret=chosen.secret,
        embed_in=chosen.embed_in,
        base_url=base_url,
        trusted_proxies=chosen.trusted_proxies,
        hosts=chosen.hosts,
        private_path=chosen.private_path,
        clock=chosen.clock,
    )
    return Console(guarded, store, resumers, Sender(store, targets, base_url or "", clock=chosen.clock))


def _require_store(store: Any) -> None:
    """Raise `ValueError` for what is no store, such as the path of one, or its class."""
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in _ASKED_OF_STORES):
        raise WrongTypeError(
            f"store must be an InterruptStore, as SqliteInterruptStore(path) makes one, got {store!r:.100}"
        )


def _resumers(store: InterruptStore, resume: Any) -> list[tuple[str | None, Resume]]:
    if resume is None:
        return []
    found: list[tuple[str | None, Resume]]
    if callable(resume):
        found = [(None, cast("Resume", resume))]
    elif isinstance(resume, Mapping):
        found = list(cast("Mapping[str | None, Resume]", resume).items())
    else:
        raise WrongTypeError(f"resume must be a function, or functions by the names of apps, got {resume!r:.100}")
    for app, one in found:
        Resumer(store, tenant=ALL_TENANTS, app=app, resume=one)  # refuses what it could not use
    return found


def _continuation(resumer: tuple[str | None, Resume]) -> tuple[str | None, Any]:
    """Return an app and the options that have its keys, where its `resume` is a method of a tool."""
    app, resume = resumer
    return app, continuation_of(getattr(resume, "__self__", None))


def read_options(options: Any) -> ConsoleOptions:
    """Return options, given as such or as a mapping. Raises `ValueError`."""
    if options is None or isinstance(options, ConsoleOptions):
        return options or ConsoleOptions()
    known = [one.name for one in fields(ConsoleOptions)]
    if not isinstance(options, Mapping) or not set(cast("Mapping[str, Any]", options)) <= set(known):
        raise WrongTypeError(f"options must be ConsoleOptions, or a mapping of {', '.join(known)}")
    return ConsoleOptions(**cast("Mapping[str, Any]", options))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


_SECONDS_TO_END = 5
_HEADER_SECONDS = 15.0


def serve(
    store: InterruptStore,
    *,
    auth: Any = None,
    resume: Mapping[str, Resume] | Resume | None = None,
    notify: Iterable[Webhook | SlackWebhook] = (),
    options: ConsoleOptions | Mapping[str, Any] | None = None,
    base_url: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8822,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a console until the process is told to end (SIGINT, SIGTERM). What runs then comes to its end.

    Without ``auth`` one token is made for one user, who sees all tenants, and ``say`` is given the URL that holds it,
    once; ``host`` must then be an address of this machine alone. Port 0 takes a free one. Raises `ValueError` for what
    cannot be meant, `OSError` for an address that cannot be had.
    """
    address = "127.0.0.1" if host == "localhost" else host
    token = None
    if auth is None:
        require_loopback(address)
        token = new_token()
        auth = TokenAuth({token_hash(token): User("operator", ALL_TENANTS)})
        # No name but this one leads here, unless somebody turned theirs to this machine.
        chosen = read_options(options)
        private_path = chosen.private_path or new_private_path()
        options = replace(chosen, hosts=[*chosen.hosts, "localhost"], private_path=private_path)
    console = approval_console(store, auth=auth, resume=resume, notify=notify, options=options, base_url=base_url)
    listening = listen(host, port)
    where = f"{url_of(listening)}/"
    first = f"Sign in at {where}" if token is None else f"Sign in at {where}sign-in#token={token}"
    with listening:
        asyncio.run(_serve(store, console, listening, lambda: say(first)))


def require_loopback(host: str) -> None:
    """Raise `ValueError` for an address that others can reach: one token printed on a terminal is for that machine."""
    address = read_address(host)
    if address is None or not address.is_loopback:
        raise ValueError(f"without a file of tokens the console is for this machine alone, not for {host!r}")


async def _serve(store: InterruptStore, console: Console, listening: socket.socket, ready: Callable[[], None]) -> None:
    server = Server(console, header_seconds=_HEADER_SECONDS, stop_seconds=_SECONDS_TO_END, log_level="warning")
    async with contextlib.aclosing(store), console.running():
        await store.list(tenant=ALL_TENANTS, limit=1)  # a database that cannot be used is told of at once
        ready()
        await server.serve(sockets=[listening])

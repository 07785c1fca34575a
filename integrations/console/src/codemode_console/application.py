"""The console as an ASGI application: routes, options and a server."""

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
from codemode.stores.resumer import get_continuation_options

from .access_middleware import AccessMiddleware
from .auth import TokenAuth, User, new_private_path, new_token, token_hash
from .errors import Problem, to_problem
from .notices import NoticeSender, SlackWebhook, Webhook, validate_notice_targets
from .pages import audit, bulk, call_list, decision, event_stream, record, saved
from .pages.console_context import ConsoleContext, InspectPause, create_health_routes
from .principals import Policy, StandingApprovals
from .rendering import problem_response
from .sessions import Clock, Secret
from .web import WebServer, get_socket_url, open_server_socket, parse_address

_log = logging.getLogger("codemode.console")
_ROUTE_FACTORIES = (
    call_list.routes,
    bulk.routes,
    record.routes,
    decision.routes,
    decision.create_record_action_routes,
    audit.create_decision_history_routes,
    audit.routes,
    event_stream.routes,
    saved.routes,
    create_health_routes,
)


def create_all_routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of a console."""
    static_files = Mount("/static", StaticFiles(packages=[("codemode_console", "static")]))
    return [*(route for create_routes in _ROUTE_FACTORIES for route in create_routes(context)), static_files]


def create_exception_handlers() -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    """Return the handlers that turn errors into responses."""
    return {Problem: _handle_problem, CodeModeError: _handle_code_mode_error, HTTPException: _handle_http_error}


async def _handle_problem(request: Request, problem: Problem) -> Response:
    return problem_response(request, problem)


async def _handle_code_mode_error(request: Request, error: CodeModeError) -> Response:
    problem = to_problem(error)
    if problem is None:
        _log.error("a request failed", exc_info=error)
        problem = Problem(500, "Something went wrong", "See the log of the console.")
    return problem_response(request, problem)


async def _handle_http_error(request: Request, error: HTTPException) -> Response:
    return problem_response(request, Problem(error.status_code, error.detail, headers=error.headers))


_SWEEP_SECONDS = 10.0
_REQUIRED_STORE_METHODS = (
    "list",
    "count_waiting_requests",
    "record",
    "records",
    "decide",
    "audit",
    "add_audit_line",
    "sweep",
    "changes_head",
)
_NOT_RUNNING_WARNING = (
    "the console answers requests but is not running: it resumes no programs and sends no notices. Enter `async with"
    " console.running():` in the lifespan of the application that mounts it"
)
ResumeFunction: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleOptions:
    """Optional settings of a console.

    Args:
        secret: One or several keys of at least 16 bytes that sign cookies and forms; the last one signs. All consoles
            on one database need the same. Default: a random key of this process.
        policy: Called before each decision; may refuse it. See `find_decision_refusal`.
        embed_in: Origins of the same site whose pages may frame the console.
        trusted_proxies: Addresses and networks whose forwarding headers are believed.
        hosts: Host names of the console besides that of ``base_url``. With them, requests for other names are refused;
            addresses are always accepted.
        inspect: Reads the pause of a record, as `inspect_interrupt` does, where the keys of ``resume`` do not.
        standing_approvals: Stores approvals that hold for later calls too. Without it, an approval holds for its call.
        private_path: "~" and random letters and digits. Browsers use the console below this path, and their cookie is
            limited to it, so that servers on other ports of the host do not receive it.
        clock: Returns Unix time in seconds.
    """

    secret: Secret | None = None
    policy: Policy | None = None
    embed_in: Sequence[str] = ()
    trusted_proxies: Sequence[str] = ()
    hosts: Sequence[str] = ()
    inspect: InspectPause | None = None
    standing_approvals: StandingApprovals | None = None
    private_path: str | None = None
    clock: Clock = time.time


class Console:
    """An ASGI application that runs by itself or mounted under a prefix. See `approval_console`."""

    def __init__(
        self,
        app: AccessMiddleware,
        store: InterruptStore,
        resumers: Sequence[tuple[str | None, ResumeFunction]],
        sender: NoticeSender,
    ) -> None:
        self._app, self._store, self._resumers, self._sender = app, store, resumers, sender
        self._warns_when_not_running = bool(resumers) or sender.has_targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._warns_when_not_running and scope["type"] == "http":
            self._warns_when_not_running = False
            _log.warning(_NOT_RUNNING_WARNING)
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While the block runs, mark expired records, send notices and resume decided programs."""
        self._warns_when_not_running = False
        async with AsyncExitStack() as stack:
            for app, resume in self._resumers:
                await stack.enter_async_context(Resumer(self._store, tenant=ALL_TENANTS, app=app, resume=resume))
            for background_task in (self._sweep_expired_records_repeatedly(), self._sender.deliver_until_cancelled()):
                stack.push_async_callback(_cancel_and_wait, asyncio.get_running_loop().create_task(background_task))
            yield

    async def _sweep_expired_records_repeatedly(self) -> None:
        is_unavailable = False
        while True:
            try:
                await self._store.sweep()
            except CodeModeError as error:
                if not is_unavailable:
                    _log.warning("expired records are not marked until the store can be used: %s", error)
                is_unavailable = True
            else:
                is_unavailable = False
            await asyncio.sleep(_SWEEP_SECONDS)


def approval_console(
    store: InterruptStore,
    *,
    auth: Any,
    resume: Mapping[str, ResumeFunction] | ResumeFunction | None = None,
    notify: Iterable[Webhook | SlackWebhook] = (),
    options: ConsoleOptions | Mapping[str, Any] | None = None,
    base_url: str | None = None,
) -> Console:
    """Return a console on a store.

    Args:
        store: The store of the paused programs.
        auth: `TokenAuth`, `ProxyHeaderAuth` or an async function of the request that returns a `User` or None.
        resume: `CodeModeTool.resume` by app name, or one function for all apps. Without it the console only records
            decisions.
        notify: Webhooks that are notified of each pause while `Console.running` is entered.
        options: `ConsoleOptions`, or a mapping of its fields.
        base_url: URL of the console for browsers, with its prefix; required by ``notify``.

    Raises `ValueError` for invalid arguments.
    """
    _require_store(store)
    settings = to_console_options(options)
    resumers = _normalize_resume_functions(store, resume)
    targets = validate_notice_targets(notify, base_url)
    app_options = {
        app: {"continuation": continuation}
        for app, continuation in map(_pair_app_with_continuation_options, resumers)
        if continuation is not None
    }
    apps = frozenset(app for app, _ in resumers)
    context = ConsoleContext(store, settings.policy, apps, app_options, settings.inspect, settings.standing_approvals)
    starlette_app = Starlette(
        routes=create_all_routes(context), exception_handlers=cast("Any", create_exception_handlers())
    )
    starlette_app.router.redirect_slashes = False  # redirects would use the scheme and host behind the proxy
    middleware = AccessMiddleware(
        starlette_app,
        auth=auth,
        store=store,
        secret=settings.secret,
        embed_in=settings.embed_in,
        base_url=base_url,
        trusted_proxies=settings.trusted_proxies,
        hosts=settings.hosts,
        private_path=settings.private_path,
        clock=settings.clock,
    )
    return Console(middleware, store, resumers, NoticeSender(store, targets, base_url or "", clock=settings.clock))


def _require_store(store: Any) -> None:
    """Raise `ValueError` unless ``store`` has the methods of an `InterruptStore`."""
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in _REQUIRED_STORE_METHODS):
        raise WrongTypeError(f"store must be an InterruptStore such as SqliteInterruptStore(path), got {store!r:.100}")


def _normalize_resume_functions(store: InterruptStore, resume: Any) -> list[tuple[str | None, ResumeFunction]]:
    if resume is None:
        return []
    resumers: list[tuple[str | None, ResumeFunction]]
    if callable(resume):
        resumers = [(None, cast("ResumeFunction", resume))]
    elif isinstance(resume, Mapping):
        resumers = list(cast("Mapping[str | None, ResumeFunction]", resume).items())
    else:
        raise WrongTypeError(f"resume must be a function, or functions by the names of apps, got {resume!r:.100}")
    for app, resume_app in resumers:
        Resumer(store, tenant=ALL_TENANTS, app=app, resume=resume_app)  # validates the arguments
    return resumers


def _pair_app_with_continuation_options(resumer: tuple[str | None, ResumeFunction]) -> tuple[str | None, Any]:
    """Return an app with the continuation options of the tool whose method resumes it."""
    app, resume = resumer
    return app, get_continuation_options(getattr(resume, "__self__", None))


def to_console_options(options: Any) -> ConsoleOptions:
    """Return options from `ConsoleOptions` or a mapping. Raises `ValueError`."""
    if options is None or isinstance(options, ConsoleOptions):
        return options or ConsoleOptions()
    names = [field.name for field in fields(ConsoleOptions)]
    if not isinstance(options, Mapping) or not set(cast("Mapping[str, Any]", options)) <= set(names):
        raise WrongTypeError(f"options must be ConsoleOptions, or a mapping of {', '.join(names)}")
    return ConsoleOptions(**cast("Mapping[str, Any]", options))


async def _cancel_and_wait(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


_STOP_SECONDS = 5
_HEADER_TIMEOUT_SECONDS = 15.0


def serve(
    store: InterruptStore,
    *,
    auth: Any = None,
    resume: Mapping[str, ResumeFunction] | ResumeFunction | None = None,
    notify: Iterable[Webhook | SlackWebhook] = (),
    options: ConsoleOptions | Mapping[str, Any] | None = None,
    base_url: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8822,
    echo: Callable[[str], None] = print,
) -> None:
    """Serve a console until SIGINT or SIGTERM, and finish running requests.

    Arguments as for `approval_console`, except: without ``auth``, one token is created for one user who sees all
    tenants, and ``host`` must be a loopback address. Port 0 takes a free port. ``echo`` receives the URL to sign in at,
    with the token if there is one. Raises `ValueError` for invalid arguments, `OSError` for an address that is not
    available.
    """
    address = "127.0.0.1" if host == "localhost" else host
    token = None
    if auth is None:
        require_loopback(address)
        token = new_token()
        auth = TokenAuth({token_hash(token): User("operator", ALL_TENANTS)})
        # Other host names reach this machine only through DNS rebinding.
        settings = to_console_options(options)
        private_path = settings.private_path or new_private_path()
        options = replace(settings, hosts=[*settings.hosts, "localhost"], private_path=private_path)
    console = approval_console(store, auth=auth, resume=resume, notify=notify, options=options, base_url=base_url)
    server_socket = open_server_socket(host, port)
    url = f"{get_socket_url(server_socket)}/"
    sign_in_message = f"Sign in at {url}" if token is None else f"Sign in at {url}sign-in#token={token}"
    with server_socket:
        asyncio.run(_serve_on_socket_and_close_store(store, console, server_socket, lambda: echo(sign_in_message)))


def require_loopback(host: str) -> None:
    """Raise `ValueError` unless ``host`` is a loopback address; a printed token is for this machine only."""
    address = parse_address(host)
    if address is None or not address.is_loopback:
        raise ValueError(f"without a tokens file the console is for this machine only, not for {host!r}")


async def _serve_on_socket_and_close_store(
    store: InterruptStore, console: Console, server_socket: socket.socket, on_ready: Callable[[], None]
) -> None:
    server = WebServer(console, header_seconds=_HEADER_TIMEOUT_SECONDS, stop_seconds=_STOP_SECONDS, log_level="warning")
    async with contextlib.aclosing(store), console.running():
        await store.list(tenant=ALL_TENANTS, limit=1)  # fails early without a usable database
        on_ready()
        await server.serve(sockets=[server_socket])

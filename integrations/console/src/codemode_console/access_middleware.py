"""Authenticate requests, check their origin and add security headers."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codemode import CodeModeError
from codemode.host.http_timeouts import create_receive_with_body_timeout
from codemode.stores import InterruptStore

from .auth import Auth, ProxyHeaderAuth, TokenAuth, call_auth_function, validate_auth
from .errors import Problem, to_problem
from .principals import PRINCIPAL_SCOPE_KEY, SEQUENCE_SCOPE_KEY, Principal, audit_refusal_within_quota
from .rendering import problem_response, wants_json
from .sessions import (
    COOKIE_NAME,
    ROOTS_KEY,
    SAFE_METHODS,
    Clock,
    FormTokens,
    Secret,
    Sessions,
    find_cross_origin_reason,
    parse_or_create_signing_keys,
    set_cookie,
)
from .sign_in import MAX_NEXT_CHARACTERS, FailureThrottle, SignInHandler
from .sign_in import PATH as SIGN_IN
from .web import (
    Address,
    AllowedHosts,
    TrustedProxies,
    create_security_headers,
    extract_origin,
    format_address,
    get_route_path,
    get_throttling_key,
    resolve_client_address,
)

_log = logging.getLogger("codemode.console")
SIGN_OUT_PATH = "/sign-out"
BODY_TIMEOUT_SECONDS = 30.0
_STATIC_PREFIX = "/static/"
_HEALTH_PATH = "/healthz"


class AccessMiddleware:
    """ASGI middleware that lets in known users and sets ``scope["user"]``.

    Args:
        app: The console's application.
        auth: `TokenAuth`, `ProxyHeaderAuth` or an async function of the request that returns a `User` or None.
        store: Receives audit lines; also stores sign-outs.
        secret: Signs cookies and forms; the same for all consoles on one database. Default: random.
        embed_in: Origins of the same site whose pages may frame the console.
        base_url: URL of the console for browsers.
        trusted_proxies: Addresses and networks whose forwarding headers are believed.
        hosts: Accepted host names besides that of ``base_url``; without them all are accepted.
        private_path: Random path below which browsers use the console. Cookies do not distinguish ports, so their
            cookie is limited to this path and no server on another port receives it.
        clock: Returns Unix time in seconds.

    Raises `ValueError`, also without ``auth``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: Any,
        store: InterruptStore,
        secret: Secret | None = None,
        embed_in: Iterable[str] = (),
        base_url: str | None = None,
        trusted_proxies: Iterable[str] = (),
        hosts: Iterable[str] = (),
        private_path: str | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._app, self._store = app, store
        self._private_path = None if private_path is None else f"/{_validate_private_path(private_path)}"
        self._auth: Auth = validate_auth(auth)
        keys = parse_or_create_signing_keys(secret)
        session_store = store if isinstance(self._auth, TokenAuth) else None
        self._sessions, self._form_tokens = Sessions(keys, clock, session_store), FormTokens(keys, clock)
        self._headers = create_security_headers(embed_in)
        self._base_origin = None if base_url is None else _parse_base_origin(base_url)
        self._hosts = AllowedHosts(hosts, self._base_origin)
        self._clock, self._origin_throttle, self._user_throttle = clock, FailureThrottle(), FailureThrottle()
        self._trusted_proxies = TrustedProxies(trusted_proxies)
        if isinstance(self._auth, ProxyHeaderAuth):
            self._trusted_proxies = self._auth.trusted_proxies
        self._sign_in: SignInHandler | None = None
        if isinstance(self._auth, TokenAuth):
            self._sign_in = SignInHandler(self._auth, self._sessions, store, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request or pass it to the application."""
        if scope["type"] == "http":
            await self._authorize_and_forward(scope, receive, _wrap_send_with_headers(send, self._headers))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _authorize_and_forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = self._add_root_paths(scope)
        receive = create_receive_with_body_timeout(receive, BODY_TIMEOUT_SECONDS, _body_timeout_problem)
        request = Request(scope, receive)
        try:
            response, cookie = await self._authorize_or_respond(request)
        except Problem as problem:
            response, cookie = problem_response(request, problem), None
        except ClientDisconnect:
            return  # the client disconnected
        except CodeModeError as error:
            response, cookie = problem_response(request, to_problem(error) or _log_and_convert_to_problem(error)), None
        except Exception as error:  # noqa: BLE001 - a failing host function denies access
            response, cookie = problem_response(request, _log_and_convert_to_problem(error)), None
        if cookie is not None:
            send = _wrap_send_with_cookie(send, self._format_set_cookie_header(request, cookie))
        await (self._app if response is None else response)(scope, receive, send)

    def _add_root_paths(self, scope: Scope) -> Scope:
        """Return a copy of the scope with the public and the private root path."""
        public = str(scope.get("root_path", ""))
        if self._private_path is None:
            return {**scope}
        private = public + self._private_path
        is_private = str(scope["path"]).startswith(f"{private}/")
        return {**scope, "root_path": private if is_private else public, ROOTS_KEY: (public, private)}

    async def _authorize_or_respond(self, request: Request) -> tuple[Response | None, str | None]:
        """Return the response, None to pass the request on, and the session cookie to set."""
        path, scope = get_route_path(request.scope), request.scope
        if not self._hosts.accepts(request.headers.getlist("host")):
            raise Problem(421, "The console has another host name", "It does not accept requests for this host name.")
        if request.method in SAFE_METHODS and (path == _HEALTH_PATH or path.startswith(_STATIC_PREFIX)):
            return None, None
        client = resolve_client_address(request, self._trusted_proxies)
        principal, cookie = await self._authenticate_and_start_session(request, client)
        # A user set by an outer application is not trusted; only `auth` decides.
        scope["user"], scope[PRINCIPAL_SCOPE_KEY] = None, principal
        await self._refuse_cross_origin_and_audit(request, principal, client)
        if self._sign_in is not None and path == SIGN_IN:
            return await self._sign_in(request, client, is_secure=self._is_secure(request)), None
        if principal is None:
            return self._create_sign_in_redirect_or_raise(request, path), None
        scope["user"] = principal.user
        if not wants_json(request):
            # Read before the page's data, so that the event stream misses no change.
            scope[SEQUENCE_SCOPE_KEY] = await self._store.changes_head()
        if self._sign_in is not None and path == SIGN_OUT_PATH and request.method == "POST":
            return await self._sign_in.sign_out(request, principal, is_secure=self._is_secure(request)), None
        return None, cookie

    async def _authenticate_and_start_session(
        self, request: Request, client: Address | None
    ) -> tuple[Principal | None, str | None]:
        """Return the principal, and the cookie to set if the request had no session."""
        session, cookie = await self._sessions.load(request.cookies.get(COOKIE_NAME)), None
        if isinstance(self._auth, TokenAuth):
            user = None if session is None else self._auth.find_by_session_key(session.key)
        else:
            user = await call_auth_function(self._auth, request)
            key = "" if user is None else f"user:{user.name}"
            if user is not None and (session is None or session.key != key):
                session, cookie = self._sessions.start(key)
        if user is None or session is None:
            return None, None
        reauthenticate = partial(self._reauthenticate, request, client)
        consume_audit_quota = partial(self._consume_audit_quota, f"{user.name}\0{get_throttling_key(client)}")
        address, signs_in = format_address(client), self._sign_in is not None
        return Principal(
            user, session, address, self._form_tokens, signs_in, reauthenticate, consume_audit_quota
        ), cookie

    def _consume_audit_quota(self, key: str) -> bool:
        now = self._clock()
        if self._user_throttle.compute_wait_seconds(key, now):
            return False
        self._user_throttle.count_failure(key, now)
        return True

    async def _reauthenticate(self, request: Request, client: Address | None) -> Principal | None:
        try:
            return (await self._authenticate_and_start_session(request, client))[0]
        except CodeModeError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            _log_and_convert_to_problem(error)
            return None

    async def _refuse_cross_origin_and_audit(
        self, request: Request, principal: Principal | None, client: Address | None
    ) -> None:
        reason = find_cross_origin_reason(request, self._base_origin)
        if reason is None:
            return
        _log.warning("a %s from %s was refused: %s", request.method, client, reason)
        # Other sites can make a visitor send any number of these.
        network, now = get_throttling_key(client), self._clock()
        if principal is not None and not self._origin_throttle.compute_wait_seconds(network, now):
            self._origin_throttle.count_failure(network, now)
            await audit_refusal_within_quota(self._store, principal, request, reason)
        raise Problem(403, "This was not sent from a page of the console", f"It was refused: {reason}.")

    def _create_sign_in_redirect_or_raise(self, request: Request, path: str) -> Response:
        is_page = request.method in ("GET", "HEAD") and not wants_json(request)
        if self._sign_in is None or not is_page or request.headers.get("accept") == "text/event-stream":
            raise self._sign_in_problem(request)
        root = str(request.scope.get("root_path", ""))
        query = request.scope["query_string"].decode("latin-1")
        target = quote(f"{root}{path or '/'}") + (f"?{query}" if query else "")
        next_query = f"?{urlencode({'next': target})}" if len(target) <= MAX_NEXT_CHARACTERS else ""
        return RedirectResponse(f"{root}{SIGN_IN}{next_query}", 303)

    def _sign_in_problem(self, request: Request) -> Problem:
        if self._sign_in is not None:
            return Problem(401, "You are not signed in", "Sign in and send it again.")
        if not isinstance(self._auth, ProxyHeaderAuth):
            return Problem(401, "You are not signed in", "The console could not authenticate you.")
        if self._auth.has_user_name(request):
            message = "The proxy signed you in, but you are not a user of this console."
            return Problem(401, "You are not a user of this console", message)
        return Problem(401, "You are not signed in", "No trusted proxy sent your name.")

    def _is_secure(self, request: Request) -> bool:
        return request.url.scheme == "https" or (self._base_origin or "").startswith("https:")

    def _format_set_cookie_header(self, request: Request, text: str) -> str:
        response = Response()
        set_cookie(response, request, text, is_secure=self._is_secure(request))
        return response.headers["set-cookie"]


def _validate_private_path(path: str) -> str:
    if not re.fullmatch(r"~[A-Za-z0-9_-]{16,100}", path):
        raise ValueError("private_path must be a ~ and at least 16 random letters and digits")
    return path


def _wrap_send_with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with_headers


def _wrap_send_with_cookie(send: Send, header: str) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("set-cookie", header)
        await send(message)

    return send_with_cookie


def _body_timeout_problem() -> Problem:
    message = f"The form did not arrive within {BODY_TIMEOUT_SECONDS:g} seconds. Send it again."
    return Problem(408, "The request took too long", message, headers={"Connection": "close"})


def _log_and_convert_to_problem(error: Exception) -> Problem:
    _log.error("a request failed", exc_info=error)
    return Problem(500, "Something went wrong", "See the log of the console.")


def _parse_base_origin(url: str) -> str:
    origin = extract_origin(url)
    if origin is None:
        raise ValueError(f"base_url must be the URL of the console, got {url!r}")
    return origin

"""Sign in with a token, sign out, and throttle failed attempts."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from codemode.stores import ALL_TENANTS, InterruptStore

from .auth import TokenAuth
from .bodies import read_small_form
from .errors import Problem
from .principals import PRINCIPAL_SCOPE_KEY, Principal, get_audit_tenant
from .rendering import render_page, wants_json
from .sessions import COOKIE_NAME, ROOTS_KEY, TOKEN_FIELD, Clock, Sessions, delete_cookie, set_cookie
from .web import Address, format_address, get_throttling_key

MAX_FAILURES = 10
FAILURE_WINDOW_SECONDS = 60.0
_MAX_THROTTLED_KEYS = 10_000


class FailureThrottle:
    """Counts failures by key: after 10 within a minute, the key waits until the first is a minute old.

    It remembers the 10,000 keys that failed last. Times are seconds of any clock.
    """

    def __init__(self, *, max_keys: int = _MAX_THROTTLED_KEYS) -> None:
        self._max_keys = max_keys
        self._failures: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def compute_wait_seconds(self, key: str, now: float) -> int:
        """Return how long a key has to wait; 0 if it may fail now."""
        failures = self._drop_old_and_get_failures(key, now)
        return max(1, math.ceil(failures[0] + FAILURE_WINDOW_SECONDS - now)) if len(failures) >= MAX_FAILURES else 0

    def count_failure(self, key: str, now: float) -> None:
        """Count a failure of a key."""
        failures = self._drop_old_and_get_failures(key, now)
        failures.append(now)
        self._failures.pop(key, None)  # keeps the dict in order of the last failure
        self._failures[key] = failures
        while len(self._failures) > self._max_keys:
            del self._failures[next(iter(self._failures))]

    def _drop_old_and_get_failures(self, key: str, now: float) -> deque[float]:
        failures = self._failures.get(key)
        if failures is None:
            return deque(maxlen=MAX_FAILURES)
        # Future times were counted before the clock was set back.
        while failures and not now - FAILURE_WINDOW_SECONDS < failures[0] <= now:
            failures.popleft()
        if not failures:
            del self._failures[key]
        return failures


PATH = "/sign-in"
MAX_NEXT_CHARACTERS = 2000


class SignInHandler:
    """Signs users in by token, and throttles failures by network."""

    def __init__(self, auth: TokenAuth, sessions: Sessions, store: InterruptStore, clock: Clock) -> None:
        self._auth, self._sessions, self._store, self._clock = auth, sessions, store, clock
        self._throttle = FailureThrottle()

    async def __call__(self, request: Request, client: Address | None, *, is_secure: bool) -> Response:
        """Show the page or sign in. Raises `Problem`."""
        if request.method in ("GET", "HEAD"):
            return self._render_sign_in_page(request, request.query_params.get("next", ""))
        if request.method != "POST":
            raise Problem(405, "Method not allowed", headers={"Allow": "GET, HEAD, POST"})
        fields = await read_small_form(request)
        network, address = get_throttling_key(client), format_address(client)
        authenticated = await self._auth.authenticate(_extract_token(fields.get("token", "")), request)
        if authenticated is None:
            # Random tokens cannot be guessed; the wait only keeps failures from filling the audit. A valid token is
            # accepted during it.
            now = self._clock()
            if wait := self._throttle.compute_wait_seconds(network, now):
                message = f"The token is unknown. Try again in {wait} seconds."
                raise Problem(429, "Too many failed attempts", message, headers={"Retry-After": str(wait)})
            self._throttle.count_failure(network, now)
            await self._store.add_audit_line("sign_in_failed", actor="", tenant=ALL_TENANTS, address=address)
            return self._render_sign_in_page(
                request, fields.get("next", ""), status=401, problem="The token is unknown."
            )
        user, key = authenticated
        await self._store.add_audit_line("signed_in", actor=user.name, tenant=get_audit_tenant(user), address=address)
        _, cookie = self._sessions.start(key)
        await self._end_previous_session(request, address)
        response = _sign_in_response(request, _resolve_next_path(request, fields.get("next", "")))
        set_cookie(response, request, cookie, is_secure=is_secure, root=_get_public_and_caller_root(request)[1])
        return response

    def _render_sign_in_page(self, request: Request, target: str, *, status: int = 200, problem: str = "") -> Response:
        if status != 200 and wants_json(request):
            return JSONResponse({"error": {"status": status, "title": "Signing in failed", "message": problem}}, status)
        principal = request.scope.get(PRINCIPAL_SCOPE_KEY)
        values: dict[str, Any] = {
            "next": sanitize_next_path(target, _get_root_path(request)),
            "problem": problem,
            "user": principal.user.name if isinstance(principal, Principal) else None,
            # The cookie of a private path is not sent here; the page's script looks for that session.
            "public_root": _get_public_and_caller_root(request)[0]
            if _get_root_path(request) != _get_public_and_caller_root(request)[1]
            else None,
            "is_automatic": principal is None and self._can_sign_in_automatically(request),
        }
        return render_page(request, "sign_in.html", status=status, **values)

    def _can_sign_in_automatically(self, request: Request) -> bool:
        """Return whether the page may submit the token of a printed URL by itself.

        A link on another site could otherwise sign its visitor in as another user. ``Sec-Fetch-Site: none`` also occurs
        when a typed address redirects here, so this is limited to consoles with one user.
        """
        return self._auth.has_one_user and request.headers.getlist("sec-fetch-site") == ["none"]

    async def _end_previous_session(self, request: Request, address: str | None) -> None:
        session = await self._sessions.load(request.cookies.get(COOKIE_NAME))
        if session is not None:
            user = self._auth.find_by_session_key(session.key)
            tenant = ALL_TENANTS if user is None else get_audit_tenant(user)
            await self._sessions.end(session, actor="" if user is None else user.name, tenant=tenant, address=address)

    async def sign_out(self, request: Request, principal: Principal, *, is_secure: bool) -> Response:
        """End the session of a valid form. Raises `Problem`."""
        fields = await read_small_form(request)
        principal.require_form_token(fields.get(TOKEN_FIELD), "sign-out")
        user = principal.user
        by: dict[str, Any] = {"actor": user.name, "tenant": get_audit_tenant(user), "address": principal.address}
        await self._sessions.end(principal.session, **by)
        response = RedirectResponse(_get_root_path(request) + PATH, 303)
        delete_cookie(response, request, is_secure=is_secure)
        return response


def _extract_token(text: str) -> str:
    """Return the typed token, also from a pasted sign-in URL."""
    return text.rpartition("#token=")[2].strip()


def sanitize_next_path(text: str, root: str) -> str:
    """Return the path to open after sign-in: ``text`` if it is in this console, else the start page."""
    start = f"{root}/"
    # Browsers treat a backslash as a slash, drop tabs and line ends, and read // as another host.
    is_unambiguous = text.isascii() and text.isprintable() and not set(text) & set(" \\")
    path = text.partition("?")[0].partition("#")[0]
    is_own = text.startswith(start) and "//" not in path and "/." not in path and "%2e" not in path.lower()
    return text if is_unambiguous and is_own and len(text) <= MAX_NEXT_CHARACTERS else start


def _get_public_and_caller_root(request: Request) -> tuple[str, str]:
    """Return the console's public path, and the path its caller uses: the private one for browsers."""
    root = _get_root_path(request)
    public, private = request.scope.get(ROOTS_KEY, (root, root))
    is_browser = "mozilla/" in request.headers.get("user-agent", "").lower() or "sec-fetch-mode" in request.headers
    return public, private if is_browser else root


def _resolve_next_path(request: Request, text: str) -> str:
    public, private = _get_public_and_caller_root(request)
    if text.startswith(f"{private}/"):
        return sanitize_next_path(text, private)
    return private + sanitize_next_path(text, public).removeprefix(public)


def _sign_in_response(request: Request, target: str) -> Response:
    return JSONResponse({"signedIn": True}) if wants_json(request) else RedirectResponse(target, 303)


def _get_root_path(request: Request) -> str:
    return str(request.scope.get("root_path", ""))

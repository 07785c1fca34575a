"""Render the pages of a login and bind its browser with a cookie."""

from __future__ import annotations

import hashlib
import html
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from codemode.trace.visible_text import clip_to_visible_line

from ..page_urls import require_safe_page_host

PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SIGNED_IN = "You are signed in. You can close this page."
DECLINED = "The sign-in was declined. You can close this page."
UNKNOWN = (
    "This sign-in is not in progress; it may have expired. Start it again. If the gateway runs on several hosts, they"
    " must share the state folder, or the redirect must reach the host that started the sign-in."
)
OTHER_BROWSER = (
    "You are not signed in: the sign-in started in another browser, or its cookie is missing. Open its start page in"
    " this browser and try again."
)


def render_page(text: str) -> str:
    """Return an HTML page with one sentence."""
    return f"<!doctype html><title>codemode</title><p>{text}</p>"


START_PATH = "/oauth/start/"
CALLBACK_PATH = "/oauth/callback"
_COOKIE = "codemode_sign_in_"
_HOST_PREFIX = "__Host-"
_COOKIE_SECONDS = 600  # longer than a sign-in stays open
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True)
class PendingSignIn:
    """A sign-in in progress: the authorization URL, its server and principal, and the secret of its browser.

    Without the secret, an attacker could have the URL opened in another person's browser and connect that person's
    account to ``principal``. ``secret`` None: only its own user has seen the URL, so any browser may finish.
    ``until`` is when it ends, in seconds since 1970.
    """

    url: str
    server: str
    principal: str
    secret: str | None
    until: float = 0.0

    @property
    def ticket(self) -> str:
        """The last part of the URL of the start page."""
        return hashlib.sha256(f"start {self.secret}".encode()).hexdigest()

    def matches_ticket(self, ticket: str) -> bool:
        """Return whether this is the sign-in of a start page."""
        return self.secret is not None and secrets.compare_digest(ticket.encode(), self.ticket.encode())

    @property
    def start_url(self) -> str | None:
        """The gateway's page that names the connection and sets the browser's cookie."""
        callback = self._callback_url
        if self.secret is None or not callback.endswith(CALLBACK_PATH):
            return None
        return f"{callback.removesuffix(CALLBACK_PATH)}{START_PATH}{self.ticket}"

    @property
    def state(self) -> str:
        """The state that the redirect must have."""
        return self._get_parameter("state")

    @property
    def _callback_url(self) -> str:
        return self._get_parameter("redirect_uri")

    def _get_parameter(self, name: str) -> str:
        return dict(parse_qsl(urlsplit(self.url).query)).get(name, "")

    @property
    def _is_secure(self) -> bool:
        return urlsplit(self._callback_url).scheme == "https"

    @property
    def _cookie_name(self) -> str:
        digest = hashlib.sha256(self.state.encode()).hexdigest()[:16]
        return f"{_HOST_PREFIX if self._is_secure else ''}{_COOKIE}{digest}"

    def create_cookie_header(self) -> str | None:
        """Return the ``Set-Cookie`` header for the browser that starts this sign-in, or None if it needs no cookie."""
        if self.secret is None:
            return None
        callback = urlsplit(self._callback_url)
        # Browsers let no other host set a cookie with this prefix, and require the path "/" for it.
        path = "/" if self._is_secure else quote(callback.path or "/", safe="/!$&'()*+,:=@~%")
        # Lax: the browser returns through a redirect of the authorization server.
        attributes = f"Path={path}; Max-Age={_COOKIE_SECONDS}; HttpOnly; SameSite=Lax"
        return f"{self._cookie_name}={self.secret}; {attributes}{'; Secure' if self._is_secure else ''}"

    def is_browser_allowed(self, cookies: Mapping[str, str]) -> bool:
        """Return whether the cookies belong to the browser that started this sign-in."""
        cookie = cookies.get(self._cookie_name, "")
        return self.secret is None or secrets.compare_digest(cookie.encode(), self.secret.encode())

    def render_start_page(self) -> str:
        """Return the HTML page that names the connection, with a link to the authorization server."""
        server, user = (
            html.escape(clip_to_visible_line(name, _MAX_NAME_CHARACTERS)) for name in (self.server, self.principal)
        )
        host = html.escape(require_safe_page_host(self.url))
        return (
            f"<!doctype html><title>codemode</title><p>This connects your account at {host} to the server"
            f" {server} for <strong>{user}</strong>. All programs of {user} can then use it."
            " Continue only if you started this yourself."
            f'<p><a href="{html.escape(self.url)}" rel="noreferrer">Continue to {host}</a>'
        )


def open_in_browser(url: str) -> object:
    """Open a page in the user's browser; return false without a browser."""
    import webbrowser

    return webbrowser.open(url)
